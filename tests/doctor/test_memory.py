"""What counts as memory that rises because forked workers copy Python objects."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from chirp_migrate.doctor.checks.memory import check
from chirp_migrate.doctor.recording import BatchRecord, CodeLine, FetcherPassRecord, LoaderInfo, LoaderPass, Recording
from chirp_migrate.doctor.watch.objects import count_tensor_bytes, large_containers

MIB = 2**20


class Holds(Dataset[Any]):
    def __init__(self, held: Any) -> None:
        self.held = held


def recording(*workers: list[float]) -> Recording:
    """One pass over a large list by forked workers, and the MiB that each measured after its batches."""
    loader = LoaderInfo(
        number=0,
        place=CodeLine("train.py", 7),
        dataset="Holds",
        dataset_place=CodeLine("train.py", 2),
        dataset_ids=[0],
        is_stream=False,
        samples=400_000,
        batch_size=2,
        num_workers=len(workers),
        persistent_workers=False,
        drop_last=False,
        start_method="fork",
        sampler="RandomSampler",
        is_random_order=True,
        objects={"dataset.held": 400_000},
    )
    runs = [
        FetcherPassRecord(number, 0, 0, tasks=[BatchRecord(indices=[1, 2], memory=int(one * MIB)) for one in measured])
        for number, measured in enumerate(workers)
    ]
    return Recording("train.py", loaders=[loader], passes=[LoaderPass(0, 0)], runs=runs)


@pytest.mark.parametrize(
    ("measured", "is_reported"),
    [
        ([20, 22, 24, 26, 28, 30], True),
        ([20, 34, 45, 53, 59, 64, 69, 72, 75, 78, 80, 82, 83, 84, 84.5, 85, 85.2], True),  # most was read
        ([20, 22, 23, 24, 25.5], True),
        ([20, 45, 45, 45, 45], False),  # what a worker needs at its start
        ([20, 21, 21, 45, 45.5, 46], False),  # at once, later
        ([20, 21, 21.5, 22, 22.5], False),  # little
        ([20, 26, 32], False),  # seen too seldom
        ([20, 30, 21, 30, 21], False),  # memory that comes and goes
    ],
)
def test_a_steady_rise_after_the_start_is_reported(measured: list[float], is_reported: bool) -> None:
    assert bool(list(check(recording(measured)))) is is_reported
    assert list(check(recording(measured, [20, 20, 20, 20]))) == []


def test_the_evidence_has_the_rise_of_all_workers() -> None:
    (problem,) = check(recording([20, 22, 24, 26, 28], [20, 23, 25, 27, 31]))
    assert problem.evidence == (
        "dataset.held has 400,000 objects. The memory of 2 workers rose by 19 MiB in total while the loader at "
        "train.py:7 read 20 samples, by 1194.7 KiB for each sample (95 % interval: 756.0 to 1633.4)."
    )


def test_without_indices_there_is_no_rise_for_each_sample() -> None:
    seen = recording([20, 22, 24, 26, 28])
    for task in seen.runs[0].tasks:
        task.indices = []
    (problem,) = check(seen)
    assert "rose by 8 MiB in total" in problem.evidence and "for each sample" not in problem.evidence


@pytest.mark.parametrize(
    ("held", "is_large"),
    [
        ([f"recordings/of/some/folder/{number:09}.wav" for number in range(120_000)], True),
        ([(f"recordings/{number:09}.wav", number % 7) for number in range(60_000)], True),
        ({number: {"path": f"{number:09}.wav"} for number in range(40_000)}, True),
        ([f"{number:09}.wav" for number in range(12_000)], False),  # all of them are less than 8 MiB
        ([f"{number:09}.wav" for number in range(1_000)], False),
        ([torch.zeros(1)] * 10_000, False),
    ],
)
def test_only_containers_of_many_bytes_in_python_objects_count(held: Any, is_large: bool) -> None:
    assert large_containers(Holds(held)) == ({"dataset.held": len(held)} if is_large else {})


@pytest.mark.parametrize("held", [{"a": range(400), "b": [0.5] * 400}, {"a": list("chirp") * 80, "b": range(400)}])
def test_a_table_of_pandas_holds_its_samples_in_memory(held: dict[str, Any]) -> None:
    table = pytest.importorskip("pandas").DataFrame(held)
    assert count_tensor_bytes(Holds(table)) >= 2 * 8 * 400
    assert count_tensor_bytes(Holds(table["b"])) >= 8 * 400
