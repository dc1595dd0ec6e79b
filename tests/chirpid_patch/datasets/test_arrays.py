"""Samples in arrays and mapped files: batches equal single samples to the last bit, and files travel as paths."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from originals import StandardizedSubset, random_key, run, same
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, default_collate

from chirpid_patch import (
    BatchedDataLoader,
    OptimalDataLoaderFactory,
    WorkerSafeArrayDataset,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
    compute_standardization_stats,
    streaming_standardization_stats,
)
from chirpid_patch.datasets.gather import fetch_batch, is_in_memory
from chirpid_patch.datasets.samples import fetch_samples

SIZE = 12
SHAPE = (2, 3)
AUGMENTATION = {"spec_augment_params": {"p": 0.9}, "gaussian_noise_params": {"std": 0.1, "p": 0.9}}


def numbers(dtype: str = "float32", size: int = SIZE) -> np.ndarray[Any, Any]:
    return np.random.default_rng(size).uniform(0, 100, (size, *SHAPE)).astype(dtype)


def saved(folder: Path, values: np.ndarray[Any, Any] | None = None) -> Path:
    path = folder / "x.npy"
    np.save(path, numbers() if values is None else values)
    return path


def mapped(path: Path, mode: Any = "r") -> np.memmap[Any, Any]:
    loaded = np.load(path, mmap_mode=mode)
    assert isinstance(loaded, np.memmap)
    return loaded


def raw(folder: Path) -> np.memmap[Any, Any]:
    """A map that begins in the middle of a file, at no page's boundary."""
    path = folder / "x.bin"
    path.write_bytes(b"head" * 3 + numbers().tobytes() + b"tail")
    return np.memmap(path, np.float32, "r", 12, (SIZE, *SHAPE))


ARRAYS: dict[str, Callable[[Path], Any]] = {
    "array": lambda folder: numbers(),
    "array in Fortran order": lambda folder: np.asfortranarray(numbers()),
    "array of bytes": lambda folder: numbers("uint8"),
    "strided array": lambda folder: numbers(size=2 * SIZE)[::2, :, ::2],
    "read-only array": lambda folder: np.frombuffer(numbers().tobytes(), np.float32).reshape(SIZE, *SHAPE),
    "tensor": lambda folder: torch.from_numpy(numbers()),
    "bfloat16 tensor": lambda folder: torch.from_numpy(numbers()).bfloat16(),
    "transposed tensor": lambda folder: torch.from_numpy(numbers(size=2 * SIZE)).transpose(0, 1).flatten(1).T[:SIZE],
    "tensor that requires grad": lambda folder: torch.from_numpy(numbers()).requires_grad_(),
    "list": lambda folder: numbers().tolist(),
    "list of numbers": lambda folder: list(range(SIZE)),
    "map": lambda folder: mapped(saved(folder)),
    "map of bytes": lambda folder: mapped(saved(folder, numbers("uint8"))),
    "writable map": lambda folder: mapped(saved(folder), "r+"),
    "copy-on-write map": lambda folder: mapped(saved(folder), "c"),
    "map in Fortran order": lambda folder: mapped(saved(folder, np.asfortranarray(numbers()))),
    "slice of a map": lambda folder: mapped(saved(folder, numbers(size=30)))[5 : 5 + SIZE],
    "slice of a slice of a map": lambda folder: mapped(saved(folder, numbers(size=30)))[4:][3:-2][:SIZE],
    "strided slice of a map": lambda folder: mapped(saved(folder, numbers(size=30)))[1 : 2 * SIZE : 2],
    "column of a map": lambda folder: mapped(saved(folder))[:, 1],
    "reshaped map": lambda folder: mapped(saved(folder)).reshape(SIZE, -1),
    "map with an offset": raw,
    "slice of a map with an offset": lambda folder: raw(folder)[2:],
    "copy of a map": lambda folder: mapped(saved(folder)) + 1,
}
#: Those that are the contents of a file, from one place on.
TRAVEL_AS_PATH = {
    "map",
    "map of bytes",
    "writable map",
    "slice of a map",
    "slice of a slice of a map",
    "reshaped map",
    "map with an offset",
    "slice of a map with an offset",
}


def reference(x: Any) -> torch.Tensor:
    """The stored values, copied by NumPy or PyTorch alone."""
    return x.detach().clone() if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))


