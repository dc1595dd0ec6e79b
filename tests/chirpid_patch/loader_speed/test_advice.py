"""Advice that names the setting, and that was tried on the loader in question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from originals import PairDataset, RandomPairDataset, global_states, same, seed_all, tensor_data
from torch.utils.data import DataLoader, IterableDataset, Sampler

from chirpid_patch import BatchedDataLoader
from chirpid_patch.device.move_ahead import DevicePrefetcher
from chirpid_patch.loader_speed import diagnosis
from chirpid_patch.loader_speed.advice import (
    SettingAdvice,
    advise_persistent_workers,
    advise_pinning,
    advise_prefetching,
    handle_oom_errors,
)
from chirpid_patch.loader_speed.diagnosis import diagnose_dataloader_speed

# --- out of memory ------------------------------------------------------------------------------------------


def test_half_the_batch_and_as_many_samples_a_step() -> None:
    settings = handle_oom_errors(batch_size=64, num_workers=8, gradient_accumulation_steps=2)
    assert settings == {
        "batch_size": 32,
        "num_workers": 4,
        "persistent_workers": False,
        "gradient_accumulation_steps": 4,
    }
    assert handle_oom_errors().keys() == settings.keys()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("batch_size", range(2, 130))
def test_the_samples_of_a_step_stay_as_many_or_as_near_as_can_be(batch_size: int, steps: int) -> None:
    settings = handle_oom_errors(batch_size=batch_size, gradient_accumulation_steps=steps)
    smaller, samples = settings["batch_size"], batch_size * steps
    assert batch_size // 4 < smaller <= batch_size // 2
    missed = abs(smaller * settings["gradient_accumulation_steps"] - samples)
    if any(samples % size == 0 for size in range(batch_size // 4 + 1, batch_size // 2 + 1)):
        assert missed == 0
    assert missed <= smaller / 2


def test_the_present_settings_are_read_from_the_loader(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "chirpid_patch")
    settings = handle_oom_errors(DataLoader(tensor_data(8), 4))
    assert (settings["batch_size"], settings["num_workers"], settings["gradient_accumulation_steps"]) == (2, 0, 2)
    assert [message.split(":")[0] for message in caplog.messages] == ["batch_size", "gradient_accumulation_steps"]
    sampled = DataLoader(tensor_data(8), batch_sampler=[[0, 1], [2]])
    with pytest.raises(ValueError, match="pass the argument batch_size"):
        handle_oom_errors(sampled)
    assert handle_oom_errors(sampled, batch_size=2)["batch_size"] == 1


def test_a_batch_of_one_stays_and_workers_go() -> None:
    settings = handle_oom_errors(batch_size=1, num_workers=1, gradient_accumulation_steps=8)
    assert list(settings.values()) == [1, 0, False, 8]
    with pytest.raises(ValueError, match="at least 1"):
        handle_oom_errors(batch_size=0)


# --- what follows from measured times -----------------------------------------------------------------------


def times(**given: float) -> dict[str, Any]:
    return {"mean_batch_time": 0.01, "p99_batch_time": 0.02, "first_batch_time": 1.0, **given}


def test_workers_are_to_be_kept_where_starting_them_is_a_part_of_the_epoch() -> None:
    finding = advise_persistent_workers(times(), workers=2, batches=100)
    assert finding is not None
    assert (finding.setting, finding.current, finding.suggested) == ("persistent_workers", False, True)
    assert "0.98 s in every epoch, 49 %" in finding.reason
    assert advise_persistent_workers(times(), workers=2, batches=10_000) is None
    assert advise_persistent_workers(times(first_batch_time=0.02), workers=2, batches=10) is None


def test_more_batches_ahead_are_named_only_where_they_hide_the_slowest_one() -> None:
    slow_at_times = times(p99_batch_time=0.3)
    finding = advise_prefetching(slow_at_times, workers=2, prefetch_factor=2, step_seconds=0.02)
    assert finding is not None
    assert (finding.setting, finding.current, finding.suggested) == ("prefetch_factor", 2, 8)
    assert advise_prefetching(slow_at_times, workers=2, prefetch_factor=8, step_seconds=0.02) is None
    assert advise_prefetching(slow_at_times, workers=2, prefetch_factor=2, step_seconds=0.005) is None  # always late


def test_trap_05_memory_is_to_be_pinned_only_for_a_device() -> None:
    assert advise_pinning(False, None) is advise_pinning(True, "cuda") is None
    with_device, without = advise_pinning(False, "cuda"), advise_pinning(True, None)
    assert with_device is not None
    assert without is not None
    assert (with_device.suggested, without.suggested) == (True, False)


# --- what was tried on the loader ---------------------------------------------------------------------------


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Loading takes no time, but is said to have the speed, in samples/s, of the loader's number of workers."""

    def of(by_workers: dict[int, float], whole_batches: float = 1.0, **figures: Any) -> list[Any]:
        tried: list[Any] = []

        def timed(loader: Any, num_batches: int) -> dict[str, Any]:
            rate = by_workers[loader.num_workers] if type(loader) is DataLoader else whole_batches
            tried.append(loader.num_workers if type(loader) is DataLoader else "whole batches")
            return {
                **times(mean_batch_time=4 / rate, p99_batch_time=4 / rate, first_batch_time=0.0),
                "samples_per_second": rate,
                "num_batches": num_batches,
                "head_start_batches": 0,
                "start_up_included": False,
                **figures,
            }

        monkeypatch.setattr(diagnosis, "_time", timed)
        monkeypatch.setattr(diagnosis, "why_workers_cannot_start", lambda *arguments: None)
        monkeypatch.setattr(diagnosis, "pinning_device", lambda: None)
        return tried

    return of


