"""What the watch sees of a loader, and which differences between two sides it makes visible, each by name."""

from __future__ import annotations

import random
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from chirp_migrate.verify.equivalence.augmentation_statistics import sample_statistics
from chirp_migrate.verify.equivalence.compare import compare_recorded_passes
from chirp_migrate.verify.equivalence.loader_recorder import LoaderRecorder
from chirp_migrate.verify.spec import EntryPointRecord, LoaderPassTrace
from chirpid_patch.torch_private import has_global_hooks

FEATURES = torch.rand(101, 1, 12, 40, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(101) % 4
DATA = TensorDataset(FEATURES, LABELS)


class Masked(Dataset[Any]):
    """Time masks of random width, gated by a probability, drawn from Python's global generator."""

    def __init__(self, p: float = 0.8, widest: int = 20) -> None:
        self.p = p
        self.widest = widest

    def __len__(self) -> int:
        return len(DATA)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = DATA[index]
        if random.random() < self.p:
            width = random.randint(0, self.widest)
            start = random.randint(0, x.shape[-1] - width)
            x = x.clone()
            x[..., start : start + width] = 0.0
        return x, y


def watched(dataset: Any, epochs: int = 2, seed: int = 7, batch_size: int = 16, **options: Any) -> EntryPointRecord:
    """Train-like walks over a loader and a validation loader under the watch."""
    options = {"shuffle": True, **options}
    torch.manual_seed(seed)
    random.seed(seed)
    criterion = torch.nn.CrossEntropyLoss()
    with LoaderRecorder() as watch:
        loader = DataLoader(dataset, batch_size=batch_size, **options)
        validation = DataLoader(DATA, batch_size=batch_size)
        for _ in range(epochs):
            for x, y in loader:
                criterion(x.mean(dim=(1, 2)).narrow(1, 0, 4), y)
            with torch.no_grad():
                for _x, _y in validation:
                    pass
        return EntryPointRecord({}, watch.take())


def differences(before: EntryPointRecord, after: EntryPointRecord) -> str:
    return "\n".join(compare_recorded_passes({"entry": before}, {"entry": after}).differences)


def test_each_walk_is_recorded_with_its_role_and_size() -> None:
    passes = watched(DATA).traces

    assert [(p.loader, p.role, p.samples, len(p.batches)) for p in passes] == [
        (0, "train", 101, 7),
        (1, "validation", 101, 7),
        (0, "train", 101, 7),
        (1, "validation", 101, 7),
    ]
    assert [p.shuffled for p in passes] == [True, False, True, False]
    assert [len(p.losses) for p in passes] == [7, 0, 7, 0]
    assert passes[0].labels == {"0": 26, "1": 25, "2": 25, "3": 25}
    assert passes[0].batches != passes[2].batches and passes[0].contents == passes[2].contents


def test_the_watch_changes_neither_batches_nor_random_state() -> None:
    def batches() -> tuple[list[torch.Tensor], torch.Tensor, float]:
        torch.manual_seed(3)
        random.seed(3)
        loader = DataLoader(Masked(), batch_size=16, shuffle=True)
        seen = [x for _ in range(2) for x, _ in loader]
        return seen, torch.get_rng_state(), random.random()

    plain = batches()
    with LoaderRecorder():
        seen = batches()
    assert all(torch.equal(a, b) for a, b in zip(plain[0], seen[0], strict=True))
    assert torch.equal(plain[1], seen[1]) and plain[2] == seen[2]
    assert "interception" not in DataLoader.__iter__.__module__


def test_a_loader_that_iterates_by_way_of_its_base_class_is_seen_once() -> None:
    class Lazy(DataLoader[Any]):
        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            yield from super().__iter__()

    with LoaderRecorder() as watch:
        assert len(list(Lazy(DATA, batch_size=16))) == 7
        assert [p.samples for p in watch.take()] == [101]


def test_workers_are_watched_like_a_single_process() -> None:
    single, workers = watched(DATA), watched(DATA, num_workers=1)
    assert differences(single, workers) == ""


def test_augmentation_is_recognised_by_its_behaviour() -> None:
    assert watched(Masked(), epochs=1).traces[0].random
    assert not watched(Masked(p=0.0), epochs=1).traces[0].random
    assert not watched(DATA, epochs=1).traces[0].random


@dataclass
class Images:
    """A batch with a name for each part."""

    x: torch.Tensor


@pytest.mark.parametrize(
    "collate",
    [
        lambda samples: UserDict(x=torch.stack([x for x, _ in samples])),  # as transformers' BatchEncoding is one
        lambda samples: {"x": torch.stack([x for x, _ in samples]).numpy()},
        lambda samples: Images(torch.stack([x for x, _ in samples])),
    ],
)
def test_batches_of_any_mapping_dataclass_and_of_arrays_are_compared(collate: Callable[[list[Any]], Any]) -> None:
    def walked(data: Any) -> EntryPointRecord:
        with LoaderRecorder() as watch:
            list(DataLoader(data, batch_size=16, collate_fn=collate))
            return EntryPointRecord({}, watch.take())

    assert walked(DATA).traces[0].samples == 101
    assert "other values" in differences(walked(DATA), walked(TensorDataset(FEATURES.clamp(max=0.9), LABELS)))


class Stream(IterableDataset[Any]):
    """Samples in a row, of which it says how many."""

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(8.0).reshape(8, 1))


