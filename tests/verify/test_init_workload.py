"""``init-workload``: a starting point that overwrites nothing, and works once it is filled in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chirp_migrate.cli.init_workload import init_workload
from chirp_migrate.cli.verify import verify_options_from_arguments
from chirp_migrate.engine.settings import read_settings
from chirp_migrate.errors import ChirpMigrateError, UsageProblem, WriteRefused
from chirp_migrate.plans.plan import FilePlan, Plan
from chirp_migrate.training.errors import TaskNotPossible
from chirp_migrate.training.workload.entry_points import WorkloadSizes
from chirp_migrate.training.workload.hook import make_training_call, training_call_names
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.rollback import rollback

TRAINER = "def train(dataset, epochs, batch_size):\n    return len(dataset), epochs, batch_size\n"


def run(*arguments: str) -> str:
    done = CliRunner().invoke(init_workload, arguments)
    if isinstance(done.exception, ChirpMigrateError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(autouse=True)
def code(tmp_path: Path) -> None:
    """Something that could be trained."""
    (tmp_path / "own_trainer.py").write_text(TRAINER)


def test_a_folder_gets_a_file_and_settings_that_name_it(tmp_path: Path) -> None:
    said = run(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chirp_verify.py", "own_trainer.py", "pyproject.toml"]
    assert "chirp_verify.py" in said and f"chirp-migrate verify {tmp_path}" in said
    entry = verify_options_from_arguments(str(tmp_path)).entry
    assert entry is not None and entry.hook == "chirp_verify.py:workload"
    assert read_settings(tmp_path).codes is None, "the settings do not disturb apply"


def test_what_is_written_works_once_it_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "chirp_verify", raising=False)
    sizes = WorkloadSizes(samples=5, shape=(1, 4, 4), epochs=2)
    with pytest.raises(NotImplementedError, match="marked lines"):
        make_training_call("chirp_verify.py:workload", "train", sizes)()

    text = (tmp_path / "chirp_verify.py").read_text()
    lines = [line for line in text.splitlines() if "raise NotImplementedError" not in line]
    filled = "\n".join(lines).replace("# from trainer.training import train", "from own_trainer import train")
    (tmp_path / "chirp_verify.py").write_text(filled.replace("# return train(", "return train("))
    monkeypatch.delitem(sys.modules, "chirp_verify")
    try:
        assert training_call_names("chirp_verify.py:workload", sizes) == ["train"]
        assert make_training_call("chirp_verify.py:workload", "train", sizes)() == (5, 2, 32)
    except TaskNotPossible as problem:
        raise AssertionError(problem) from problem
    finally:
        sys.modules.pop("chirp_verify")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_settings_join_a_pyproject_without_touching_the_rest(tmp_path: Path, newline: bytes, end: bytes) -> None:
    pyproject = tmp_path / "pyproject.toml"
    before = b"[project]" + newline + b'name = "x"  # mine' + (newline if end else b"")
    pyproject.write_bytes(before)
    pyproject.chmod(0o640)
    run(str(tmp_path))
    after = pyproject.read_bytes()
    assert after.startswith(before) and after.count(b"[tool.chirp-migrate.verify]") == 1
    assert (b"\r\n" in after) == (newline == b"\r\n") and after.replace(b"\r\n", b"").count(b"\r") == 0
    assert pyproject.stat().st_mode & 0o777 == 0o640
    assert verify_options_from_arguments(str(tmp_path)).entry is not None


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("chirp_verify.py", b"mine = 1\n", "exists already"),
        ("pyproject.toml", b"[tool.chirp-migrate.verify]\nsamples = 60\n", "has .tool.chirp-migrate.verify. already"),
        ("pyproject.toml", b"[tool\n", "no settings can be added to"),
        ("pyproject.toml", b"tool = {chirp-migrate = {unsafe = true}}\n", "no settings can be added to"),
        ("pyproject.toml", b"name = '\xff'\n", "no settings can be added to"),
    ],
)
def test_nothing_is_overwritten(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageProblem, match=sentence):
        run(str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "own_trainer.py": TRAINER.encode(),
        name: content,
    }


def test_a_folder_without_code_is_not_the_one_that_is_meant(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").write_text("")
    with pytest.raises(UsageProblem, match="empty has no Python file to migrate: pass the folder of your project"):
        run(str(empty))
    assert [path.name for path in empty.iterdir()] == ["notes.txt"]


def test_uncommitted_settings_are_guarded(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(WriteRefused, match="uncommitted changes"):
        run(str(tmp_path))
    assert not (tmp_path / "chirp_verify.py").exists()
    run(str(tmp_path), "--allow-dirty")
    assert (tmp_path / "chirp_verify.py").exists()


def test_rollback_of_an_apply_still_works_afterwards(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_bytes(b"[project]\n")
    root = tmp_path.resolve()
    commit_plan(
        Plan(root, (FilePlan("pyproject.toml", b"[project]\n", b"[project]\nname = 'x'\n", "dependency"),), (), ())
    )
    said = run(str(tmp_path))
    assert "`apply`" in said and b"verify" not in pyproject.read_bytes()
    assert verify_options_from_arguments(str(tmp_path)).entry is not None, "the file is found without settings"

    rollback(root)

    assert pyproject.read_bytes() == b"[project]\n" and (tmp_path / "chirp_verify.py").is_file()
