"""A file that must not be written is left as it is, with everything that depends on its rewrite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import run, snapshot, write_files

LOADERS = """import torch
from torch.utils.data import DataLoader, TensorDataset


def make():
    ds = TensorDataset(torch.arange(40.0).reshape(10, 4), torch.arange(10) % 2)
    return DataLoader(ds, batch_size=4, shuffle=True, num_workers=2)
"""
TRAIN = """import torch
from pkg.loaders import make


def train(model, device):
    for x, y in make():
        x, y = x.to(device), y.to(device)
        model(x).sum().backward()


train(torch.nn.Linear(4, 2), torch.device("cuda" if torch.cuda.is_available() else "cpu"))
"""
OTHER = "from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], batch_size=2)\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    files = {"pkg/__init__.py": "", "pkg/loaders.py": LOADERS, "pkg/train.py": TRAIN, "requirements.txt": "torch\n"}
    yield write_files(tmp_path / "project", files)
    for path in tmp_path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def rewritten(project: Path) -> set[str]:
    run("apply", project, "--no-scaffold")
    journal = project / ".chirp-migrate" / "0001" / "plan.json"
    return {one["path"] for one in json.loads(journal.read_text())["files"]} if journal.exists() else set()


def test_all_files_are_rewritten_if_none_is_read_only(project: Path) -> None:
    assert rewritten(project) == {"pkg/loaders.py", "pkg/train.py", "requirements.txt"}


@pytest.mark.parametrize("fixed", ["pkg/loaders.py", "pkg/train.py", "pkg"])
def test_hunks_that_depend_on_a_read_only_file_are_left_out(project: Path, fixed: str) -> None:
    (project / fixed).chmod(0o555 if (project / fixed).is_dir() else 0o444)
    before = snapshot(project)
    assert rewritten(project) == set()
    assert snapshot(project) == before


def test_other_loaders_are_rewritten_nevertheless(project: Path) -> None:
    write_files(project, {"other.py": OTHER})
    (project / "pkg/loaders.py").chmod(0o444)
    before = snapshot(project)
    done = run("apply", project, "--no-scaffold", "--all-loaders", "--json", project.parent / "found.json")
    assert done.exit_code == 1 and "pkg/loaders.py: the file is read-only" in " ".join(done.output.split())
    found = json.loads((project.parent / "found.json").read_text())
    assert {one["path"] for one in found["files"]} == {"other.py", "requirements.txt"}
    assert (found["ledger"]["sites"]["migrated"], found["ledger"]["listed_by_reason"]) == (1, {"file-not-written": 1})
    after = snapshot(project, journal=False)
    assert {path for path in before if after[path] != before[path]} == {"other.py", "requirements.txt"}
    assert run("rollback", project).exit_code == 0
    assert snapshot(project, journal=False) == before


def test_other_hunks_of_a_dependent_file_are_rewritten(project: Path) -> None:
    more = LOADERS.replace("def make", "def other") + TRAIN + TRAIN.replace("make()", "other()").partition("\n\n\n")[2]
    write_files(project, {"pkg/train.py": more})
    (project / "pkg/loaders.py").chmod(0o444)
    assert rewritten(project) == {"pkg/train.py", "requirements.txt"}
    text = (project / "pkg/train.py").read_text()
    assert text.count("create_loader(") == 1
    assert text.count("x.to(device), y.to(device)") == 1 and text.count("x.to(device, non_blocking=True)") == 1


def test_a_plan_is_applied_completely_or_not_at_all(project: Path) -> None:
    plan = project.parent / "plan.json"
    run("plan", project, "--no-scaffold", "-o", plan)
    (project / "pkg/loaders.py").chmod(0o444)
    before = snapshot(project)
    done = run("apply", project, "--plan", plan)
    assert done.exit_code == 3 and "nothing was written: pkg/loaders.py: the file is read-only" in done.output
    assert snapshot(project, journal=False) == before


@pytest.mark.parametrize(
    ("fixed", "options"), [("requirements.txt", ("--no-scaffold",)), ("", ("--no-scaffold", "--vendor"))]
)
def test_nothing_is_written_without_what_the_migrated_code_needs(
    project: Path, fixed: str, options: tuple[str, ...]
) -> None:
    (project / fixed).chmod(0o444 if fixed else 0o555)
    before = snapshot(project)
    done = run("apply", project, *options)
    assert done.exit_code == 3 and "nothing was written, because the migrated code needs" in " ".join(
        done.output.split()
    )
    assert snapshot(project, journal=False) == before
    (project / fixed).chmod(0o644 if fixed else 0o755)
    assert run("apply", project, *options).exit_code == 0
    assert (project / "chirpid_patch").is_dir() or "chirpid-patch" in (project / "requirements.txt").read_text()


def test_the_scaffold_is_added_completely_or_not_at_all(project: Path) -> None:
    write_files(project, {"utils/__init__.py": "", "utils/training_engine.py": LOADERS})
    (project / "utils").chmod(0o555)
    done = run("apply", project)
    assert done.exit_code == 1 and not (project / "utils/dataloader_factory.py").exists()
    assert not (project / "tests").exists() and not list(project.rglob("*.ipynb"))
    assert (
        "create_training_loader" in (project / "pkg/loaders.py").read_text()
        or "create_loader" in (project / "pkg/loaders.py").read_text()
    )


OBJECTS = """from torch.utils.data import Dataset


def build(n):
    class Numbers(Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            return float(i)

    return Numbers()
"""
USER = """from torch.utils.data import DataLoader
from data import build

if __name__ == "__main__":
    for batch in DataLoader(build(3), batch_size=2, num_workers=2):
        print(batch)
"""


def test_a_loader_that_gains_only_in_a_read_only_file_is_left_out(tmp_path: Path) -> None:
    project = write_files(tmp_path / "other", {"data.py": OBJECTS, "use.py": USER, "requirements.txt": "torch\n"})
    assert {"use.py", "requirements.txt"} <= rewritten(project)
    assert run("rollback", project).exit_code == 0
    (project / "data.py").chmod(0o444)
    before = snapshot(project, journal=False)
    done = run("apply", project, "--no-scaffold")
    assert done.exit_code == 1 and snapshot(project, journal=False) == before