def diagnose(workers: int, **options: Any) -> list[tuple[str, Any, Any]]:
    loader = DataLoader(PairDataset(40), 4, num_workers=workers)
    found = diagnose_dataloader_speed(loader, verbose=False, **options).findings
    return [(one.setting, one.current, one.suggested) for one in found]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    ("workers", "rates", "suggested"),
    [
        (0, {0: 100, 2: 190, 4: 370, 8: 380}, 4),
        (0, {0: 100, 2: 190, 4: 370, 8: 700}, 8),
        (0, {0: 100, 2: 119}, None),
        (0, {0: 1000, 2: 300}, None),
        (4, {4: 300, 0: 1000}, 0),
        (4, {4: 300, 0: 290}, 0),
        (2, {2: 300, 0: 100, 4: 600, 8: 610}, 4),
        (4, {4: 300, 0: 100, 8: 310, 2: 299}, 2),
        (4, {4: 300, 0: 100, 8: 310, 2: 200}, None),
        (12, {12: 300, 0: 100, 6: 300}, 6),
    ],
)
def test_trap_12_a_number_of_workers_is_named_only_if_it_was_better(
    workers: int, rates: dict[int, float], suggested: int | None, speeds: Any
) -> None:
    speeds(rates)
    assert diagnose(workers) == ([] if suggested is None else [("num_workers", workers, suggested)])


def test_each_change_is_tried_in_turns_with_the_loader_as_it_is(speeds: Any) -> None:
    tried = speeds({0: 100, 2: 100}, whole_batches=900)
    assert diagnose(0) == [("loader", "DataLoader", "OptimalDataLoaderFactory.create_training_loader")]
    assert tried == [0, 2, 0, 0, 2, "whole batches", 0, 0, "whole batches"]


def test_what_the_training_hides_is_not_worth_a_change(speeds: Any) -> None:
    tried = speeds({2: 100, 0: 50, 4: 200})
    loader = DataLoader(PairDataset(40), 4, num_workers=2)
    found = diagnose_dataloader_speed(loader, step_seconds=1.0, verbose=False)
    assert (found.findings, tried) == ((), [2])
    assert len(found.notes) == 1