def labels(x: Any) -> np.ndarray[Any, Any]:
    return np.arange(len(x)) % 5


def singly(dataset: Any, indices: Any) -> Any:
    return default_collate([dataset[index] for index in indices])


@pytest.mark.parametrize("name", ARRAYS)
def test_samples_are_the_rows_and_batches_the_collated_samples(name: str, tmp_path: Path) -> None:
    x = ARRAYS[name](tmp_path)
    dataset, expected = WorkerSafeArrayDataset(x, labels(x)), TensorDataset(reference(x), torch.from_numpy(labels(x)))
    assert len(dataset) == len(expected)
    for index in range(len(x)):
        (sample, label), (row, of_row) = dataset[index], expected[index]
        assert same((sample.contiguous(), label), (row.contiguous(), of_row))
    for indices in ([3], [0, 5, 5, -1], range(len(x)), np.array([4, 2]), torch.tensor([-2, 7])):
        assert same(fetch_batch(dataset, indices), singly(expected, indices))


@settings(max_examples=150)
@given(
    stored=st.sampled_from([torch.uint8, torch.int16, torch.int64, torch.bool, torch.float16, torch.bfloat16,
                            torch.float32, torch.float64]),
    dtype=st.sampled_from([None, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float32,
                           torch.float64]),
    divisor=st.sampled_from([None, 255, 3, 0.1, 1e-3, 7.0]),
    shape=st.lists(st.integers(1, 5), max_size=3),
    indices=st.lists(st.integers(-SIZE, SIZE - 1), min_size=1, max_size=20),
)  # fmt: skip
def test_converting_a_batch_rounds_as_converting_samples(
    stored: torch.dtype, dtype: torch.dtype | None, divisor: float | None, shape: list[int], indices: list[int]
) -> None:
    if not (stored if dtype is None else dtype).is_floating_point:
        divisor = None
    x = (torch.rand((SIZE, *shape), generator=torch.Generator().manual_seed(1)) * 100).to(stored)
    dataset = WorkerSafeArrayDataset(x, labels(x), dtype=dtype, divisor=divisor)
    samples = [(x[index] if dtype is None else x[index].to(dtype), torch.tensor(index % SIZE % 5)) for index in indices]
    if divisor is not None:
        samples = [(one / divisor, y) for one, y in samples]
    assert same(singly(dataset, indices), default_collate(samples))
    assert same(fetch_batch(dataset, indices), default_collate(samples))


def test_images_are_what_converting_and_dividing_by_255_gives() -> None:
    x = np.arange(256, dtype=np.uint8).reshape(16, 1, 16)
    dataset = WorkerSafeArrayDataset(x, list(range(16)), dtype=torch.float32, divisor=255)
    by_hand = torch.stack([torch.from_numpy(x[index]).float() / 255 for index in range(16)])
    assert same(fetch_batch(dataset, range(16)), [by_hand, torch.arange(16)])


@pytest.mark.parametrize("index", [SIZE, -SIZE - 1, 10 * SIZE])
def test_an_index_out_of_range_is_an_index_error(index: int, tmp_path: Path) -> None:
    for x in (numbers(), mapped(saved(tmp_path))):
        dataset = WorkerSafeArrayDataset(x, labels(x))
        with pytest.raises(IndexError):
            dataset[index]
        assert fetch_batch(dataset, [0, index]) is None  # left to the samples' own error
        with pytest.raises(IndexError):
            list(BatchedDataLoader(dataset, batch_sampler=[[0, index]]))


@pytest.mark.parametrize("index", [True, 1.0, "a", slice(2), torch.tensor(True)], ids=repr)
def test_what_is_no_plain_index_is_left_to_the_samples(index: Any) -> None:
    assert fetch_batch(WorkerSafeArrayDataset(numbers(), labels(numbers())), [0, index]) is None


