"""Is data loading in this backend worker-safe, the same as before, free of leaks, and do the notebooks still run?

Run from the backend's root:

    pytest tests/                                      # all
    pytest tests/test_dataloader_optimization.py -s    # print the measured times

The tests make their own synthetic spectrograms. They print the speed, but no test depends on it, so they also pass on a
busy machine. Notebooks are executed in their folder and are not saved. Files that their cells write stay.

Environment variables:
    CHIRPID_SKIP_NOTEBOOKS=1      do not execute notebooks
    CHIRPID_NOTEBOOK_TIMEOUT=600  seconds that a cell of a notebook may take; if it takes longer, the test is skipped
"""

import gc
import importlib
import inspect
import multiprocessing
import os
import pickle
import random
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from chirpid_patch import (
    BatchedDataLoader,
    DataLoaderPerformanceMonitor,
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeSequenceDataset,
    WorkerSafeStandardizedDataset,
    usable_cpus,
)

WORKERS = 8
# Each spawned worker imports torch, which takes seconds: start one for each CPU, but at least two.
SPAWNED_WORKERS = max(2, min(WORKERS, usable_cpus()))
BATCH_SIZE = 8
MEAN, STD = torch.tensor(0.5), torch.tensor(0.29)
# PyTorch warns if a loader has more workers than there are CPUs. These tests use eight workers on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def spectrograms(count=40, shape=(1, 32, 40)):
    """Random spectrograms in [0, 1]. The label of each sample is its index, so that every label is different."""
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(torch.rand(count, *shape, generator=generator), torch.arange(count))


def standardised():
    data = spectrograms()
    return WorkerSafeStandardizedDataset(data, np.arange(len(data)), MEAN, STD)


def augmented():
    params = {
        "spec_augment_params": {"time_mask_param": 8, "freq_mask_param": 6, "p": 0.8},
        "gaussian_noise_params": {"std": 0.02, "p": 0.8},
    }
    return WorkerSafeAugmentedDataset(standardised(), params)


def listed():
    data = standardised()
    return WorkerSafeSequenceDataset([data[i] for i in range(len(data))])


def backend_standardised():
    """The dataset that this backend's own `create_standardized_subset` returns."""
    create = backend_function("create_standardized_subset")
    data = spectrograms()
    return create(data, np.arange(len(data)), MEAN, STD)


def backend_augmented():
    """The dataset that this backend's own `create_augmented_dataset_wrapper` returns."""
    name = "create_augmented_dataset_wrapper"
    create = backend_function(name)
    accepted = inspect.signature(create).parameters.keys()
    # Switch both kinds of augmentation on if there are switches. Otherwise nothing would be tested.
    options = dict.fromkeys({"use_spec_augment", "use_gaussian_noise"} & accepted, True)
    masks = {"time_mask_param": 8, "freq_mask_param": 6}
    # Some backends require augmentation parameters, in one of these forms.
    forms = [{"augment_params": given} for given in (masks, {"spec_augment_params": masks}) if "augment_params" in accepted]
    problems = []
    for form in [{}, *forms]:
        try:
            return create(standardised(), training=True, **options, **form)
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")
    pytest.skip(f"utils/dataset_utils.py: {name} raises {problems[0]}")


def backend_function(name):
    """The function with a name in this backend's `utils/dataset_utils.py`; without it, the test is skipped."""
    if not (ROOT / "utils" / "dataset_utils.py").is_file():
        pytest.skip("this backend has no utils/dataset_utils.py")
    try:
        utils = importlib.import_module("utils.dataset_utils")
    except ImportError as error:
        pytest.skip(f"utils/dataset_utils.py cannot be imported: {error}")
    if not hasattr(utils, name):
        pytest.skip(f"utils/dataset_utils.py has no {name}")
    return getattr(utils, name)


DATASETS = [standardised, augmented, listed, backend_standardised, backend_augmented]
DETERMINISTIC = [standardised, listed, backend_standardised]


