"""Programs in the style of the frameworks they use train the same after their migration.

Each runs before and after in processes of its own: same losses to the last bit, same samples in the same order, each
exactly once an epoch, and the random generators end in the same state. What is not installed is skipped
(`make test-frameworks` installs it).
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from forked import run_python
from support import copy_of, run
from torch.distributed import TCPStore

pytestmark = pytest.mark.slow

Outcome = dict[str, Any]

#: The processes are forked from one that has imported these: that takes longer than the trainings. Not torchvision and
#: torchaudio, whose import may fail otherwise than because they are not there.
IMPORTED = [
    "accelerate",
    "albumentations.pytorch",
    "datasets",
    "ignite.engine",
    "lightning",
    "skorch",
    "torch._inductor.compile_fx",
    "transformers.models.bert.modeling_bert",
    "transformers.trainer",
]


@pytest.fixture(scope="module", autouse=True)
def frameworks_imported() -> Iterator[None]:
    """A process that has imported the frameworks, for all tests."""
    multiprocessing.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # would ask the network, on import
        yield


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All programs before and after."""
    folder = tmp_path_factory.mktemp("frameworks")
    for name in ("before", "after"):
        copy_of("frameworks", folder / name)
    assert run("apply", folder / "after", "--no-scaffold", "--all-loaders").exit_code == 0
    return folder / "before", folder / "after"


#: A command and what its process has in its environment.
Rank = tuple[list[str], dict[str, str]]
Processes = Callable[..., Callable[[Path], list[Rank]]]


def outcomes(
    trees: Sequence[Path], ranks: Callable[[Path], list[Rank]], needed: Sequence[str] = ()
) -> list[list[Outcome]]:
    """What the ranks tell in each tree, each rank in a separate process and all at once.

    Where a module that is ``needed`` cannot be imported, the test is skipped.
    """
    server = multiprocessing.get_context("forkserver")
    folders = {tree: Path(tempfile.mkdtemp(dir=tree.parent)) for tree in trees}
    running = [
        server.Process(target=run_python, args=(command, environment, tree, folder, needed))
        for tree, folder in folders.items()
        for command, environment in ranks(tree)
    ]
    for process in running:
        process.start()
    end = time.monotonic() + 300
    try:
        for process in running:
            process.join(end - time.monotonic())
            assert process.exitcode == 0
    finally:
        for process in running:
            process.kill()
    for folder in folders.values():
        if (folder / "cannot-import").is_file():
            pytest.skip((folder / "cannot-import").read_text())
    return [[json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))] for folder in folders.values()]


def one_process(*command: str) -> Callable[[Path], list[Rank]]:
    return lambda tree: [([str(tree / command[0]), *command[1:]], {})]


@pytest.fixture
def processes() -> Iterator[Processes]:
    """The ranks of a program as torchrun starts them, without torchrun: it has threads, and could not safely fork them.

    The store in which the ranks meet is in this process, as torchrun's is in its own.
    """
    stores = []

    def ranks_of(program: str, nodes: int = 1) -> Callable[[Path], list[Rank]]:
        def ranks(tree: Path) -> list[Rank]:
            store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            stores.append(store)
            shared = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": str(2 // nodes),
                "GROUP_WORLD_SIZE": str(nodes),
                "OMP_NUM_THREADS": "1",
                "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_RUN_ID": "test",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
            places = [(rank, *divmod(rank, 2 // nodes)) for rank in range(2)]
            return [
                (
                    [str(tree / program)],
                    {**shared, "RANK": str(rank), "GROUP_RANK": str(node), "LOCAL_RANK": str(local)},
                )
                for rank, node, local in places
            ]

        return ranks

    yield ranks_of
    stores.clear()


def assert_same_training(before: list[Outcome], after: list[Outcome], samples: int) -> None:
    assert len(before) == len(after)
    for name in ("losses", "epochs", "random"):
        assert [rank[name] for rank in after] == [rank[name] for rank in before], name
    assert all(rank["losses"] for rank in after)
    for epoch in zip(*(rank["epochs"] for rank in after), strict=True):
        assert sorted(number for rank in epoch for number in rank) == list(range(samples))


@pytest.mark.parametrize(
    ("program", "needed", "samples"),
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
def test_it_trains_the_same(trees: tuple[Path, Path], program: str, needed: list[str], samples: int) -> None:
    before, after = outcomes(trees, one_process(f"{program}.py"), needed)
    assert_same_training(before, after, samples)


def test_a_compiled_step_trains_the_same(trees: tuple[Path, Path]) -> None:
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs g++")
    before, after = outcomes(trees, one_process("with_compile.py"))
    assert_same_training(before, after, 40)


def test_two_processes_of_accelerate_share_the_samples(trees: tuple[Path, Path], processes: Processes) -> None:
    before, after = outcomes(trees, processes("with_accelerate.py"), ["accelerate"])
    assert len(after) == 2
    assert_same_training(before, after, 48)


def test_two_nodes_of_torchrun_share_the_samples(trees: tuple[Path, Path], processes: Processes) -> None:
    before, after = outcomes(trees, processes("with_torchrun.py", nodes=2))
    assert [rank["nodes"] for rank in after] == [2, 2]
    assert_same_training(before, after, 40)


def test_lightning_puts_its_sampler_into_our_loader(trees: tuple[Path, Path], processes: Processes) -> None:
    before, after = outcomes(trees, processes("with_lightning.py"), ["lightning"])
    assert [rank["loaders"] for rank in after] == [[["BatchedDataLoader", "DistributedSampler"]]] * 2
    assert_same_training(before, after, 40)


def test_lightning_goes_on_in_the_middle_of_an_epoch(trees: tuple[Path, Path]) -> None:
    before, (whole,) = outcomes(trees, one_process("with_lightning.py"), ["lightning"])
    assert_same_training(before, [whole], 40)

    ((resumed,),) = outcomes(trees[1:], one_process("with_lightning.py", str(whole["checkpoint"])))
    assert resumed["epochs"] == [[], whole["epochs"][1][3 * 4 :]]  # PyTorch's loader would begin another epoch