def test_batches_that_were_under_way_before_the_clock_prove_nothing(speeds: Any) -> None:
    speeds({0: 100, 2: 10_000}, head_start_batches=3)
    loader = DataLoader(PairDataset(40), 4)
    found = diagnose_dataloader_speed(loader, verbose=False)
    assert found.findings == ()
    assert len(found.notes) == 1


def test_loading_too_slow_for_the_time_given_says_what_it_needs(speeds: Any) -> None:
    tried = speeds({0: 1.0})
    found = diagnose_dataloader_speed(DataLoader(PairDataset(40), 4), seconds=5, verbose=False)
    assert (found.findings, tried) == ((), [0])
    assert found.notes == ("5 s are not enough to try other settings: pass seconds=240",)


# --- the loader afterwards ----------------------------------------------------------------------------------


class Counting(Sampler[int]):
    """Another order each time it is asked, by a number that it keeps."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.epoch = 0

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch)).tolist())


def loaders() -> dict[str, Callable[[], Any]]:
    data = RandomPairDataset(24)
    own = {"sampler": Counting(24), "generator": torch.Generator().manual_seed(1)}
    workers = {"num_workers": 1, "persistent_workers": True}
    return {
        "plain": lambda: DataLoader(data, 4, **own),
        "kept workers": lambda: DataLoader(data, 4, shuffle=True, **workers),
        "ours": lambda: BatchedDataLoader(tensor_data(24), 4, shuffle=True),
        "ours as with workers": lambda: BatchedDataLoader(data, 4, **own, **workers, in_process=True),
        "ours with kept workers": lambda: BatchedDataLoader(data, 4, shuffle=True, **workers),
        "batch sampler": lambda: DataLoader(data, batch_sampler=[[0, 1], [2, 3], [4]]),
        "single samples": lambda: DataLoader(data, batch_size=None, sampler=Counting(24)),
        "wrapped": lambda: DevicePrefetcher(DataLoader(data, 4, **own), "cpu"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", loaders())
def test_trap_09_random_numbers_samplers_and_workers_are_as_before(name: str) -> None:
    def epochs(diagnosed: bool) -> Any:
        loader = loaders()[name]()
        seed_all(5)
        if diagnosed:
            seconds = 1.1 if name == "plain" else 0.1  # time to try workers, too
            found = diagnose_dataloader_speed(loader, num_batches=3, seconds=seconds, verbose=False)
            assert found.times["num_batches"] >= 1
            inner = getattr(loader, "loader", loader)
            assert inner._iterator is None
        batches = [list(loader), list(loader)]
        end = global_states()
        if hasattr(loader, "shutdown"):
            loader.shutdown()
        return batches, end

    assert same(epochs(True), epochs(False))


class Lines(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(20))


def test_what_cannot_be_tried_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(diagnose_dataloader_speed(DataLoader(Lines(), 2)).notes) == 1
    own = diagnose_dataloader_speed([torch.zeros(2)] * 5)
    assert own.findings == ()
    assert "DataLoader" in own.notes[0]
    printed = capsys.readouterr().out
    assert printed.endswith(f"{own}\n")
    assert "samples/s" in printed and "4 batches" in printed


@pytest.mark.parametrize("wrong", [{"num_batches": 0}, {"seconds": 0}, {"step_seconds": 0.0}])
def test_wrong_arguments_and_empty_loaders_are_clear_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        diagnose_dataloader_speed(DataLoader(tensor_data(4)), **wrong)
    with pytest.raises(ValueError, match="no batch"):
        diagnose_dataloader_speed(DataLoader(tensor_data(0)), verbose=False)


def test_a_finding_reads_as_a_sentence() -> None:
    assert str(SettingAdvice("num_workers", 4, 0, "it was faster")) == "num_workers: 4 -> 0: it was faster"
