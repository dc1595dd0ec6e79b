"""Programs in the style of the frameworks they use train the same after their migration.

Each runs before and after in processes of its own: same losses to the last bit, same samples in the same order, each
exactly once an epoch, and the random generators end in the same state. What is not installed is skipped
(`make test-frameworks` installs it).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chirp_migrate.cli.apply import apply

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "fixtures" / "frameworks"

pytestmark = pytest.mark.slow

Outcome = dict[str, Any]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All programs before and after."""
    folder = tmp_path_factory.mktemp("frameworks")
    for name in ("before", "after"):
        shutil.copytree(PROGRAMS, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    result = CliRunner().invoke(apply, [str(folder / "after"), "--no-scaffold"])
    assert result.exit_code == 0, result.output
    return folder / "before", folder / "after"


def needs(*modules: str) -> None:
    """Skip where one of the modules cannot be imported; a wheel for CUDA may lack its libraries."""
    for module in modules:
        try:
            pytest.importorskip(module, reason=f"{module} is not installed (make test-frameworks)")
        except (OSError, RuntimeError) as error:
            pytest.skip(f"{module} cannot be imported with this torch: {error}")


def outcomes(trees: Sequence[Path], commands: Callable[[Path], list[list[str]]]) -> list[list[Outcome]]:
    """What the ranks tell in each tree, each command in a process of its own and all at once."""
    running: list[subprocess.Popen[str]] = []
    folders = []
    for tree in trees:
        folder = Path(tempfile.mkdtemp(dir=tree.parent))
        folders.append(folder)
        own = {"OUTCOMES": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        running += [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", *command],
                cwd=folder,
                env={**os.environ, **own},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command in commands(tree)
        ]
    try:
        for process in running:
            said, _ = process.communicate(timeout=300)
            assert process.returncode == 0, said
    finally:
        for process in running:
            process.kill()
    return [[json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))] for folder in folders]


def by_torchrun(*arguments: str) -> list[str]:
    return ["-m", "torch.distributed.run", "--rdzv-backend", "c10d", *arguments]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def assert_same_training(before: list[Outcome], after: list[Outcome], samples: int) -> None:
    assert len(before) == len(after)
    for name in ("losses", "epochs", "random"):
        assert [rank[name] for rank in after] == [rank[name] for rank in before], name
    assert all(rank["losses"] for rank in after)
    for epoch in zip(*(rank["epochs"] for rank in after), strict=True):
        assert sorted(number for rank in epoch for number in rank) == list(range(samples))


@pytest.mark.parametrize(
    ("program", "modules", "samples"),
    [
        ("with_accelerate", ["accelerate"], 48),
        ("with_transformers", ["transformers", "accelerate"], 24),
        ("with_ignite", ["ignite"], 40),
        ("with_skorch", ["skorch"], 40),
        ("with_torchvision", ["torchvision"], 24),
        ("with_torchaudio", ["torchaudio"], 24),
        ("with_albumentations", ["albumentations"], 24),
        ("with_datasets", ["datasets"], 40),
    ],
)
def test_it_trains_the_same(trees: tuple[Path, Path], program: str, modules: list[str], samples: int) -> None:
    needs(*modules)
    before, after = outcomes(trees, lambda tree: [[str(tree / f"{program}.py")]])
    assert_same_training(before, after, samples)


def test_a_compiled_step_trains_the_same(trees: tuple[Path, Path]) -> None:
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs g++")
    before, after = outcomes(trees, lambda tree: [[str(tree / "with_compile.py")]])
    assert_same_training(before, after, 40)


def test_two_processes_of_accelerate_share_the_samples(trees: tuple[Path, Path]) -> None:
    needs("accelerate")
    before, after = outcomes(
        trees,
        lambda tree: [
            by_torchrun("--nproc-per-node", "2", "--rdzv-endpoint", "127.0.0.1:0", str(tree / "with_accelerate.py"))
        ],
    )
    assert len(after) == 2
    assert_same_training(before, after, 48)


def test_two_nodes_of_torchrun_share_the_samples(trees: tuple[Path, Path]) -> None:
    def nodes(tree: Path) -> list[list[str]]:
        port = free_port()
        return [
            by_torchrun("--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1",
                        "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1",
                        str(tree / "with_torchrun.py"))
            for node in range(2)
        ]  # fmt: skip

    before, after = outcomes(trees, nodes)
    assert [rank["nodes"] for rank in after] == [2, 2]
    assert_same_training(before, after, 40)


def test_lightning_puts_its_sampler_into_our_loader(trees: tuple[Path, Path]) -> None:
    needs("lightning")
    before, after = outcomes(
        trees,
        lambda tree: [
            by_torchrun("--nproc-per-node", "2", "--rdzv-endpoint", "127.0.0.1:0", str(tree / "with_lightning.py"))
        ],
    )
    assert [rank["loaders"] for rank in after] == [[["BatchedDataLoader", "DistributedSampler"]]] * 2
    assert_same_training(before, after, 40)


def test_lightning_goes_on_in_the_middle_of_an_epoch(trees: tuple[Path, Path]) -> None:
    needs("lightning")
    before, (whole,) = outcomes(trees, lambda tree: [[str(tree / "with_lightning.py")]])
    assert_same_training(before, [whole], 40)

    ((resumed,),) = outcomes(trees[1:], lambda tree: [[str(tree / "with_lightning.py"), str(whole["checkpoint"])]])
    assert resumed["epochs"] == [[], whole["epochs"][1][3 * 4 :]]  # PyTorch's loader would begin another epoch