def test_a_stream_that_says_its_length_is_not_asked_for_samples_by_index() -> None:
    with LoaderRecorder() as watch:
        list(DataLoader(Stream(), batch_size=4))
        (record,) = watch.take()
    assert (record.available, record.samples, record.random) == (8, 8, False)


def test_augmented_training_after_plain_training_on_as_many_samples() -> None:
    with LoaderRecorder() as watch:
        for dataset in (DATA, Masked()):
            list(DataLoader(dataset, batch_size=16))
        plain, augmented = watch.take()
    assert (plain.repeats, set(augmented.repeats)) == ({}, {"batches", "neighbours"}), "none to compare with"


def test_statistics_show_masks_and_noise() -> None:
    x = torch.full((2, 1, 4, 10), 0.5)
    x[0, :, :, :5] = 0.0
    x[1, :, ::2] = 0.25
    (mean, std, zeros, frames, bins, step), second = sample_statistics(x)
    assert (mean, zeros, frames, bins) == (0.25, 0.5, 1.0, 0.0)
    assert std > 0 and step == pytest.approx(0.5 / 9)
    assert second[2:] == [0.0, 0.0, 1.0, 0.0]


def test_the_same_augmentation_from_other_random_numbers_is_equivalent() -> None:
    found = compare_recorded_passes({"entry": watched(Masked(), seed=1)}, {"entry": watched(Masked(), seed=2)})
    assert found.differences == ()
    assert found.smallest_p["entry"] > 0.001


@pytest.mark.parametrize(
    "change, named",
    [
        ({"drop_last": True}, "train pass 1: 101 samples before, 96 after"),
        ({"shuffle": False}, "the loader shuffles only before the migration"),
        ({"seed": 8}, "batch 1 of 7 is the first that differs (the same samples in a different order)"),
        ({"epochs": 1}, "the number of passes over the train loaders changed from 2 to 1"),
        ({"batch_size": 20}, "7 batches before, 6 after"),
        ({"dataset": Subset(DATA, [i for i in range(101) if i % 4 < 3])}, "101 samples before, 76 after"),
        (
            {"dataset": Subset(DATA, [0, *range(100)])},
            "first that differs (1 sample replaced, for example: index 100 before, index 0 after)",
        ),
        ({"dataset": TensorDataset(FEATURES.clamp(max=0.9), LABELS)}, "(other values; largest absolute difference 0."),
        ({"dataset": Masked()}, "samples have random augmentation only after the migration"),
    ],
)
def test_other_training_is_named(change: dict[str, Any], named: str) -> None:
    assert named in differences(watched(DATA), watched(**{"dataset": DATA, **change}))


@pytest.mark.parametrize(
    "weaker, named",
    [
        (Masked(p=0.4), "augmented samples differ in their"),
        (Masked(widest=10), "augmented samples differ in their"),
        (DATA, "samples have random augmentation only before the migration"),
    ],
)
def test_weaker_augmentation_is_named(weaker: Any, named: str) -> None:
    assert named in differences(watched(Masked(), epochs=6), watched(weaker, epochs=6))


def test_augmenting_another_choice_of_samples_is_named() -> None:
    class HalfOfClassThreeReplaced(Masked):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            return super().__getitem__(index - 1 if index % 8 == 3 else index)

    assert "different samples: the labels are" in differences(watched(Masked()), watched(HalfOfClassThreeReplaced()))


def test_a_loss_that_differs_on_equal_batches_is_named() -> None:
    before, after = watched(DATA), watched(DATA)
    after.traces[0].losses[2] = (1.0).hex()
    assert "loss 3 is" in differences(before, after)


def test_a_loss_is_recorded_once_even_without_a_loss_module() -> None:
    functional, scaled = torch.nn.functional.cross_entropy, torch.nn.CrossEntropyLoss()
    weights = torch.ones(4, requires_grad=True)
    with LoaderRecorder() as watch:
        for x, y in DataLoader(DATA, batch_size=60):
            scores = x.mean(dim=(1, 2)).narrow(1, 0, 4) * weights
            for loss in (functional(scores, y), functional(scores, y) / 2):
                loss.backward(retain_graph=True)
        for x, y in DataLoader(DATA, batch_size=60):
            (scaled(x.mean(dim=(1, 2)).narrow(1, 0, 4) * weights, y) / 8).backward()
    without_module, with_module = ([float.fromhex(loss) for loss in one.losses] for one in watch.take())
    assert without_module[::2] == with_module and len(with_module) == 2
    assert without_module[1::2] == [loss / 2 for loss in with_module]


