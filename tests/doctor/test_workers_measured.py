"""Numbers of workers that are measured for a loader that a training waits for, and what the check makes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from chirp_migrate.console.progress import ignore_progress
from chirp_migrate.doctor.checks.waiting import check, loaders_needing_workers
from chirp_migrate.doctor.measuring import measure_worker_counts
from chirp_migrate.doctor.recording import (
    IN_TRAINING_PROCESS,
    BatchRecord,
    CodeLine,
    FetcherPassRecord,
    LoaderInfo,
    LoaderPass,
    Recording,
    WorkerCountTimings,
)
from chirp_migrate.training.errors import TaskNotPossible

SAMPLE_S = 0.02


class Waits(Dataset[torch.Tensor]):
    """Waits for each sample, so that workers help on any machine."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SAMPLE_S)
        return torch.ones(2)


class FailsInWorkers(Waits):
    def __getitem__(self, index: int) -> torch.Tensor:
        assert get_worker_info() is None, "as classes of a script that spawned workers do not find"
        return super().__getitem__(index)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


def epoch(number: int = 0, *, waited_s: float = 0.05) -> LoaderPass:
    """A training pass over 40 samples that waits for each of its 20 batches."""
    return LoaderPass(
        number, 0, sizes=[2] * 20, backwards=20, is_complete=True, waits_s=[waited_s] * 20, seconds=20 * waited_s
    )


def recording(**options: Any) -> Recording:
    """Two epochs over a loader that the training waits for."""
    loader = LoaderInfo(
        number=0,
        place=CodeLine("train.py", 7),
        dataset="Waits",
        dataset_place=CodeLine("train.py", 2),
        dataset_ids=[0],
        is_stream=False,
        samples=40,
        batch_size=2,
        num_workers=0,
        persistent_workers=False,
        drop_last=False,
        start_method="fork",
        sampler="RandomSampler",
        is_random_order=True,
    )
    passes = [epoch(number, waited_s=0.1) for number in (0, 1)]
    runs = [
        FetcherPassRecord(IN_TRAINING_PROCESS, number, 0, tasks=[BatchRecord(sample_bytes=8)] * 20) for number in (0, 1)
    ]
    return Recording("train.py", cpus=2, loaders=[loader], passes=passes, runs=runs, **options)


def fix_of(seen: Recording) -> str:
    (problem,) = check(seen)
    return problem.fix


@pytest.mark.slow
def test_more_workers_are_picked_for_samples_that_wait() -> None:
    loader = DataLoader(Waits(), batch_size=2, shuffle=True)
    found = measure_worker_counts(loader, epoch(), 2 * SAMPLE_S, 60, ignore_progress)
    assert found is not None and found.num_workers > 0
    assert found.now_s > 40 * SAMPLE_S * 0.9 and found.best_s < 0.9 * found.now_s
    assert found.tried[0] == 0 and found.num_workers in found.tried


@pytest.mark.parametrize("batch_s", [10.0, 2.0])
def test_without_time_for_two_numbers_nothing_is_measured(batch_s: float) -> None:
    loader = DataLoader(Waits(), batch_size=2, shuffle=True)
    assert measure_worker_counts(loader, epoch(), batch_s, 5, ignore_progress) is None


def test_if_no_other_number_can_be_measured_there_is_no_result() -> None:
    loader = DataLoader(FailsInWorkers(), batch_size=2, shuffle=True)
    assert measure_worker_counts(loader, epoch(), 2 * SAMPLE_S, 6, ignore_progress) is None


def test_a_stream_is_not_measured() -> None:
    with pytest.raises(TaskNotPossible, match="is an iterable dataset"):
        measure_worker_counts(DataLoader(Stream()), epoch(), 0.01, 60, ignore_progress)


def test_a_loader_whose_fix_is_the_number_of_workers_is_measured() -> None:
    seen = recording()
    assert [(loader.number, one.number) for loader, one in loaders_needing_workers(seen)] == [(0, 1)]
    seen.loaders[0].held_bytes = 1 << 20  # the samples are in memory: another fix
    assert list(loaders_needing_workers(seen)) == []
    assert list(loaders_needing_workers(recording(has_own_data=False))) == []


def test_samples_of_unknown_size_do_not_count_as_in_memory() -> None:
    seen = recording()
    for run in seen.runs:
        run.tasks = []
    assert "the training process reads them itself" in next(check(seen)).message


def test_without_a_measurement_the_command_is_named() -> None:
    assert fix_of(recording()) == (
        "Read the samples in worker processes: set num_workers. `chirp-migrate tune` measures which number is best."
    )


def test_the_measured_change_is_the_fix() -> None:
    assert fix_of(recording(tuned=WorkerCountTimings(0, 4, 1.234, 0.4, [0, 2, 4]))) == (
        "Use num_workers=4: loading an epoch takes 0.40 s instead of 1.23 s (without training, measured with 0, 2, "
        "4 workers)."
    )


def test_where_workers_do_not_help_less_work_is_the_fix() -> None:
    fix = fix_of(recording(tuned=WorkerCountTimings(0, 0, 1.2, 1.2, [0, 2])))
    assert fix.startswith("Other numbers of workers do not help (measured: 0, 2). Reduce the work for each sample")


def test_a_measurement_of_another_loader_is_not_reported() -> None:
    assert "`chirp-migrate tune` measures" in fix_of(recording(tuned=WorkerCountTimings(1, 4, 1.2, 0.4, [0, 2, 4])))