def test_a_dataset_can_be_iterated_to_its_end() -> None:
    assert len(list(WorkerSafeArrayDataset(numbers(), labels(numbers())))) == SIZE  # type: ignore[call-overload]


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "standardized": lambda base: WorkerSafeStandardizedDataset(base, list(range(SIZE))[::-1], 0.4, 0.3),
    "subset": lambda base: Subset(base, [3, 1, 1, 7, *range(SIZE - 4)]),
    "concatenated": lambda base: ConcatDataset([Subset(base, range(5)), base]),
    "concatenated with tensors": lambda base: ConcatDataset(
        [base, TensorDataset(torch.rand(4, *SHAPE), torch.arange(4))]
    ),
    "subset, standardized": lambda base: WorkerSafeStandardizedDataset(Subset(base, range(SIZE)), range(SIZE), 0.1, 2),
    "standardized, not training": lambda base: WorkerSafeAugmentedDataset(
        WorkerSafeStandardizedDataset(base, range(SIZE), 0.4, 0.3), AUGMENTATION, training=False
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("convert", [{}, {"dtype": torch.float32, "divisor": 255}], ids=["as stored", "converted"])
def test_other_datasets_wrap_it_as_they_wrap_tensors(name: str, convert: Any) -> None:
    x = numbers("uint8" if convert else "float32")
    plain = TensorDataset(torch.from_numpy(x).float() / (255 if convert else 1), torch.from_numpy(labels(x)))
    dataset = WRAPPED[name](WorkerSafeArrayDataset(x, labels(x), **convert))
    indices = [4, 0, 11, 4]
    torch.manual_seed(0)
    expected = singly(WRAPPED[name](plain), indices)
    assert is_in_memory(dataset)
    torch.manual_seed(0)
    assert same(fetch_batch(WRAPPED[name](WorkerSafeArrayDataset(x, labels(x), **convert)), indices), expected)


def test_augmentation_on_top_is_the_same_at_once_and_one_by_one() -> None:
    base = WorkerSafeArrayDataset(numbers("uint8"), labels(numbers()), dtype=torch.float32, divisor=255)
    dataset = WorkerSafeAugmentedDataset(WorkerSafeStandardizedDataset(base, range(SIZE), 0.4, 0.3), AUGMENTATION)
    key = random_key(5, 1, range(SIZE), [0] * SIZE)
    batch = fetch_batch(dataset, range(SIZE), key)
    assert same(batch, default_collate(fetch_samples(dataset, range(SIZE), key)))
    assert same(singly(base, range(SIZE)), fetch_batch(base, range(SIZE)))  # what lies below is as it was


def test_statistics_are_those_of_the_tensors() -> None:
    x = numbers("uint8")
    dataset = WorkerSafeArrayDataset(x, labels(x), dtype=torch.float32, divisor=255)
    plain = TensorDataset(torch.from_numpy(x).float() / 255, torch.from_numpy(labels(x)))
    for compute in (compute_standardization_stats, streaming_standardization_stats):
        assert compute(dataset, range(SIZE)) == compute(plain, range(SIZE))


# --- memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ARRAYS if "list" not in name and "copy of" not in name])
def test_arrays_are_not_copied(name: str, tmp_path: Path) -> None:
    x = ARRAYS[name](tmp_path)
    dataset = WorkerSafeArrayDataset(x, labels(x))
    if isinstance(x, torch.Tensor):
        assert dataset.x.data_ptr() == x.data_ptr()
    else:
        assert np.shares_memory(dataset.x.numpy(), x)


def test_writes_to_the_array_show_in_the_samples(tmp_path: Path) -> None:
    for x in (numbers(), mapped(saved(tmp_path), "r+"), mapped(saved(tmp_path), "c")):
        dataset = WorkerSafeArrayDataset(x, labels(x))
        x[4] = 3
        batch = fetch_batch(dataset, [4])
        assert batch is not None
        assert bool((dataset[4][0] == 3).all()) and bool((batch[0] == 3).all())


@pytest.mark.parametrize("convert", [{}, {"dtype": torch.float32}, {"dtype": torch.float32, "divisor": 2}], ids=str)
@pytest.mark.parametrize("name", ["array", "tensor", "map", "writable map"])
def test_samples_and_batches_are_memory_of_their_own(name: str, convert: Any, tmp_path: Path) -> None:
    x, y = ARRAYS[name](tmp_path), np.arange(SIZE)
    before = reference(x)
    dataset = WorkerSafeArrayDataset(x, y, **convert)
    batch = fetch_batch(dataset, range(SIZE))
    assert batch is not None
    for one in (*dataset[1], *dataset[np.int64(2)], *batch):
        one.fill_(77)
    assert same(reference(x), before) and y.tolist() == list(range(SIZE))


def test_a_read_only_array_gives_no_warning(recwarn: pytest.WarningsRecorder, tmp_path: Path) -> None:
    torch.set_warn_always(True)  # PyTorch would warn of it once in a process
    try:
        for name in ("read-only array", "map"):
            x = ARRAYS[name](tmp_path)
            fetch_batch(WorkerSafeArrayDataset(x, labels(x)), [1])
    finally:
        torch.set_warn_always(False)
    assert not recwarn.list


# --- pickling -----------------------------------------------------------------------------------------------


def sent(dataset: Any) -> Any:
    """As another process receives it."""
    return pickle.loads(pickle.dumps(dataset))


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("duplicate", [sent, copy.deepcopy])
def test_a_copy_has_the_same_samples(name: str, duplicate: Any, tmp_path: Path) -> None:
    x = ARRAYS[name](tmp_path)
    dataset = WorkerSafeArrayDataset(x, labels(x), dtype=torch.float64, divisor=3)
    for twin in (duplicate(dataset), duplicate(duplicate(dataset))):
        assert same(singly(twin, range(len(x))), singly(dataset, range(len(x))))
        assert same(fetch_batch(twin, [1, 0]), fetch_batch(dataset, [1, 0]))


def large_file(folder: Path) -> Path:
    return saved(folder, np.random.default_rng(1).integers(0, 255, (4096, 1024), dtype=np.uint8))


@pytest.mark.parametrize("name", ARRAYS)
def test_the_contents_of_a_file_travel_as_its_path(name: str, tmp_path: Path) -> None:
    x = ARRAYS[name](tmp_path)
    state = pickle.dumps(WorkerSafeArrayDataset(x, labels(x)))
    assert (str(tmp_path).encode() in state) == (name in TRAVEL_AS_PATH)


def test_a_pickle_of_a_mapped_file_is_small(tmp_path: Path) -> None:
    whole = mapped(large_file(tmp_path))
    y = whole[:, 0].copy()
    for x in (whole, whole[1024:3072]):
        dataset = WorkerSafeStandardizedDataset(WorkerSafeArrayDataset(x, y[: len(x)]), range(len(x)), 0.5, 0.3)
        assert len(pickle.dumps(dataset)) < 10_000
    assert len(pickle.dumps(WorkerSafeArrayDataset(np.array(whole), y))) > whole.nbytes


def test_labels_travel_as_a_path_too(tmp_path: Path) -> None:
    rows = mapped(large_file(tmp_path))
    assert len(pickle.dumps(WorkerSafeArrayDataset(rows, rows))) < 10_000


def test_what_was_changed_on_copy_is_kept(tmp_path: Path) -> None:
    x = mapped(saved(tmp_path), "c")
    x[2] = 9
    twin = sent(WorkerSafeArrayDataset(x, labels(x)))
    assert same(twin.x, torch.from_numpy(np.array(x)))


def test_another_array_put_in_the_place_of_a_mapped_one_is_kept(tmp_path: Path) -> None:
    x = mapped(saved(tmp_path))
    dataset = WorkerSafeArrayDataset(x, labels(x))
    dataset.x, dataset.y = dataset.x[:4] + 1, dataset.y[:4]
    twin = sent(dataset)
    assert len(twin) == 4 and same(singly(twin, range(4)), singly(dataset, range(4)))


def test_a_file_that_is_gone_travels_with_its_contents(tmp_path: Path) -> None:
    path = saved(tmp_path)
    x = mapped(path)
    try:
        path.unlink()
    except OSError:
        pytest.skip("this system does not delete a file that is in use")
    twin = sent(WorkerSafeArrayDataset(x, labels(x)))
    assert same(twin.x, torch.from_numpy(numbers()))


def test_a_relative_path_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)
    monkeypatch.chdir(tmp_path)
    x = mapped(Path("x.npy"))
    state = pickle.dumps(WorkerSafeArrayDataset(x, labels(x)))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert same(pickle.loads(state).x, torch.from_numpy(numbers()))


