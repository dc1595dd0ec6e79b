"""Measuring: what is counted, what is left out, and what happens to ways of loading that fail."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.training.errors import UserCodeError
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint, WorkloadSizes
from chirp_migrate.tune.measured_dataset import prepare_dataset_measurement, prepare_loader_measurement
from chirp_migrate.tune.request import SettingsToMeasure, TuneTask
from chirp_migrate.tune.runner import run
from chirp_migrate.tune.saving import factory_arguments, save_picked_settings
from chirp_migrate.tune.sweep import (
    MIN_ROUNDS,
    SettingsSweep,
    expected_measurement_seconds,
    measure_settings,
    setting_combinations,
)
from chirp_migrate.tune.tune_report import CandidateMeasurement, CandidateSettings, TuneReport
from chirp_migrate.tune.watching import watch_loaders
from chirpid_patch import OptimalDataLoaderFactory
from chirpid_patch.loader_speed.profiles import loader_choice_key, read_loader_choice

needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="starting processes otherwise takes seconds"
)


class Waiting(Dataset[Any]):
    """Reading a sample waits as for a disk; in a worker it may do worse."""

    def __init__(self, count: int = 64, seconds: float = 0.002, in_worker: str = "") -> None:
        self.count = count
        self.seconds = seconds
        self.in_worker = in_worker
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if torch.utils.data.get_worker_info() is not None:
            if self.in_worker == "dies":
                os._exit(3)
            if self.in_worker == "raises":
                raise ValueError("no such file")
        self.read.append(index)
        time.sleep(self.seconds)
        return torch.tensor(float(index))


def fork(dataset: Any, migrated: bool) -> Any:
    """A measured dataset whose workers are forked."""
    subject = prepare_dataset_measurement(dataset, 4, migrated)
    subject.options["multiprocessing_context"] = "fork"
    return subject


def no_words(_what: str | ProgressStep) -> None:
    pass


def test_the_rate_counts_what_came_and_leaves_the_start_out() -> None:
    dataset = Waiting(seconds=0.001)
    began = time.perf_counter()
    rate = measure_settings(
        prepare_dataset_measurement(dataset, 4, uses_runtime=False), CandidateSettings(0, batch_size=4), seconds=0.1
    )
    took = time.perf_counter() - began
    assert len(dataset.read) == 4 * (rate.batches + 1)  # the first batch is start-up and in no rate
    assert rate.samples_per_second * rate.seconds == pytest.approx(4 * rate.batches)
    assert rate.first_s + rate.seconds <= took
    assert rate.samples_per_second <= 1000
    assert rate.cpu_share < 0.9  # sleeping is no computing


@needs_fork
@pytest.mark.parametrize("migrated", [False, True])
def test_workers_are_measured_in_whole_turns_and_are_gone_afterwards(migrated: bool) -> None:
    rate = measure_settings(fork(Waiting(), migrated), CandidateSettings(2, 2, batch_size=4), seconds=0.05)
    assert rate.batches % 2 == 0 and rate.batches >= 2
    assert not multiprocessing.active_children()


@needs_fork
@pytest.mark.parametrize(
    ("in_worker", "migrated", "reason"),
    [("dies", True, "DataLoader worker"), ("dies", False, "DataLoader worker"), ("raises", True, "no such file")],
)
def test_a_way_that_fails_is_reported_and_the_others_go_on(in_worker: str, migrated: bool, reason: str) -> None:
    said: list[str | ProgressStep] = []
    ways = [CandidateSettings(0, batch_size=4), CandidateSettings(2, 2, batch_size=4)]
    sweep = SettingsSweep(fork(Waiting(in_worker=in_worker), migrated), ways, 0.2, said.append)
    alone, workers = sweep.run()
    assert alone.error is None and len(alone.rates) == sweep.rounds >= MIN_ROUNDS
    assert workers.error is not None and reason in workers.error and "\n" not in workers.error
    lines = [line for line in said if isinstance(line, str)]
    assert not workers.rates and any("2 workers, prefetch 2 could not be measured" in line for line in lines)


def test_a_dataset_that_cannot_be_sent_to_spawned_workers_is_said_so() -> None:
    dataset = Waiting()
    dataset.transform = lambda value: value  # type: ignore[attr-defined]
    subject = prepare_dataset_measurement(dataset, 4, uses_runtime=False)
    subject.options["multiprocessing_context"] = "spawn"
    for migrated in (True, False):
        subject.report.migrated = migrated
        sweep = SettingsSweep(
            subject, [CandidateSettings(0, batch_size=4), CandidateSettings(1, 2, batch_size=4)], 0.1, no_words
        )
        error = sweep.run()[1].error
        assert error is not None and "lambda" in error  # the rest is Python's, and each release's own


def test_every_round_measures_every_way_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    import chirp_migrate.tune.sweep as module

    real = module.measure_settings

    def noted(subject: Any, candidate: CandidateSettings, seconds: float) -> Any:
        asked.append(candidate.prefetch_threads)
        return real(subject, CandidateSettings(0, batch_size=4), 0.001)

    monkeypatch.setattr(module, "measure_settings", noted)
    ways = setting_combinations((), (2,), (1, 2), 4, None)
    said: list[str | ProgressStep] = []
    SettingsSweep(prepare_dataset_measurement(Waiting(seconds=0), 4, uses_runtime=True), ways, 0.01, said.append).run()
    rounds = [asked[number : number + 3] for number in range(0, 3 * MIN_ROUNDS, 3)]
    assert rounds[0] == [0, 1, 2] and all(sorted(one) == [0, 1, 2] for one in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    (foretold,) = [
        line for line in said if isinstance(line, str) and line.startswith("measuring 3 configurations of Waiting")
    ]
    assert "the measurement takes about " in foretold
    steps = [step for step in said if isinstance(step, ProgressStep)]
    fewest = [(step.done, step.total) for step in steps if step.text.startswith("round")][: 3 * MIN_ROUNDS]
    assert fewest == [(done, 3 * MIN_ROUNDS) for done in range(3 * MIN_ROUNDS)]
    assert steps[0].left_s is None and steps[1].left_s, "once something was measured"


def test_the_estimate_knows_starting_turns_and_cpus() -> None:
    alone = expected_measurement_seconds(CandidateSettings(0), 0.1, 0.5, 4.0, cpus=2)
    assert alone == pytest.approx(0.1 + 0.1 + 0.5)
    eight = expected_measurement_seconds(CandidateSettings(8, 2), 0.1, 0.1, 4.0, cpus=2)
    assert eight == pytest.approx(4.0 + 0.1 + 0.4 + 0.4)


class Clock:
    """Stands for the module ``time``: goes on only as samples are read and steps are made."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Clocked(Dataset[Any]):
    """Reading a sample takes so long on a clock."""

    def __init__(self, count: int, clock: Clock, seconds: float, base: Any = None) -> None:
        self.count, self.clock, self.seconds, self.base = count, clock, seconds, base

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.clock.now += self.seconds
        return torch.tensor(float(index))


