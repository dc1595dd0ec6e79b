"""Speed bought by training on less, or on something else, is named; honest changes are not.

Each cheat is an edit of one small backend that really trains, with real loaders and, where they matter, workers.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from chirp_migrate.training.workload.data import TrainingData, make_training_data
from chirp_migrate.training.workload.entry_points import WorkloadSizes
from chirp_migrate.verify.equivalence import loader_recorder
from chirp_migrate.verify.equivalence.compare import Equivalence, compare_recorded_passes
from chirp_migrate.verify.equivalence.fingerprint import leaf_fingerprints
from chirp_migrate.verify.equivalence.first_difference import OTHER_SEED, seed_dependent_aspects
from chirp_migrate.verify.equivalence.loader_recorder import DRAWS, LoaderRecorder
from chirp_migrate.verify.spec import EntryPointRecord
from chirpid_patch import WorkerSafeAugmentedDataset

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "backend"

BACKEND = """
import random
import torch
from torch.utils.data import DataLoader, Dataset, Subset

TIME, FREQ, P = 8, 6, 0.8


class Standardized(Dataset):
    def __init__(self, dataset, indices, mean, std):
        self.dataset, self.indices, self.mean, self.std = dataset, indices, mean, std

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, i):
        x, y = self.dataset[int(self.indices[i])]
        return (x - self.mean) / (self.std + 1e-8), y


class Augmented(Dataset):
    def __init__(self, base):
        self.base = base

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        x, y = self.base[i]
        if random.random() > P:
            return x, y
        x = x.clone()
        t = random.randint(0, TIME)
        t0 = random.randint(0, x.shape[-1] - t)
        x[..., t0:t0 + t] = 0.0
        f = random.randint(0, FREQ)
        f0 = random.randint(0, x.shape[-2] - f)
        x[..., f0:f0 + f, :] = 0.0
        return x, y


def seed_worker(worker_id):
    random.seed(torch.initial_seed() % 2**32)


def train(dataset, train_indices, val_indices, augment, workers=0, epochs=2):
    statistics_indices = train_indices
    x = torch.stack([dataset[i][0] for i in statistics_indices])
    train_set = Standardized(dataset, train_indices, x.mean(), x.std())
    val_set = Standardized(dataset, val_indices, x.mean(), x.std())
    if augment:
        train_set = Augmented(train_set)
    train_loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=workers, worker_init_fn=seed_worker)
    val_loader = DataLoader(val_set, batch_size=8)
    torch.nn.Module()
    weights = torch.zeros(4, x[0].shape[-2], requires_grad=True)
    criterion = torch.nn.CrossEntropyLoss()
    history = []
    for epoch in range(epochs):
        for inputs, labels in train_loader:
            loss = criterion(inputs.mean(dim=(1, 3)) @ weights.T, labels)
            (gradient,) = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                weights -= 0.1 * gradient
            history.append(loss.item())
        with torch.no_grad():
            for inputs, labels in val_loader:
                history.append(criterion(inputs.mean(dim=(1, 3)) @ weights.T, labels).item())
    return {'history': history, 'weights': weights}
