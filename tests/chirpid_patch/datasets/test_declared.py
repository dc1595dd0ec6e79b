"""Dataset classes that declare what their samples are: batches as their own code gives them, or their own code."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from originals import same
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from chirpid_patch import (
    BatchedDataLoader,
    GaussianNoise,
    OptimalDataLoaderFactory,
    SpecAugment,
    augments_samples,
    lists_samples,
    stack_samples,
    standardized_samples,
    standardizes_samples,
)
from chirpid_patch.datasets.gather import fetch_batch, is_in_memory, permits_batched_reading
from chirpid_patch.declaration import batched_object_for
from chirpid_patch.transforms.declared import masks_spectrograms


class Scaled(Dataset[Any]):
    """Undeclared: what the declared ones are compared with."""

    def __init__(self, dataset: Any, indices: Any, mean: Any, std: Any) -> None:
        self.dataset = dataset
        self.indices = indices
        self.mean = mean
        self.std = std

    def __len__(self) -> int:
        return len(self.indices)

    def scale(self, x: Any) -> Any:
        return (x - self.mean) / (self.std + 1e-8)

    def __getitem__(self, idx: Any) -> Any:
        x, y = self.dataset[self.indices[idx]]
        return self.scale(x), y


STATE = {"dataset": "dataset", "indices": "indices", "mean": "mean", "std": "std"}


@standardizes_samples(**STATE, eps=1e-8, calls=("scale",))
class Declared(Dataset[Any]):
    __init__ = Scaled.__init__
    __len__ = Scaled.__len__
    scale = Scaled.scale
    __getitem__ = Scaled.__getitem__


class Doubled(Declared):
    def scale(self, x: Any) -> Any:
        return x * 2


class WithProperty(Declared):
    @property
    def mean(self) -> float:
        return 7.0

    @mean.setter
    def mean(self, mean: float) -> None:
        self.__dict__["mean"] = mean


class Shaken(Dataset[Any]):
    def __init__(self, base: Any, first: Any, second: Any = None, *, enabled: Any = True, training: Any = True) -> None:
        self.base = base
        self.first = first
        self.second = second
        self.enabled = enabled
        self.training = training

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, idx: Any) -> Any:
        x, y = self.base[idx]
        if not self.training:
            return x, y
        if self.enabled:
            x = self.first(x)
        if self.second is not None:
            x = self.second(x)
        return x, y


@augments_samples(dataset="base", transforms={"first": "enabled", "second": "second"}, training="training")
class DeclaredShaken(Dataset[Any]):
    __init__ = Shaken.__init__
    __len__ = Shaken.__len__
    __getitem__ = Shaken.__getitem__


class Listed(Dataset[Any]):
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, idx: Any) -> Any:
        return self.samples[idx]


@lists_samples("samples")
class DeclaredList(Dataset[Any]):
    __init__ = Listed.__init__
    __len__ = Listed.__len__
    __getitem__ = Listed.__getitem__


class Counting(Dataset[Any]):
    """Not in memory, and notices every read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        self.read.append(int(index))
        return torch.rand(3) + index, index