class Augmented(Clocked):
    """Over another dataset."""


def test_a_training_is_ended_when_its_loaders_were_seen() -> None:
    walks: list[str] = []

    def train() -> None:
        batches = DataLoader(Waiting(seconds=0), batch_size=4)
        for _ in range(1000):
            for _batch in batches:
                torch.zeros(1, requires_grad=True).sum().backward()
            walks.append("training")
            with torch.no_grad():
                for _batch in DataLoader(Waiting(seconds=0), batch_size=2):
                    pass
            walks.append("validation")

    subjects, _, _ = watch_loaders({"train": lambda: train}, no_words)
    assert walks == ["training", "validation"]
    assert {one.report.role for one in subjects} <= {"training", "validation"} and subjects


def test_a_long_pass_is_ended_once_its_waits_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("chirp_migrate.tune.watching.time", clock)
    taken: list[int] = []

    def train() -> None:
        taken.append(sum(1 for _ in DataLoader(Clocked(4000, clock, 1.0), batch_size=1)))
        taken.append(sum(1 for _ in DataLoader(Clocked(4000, clock, 0.0), batch_size=1)))

    watch_loaders({"train": lambda: train}, no_words)
    assert taken == [8, 4000]


def test_a_training_that_is_broken_is_skipped_and_named() -> None:
    def broken() -> None:
        raise KeyError("no such bird")

    def train() -> None:
        for _batch in DataLoader(Waiting(seconds=0), batch_size=4):
            pass

    reported: list[str | ProgressStep] = []
    subjects, _, notes = watch_loaders({"first": lambda: broken, "second": lambda: train}, reported.append)
    assert len(subjects) == 1
    assert (
        notes[0] == ("skipped an entry point that does not train: first raised KeyError: 'no such bird'")
        and notes[0] in reported
    )
    with pytest.raises(UserCodeError, match="first raised KeyError"):
        watch_loaders({"first": lambda: broken, "other": lambda: broken}, no_words)


