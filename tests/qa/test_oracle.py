"""Programs made up at random see no difference between PyTorch's loader and ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support import ROOT

from chirpid_patch import WorkerSafeAugmentedDataset, WorkerSafeStandardizedDataset
from chirpid_patch.loading import loader


@pytest.mark.skipif(sys.platform == "win32", reason="programs are run in forks")
@pytest.mark.parametrize(
    "cases",
    [
        2,
        pytest.param(30, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
        pytest.param(100, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_programs_made_up_at_random_differ_in_nothing(cases: int) -> None:
    # Others than those of `python -m qa oracle`. Two of a hundred spawn their workers, which takes seconds each.
    options = ["--cases", str(cases), "--first", "7000000", "--slow-methods", "0.02"]
    command = [sys.executable, "-m", "qa", "oracle", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"factory: 0 of {cases} differ, ours: 0 of {cases} differ" in done.stdout


def listing_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    make = WorkerSafeStandardizedDataset.__init__

    def init(self: Any, base: Any, indices: Any, mean: Any, std: Any) -> None:
        make(self, base, list(indices), mean, std)

    monkeypatch.setattr(WorkerSafeStandardizedDataset, "__init__", init)


def collating_as_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "make_worker_like_collate", lambda collate, method: collate)


def transforming_after_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Any, indices: list[int]) -> list[Any]:
        samples = [self.base_dataset[index] for index in indices]
        return [(self._augment(x, None), y) for x, y in samples]

    monkeypatch.setattr(WorkerSafeAugmentedDataset, "__getitems__", read)


def reading_ahead_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(self: Any, seed: int | None) -> Any:
        return self._iterate_in_process(seed) if self.num_workers and not self.prefetch_factor else make(self)

    make = loader.BatchedDataLoader._get_iterator
    monkeypatch.setattr(loader.BatchedDataLoader, "_get_iterator", lambda self: begin(self, None))


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], dict[str, Any]]] = {
    "indices looked up by key": (
        listing_indices,
        {"dataset": ("scaled", "shipped", ("tensors", 9, "TensorDataset"), "labelled", "numbers")},
    ),
    "samples of several dtypes": (
        collating_as_without_workers,
        {"dataset": ("listed", "declared", 9, ("tuple",), ("float32", "float64"), ("int",), 3)},
    ),
    "samples that require grad": (
        collating_as_without_workers,
        {"dataset": ("listed", "declared", 9, ("tuple",), ("grad",), ("int",), 3)},
    ),
    "the order of draws": (
        transforming_after_reading,
        {"dataset": ("changed", "shipped", ("Drawing", 9, "python", 0), "draws python")},
    ),
    "no batch ahead": (
        reading_ahead_of_nothing,
        {"dataset": ("tensors", 9, "TensorDataset"), "options": {"num_workers": 1, "prefetch_factor": 0}},
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="programs are run in forks")
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.exhaustive  # about the comparison of a benchmark
def test_a_fault_of_each_kind_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from qa.oracle_programs.cases import Case
    from qa.oracle_programs.runner import run_case

    fault, parts = FAULTS[name]
    program = {"options": {"num_workers": 1, "batch_size": 4}, "sampler": ("none",), **parts}
    case = Case(0, collate=None, init=None, method=None, use="epochs", seed=5, **program)
    assert run_case(case).is_same
    fault(monkeypatch)
    assert not run_case(case).is_same


@pytest.mark.skipif(sys.platform == "win32", reason="programs are run in forks")
def test_programs_have_every_kind_of_part() -> None:
    from qa.oracle_programs import parts, samples
    from qa.oracle_programs.cases import make_case

    cases = map(make_case, range(1500))
    text = "".join(repr((case.dataset, case.sampler, case.options)) for case in cases)
    kinds = [*samples.PARTS, *samples.ARRANGED, *samples.TRANSFORMS, *samples.STATISTICS, *parts.INDICES]
    assert [kind for kind in kinds if repr(kind) not in text] == []
    assert "'prefetch_factor': 0" in text
