"""The rules through LibCST's own tool: what ``apply`` would rewrite, and nothing that it would not."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import libcst.tool
import pytest
from support import ROOT, copy_of, run

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import Settings
from chirp_migrate.errors import UsageProblem
from chirp_migrate.rules import all_rules
from chirp_migrate.transaction.journal import read_runs, record_run_state
from chirp_migrate.transaction.journal_schema import RunState

LOADER = """\
from torch.utils.data import DataLoader


def loader(dataset):
    return DataLoader(dataset, batch_size=32, num_workers=4)
"""
MIGRATED = """\
from chirpid_patch import OptimalDataLoaderFactory


def loader(dataset):
    return OptimalDataLoaderFactory.create_loader(dataset, batch_size=32, num_workers=4)
"""
EVERYTHING = "migrate.MigrateCommand"


def configure(folder: Path) -> None:
    """What docs/libcst.md says to put into the folder of a backend."""
    (folder / ".libcst.codemod.yaml").write_text("modules: [chirp_migrate.libcst_codemods]\nrepo_root: .\n")


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configured folder with one loader in it; the tool runs there."""
    configure(tmp_path)
    (tmp_path / "train.py").write_text(LOADER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def codemod(command: str, *paths: str) -> int:
    """LibCST's tool in this process, on one file after the other."""
    return libcst.tool.main("libcst.tool", ["codemod", command, "--no-format", "--jobs", "1", *paths])


def python_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.py"))}


@pytest.mark.slow
def test_the_tool_rewrites_what_apply_rewrites(tmp_path: Path) -> None:
    backend = tmp_path / "backend"
    copy_of("backend", backend)
    configure(backend)
    before = python_files(backend)
    plan = {file.path: file.after for file in plan_tree(backend, settings=Settings(notebooks=False)).files}
    tool = [sys.executable, "-m", "libcst.tool", "codemod", EVERYTHING, "--no-format", "--jobs", "2", "."]
    said = subprocess.run(tool, cwd=backend, check=True, capture_output=True, text=True).stderr

    assert python_files(backend) == before | plan != before
    assert "WARNING" in said, "what is only listed is told as a warning"


def test_a_name_that_another_file_takes_stays(backend: Path) -> None:
    (backend / "evaluate.py").write_text("from train import DataLoader\n")

    assert codemod(EVERYTHING, "train.py") == 0
    assert (backend / "train.py").read_text() == MIGRATED.replace(
        "from chirpid_patch", "from torch.utils.data import DataLoader\nfrom chirpid_patch"
    )

    (backend / "evaluate.py").unlink()
    (backend / "train.py").write_text(LOADER)

    assert codemod(EVERYTHING, "train.py") == 0
    assert (backend / "train.py").read_text() == MIGRATED
    assert codemod(EVERYTHING, "train.py") == 0, "a second time"
    assert (backend / "train.py").read_text() == MIGRATED


def test_each_rule_is_a_command(backend: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert libcst.tool.main("libcst.tool", ["list"]) == 0
    listed = [line.partition(" - ") for line in capsys.readouterr().out.splitlines()]

    assert {name: said for name, _, said in listed}.keys() == {EVERYTHING, *(f"rules.{r.code}" for r in all_rules())}
    assert all(said for _, _, said in listed)

    assert codemod("rules.CHP002", ".") == 0
    assert (backend / "train.py").read_text() == LOADER
    assert codemod("rules.CHP001", ".") == 0
    assert (backend / "train.py").read_text() == MIGRATED


def test_settings_and_comments_of_the_backend_hold(backend: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = backend / "pyproject.toml"
    (backend / "kept.py").write_text(LOADER.replace("num_workers=4)", "num_workers=4)  # chirp: ignore[CHP001]"))
    (backend / "legacy").mkdir()
    (backend / "legacy" / "old.py").write_text(LOADER)
    project.write_text('[tool.chirp-migrate]\nexclude = ["legacy"]\nignore = ["CHP001"]\n')
    before = python_files(backend)

    assert codemod(EVERYTHING, ".") == 0
    assert python_files(backend) == before

    project.write_text('[tool.chirp-migrate]\nexclude = ["legacy"]\n')
    assert codemod(EVERYTHING, ".") == 0
    assert python_files(backend) == before | {"train.py": MIGRATED.encode()}
    assert "old.py" in capsys.readouterr().err

    project.write_text('[tool.chirp-migrate]\nexlude = ["legacy"]\n')
    with pytest.raises(UsageProblem, match="did you mean exclude"):
        codemod(EVERYTHING, ".")


def test_what_changes_training_is_proposed_until_the_settings_ask_for_it(
    backend: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = backend / "rule" / "before.py"
    shutil.copytree(ROOT / "fixtures" / "rules" / "CHP014", train.parent)
    before, after = train.read_text(), (train.parent / "after.py").read_text()

    assert codemod("rules.CHP014", "rule/before.py") == 0
    guarded = "        if isinstance(sampler, DistributedSampler):\n            sampler.set_epoch(epoch)\n"
    assert train.read_text().count("set_epoch") == guarded.count("set_epoch") and guarded in train.read_text()
    assert "CHP014" in (said := capsys.readouterr().err) and "unsafe = true" in said

    train.write_text(before)
    (backend / "pyproject.toml").write_text("[tool.chirp-migrate]\nunsafe = true\n")
    assert codemod("rules.CHP014", "rule/before.py") == 0
    assert train.read_text() == after


@pytest.mark.parametrize(
    "text",
    [
        LOADER.replace("\n", "\r\n").encode(),
        LOADER.removesuffix("\n").encode(),
        b"# coding: latin-1\nNAME = '\xe4'\n" + LOADER.encode(),
    ],
    ids=["CRLF", "no last newline", "Latin-1"],
)
def test_bytes_around_a_rewrite_stay(backend: Path, text: bytes) -> None:
    (backend / "train.py").write_bytes(text)
    lines, kept = MIGRATED.encode().splitlines(), text.splitlines()

    assert codemod(EVERYTHING, "train.py") == 0
    written = (backend / "train.py").read_bytes()
    assert written.splitlines() == kept[: len(kept) - len(lines)] + lines
    assert written.count(b"\r\n") == text.count(b"\r\n")
    assert written.endswith(b"\n") is text.endswith(b"\n")


@pytest.mark.parametrize("text", [LOADER, "VALUE = 1\n"], ids=["to rewrite", "nothing to do"])
def test_a_file_that_libcst_does_not_give_back_is_left_alone(
    backend: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with_page_break = f"{text}\n\x0cLAST = 2\n"
    (backend / "train.py").write_text(with_page_break)

    assert codemod(EVERYTHING, "train.py") == 0
    assert (backend / "train.py").read_text() == with_page_break
    assert "chirp-migrate apply" in capsys.readouterr().err


def test_a_file_whose_backend_is_not_known_is_skipped(
    backend: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "train.py"
    elsewhere.write_text(LOADER)

    assert codemod(EVERYTHING, str(elsewhere)) == 0
    assert elsewhere.read_text() == LOADER
    assert "repo_root" in capsys.readouterr().err


def test_a_half_migrated_backend_is_refused(backend: Path) -> None:
    assert run("apply", "--no-scaffold", ".").exit_code == 0
    record_run_state(read_runs(backend)[0], RunState.PENDING)

    with pytest.raises(UsageProblem, match="chirp-migrate rollback"):
        codemod(EVERYTHING, "train.py")


def test_standard_input_is_refused_with_the_reason(
    backend: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(LOADER))

    assert codemod(EVERYTHING, "-") == 1
    said = capsys.readouterr()
    assert said.out == "" and "files and folders" in said.err