def test_what_is_not_entered_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("chirp_migrate.tune.watching.time", clock)

    def train() -> None:
        clock.now += 40
        for _batch in DataLoader(Waiting(seconds=0), batch_size=4):
            pass

    _, _, notes = watch_loaders(dict.fromkeys(("one", "two", "three"), lambda: train), no_words, 60.0)
    assert notes == ["not started within the time budget: two, three"]


def test_a_training_is_watched_for_its_loaders_and_their_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for module in ("chirp_migrate.tune.watching", "chirpid_patch.loading.batch_timer"):
        monkeypatch.setattr(f"{module}.time", clock)
    base = Clocked(16, clock, 1.0)

    def train() -> None:
        for _ in range(2):
            for _batch in DataLoader(Augmented(16, clock, 3.0, base), batch_size=4, shuffle=True):
                clock.now += 8.0
        with torch.no_grad():
            for _batch in DataLoader(base, batch_size=8):
                pass
            for _batch in DataLoader(base, batch_size=16):
                pass

    subjects, training, notes = watch_loaders({"train": lambda: train}, no_words)
    assert [(one.report.name, one.report.role, one.report.batch_size) for one in subjects] == [
        ("Augmented > Clocked", "training", 4),
        ("Clocked", "validation", 8),
        ("Clocked", "validation", 16),
    ]
    assert subjects[0].options == {"shuffle": True} and not subjects[0].report.migrated
    # Waits behind the first one, each of 4 samples, and a step.
    assert subjects[0].report.waited_share == pytest.approx(12 / 20)
    assert training.seconds == 2 * 4 * 20 + 16 + 16 and training.gpu
    assert notes == []