class Sequenced(Sequence[int]):
    """Indices that are no list."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: Any) -> Any:
        return range(5)[index]


def rows(dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (3, 4), columns: int = 2) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = (torch.randn(9, *shape, generator=generator) * 50).to(dtype)
    return TensorDataset(x, *(torch.arange(9) + one for one in range(columns - 1)))


def outcome(make: Callable[[], Any]) -> Any:
    """What a call gives, or the type of what it raises; the random states afterwards."""
    torch.manual_seed(3)
    try:
        given: Any = make()
    except Exception as error:
        given = type(error)
    return given, torch.get_rng_state()


def batches(dataset: Any, loader: Any, *, shuffle: bool) -> Any:
    torch.manual_seed(11)
    return list(loader(dataset, batch_size=4, shuffle=shuffle))


BASES: dict[str, Callable[[], Any]] = {
    "rows": rows,
    "float64": lambda: rows(torch.float64),
    "integers": lambda: rows(torch.int64),
    "half": lambda: rows(torch.float16),
    "vectors": lambda: rows(shape=(3,)),
    "numbers": lambda: rows(shape=()),
    "three columns": lambda: rows(columns=3),
    "one column": lambda: rows(columns=1),
    "subset": lambda: Subset(rows(), [8, 1, 1, 3, 5, 0, 2, 4, 7]),
    "concatenated": lambda: ConcatDataset([Subset(rows(), [0, 1, 2, 3]), rows()]),
    "of different kinds": lambda: ConcatDataset([rows(), rows(torch.float64)]),
    "pairs": lambda: [(torch.full((3, 4), float(n)), n) for n in range(9)],
    "listed pairs": lambda: DeclaredList([(torch.full((3, 4), float(n)), n) for n in range(9)]),
    "lists of three": lambda: [[torch.zeros(3, 4), n, n] for n in range(9)],
    "counting": Counting,
    "gradients": lambda: TensorDataset(torch.rand(9, 3, requires_grad=True), torch.arange(9)),
}
INDICES: dict[str, Callable[[], Any]] = {
    "list": lambda: [8, 0, 3, 3, -1],
    "tuple": lambda: (1, 2, 5),
    "range": lambda: range(7),
    "array": lambda: np.array([4, 2, 0]),
    "tensor": lambda: torch.tensor([4, 2, 8]),
    "floats": lambda: np.array([4.0, 2.0]),
    "flags": lambda: [True, False],
    "out of range": lambda: [3, 99],
    "own kind": Sequenced,
    "nested": lambda: [[1, 2], [3, 4]],
}
STATISTICS: dict[str, Callable[[], Any]] = {
    "number": lambda: 0.25,
    "integer": lambda: 2,
    "tensor": lambda: torch.tensor(0.25),
    "of double precision": lambda: torch.tensor(0.25, dtype=torch.float64),
    "of the last axis": lambda: torch.rand(4),
    "of each row": lambda: torch.rand(3, 1),
    "too many axes": lambda: torch.rand(2, 3, 4),
    "array": lambda: np.array([0.1, 0.2, 0.3, 0.4]),
    "NumPy number": lambda: np.float64(0.25),
    "small NumPy number": lambda: np.float32(0.25),
    "zero": lambda: 0.0,
    "None": lambda: None,
    "integer tensor": lambda: torch.tensor(3),
    "gradients": lambda: torch.tensor(0.5, requires_grad=True),
}


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(BASES)),
    st.sampled_from(sorted(INDICES)),
    st.sampled_from(sorted(STATISTICS)),
    st.sampled_from(sorted(STATISTICS)),
    st.booleans(),
)
def test_standardised_batches_are_those_of_its_own_code(
    base: str, indices: str, mean: str, std: str, shuffle: bool
) -> None:
    found = []
    for kind, loader in ((Scaled, DataLoader), (Declared, BatchedDataLoader)):
        torch.manual_seed(2)
        dataset = kind(BASES[base](), INDICES[indices](), STATISTICS[mean](), STATISTICS[std]())
        found.append(outcome(lambda dataset=dataset, loader=loader: batches(dataset, loader, shuffle=shuffle)))
        found[-1] += (getattr(dataset.dataset, "read", None),)
    assert same(found[0], found[1])


@pytest.mark.parametrize("base", ["rows", "subset", "concatenated", "vectors"])
def test_what_it_is_for_is_served(base: str) -> None:
    dataset = Declared(BASES[base](), [1, 2], torch.tensor(0.5), 2.0)
    assert batched_object_for(dataset) is not dataset and is_in_memory(dataset)
    batch = fetch_batch(dataset, [0, 1])
    assert batch is not None and same(batch, next(iter(DataLoader(dataset, batch_size=2))))
    outer = Declared(dataset, range(2), 1.0, 3.0)
    assert same(fetch_batch(outer, [1, 0]), next(iter(DataLoader(Subset(outer, [1, 0]), batch_size=2))))


@pytest.mark.parametrize("name", ["integers", "three columns", "one column", "of different kinds", "pairs", "counting"])
def test_what_it_is_not_for_is_its_own(name: str) -> None:
    dataset = Declared(BASES[name](), [1, 2], 0.5, 2.0)
    assert batched_object_for(dataset) is dataset and not permits_batched_reading(dataset)


def changed(change: Callable[[Any], Any]) -> list[Any]:
    """Batches of both kinds around a change of the object."""
    found = []
    for kind, loader in ((Scaled, DataLoader), (Declared, BatchedDataLoader)):
        dataset = kind(rows(), [0, 1, 2, 3, 4], torch.full((4,), 0.5), torch.full((4,), 2.0))
        loading = loader(dataset, batch_size=2)
        found.append([list(loading), change(dataset), outcome(lambda loading=loading: list(loading))[0]])
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda one: setattr(one, "mean", 3.0),
        lambda one: one.mean.add_(1).tolist(),
        lambda one: one.std.zero_().tolist(),
        lambda one: one.indices.reverse(),
        lambda one: setattr(one, "indices", [4, 4, 4]),
        lambda one: setattr(one, "dataset", TensorDataset(torch.ones(9, 3, 4), torch.zeros(9))),
        lambda one: one.dataset.tensors[0].mul_(2).tolist(),
        lambda one: setattr(one, "std", None),
        lambda one: delattr(one, "mean"),
        lambda one: setattr(one, "scale", torch.abs),
        lambda one: vars(one).update(mean="no number"),
    ],
)
def test_its_attributes_are_read_when_a_batch_is_asked_for(change: Callable[[Any], Any]) -> None:
    before, after = changed(change)
    assert same(before, after)


def test_subclasses_that_replace_something_are_read_by_their_own_code() -> None:
    for kind in (Doubled, WithProperty):
        dataset = kind(rows(), [2, 1], 0.5, 2.0)
        assert batched_object_for(dataset) is dataset
    assert same(
        list(BatchedDataLoader(Doubled(rows(), [2, 1], 0, 1))), [[x[None] * 2, y[None]] for x, y in pairs(2, 1)]
    )


def pairs(*indices: int) -> list[tuple[Tensor, Tensor]]:
    return [rows()[index] for index in indices]


def test_a_method_replaced_later_is_the_one_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Declared(rows(), [2, 1], 0.5, 2.0)
    assert batched_object_for(dataset) is not dataset
    monkeypatch.setattr(Declared, "__getitem__", lambda self, idx: idx)
    assert batched_object_for(dataset) is dataset
    assert same(list(BatchedDataLoader(dataset, batch_size=2)), [torch.tensor([0, 1])])


def test_a_way_of_its_own_to_read_many_samples_is_the_one_that_reads() -> None:
    dataset = Declared(rows(), [2, 1], 0.5, 2.0)
    vars(dataset)["__getitems__"] = lambda indices: [dataset[index] for index in reversed(indices)]
    assert batched_object_for(dataset) is dataset
    assert same(*(list(kind(dataset, batch_size=2)) for kind in (BatchedDataLoader, DataLoader)))


def test_a_class_that_answers_for_what_it_has_not_is_asked_for_its_way_to_read_many_samples() -> None:
    class Passing(Declared):
        def __getattr__(self, name: str) -> Any:
            return getattr(vars(self)["dataset"], name)

    dataset = Passing(Subset(rows(), range(9)), [2, 1], 0.5, 2.0)
    assert same(*(list(kind(dataset, batch_size=2)) for kind in (BatchedDataLoader, DataLoader)))


def test_its_samples_are_stacked_until_an_index_is_refused_whatever_its_length_is() -> None:
    class Shorter(Declared):
        def __len__(self) -> int:
            return 2

    dataset = Shorter(rows(), [2, 1, 5], 0.5, 2.0)
    assert same(stack_samples(dataset), torch.stack([x for x, _ in dataset]))


def test_it_stays_the_class_it_was() -> None:
    assert Declared.__bases__ == (Dataset,) and Declared.__name__ == "Declared"
    dataset = Declared(rows(), [2, 1], 0.5, 2.0)
    for twin in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert type(twin) is Declared and vars(twin).keys() == vars(dataset).keys() and same(twin[0], dataset[0])
        assert batched_object_for(twin) is not twin


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("create", [BatchedDataLoader, OptimalDataLoaderFactory.create_validation_loader])
def test_workers_or_not_the_batches_are_the_same(workers: int, create: Any) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": workers}
    if workers:
        options["multiprocessing_context"] = "fork"
    wanted = list(DataLoader(Scaled(rows(), range(9), 0.5, 2.0), batch_size=4))
    assert same(list(create(Declared(rows(), range(9), 0.5, 2.0), **options)), wanted)


FIRST: dict[str, Callable[[], Any]] = {
    "a function": lambda: torch.neg,
    "in place": lambda: lambda x: x.add_(1),
    "masks": lambda: SpecAugment(p=1.0, time_mask_param=2, freq_mask_param=2),
    "nothing": lambda: None,
    "no masks": lambda: SpecAugment(p=0.0),
}
SWITCHES: dict[str, Any] = {"on": True, "off": False, "None": None, "1": 1, "empty": []}


@settings(max_examples=40)
@given(
    st.sampled_from(["rows", "three columns", "subset", "counting", "half", "pairs", "listed pairs", "lists of three"]),
    st.sampled_from(sorted(FIRST)),
    st.sampled_from(["a function", "nothing", "no masks"]),
    st.sampled_from(sorted(SWITCHES)),
    st.sampled_from(sorted(SWITCHES)),
)
def test_augmented_batches_are_those_of_its_own_code(
    base: str, first: str, second: str, enabled: str, training: str
) -> None:
    found = []
    for kind, loader in ((Shaken, DataLoader), (DeclaredShaken, BatchedDataLoader)):
        torch.manual_seed(2)
        switches = {"enabled": SWITCHES[enabled], "training": SWITCHES[training]}
        dataset = kind(BASES[base](), FIRST[first](), FIRST[second](), **switches)
        found.append(outcome(lambda dataset=dataset, loader=loader: batches(dataset, loader, shuffle=False))[0])
    masked = first == "masks" and SWITCHES[enabled] and SWITCHES[training]
    if masked and isinstance(found[0], list):
        assert [[(x.shape, x.dtype), y.tolist()] for x, y in found[0]] == [
            [(x.shape, x.dtype), y.tolist()] for x, y in found[1]
        ]
    else:
        assert same(found[0], found[1])


def test_shipped_transforms_are_applied_to_whole_batches() -> None:
    assert is_in_memory(DeclaredShaken(BASES["listed pairs"](), SpecAugment(p=1.0)))
    dataset = DeclaredShaken(rows(), SpecAugment(p=1.0, time_mask_param=2, freq_mask_param=2), GaussianNoise(p=1.0))
    view = batched_object_for(dataset)
    assert view is not dataset and view.transforms[0] is dataset.first
    dataset.training = False
    assert same(next(iter(BatchedDataLoader(dataset, batch_size=9))), next(iter(DataLoader(rows(), batch_size=9))))


class Masks(SpecAugment):
    """The class of a backend, as CHP003 leaves it."""


class Halves(SpecAugment):
    """Gives batches that are not what its samples are."""

    def transform_batch(self, batch: Tensor, keys: Any) -> Tensor:
        return super().transform_batch(batch, keys).half()


def test_a_transform_with_a_forward_of_its_own_is_called() -> None:
    transform = SpecAugment(p=1.0)
    transform.forward = lambda x: x * 2  # type: ignore[method-assign]
    dataset = DeclaredShaken(rows(), transform)
    assert batched_object_for(dataset) is dataset
    assert same(next(iter(BatchedDataLoader(dataset, batch_size=9))), next(iter(DataLoader(dataset, batch_size=9))))


def test_augmented_samples_are_rows_where_the_transforms_keep_them() -> None:
    kept, other = (DeclaredShaken(rows(), kind(p=1.0)) for kind in (Masks, Halves))
    assert batched_object_for(DeclaredShaken(kept, GaussianNoise(p=1.0))).in_memory
    above = DeclaredShaken(other, GaussianNoise(p=1.0))
    assert batched_object_for(above) is above


@pytest.mark.parametrize(
    "samples",
    [
        [(torch.full((2,), float(n)), n) for n in range(5)],
        [[torch.full((2,), float(n)), n] for n in range(5)],
        tuple((torch.full((n % 2 + 1,), 1.0), n) for n in range(5)),
        [(np.full(2, n), str(n)) for n in range(5)],
        [(torch.full((2,), float(n)), str(n)) for n in range(5)],
        [(torch.full((1, 3, 4, 2), float(n)).permute(0, 3, 1, 2)[0], bytes(n)) for n in range(5)],
        [(torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), n) for n in range(5)],
        [(torch.tensor(float(n)), n, n) for n in range(5)],
        [torch.tensor(n) for n in range(5)],
        [],
        {0: 1, 1: 2},
        rows(),
    ],
    ids=[
        "tuples",
        "lists",
        "of two shapes",
        "arrays",
        "named",
        "moved",
        "channels last",
        "of three",
        "tensors",
        "none",
        "a mapping",
        "rows",
    ],
)
def test_listed_samples_are_those_of_its_own_code(samples: Any) -> None:
    found = [
        outcome(lambda kind=kind, loader=loader: batches(kind(samples), loader, shuffle=False))
        for kind, loader in ((Listed, DataLoader), (DeclaredList, BatchedDataLoader))
    ]
    assert same(found[0], found[1])


def test_a_class_without_the_methods_it_names_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Missing.*scale"):

        @standardizes_samples(**STATE, calls=("scale",))
        class Missing(Dataset[Any]):
            def __getitem__(self, idx: Any) -> Any: ...


@given(
    st.sampled_from(sorted(BASES)),
    st.sampled_from(["all", *sorted(INDICES)]),
    st.sampled_from(sorted(STATISTICS)),
    st.sampled_from([1, 2]),
)
def test_lists_of_standardised_samples_are_those_of_the_code_they_replace(
    base: str, indices: str, std: str, reads: Literal[1, 2]
) -> None:
    dataset, mean, deviation = BASES[base](), 0.25, STATISTICS[std]()
    chosen = ... if indices == "all" else INDICES[indices]()
    assume(not isinstance(dataset, Counting) or chosen is not ...)  # iterating over it does not end

    def one_by_one() -> list[Any]:
        if chosen is ...:
            return [((x - mean) / (deviation + 1e-8), y) for x, y in dataset]
        if reads == 2:
            return [((dataset[i][0] - mean) / (deviation + 1e-8), dataset[i][1]) for i in chosen]
        samples = []
        for i in chosen:
            x, y = dataset[i]
            samples.append(((x - mean) / (deviation + 1e-8), y))
        return samples

    made, state = outcome(lambda: standardized_samples(dataset, chosen, mean, deviation, eps=1e-8, reads=reads))
    read = list(dataset.read) if isinstance(dataset, Counting) else []
    wanted, wanted_state = outcome(one_by_one)
    assert same(made, wanted) and torch.equal(state, wanted_state)
    if isinstance(dataset, Counting):
        assert dataset.read == read * 2
    if base in ("rows", "vectors", "subset") and indices in ("all", "array", "list") and isinstance(made, list):
        x, y = made[0]
        assert x._base is None and x.untyped_storage().nbytes() == x.nbytes
        assert y.data_ptr() == dataset[0 if chosen is ... else chosen[0]][1].data_ptr()


def test_lists_of_standardised_samples_are_made_at_once_where_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows()
    monkeypatch.setattr(Tensor, "__sub__", None)  # what standardises a single sample
    made = standardized_samples(data, [1, 2, 2], 0.5, 2.0)
    assert len(made) == 3 and same(made[1], made[2]) and made[1][0] is not made[2][0]


@masks_spectrograms()
class OwnMasks(nn.Module):
    """Masks of samples with two or three axes; counts its calls."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.time_mask_param = self.freq_mask_param = 5
        self.num_time_masks = self.num_freq_masks = 90
        self.mask_value = value
        self.p = 1.0
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        _, _, _ = x.unsqueeze(0).shape if x.dim() == 2 else x.shape
        return torch.full_like(x, self.mask_value)


