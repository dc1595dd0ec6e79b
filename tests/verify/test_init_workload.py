"""``init-workload``: a starting point that overwrites nothing, and works once it is filled in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chirp_migrate.cli.init_workload import init_workload
from chirp_migrate.cli.verify import parse_verify_options
from chirp_migrate.errors import ChirpMigrateError, UsageProblem
from chirp_migrate.training.errors import TaskNotPossible
from chirp_migrate.training.workload.entry_points import WorkloadSizes
from chirp_migrate.training.workload.hook import make_training_call, names_of_training_calls

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


def test_a_folder_gets_a_file_that_verify_finds(tmp_path: Path) -> None:
    said = run(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chirp_verify.py", "own_trainer.py"]
    assert "chirp_verify.py" in said and f"chirp-migrate verify {tmp_path}" in said
    entry = parse_verify_options(str(tmp_path)).entry
    assert entry is not None and entry.hook == "chirp_verify.py:workload"


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
        assert names_of_training_calls("chirp_verify.py:workload", sizes) == ["train"]
        assert make_training_call("chirp_verify.py:workload", "train", sizes)() == (5, 2, 32)
    except TaskNotPossible as problem:
        raise AssertionError(problem) from problem
    finally:
        sys.modules.pop("chirp_verify")


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("chirp_verify.py", b"mine = 1\n", "exists already"),
        (
            "pyproject.toml",
            b"[tool.chirp-migrate.verify]\nworkload = 'a:b'\n",
            "defines a training in .tool.chirp-migrate.verify.",
        ),
        ("pyproject.toml", b"[tool.chirp-migrate\n", "is not valid TOML"),
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