def read_elsewhere(dataset: Any, path: str) -> tuple[Any, int | None]:
    """What another process reads, and in how many pieces of its address space the file lies (None: unknown)."""
    batch = [column.numpy() for column in fetch_batch(dataset, [3, -1]) or []]
    maps = Path("/proc/self/maps")
    return batch, maps.read_text(encoding="utf-8").count(path) if maps.exists() else None


@pytest.mark.slow
def test_a_spawned_process_maps_the_file_at_the_right_place(tmp_path: Path) -> None:
    path = large_file(tmp_path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for x in (mapped(path), mapped(path)[100:2000], mapped(path, "r+")[7:]):
            dataset = WorkerSafeArrayDataset(x, np.arange(len(x)))
            if x.flags.writeable:
                x[3] = 5  # written to the map, never flushed
            batch, pieces = pool.apply(read_elsewhere, (dataset, str(path)))
            assert np.array_equal(batch[0], np.stack([x[3], x[-1]])) and batch[1].tolist() == [3, len(x) - 1]
            assert pieces or not sys.platform.startswith("linux")


# --- messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "y"), [(numbers(), range(3)), (np.float32(1), [1]), ([1.0], 1.0), ([], [1])], ids=repr)
def test_one_row_for_each_sample_is_needed(x: Any, y: Any) -> None:
    with pytest.raises(ValueError, match=r"one row for each sample; they have the shapes \(.*\) and \(.*\)"):
        WorkerSafeArrayDataset(x, y)


@pytest.mark.parametrize("dtype", [None, torch.int64])
def test_integers_are_not_divided(dtype: torch.dtype | None) -> None:
    with pytest.raises(ValueError, match=r"torch.*dtype"):
        WorkerSafeArrayDataset(numbers("uint8"), labels(numbers()), dtype=dtype, divisor=255)


@pytest.mark.parametrize(
    "strange",
    [np.array(["wren", "robin"]), np.array([object(), 1]), np.array([1, 2], dtype=">f4")],
    ids=["text", "objects", "byte order"],
)
def test_arrays_that_are_no_tensors_are_named(strange: Any) -> None:
    with pytest.raises(TypeError, match="PyTorch has no dtype for x"):
        WorkerSafeArrayDataset(strange, [0, 1])
    with pytest.raises(TypeError, match="PyTorch has no dtype for y"):
        WorkerSafeArrayDataset([0, 1], strange)


def test_no_samples_are_a_dataset_of_none(tmp_path: Path) -> None:
    for x in (numbers()[:0], mapped(saved(tmp_path))[:0], mapped(saved(tmp_path))[5:5]):
        dataset = sent(WorkerSafeArrayDataset(x, []))
        assert len(dataset) == 0 and list(BatchedDataLoader(dataset, batch_size=4)) == []


# --- loaders ------------------------------------------------------------------------------------------------


class ReadsTheMap(Dataset[Any]):
    """What a backend had before: rows of a map, converted one by one."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x = x
        self.y = y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Any) -> Any:
        return torch.from_numpy(np.array(self.x[index])).float() / 255, int(self.y[index])


def loaded(dataset: Any, kind: Any = BatchedDataLoader, **options: Any) -> Any:
    standardized = StandardizedSubset if kind is DataLoader else WorkerSafeStandardizedDataset
    indices = list(range(len(dataset)))
    mean, deviation = torch.tensor(0.4), torch.tensor(0.3)
    return run(kind(standardized(dataset, indices, mean, deviation), batch_size=5, shuffle=True, **options))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefetch_threads": 2},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    ],
    ids=["in process", "threads", "workers", "persistent workers", "spawned worker"],
)
def test_a_loader_gives_the_batches_of_the_backends_dataset(options: Any, tmp_path: Path) -> None:
    x = mapped(saved(tmp_path, numbers("uint8", 33)))
    ours = ("prefetch_threads", "multiprocessing_context")
    original = {name: value for name, value in options.items() if name not in ours}
    expected = loaded(ReadsTheMap(x, labels(x)), DataLoader, **original)
    dataset = WorkerSafeArrayDataset(x, labels(x), dtype=torch.float32, divisor=255)
    assert same(loaded(dataset, **options), expected)


def test_the_factory_loads_it_in_this_process() -> None:
    dataset = WorkerSafeArrayDataset(numbers("uint8"), labels(numbers()), dtype=torch.float32)
    loader = OptimalDataLoaderFactory.create_training_loader(dataset, 4, num_workers=4)
    assert loader.worker_processes == 0
    assert sorted(y for _, ys in loader for y in ys.tolist()) == sorted(labels(numbers()))