def seed_everything(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def close(loader):
    """End the workers of a loader of the factory; PyTorch's own loaders need no call."""
    if hasattr(loader, "shutdown"):
        loader.shutdown()


def assert_loads_every_sample_once(loader, dataset):
    batches = list(loader)
    xs, ys = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    assert ys.tolist() == list(range(len(dataset)))
    assert xs.shape == (len(dataset), 1, 32, 40)
    assert torch.isfinite(xs).all()
    return xs


# --- worker safety --------------------------------------------------------------------------------------------------


def test_factory_and_monitor_are_importable_from_utils():
    from utils.dataloader_factory import OptimalDataLoaderFactory as factory
    from utils.performance_monitor import DataLoaderPerformanceMonitor as monitor

    for name in ("get_optimal_config", "create_training_loader", "create_validation_loader"):
        assert callable(getattr(factory, name))
    for name in ("time_batch_loading", "benchmark_configurations"):
        assert callable(getattr(monitor(), name))


@pytest.mark.parametrize("make", DATASETS)
def test_a_pickled_copy_is_the_same_dataset(make):
    dataset = make()
    copy = pickle.loads(pickle.dumps(dataset))
    assert type(copy) is type(dataset)
    assert len(copy) == len(dataset)
    if make in DETERMINISTIC:
        assert all(torch.equal(copy[i][0], dataset[i][0]) for i in range(len(dataset)))


@pytest.mark.parametrize("make", DATASETS)
def test_eight_workers_load_every_sample_once(make):
    dataset = make()
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=WORKERS)
    xs = assert_loads_every_sample_once(loader, dataset)
    if make in DETERMINISTIC:
        assert torch.equal(xs, torch.stack([dataset[i][0] for i in range(len(dataset))]))


def test_spawned_workers_load_every_sample_once():
    dataset = augmented()
    loader = DataLoader(
        dataset, batch_size=BATCH_SIZE, num_workers=SPAWNED_WORKERS, multiprocessing_context="spawn"
    )
    assert_loads_every_sample_once(loader, dataset)


def test_eight_workers_augment_as_the_training_process_does():
    batches = {}
    for workers in (0, WORKERS):
        seed_everything()
        dataset = augmented()
        loader = BatchedDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=workers)
        batches[workers] = [assert_loads_every_sample_once(loader, dataset) for _ in range(2)]
        close(loader)
    for alone, with_workers in zip(batches[0], batches[WORKERS]):
        assert torch.equal(alone, with_workers)
    assert not torch.equal(*batches[0])  # epochs differ


def test_validation_sees_every_sample_whatever_the_batch_size():
    dataset = standardised()
    for batch_size in (1, 7, 40, 64):
        loader = OptimalDataLoaderFactory.create_validation_loader(dataset, batch_size=batch_size)
        assert_loads_every_sample_once(loader, dataset)


# --- before and after -----------------------------------------------------------------------------------------------


class BeforeDataset(Dataset):
    """Standardises one sample at a time, as the code before the migration did."""

    def __init__(self, base, indices, mean, std):
        self.base, self.indices, self.mean, self.std = base, indices, mean, std

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        x, y = self.base[self.indices[index]]
        return (x - self.mean) / (self.std + 1e-8), y


def before_and_after(data, batch_size):
    """The functions that build the training loader before and after the migration, over the same samples."""
    indices = np.arange(len(data))
    before = BeforeDataset(data, indices, MEAN, STD)
    after = WorkerSafeStandardizedDataset(data, indices, MEAN, STD)
    return {
        "before": partial(DataLoader, before, batch_size=batch_size, shuffle=True),
        "after": partial(OptimalDataLoaderFactory.create_training_loader, after, batch_size=batch_size),
    }


def test_loading_before_and_after():
    sides = before_and_after(spectrograms(150, (1, 224, 313)), batch_size=16)
    batches = {}
    for name, make in sides.items():
        seed_everything()
        batches[name] = list(make())
    assert len(batches["before"]) == len(batches["after"])
    for (old_x, old_y), (new_x, new_y) in zip(batches["before"], batches["after"]):
        assert torch.equal(old_x, new_x)
        assert torch.equal(old_y, new_y)

    monitor = DataLoaderPerformanceMonitor()
    for name, make in sides.items():
        times = monitor.time_batch_loading(make(), num_batches=9)
        rate, worst = times["samples_per_second"], times["p99_batch_time"]
        print(f"loading {name}: {rate:,.0f} samples/s, wait p99 {worst * 1e3:.1f} ms")
        assert times["num_batches"] == 9
        assert 0 < times["mean_batch_time"] <= times["total_time"] < 600
        assert times["p50_batch_time"] <= times["p99_batch_time"]


