"""A backend of another shape, from `apply` to training calls that give the same on both sides."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from chirp_migrate.cli.apply import apply
from chirp_migrate.cli.init_workload import init_workload
from chirp_migrate.verify.options import resolve_options
from chirp_migrate.verify.sides.baseline import find_original_version
from chirp_migrate.verify.sides.copies import copy_both_versions, find_entry_points_before
from chirp_migrate.verify.spec import EntryPointRecord
from chirp_migrate.verify.timing.process_turns import ChildStarter
from chirp_migrate.verify.watching import record_runs

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "other_backend"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The migrated backend with its workload filled in."""
    root = tmp_path / "backend"
    shutil.copytree(FIXTURE, root, ignore=shutil.ignore_patterns("__pycache__"))
    assert CliRunner().invoke(apply, [str(root), "--no-scaffold"]).exit_code == 0
    assert "chirpid_patch" in (root / "trainer" / "data.py").read_text()
    assert CliRunner().invoke(init_workload, [str(root)]).exit_code == 0
    workload = root / "chirp_verify.py"
    text = workload.read_text()
    for old, new in (
        (
            "# from trainer.training import train",
            "from trainer.data import TileDataset\nfrom trainer.fitting import fit",
        ),
        ("dataset = TensorDataset(images, labels)", "dataset = TileDataset(sizes.samples, 16, sizes.classes)"),
        (
            "raise NotImplementedError",
            "return fit(dataset, sizes.classes, sizes.epochs, sizes.batch_size)\n        raise E",
        ),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    workload.write_text(text)
    return root.resolve()


def watched(root: Path, scratch: Path, given: dict[str, object]) -> dict[str, dict[str, EntryPointRecord]]:
    """Side → training call → what was seen of it."""
    options = replace(resolve_options(root, given), threads=1)
    before = find_original_version(root, None)
    trees, _ = copy_both_versions(root, before, options, scratch)
    discovery = find_entry_points_before(trees["before"], root, before, options, lambda _line: None)
    return record_runs(ChildStarter(trees, discovery, options), discovery, {}).sides


@pytest.mark.exhaustive  # a command of it is verified below
@pytest.mark.slow
def test_a_workload_gives_the_same_history_to_the_last_bit(root: Path, tmp_path: Path) -> None:
    found = watched(root, tmp_path, {"samples": 40, "epochs": 2, "shape": (3, 16, 16)})
    assert found["before"].keys() == found["after"].keys() == {"train"}
    history = found["before"]["train"].fingerprint
    assert history["result"] == "list of 2" and history["result[1]['loss']"].startswith("0x")
    assert found["after"]["train"].fingerprint == history
    assert found["after"]["train"].traces