def masked(x: Any, transform: OwnMasks) -> Any:
    dataset = DeclaredShaken(x if isinstance(x, list) else TensorDataset(x, torch.arange(len(x))), transform)
    return outcome(lambda: batches(dataset, BatchedDataLoader, shuffle=False))[0]


@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 5), (2, 4, 5)])
def test_declared_masks_of_spectrograms_draw_for_a_batch(shape: tuple[int, ...]) -> None:
    transform = OwnMasks()
    assert not any(x.any() for x, _ in masked(torch.ones(8, *shape), transform))
    assert transform.calls == 0


@pytest.mark.parametrize(
    ("x", "value"),
    [
        (torch.ones(8, 4, 5, dtype=torch.float16), 1.0),
        (torch.ones(8, 4, 5, dtype=torch.bfloat16), 1.0),
        ([(torch.ones(4, 5, dtype=torch.uint8), n) for n in range(8)], 7),
        ([(torch.ones(4, 5 + n, dtype=torch.int64), n) for n in range(8)], 7),
    ],
)
def test_declared_masks_run_their_own_code_on_other_dtypes(x: Any, value: float) -> None:
    transform = OwnMasks(value)
    masked(x, transform)
    assert transform.calls > 0


@pytest.mark.parametrize("shape", [(2, 1, 4, 5), (5,)])
def test_declared_masks_run_their_own_code_on_other_axes(shape: tuple[int, ...]) -> None:
    transform = OwnMasks()
    assert masked(torch.ones(8, *shape), transform) is ValueError
    assert masked([(torch.ones(*shape[:-1], 5 + n), n) for n in range(8)], transform) is ValueError
    assert transform.calls == 2


def test_a_mask_value_that_the_dtype_has_not_is_left_to_its_own_code() -> None:
    assert masked(torch.ones(8, 4, 5), OwnMasks(1e39)) is RuntimeError


def test_hooks_of_all_modules_are_run() -> None:
    transform = OwnMasks()
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, result: result + 1)
    try:
        found = masked(torch.ones(8, 4, 5), transform)
    finally:
        handle.remove()
    assert transform.calls == 8
    assert all((x == 1).all() for x, _ in found)
