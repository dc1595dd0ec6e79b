"""Ranks that are processes: what they see together, and what becomes of the others when one dies.

Each launch takes seconds, so that each of them answers several questions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from originals import same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="gloo is not there"
    ),
]

SCRIPTS = Path(__file__).parents[3] / "fixtures" / "distributed"
DEADLINE = 150  # for a machine that is very busy


def environment(**changes: object) -> dict[str, str]:
    path = os.pathsep.join([str(SCRIPTS.parents[1]), *(entry for entry in sys.path if entry)])
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    return {
        **kept,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
        **{name: str(one) for name, one in changes.items()},
    }


def torchrun(ranks: int, script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.run(
        [*command, str(SCRIPTS / script), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def written(folder: Path, ranks: int) -> list[Any]:
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What two ranks under torchrun wrote."""
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(2, "two_ranks.py", folder)
    assert done.returncode == 0, done.stderr
    return written(folder, 2)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], list[tuple[int, str]]]:
    """What three ranks wrote, and how each ended: exit code and standard error."""
    folder = tmp_path_factory.mktemp("three")
    arguments = [SCRIPTS / "three_ranks.py", folder, (folder / "rendezvous").as_uri()]
    processes = [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=environment(RANK=rank, WORLD_SIZE=3),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        told = [process.communicate(timeout=DEADLINE)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    ends = [(process.returncode, said) for process, said in zip(processes, told, strict=True)]
    assert all((folder / f"rank{rank}.pt").exists() for rank in range(3)), ends
    return written(folder, 3), ends


class TestTwoRanks:
    """Under torchrun."""

    def test_each_epoch_has_every_sample_once_in_another_order_on_both_ranks(self, ranks: list[Any]) -> None:
        orders = [[numbers.tolist() for numbers, _ in rank["epochs"]] for rank in ranks]
        for epochs in zip(*orders, strict=True):
            assert sorted(epochs[0] + epochs[1]) == list(range(12))
        for epochs in orders:
            assert len(set(map(tuple, epochs))) == len(epochs) == 3

    def test_everything_repeats_with_the_seed_and_with_no_other(self, ranks: list[Any]) -> None:
        for rank in ranks:
            assert same(rank["repeated"], rank["epochs"])
            assert not any(same(one, other) for one in rank["epochs"] for other in rank["other seed"])

    def test_no_sample_is_augmented_twice_alike(self, ranks: list[Any]) -> None:
        samples = [x.numpy().tobytes() for rank in ranks for _, xs in rank["epochs"] for x in xs]
        assert len(set(samples)) == len(samples) == 3 * 12

    @pytest.mark.parametrize("loading", ["workers", "kept workers"])
    def test_no_two_ranks_workers_or_epochs_share_a_random_stream(self, ranks: list[Any], loading: str) -> None:
        draws = [draw for rank in ranks for _, drawn in rank[loading] for draw in drawn.flatten().tolist()]
        assert len(set(draws)) == len(draws) == 2 * 8 * 3

    def test_streams_of_workers_repeat_with_the_seed(self, ranks: list[Any]) -> None:
        for rank in ranks:
            assert same(rank["workers repeated"], rank["workers"])
            assert rank["global generator unmoved"]

    def test_training_ends_with_the_same_parameters_on_both_ranks(self, ranks: list[Any]) -> None:
        assert torch.equal(ranks[0]["training"]["parameters"], ranks[1]["training"]["parameters"])

    def test_validation_of_7_samples_has_each_once_and_in_order(self, ranks: list[Any]) -> None:
        trained = [rank["training"] for rank in ranks]
        assert [one["own"].tolist() for one in trained] == [[0, 2, 4, 6], [1, 3, 5]]
        for one in trained:
            torch.testing.assert_close(one["outputs"], one["alone"][one["own"]])


class TestThreeRanks:
    """Started one by one, without a launcher that would end the others when one dies."""

    @pytest.mark.parametrize(
        ("samples", "own"),
        [(7, [[0, 3, 6], [1, 4], [2, 5]]), (2, [[0], [1], []]), (1, [[0], [], []]), (0, [[], [], []])],
    )
    def test_uneven_and_empty_ranks_have_every_sample_once(
        self, launched: Any, samples: int, own: list[list[int]]
    ) -> None:
        assert [rank[samples] for rank in launched[0]] == own

    def test_fewer_samples_than_ranks_train_on_every_rank(self, launched: Any) -> None:
        samples, said = zip(*(rank["two samples"] for rank in launched[0]), strict=True)
        assert all(len(own) == 1 for own in samples)
        assert {number for own in samples for number in own} == {0, 1}
        assert all("would drop all 2 samples, because there are 3 ranks" in messages[0] for messages in said)

    def test_ranks_without_a_launcher_count_as_sharing_the_machine(self, launched: Any) -> None:
        devices = torch.cuda.device_count() or 3
        assert [rank["local ranks"] for rank in launched[0]] == [min(3, devices)] * 3

    def test_when_a_rank_dies_the_others_end_with_an_error(self, launched: Any) -> None:
        codes = [code for code, _ in launched[1]]
        assert codes[1] == 7
        for rank in (0, 2):
            code, said = launched[1][rank]
            assert code == 1
            assert "all_reduce" in said and "Error" in said