"""

Edit = tuple[str, str]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The samples are so small that a second thread only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data() -> TrainingData:
    """52 spectrograms: neither the training nor the validation samples fill their last batch."""
    return make_training_data(WorkloadSizes(samples=52, shape=(1, 16, 20)))


def trained(data: TrainingData, *edits: Edit, seed: int = 435, draws: int = 0, **options: Any) -> EntryPointRecord:
    """Train the backend, with pieces of its code replaced, under the watch; then with another seed.

    So many augmented samples are drawn, at least.
    """
    text = BACKEND
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module = sys.modules["cheating_backend"] = ModuleType("cheating_backend")
    exec(compile(text, "cheating_backend.py", "exec"), module.__dict__)

    def run(seed: int, **changed: Any) -> Any:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        return module.train(
            data.dataset(), data.train_indices, data.val_indices, **{"augment": False, **options, **changed}
        )

    with LoaderRecorder() as watch:
        result = leaf_fingerprints(run(seed))
        watch.record_more_samples(draws)
        passes = watch.take()
        other = leaf_fingerprints(run(seed + OTHER_SEED))
        seeds = [seed_dependent_aspects(passes, result), seed_dependent_aspects(watch.take(), other)]
    return EntryPointRecord(result, passes, seeds)


def compared(before: EntryPointRecord, after: EntryPointRecord, again: EntryPointRecord | None = None) -> Equivalence:
    return compare_recorded_passes({"entry": before}, {"entry": after}, None if again is None else {"entry": again})


def names(found: Equivalence) -> set[str]:
    assert all(difference.message.startswith("entry: ") for difference in found.found)
    return {difference.name for difference in found.found}


@pytest.fixture(scope="module")
def honest(data: TrainingData) -> dict[bool, EntryPointRecord]:
    """Without and with augmentation; the latter long enough for its distribution."""
    return {False: trained(data), True: trained(data, augment=True, epochs=8)}


@pytest.fixture(scope="module")
def honest_with_workers(data: TrainingData) -> EntryPointRecord:
    """With augmentation in two worker processes."""
    return trained(data, augment=True, workers=2, epochs=3)


DROP = ("shuffle=True, num_workers", "shuffle=True, drop_last=True, num_workers")
UNSHUFFLED = ("shuffle=True", "shuffle=False")
WITHOUT_CLASS_3 = (
    "    x = torch.stack",
    "    train_indices = [i for i in train_indices if dataset[i][1] != 3]\n    x = torch.stack",
)


VALIDATION_DROP = ("DataLoader(val_set, batch_size=8)", "DataLoader(val_set, batch_size=8, drop_last=True)")
VALIDATION_STATISTICS = ("statistics_indices = train_indices", "statistics_indices = val_indices")
BROKEN_OFF = (
    "            history.append(loss.item())",
    "            if len(history) % 20 == 3:\n                break\n            history.append(loss.item())",
)
OWN_GENERATOR = (
    "DataLoader(train_set, ",
    "DataLoader(train_set, generator=torch.Generator().manual_seed(0), ",
)


@pytest.mark.parametrize("augment", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "edit, name, says",
    [
        (DROP, "training-drops-samples", "train pass 1: 38 .* 32 .* batch 5 "),
        (VALIDATION_DROP, "validation-drops-samples", "validation pass 1: 14 .* 8 .* batch 2 "),
        (UNSHUFFLED, "not-shuffled", "train pass 1: "),
        (WITHOUT_CLASS_3, "class-missing", "class 3 "),
        (VALIDATION_STATISTICS, "statistics-differ", ""),
        (BROKEN_OFF, "epoch-shortened", ""),
        (("range(epochs)", "range(epochs - 1)"), "epochs-missing", "train"),
        (OWN_GENERATOR, "seed-ignored", ""),
    ],
)
def test_training_on_less_or_otherwise_is_named(
    data: TrainingData, honest: dict[bool, EntryPointRecord], augment: bool, edit: Edit, name: str, says: str
) -> None:
    cheat = trained(data, edit, augment=augment, epochs=8 if augment else 2)
    found = compared(honest[augment], cheat)
    assert name in names(found)
    assert any(re.search(says, difference.message) for difference in found.found if difference.name == name)


@pytest.mark.parametrize(
    "edit",
    [
        ("TIME, FREQ, P = 8, 6, 0.8", "TIME, FREQ, P = 8, 6, 0.4"),
        ("TIME, FREQ, P = 8, 6, 0.8", "TIME, FREQ, P = 4, 6, 0.8"),
        ("TIME, FREQ, P = 8, 6, 0.8", "TIME, FREQ, P = 8, 3, 0.8"),
        ("t0 = random.randint(0, x.shape[-1] - t)", "t0 = 0"),
    ],
    ids=["probability halved", "narrower in time", "narrower in frequency", "always at the beginning"],
)
def test_weaker_augmentation_is_named(data: TrainingData, honest: dict[bool, EntryPointRecord], edit: Edit) -> None:
    found = compared(honest[True], trained(data, edit, augment=True, epochs=8))
    assert names(found) == {"augmentation-distribution"}
    assert "adjusted p =" in found.differences[0]


SELDOM = ("TIME, FREQ, P = 8, 6, 0.8", "TIME, FREQ, P = 8, 6, 0.6")


@pytest.mark.parametrize("times", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_probability_of_08_that_became_06_is_noticed_at_default_sizes(data: TrainingData, times: int) -> None:
    few, many = (trained(data, augment=True, draws=draws) for draws in (0, DRAWS))
    weaker = [trained(data, SELDOM, augment=True, draws=DRAWS, seed=seed) for seed in range(times)]
    noticed = [names(compared(many, one)) for one in weaker]
    assert noticed == [{"augmentation-distribution"}] * times
    unnoticed = compared(few, trained(data, augment=True, seed=7)).detectable_changes["entry"]
    assert unnoticed > 0.4, "training alone draws 76 samples"


def test_what_would_have_been_noticed_is_told(data: TrainingData) -> None:
    before, after = (trained(data, augment=True, draws=DRAWS, seed=seed) for seed in (1, 2))
    found = compared(before, after)
    assert found.differences == ()
    assert found.detectable_changes.keys() == {"entry"} and 0.15 < found.detectable_changes["entry"] < 0.2
    rows = [one for trace in (*before.traces, *after.traces) for one in (trace.statistics, trace.paired)]
    assert sum(map(len, rows)) >= 4 * DRAWS


def test_a_loader_that_cannot_be_walked_again_is_judged_by_what_training_took(data: TrainingData) -> None:
    once = (
        "def seed_worker",
        "class Once(DataLoader):\n    walks = 0\n\n    def __iter__(self):\n        self.walks += 1\n"
        "        assert self.walks <= 2\n        return super().__iter__()\n\n\ndef seed_worker",
    )
    of_it = ("train_loader = DataLoader(", "train_loader = Once(")
    found = compared(*(trained(data, once, of_it, augment=True, draws=DRAWS, seed=seed) for seed in (1, 2)))
    assert found.differences == ()
    assert found.detectable_changes["entry"] > 0.4, "training alone draws 76 samples"


UNREPEATABLE = ("import random\n", "import os\nimport random\n\nDRIFT = int.from_bytes(os.urandom(2), 'big') * 1e-7\n")
LOSSES_VARY = (
    "@ weights.T, labels)\n            (gradient",
    "@ weights.T * (1 + os.urandom(1)[0] * 1e-7), labels)\n            (gradient",
)
VALUES_VARY = ("return (x - self.mean)", "return (x - self.mean + DRIFT)")


@pytest.mark.parametrize(
    "vary, what",
    [
        (LOSSES_VARY, "losses"),
        pytest.param(VALUES_VARY, "batches and losses", marks=pytest.mark.slow),
    ],
)
def test_what_two_runs_before_do_not_repeat_is_compared_by_its_distribution(
    data: TrainingData, vary: Edit, what: str
) -> None:
    """As on a GPU, whose sums come out in another order each time, or in a training that draws its own seed."""
    before, again, after = (trained(data, UNREPEATABLE, vary, epochs=8) for _ in range(3))
    found = compared(before, after, again)
    assert found.differences == ()
    assert found.unrepeatable == {"entry"} and found.detectable_changes["entry"] > 0
    assert f"entry: {what} " in found.notes[0]
    assert names(compared(before, after)) & {"losses-differ", "values-differ", "samples-differ", "statistics-differ"}

    larger = ("weights -= 0.1 * gradient", "weights -= 30 * gradient")
    assert names(compared(before, trained(data, UNREPEATABLE, vary, larger, epochs=8), again)) == {"losses-differ"}
    for cheat in (DROP, UNSHUFFLED, WITHOUT_CLASS_3):
        assert compared(before, trained(data, UNREPEATABLE, vary, cheat, epochs=8), again).differences


def test_no_augmentation_is_named(data: TrainingData, honest: dict[bool, EntryPointRecord]) -> None:
    found = compared(honest[True], trained(data, epochs=8))
    assert names(found) == {"augmentation-missing"}


@pytest.mark.start_method("fork", reason="other workers cannot import a module that a test made")
def test_workers_with_equal_random_streams_are_named(data: TrainingData, honest_with_workers: EntryPointRecord) -> None:
    alike = ("random.seed(torch.initial_seed() % 2**32)", "random.seed(torch.initial_seed() - worker_id)")
    found = compared(honest_with_workers, trained(data, alike, augment=True, workers=2, epochs=3))
    assert names(found) == {"equal-worker-streams"}


@pytest.mark.start_method("fork", reason="other workers cannot import a module that a test made")
def test_augmentation_that_repeats_every_epoch_is_named(
    data: TrainingData, honest_with_workers: EntryPointRecord
) -> None:
    repeated = ("random.seed(torch.initial_seed() % 2**32)", "random.seed(worker_id)")
    found = compared(honest_with_workers, trained(data, repeated, augment=True, workers=2, epochs=3))
    assert names(found) == {"repeated-augmentation"}


def test_a_seed_that_augmentation_ignores_is_named(data: TrainingData, honest: dict[bool, EntryPointRecord]) -> None:
    constant = ("x, y = self.base[i]", "x, y = self.base[i]\n        random.seed(int(i) + 1000 * self.epoch(i))")
    epoch = (
        "class Augmented(Dataset):",
        "class Augmented(Dataset):\n    def epoch(self, i):\n"
        "        return next(vars(self).setdefault('met', {}).setdefault(i, iter(range(10**6))))\n",
    )
    found = compared(honest[True], trained(data, constant, epoch, augment=True, epochs=8))
    assert names(found) == {"seed-ignored"} and len(found.differences) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(7, marks=pytest.mark.exhaustive), 435])
@pytest.mark.parametrize("options", [{}, {"augment": True}, {"augment": True, "workers": 2}])
def test_the_same_training_is_equivalent_with_any_seed(data: TrainingData, seed: int, options: dict[str, Any]) -> None:
    before, after = (trained(data, seed=seed, **options) for _ in range(2))
    found = compared(before, after)
    assert (found.differences, found.notes) == ((), [])
    assert found.smallest_p == ({"entry": 1.0} if options else {})
    with_other_numbers = trained(
        data, ("x, y = self.base[i]", "x, y = self.base[i]\n        random.random()"), seed=seed, **options
    )
    assert compared(before, with_other_numbers).differences == ()


class FixtureAugmented(Dataset[Any]):
    """SpecAugment and noise as the fixture backend has them before it is migrated."""

    def __init__(self, base: Dataset[Any], augment: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.base = base
        self.augment = augment

    def __len__(self) -> int:
        return len(self.base)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.base[index]
        return self.augment(x), y


@pytest.mark.slow
@pytest.mark.parametrize("times", [50, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_false_alarms_are_rare(data: TrainingData, times: int) -> None:
    """Comparisons of real batches: the original augmentation before, the shipped one after."""
    namespace: dict[str, Any] = {}
    path = FIXTURE / "utils" / "specaugment.py"
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    parameters = {
        "spec_augment_params": {"time_mask_param": 8, "freq_mask_param": 6, "p": 0.8},
        "gaussian_noise_params": {"std": 0.02, "p": 0.8},
    }
    base = data.dataset()
    datasets = {
        "before": FixtureAugmented(base, namespace["OnTheFlyAugmentation"](True, True, **parameters)),
        "after": WorkerSafeAugmentedDataset(base, parameters),
    }

    def walked(side: str, seed: int) -> EntryPointRecord:
        random.seed(f"{side}{seed}")
        torch.manual_seed(seed)
        loader = DataLoader(datasets[side], batch_size=26, shuffle=True)
        for _ in range(2):
            for _batch in loader:
                pass
        return EntryPointRecord({}, watch.take())

    alarms = 0
    with LoaderRecorder() as watch:
        for seed in range(times):
            found = compare_recorded_passes(*({"entry": walked(side, seed)} for side in ("before", "after")))
            assert found.smallest_p, "the distribution was tested"
            alarms += bool(found.differences)
    assert alarms <= 1


def test_after_its_time_limit_no_loader_is_read_again(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_recorder, "_DRAWING_S", 0.0)
    trainings = [trained(data, augment=True, epochs=2, draws=draws) for draws in (0, 10_000)]
    fewest, limited = (sum(len(one.statistics) for one in training.traces) for training in trainings)
    assert 0 < fewest == limited