def test_training_before_and_after():
    data = spectrograms(64, (1, 64, 80))
    data.tensors = (data.tensors[0], data.tensors[1] % 4)
    losses = {}
    for name, make in before_and_after(data, batch_size=16).items():
        seed_everything()
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * 80, 4))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
        loader, losses[name], seen = make(), [], 0
        begun = time.perf_counter()
        for _ in range(3):
            for x, y in loader:
                loss = torch.nn.functional.cross_entropy(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses[name].append(loss.item())
                seen += len(y)
        print(f"training {name}: {time.perf_counter() - begun:.3f} s for {seen} samples")
        assert seen == 3 * len(data)
    assert losses["before"] == losses["after"]


# --- memory and processes -------------------------------------------------------------------------------------------


def persistent_loader(data):
    dataset = WorkerSafeStandardizedDataset(data, range(len(data)), MEAN, STD)
    # Do not use the factory here: it starts no workers for samples in memory.
    return BatchedDataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)


def test_memory_does_not_grow_with_persistent_workers():
    data = spectrograms(96, (1, 224, 313))
    epoch_bytes = data.tensors[0].nbytes
    monitor, loader = DataLoaderPerformanceMonitor(), persistent_loader(data)
    if monitor.memory_status() is None or monitor.memory_status().kind == "peak-rss":
        pytest.skip("this system does not report how much memory a process uses: install psutil")
    epochs = 6

    def run_epoch():
        for _ in loader:
            pass
        gc.collect()

    for _ in range(2):  # let buffers grow to their final size first
        run_epoch()
    settled = monitor.memory_status().bytes
    for _ in range(epochs):
        run_epoch()
    growth = monitor.memory_status().bytes - settled
    close(loader)
    print(f"memory after {epochs} more epochs of {epoch_bytes / 2**20:.0f} MiB: {growth / 2**20:+.0f} MiB")
    # If a loader kept its batches, each epoch would add all bytes of the dataset.
    assert growth < epochs * epoch_bytes / 2


def test_no_worker_outlives_its_loader():
    before = set(multiprocessing.active_children())
    for fold in range(3):
        loader = persistent_loader(spectrograms())
        assert sum(len(y) for _ in range(2) for _, y in loader) == 80
        assert len(set(multiprocessing.active_children()) - before) == 2, "the loader has its two workers"
        close(loader)
        assert set(multiprocessing.active_children()) <= before, f"workers of fold {fold} are left"


def test_no_worker_outlives_a_loader_that_is_dropped():
    before = set(multiprocessing.active_children())
    loader = persistent_loader(spectrograms())
    next(iter(loader))
    del loader
    gc.collect()
    assert set(multiprocessing.active_children()) <= before


# --- notebooks ------------------------------------------------------------------------------------------------------

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebook_still_runs(path, monkeypatch):
    if os.environ.get("CHIRPID_SKIP_NOTEBOOKS") == "1":
        pytest.skip("CHIRPID_SKIP_NOTEBOOKS is set")
    nbclient = pytest.importorskip("nbclient", reason="install nbclient and ipykernel to execute the notebooks")
    nbformat = pytest.importorskip("nbformat", reason="install nbformat to execute the notebooks")
    pytest.importorskip("ipykernel", reason="install ipykernel to execute the notebooks")
    monkeypatch.setenv("CHIRPID_QUICK_BENCHMARK", "1")  # makes the benchmarking notebook run for a shorter time
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # Notebooks import `utils`, and `chirpid_patch` if it was copied into the backend.
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    notebook = nbformat.read(path, as_version=4)
    timeout = int(os.environ.get("CHIRPID_NOTEBOOK_TIMEOUT", "600"))
    client = nbclient.NotebookClient(
        notebook, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    try:
        client.execute()
    except nbclient.exceptions.CellTimeoutError:
        pytest.skip(f"a cell took more than {timeout} s: set CHIRPID_NOTEBOOK_TIMEOUT to let it finish")