def tuned(tmp_path: Path, **more: Any) -> TuneReport:
    """What a run in this process finds."""
    return run(TuneTask(str(tmp_path), SettingsToMeasure(workers=(0,), prefetch=(2,), seconds=0.2), **more), no_words)


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with datasets, importable under a name of its own."""
    name = f"sets_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "import time\nimport torch\nfrom torch.utils.data import TensorDataset\n"
        "def memory():\n    return TensorDataset(torch.arange(40.).reshape(20, 2), torch.arange(20))\n"
        "class Noisy:\n"
        "    def __len__(self):\n        return 8\n"
        "    def __getitem__(self, i):\n        time.sleep(0.001)\n        return torch.rand(3) + i\n"
        "class Plain(Noisy):\n    def __getitem__(self, i):\n        return torch.zeros(3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name


@pytest.mark.slow
def test_augmentation_is_measured_against_the_dataset_without_it(tmp_path: Path, sets: str) -> None:
    loader = tuned(tmp_path, dataset=f"{sets}:Noisy", unaugmented=f"{sets}:Plain").loaders[0]
    assert len(loader.with_s) == len(loader.without_s) >= 1 and min(loader.without_s) > 0
    assert min(loader.with_s) >= 32 * 0.001  # batches of 32, and none of them was read without its augmentation
    loader = tuned(tmp_path, dataset=f"{sets}:Noisy").loaders[0]
    assert loader.with_s == [] and loader.not_augmented is not None and "--unaugmented" in loader.not_augmented


def test_a_migrated_dataset_is_kept_in_the_profile_or_it_says_why_not(tmp_path: Path, sets: str) -> None:
    profile = tmp_path / "profile.json"
    found = tuned(tmp_path, dataset=f"{sets}:memory", profile=str(profile), uses_runtime=True).loaders[0]
    assert found.migrated and (found.saved is None) == (found.not_saved is not None) == (not profile.exists())
    assert found.not_augmented is not None and "does not augment" in found.not_augmented


def test_the_factory_loads_as_the_profile_says(tmp_path: Path, measured: Callable[..., CandidateMeasurement]) -> None:
    profile, dataset = tmp_path / "profile.json", TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
    kept = save_picked_settings(
        prepare_dataset_measurement(dataset, 32, uses_runtime=True),
        [measured(0, [1000.0, 1010.0, 990.0])],
        profile,
        False,
    )
    assert kept is None
    make: Any = OptimalDataLoaderFactory.create_training_loader
    assert "measured" in make(dataset, 32, tune=profile, tune_seconds=0).decision
    assert "measured" in make(dataset, 32, shuffle=True, drop_last=False, tune=profile, tune_seconds=0).decision
    assert "measured" not in make(dataset, 16, tune=profile, tune_seconds=0).decision


def test_nothing_is_kept_of_pytorch_s_loader(tmp_path: Path, sets: str) -> None:
    profile = tmp_path / "profile.json"
    found = tuned(tmp_path, dataset=f"{sets}:memory", profile=str(profile)).loaders[0]
    assert found.saved is None and found.not_saved is not None and "PyTorch's loader" in found.not_saved
    assert not profile.exists()


def test_a_rate_that_is_hardly_known_is_not_kept(tmp_path: Path, measured: Callable[..., CandidateMeasurement]) -> None:
    subject = prepare_dataset_measurement(Waiting(seconds=0), 32, uses_runtime=True)
    profile = tmp_path / "profile.json"
    problem = save_picked_settings(subject, [measured(0, [10.0, 4000.0, 90.0])], profile, False)
    assert problem is not None and "this range is too wide" in problem and not profile.exists()


def test_a_migrated_call_finds_what_its_original_had_as_a_bound() -> None:
    dataset = TensorDataset(torch.arange(8.0))
    before = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, drop_last=True)
    plain, migrated = factory_arguments(prepare_loader_measurement(before, "training"), thread_safe=False)
    as_called = {
        "pin_memory": False, "batch_size": 4, "shuffle": True, "drop_last": True, "prefetch_factor": None,
        "thread_safe": False, "num_workers": 2,
    }  # fmt: skip
    assert torch.cuda.is_available() or loader_choice_key(dataset, migrated) == loader_choice_key(dataset, as_called)
    assert loader_choice_key(dataset, plain) != loader_choice_key(dataset, migrated)
    assert read_loader_choice(Path("nowhere"), loader_choice_key(dataset, plain)) is None


def test_a_migrated_call_is_given_the_best_within_its_bound(
    tmp_path: Path, measured: Callable[..., CandidateMeasurement]
) -> None:
    subject = prepare_loader_measurement(
        DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2), "training"
    )
    sweep = [measured(0, [100] * 3), measured(2, [200] * 3), measured(8, [400] * 3)]
    profile = tmp_path / "profile.json"
    assert save_picked_settings(subject, sweep, profile, thread_safe=False) is None
    plain, migrated = (
        read_loader_choice(profile, loader_choice_key(subject.dataset, one))
        for one in factory_arguments(subject, False)
    )
    assert plain is not None and plain.num_workers == 8
    assert migrated is not None and migrated.num_workers == 2


@pytest.mark.slow
def test_the_loaders_of_a_workload_are_measured_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"hook_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "def workload(sizes):\n"
        "    dataset = TensorDataset(torch.zeros(sizes.samples, 3))\n"
        "    def train():\n"
        "        for _ in range(2):\n"
        "            for batch in DataLoader(dataset, batch_size=sizes.batch_size, shuffle=True):\n"
        "                pass\n"
        "    return {'train': train}\n"
    )
    monkeypatch.chdir(tmp_path)
    entry = EntryPoint("", "", hook=f"{name}.py:workload")
    report = tuned(tmp_path, discovery=DiscoveredEntryPoints((entry,)), sizes=WorkloadSizes(samples=40, batch_size=8))
    loader = report.loaders[0]
    assert (loader.name, loader.role, loader.batch_size, loader.samples) == ("TensorDataset", "training", 8, 40)
    assert not loader.migrated and loader.now == CandidateSettings(0, batch_size=8)
    assert report.training is not None and loader.waited_share is not None


def test_a_training_that_raises_is_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"hook_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "def workload(sizes):\n    def train():\n        raise OSError('data/a.npy is missing')\n"
        "    return {'train': train}\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserCodeError, match=r"train raised OSError: data/a\.npy is missing"):
        tuned(tmp_path, discovery=DiscoveredEntryPoints((EntryPoint("", "", hook=f"{name}.py:workload"),)))


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("raise KeyError('label')", "KeyError: 'label'"),
        ("raise ValueError('no label:\\nnone at all')", "ValueError: no label:$"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_reading_that_raises_names_the_dataset(tmp_path: Path, sets: str, statement: str, error: str) -> None:
    (tmp_path / f"{sets}_broken.py").write_text(
        "class Broken:\n    def __len__(self):\n        return 3\n"
        f"    def __getitem__(self, index):\n        {statement}\n"
    )
    with pytest.raises(UserCodeError, match=f"^reading a batch of Broken raised {error}"):
        tuned(tmp_path, dataset=f"{sets}_broken:Broken")