def test_the_numbers_of_every_way_to_differentiate_are_losses() -> None:
    weights = torch.tensor([1.0, 2.0], requires_grad=True)
    original = torch.autograd.grad
    with LoaderRecorder() as watch:
        for _batch in DataLoader(DATA, batch_size=101):
            torch.autograd.grad(weights.sum(), weights)
            torch.autograd.backward([weights[0] * 4, weights[1] * 4])
            torch.autograd.backward(weights, torch.ones(2))
    assert [float.fromhex(loss) for loss in watch.take()[0].losses] == [3, 4, 8, 3]
    assert torch.autograd.grad is original


def changed(part: int, value: Any) -> TensorDataset:
    tensors = [tensor.clone() for tensor in DATA.tensors]
    tensors[part][3] = value
    return TensorDataset(*tensors)


def test_an_order_that_differs_from_run_to_run_hides_no_other_sample() -> None:
    def found(dataset: Any, **options: Any) -> str:
        runs = [{"entry": watched(DATA, seed=seed)} for seed in (1, 2)]
        after = {"entry": watched(dataset, seed=3, **options)}
        return " ".join(compare_recorded_passes(runs[0], after, runs[1]).differences)

    assert not found(DATA)
    assert "train pass 1" in found(changed(0, 0.5)) and "train pass 1" in found(changed(1, 1))
    assert "samples before" in found(Subset(DATA, range(59)))
    assert "shuffles only before" in found(DATA, shuffle=False)


def test_an_order_that_differs_in_training_hides_no_sample_of_the_validation() -> None:
    before, again, after = (watched(DATA, seed=seed) for seed in (1, 2, 3))
    after.traces[3].batches[1] = "other"
    found = compare_recorded_passes({"entry": before}, {"entry": after}, {"entry": again})
    assert "validation pass 2" in found.differences[0]


def test_a_number_of_samples_that_differs_from_run_to_run_is_no_difference() -> None:
    sizes = (40, 33, 51)
    before, again, after = ({"entry": watched(Subset(DATA, range(size)), seed=size)} for size in sizes)
    assert not compare_recorded_passes(before, after, again).differences
    assert not compare_recorded_passes(again, after, before).differences
    assert compare_recorded_passes(before, after, before).differences
    after["entry"].traces[0].drop_last = True
    (named,) = compare_recorded_passes(before, after, again).found
    assert named.name == "training-drops-samples"
    after["entry"].traces[0].drop_last = False
    after["entry"].traces[2].labels.pop("3")
    (named,) = compare_recorded_passes(before, after, again).found
    assert named.name == "class-missing"


def test_losses_whose_distribution_differs_from_run_to_run_are_no_difference() -> None:
    def found(*means: float) -> Any:
        runs = [watched(DATA, epochs=20) for _ in means]
        for run, mean in zip(runs, means, strict=True):
            for record in run.traces:
                record.losses = [(mean + number / 100).hex() for number, _ in enumerate(record.losses)]
        before, again, after = ({"entry": run} for run in runs)
        return [one.name for one in compare_recorded_passes(before, after, again).found]

    assert found(1.0, 2.0, 3.0) == []
    assert found(1.0, 1.001, 3.0) == ["losses-differ"]


def test_a_pass_broken_off_is_recorded_as_far_as_it_went() -> None:
    with LoaderRecorder() as watch:
        for _batch in DataLoader(DATA, batch_size=16):
            break
        record: LoaderPassTrace = watch.take()[0]
    assert (record.samples, len(record.batches)) == (16, 1)


def test_code_that_asks_for_hooks_of_all_modules_finds_none() -> None:
    with LoaderRecorder():
        assert not has_global_hooks()
        assert torch.nn.MSELoss()(torch.ones(2), torch.zeros(2)) == 1
    assert "__call__" not in vars(torch.nn.modules.loss._Loss)


class Graph:
    """An object that is not to be asked for anything."""

    def __getattribute__(self, name: str) -> Any:
        assert name == "__class__", name  # what `isinstance` asks for
        return Graph


def test_objects_that_are_not_looked_into_are_named_by_their_types() -> None:
    def batches(samples: list[Any]) -> Any:
        return {
            "graphs": (Graph(), 1),
            "x": torch.stack([x for x, _ in samples]),
            "names": {"a"},
            "who": "me",
            "n": 2.0,
        }

    with LoaderRecorder() as watch:
        assert len(list(DataLoader(DATA, batch_size=16, collate_fn=batches))) == 7
        assert len(list(DataLoader(DATA, batch_size=16))) == 7
        graphs, plain = watch.take()
    assert graphs.unseen == ["set", f"{__name__}.Graph"] and plain.unseen == []
    assert graphs.samples == 101, "the rest is compared"
