# %% [markdown]
# # How fast does this backend load its data?
#
# Training takes turns: load a batch, let the model learn from it, load the next. While a batch is being loaded, the
# model (and the GPU) has nothing to do. This notebook is about that waiting, in six parts:
#
# 1. the verdict: what `chirp-migrate verify` found when it trained this backend before and after its migration;
# 2. the data for what is measured here: synthetic spectrograms of the size the backend trains on, 1 × 224 × 313;
# 3. loading as it was before the migration against loading as it is now;
# 4. whether the datasets can be used by several worker processes, and give the same samples then;
# 5. how busy the GPU is during training;
# 6. training time with different loader settings.
#
# The first part shows figures that were measured earlier and kept. All others are measured when their cells run; run
# them again and they will differ a little. The whole notebook takes about a minute. Nothing of yours is changed.
#
# Words used: a *sample* is one spectrogram with its label; a *batch* is a few dozen samples the model sees at once; an
# *epoch* is one pass over all samples; a *loader* hands the training its batches; a *worker* is an extra process that
# loads batches while the model is busy.

# %%
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

# The backend's root: the folder with `utils/`, here or above.
HERE = Path.cwd()
ROOT = next((folder for folder in (HERE, *HERE.parents) if (folder / "utils").is_dir()), HERE)
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

# The same classes as in utils.dataloader_factory and utils.performance_monitor.
from chirpid_patch import (
    BatchedDataLoader,
    DataLoaderPerformanceMonitor,
    OptimalDataLoaderFactory,
    WorkerSafeAugmentedDataset,
    WorkerSafeStandardizedDataset,
    compute_standardization_stats,
    usable_cpus,
)

try:
    import matplotlib.pyplot as plt
except ImportError:  # without matplotlib the plots are drawn as text
    plt = None

QUICK = os.environ.get("CHIRPID_QUICK_BENCHMARK") == "1"  # a shorter run, for tests
SAMPLES = 128 if QUICK else 256
BATCH_SIZE = 16 if QUICK else 32
ROUNDS = 1 if QUICK else 3
EPOCHS = 1 if QUICK else 3
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

monitor = DataLoaderPerformanceMonitor()


def seed_everything(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def table(header, rows):
    """Print rows of text in columns."""
    cells = [header, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in (header, ["-" * width for width in widths], *cells[1:]):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def number(value):
    """Three digits, or all of a large number."""
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


BEFORE, AFTER = "#D55E00", "#0072B2"  # told apart by colour-blind people, too


def bars(title, values, unit):
    """Horizontal bars with their values, as a plot or as text; loading as it was before in another colour."""
    if plt is None:
        print(title)
        for label, value in values.items():
            print(f"{label:>32}  {'#' * round(40 * value / max(values.values()))} {number(value)} {unit}")
        return
    figure, axes = plt.subplots(figsize=(9, 0.4 * len(values) + 1), layout="constrained")
    colours = [BEFORE if label.startswith("current") else AFTER for label in values]
    drawn = axes.barh(list(values), list(values.values()), color=colours)
    axes.bar_label(drawn, [f" {number(value)}" for value in values.values()])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    plt.show()


print(f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()} {platform.machine()}")
print(f"{usable_cpus()} CPUs usable by this process, {torch.get_num_threads()} torch threads, training on {DEVICE}")
print(monitor.gpu_status())
if hasattr(os, "getloadavg") and os.getloadavg()[0] > usable_cpus() / 2:
    print(f"BUSY MACHINE: a load of {os.getloadavg()[0]:.1f}; what is measured below would be other figures in quiet.")

# %% [markdown]
# ## 1. The verdict
#
# `chirp-migrate verify` trains this backend in turn as it was before the migration and as it is now, several times, in
# processes of their own. It says whether training got faster, and whether it is still the same training: the same
# samples, losses and results, or, for random augmentation, the same distribution. What it found last is kept in the
# folder `.chirp-migrate`; this is what `chirp-migrate report` says of it, or what has to be run first.

# %%
told = subprocess.run(
    [sys.executable, "-m", "chirp_migrate", "report", str(ROOT), "--quiet"], capture_output=True, text=True
)
print(told.stdout or told.stderr)
print(f"With plots and every change, as one page: chirp-migrate report {shlex.quote(str(ROOT))} -o report.html")

# %% [markdown]
# ## 2. The data
#
# Random spectrograms in [0, 1], each with a brighter band whose height depends on its class, so that a model has
# something to learn. All of them are in memory, as in the backend. Training wants them *standardised*: the mean
# subtracted, divided by the standard deviation.

# %%
def make_spectrograms(count, classes=4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    spectrograms = torch.rand(count, 1, 224, 313, generator=generator) * 0.7
    labels = torch.arange(count) % classes
    for spectrogram, label in zip(spectrograms, labels.tolist()):
        spectrogram[:, 50 * label : 50 * label + 20] += 0.3
    return TensorDataset(spectrograms, labels)


data = make_spectrograms(SAMPLES)
indices = np.arange(SAMPLES)
seed_everything()
mean, std = compute_standardization_stats(data, indices)
print(f"{SAMPLES} samples of {tuple(data.tensors[0].shape[1:])}, {data.tensors[0].nbytes / 2**20:.0f} MiB in all")
print(f"mean {mean.item():.4f}, standard deviation {std.item():.4f}")

# %% [markdown]
# ## 3. Current against optimised
#
# *Current* is the code this backend had before its migration: each sample is fetched, standardised and augmented on
# its own, then PyTorch's DataLoader stacks the samples to a batch. *Augmented* means that a random band of time and one
# of frequency are blanked out and that noise is added, each for 80 % of the samples.
#
# *Optimised* is what `OptimalDataLoaderFactory` makes: a whole batch is gathered and worked on at once.
#
# First, the two must load the same thing. Without augmentation, the batches are compared bit by bit.

# %%
class CurrentDataset(Dataset):
    """One sample at a time, as before the migration."""

    def __init__(self, base, indices, mean, std, augment=False):
        self.base, self.indices, self.mean, self.std, self.augment = base, indices, mean, std, augment

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        x, y = self.base[self.indices[index]]
        x = (x - self.mean) / (self.std + 1e-8)
        if not self.augment:
            return x, y
        if random.random() <= 0.8:
            x = x.clone()
            width = random.randint(0, 40)
            start = random.randint(0, x.shape[-1] - width)
            x[..., start : start + width] = 0.0
            height = random.randint(0, 15)
            start = random.randint(0, x.shape[-2] - height)
            x[..., start : start + height, :] = 0.0
        if random.random() <= 0.8:
            x = torch.clamp(x + torch.randn_like(x) * 0.02, 0, 1)
        return x, y


current = CurrentDataset(data, indices, mean, std)
current_augmented = CurrentDataset(data, indices, mean, std, augment=True)
optimised = WorkerSafeStandardizedDataset(data, indices, mean, std)
optimised_augmented = WorkerSafeAugmentedDataset(
    optimised,
    {
        "spec_augment_params": {"time_mask_param": 40, "freq_mask_param": 15, "p": 0.8},
        "gaussian_noise_params": {"std": 0.02, "p": 0.8},
    },
)


def current_loader(dataset, **options):
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, **options)


def optimised_loader(dataset):
    return OptimalDataLoaderFactory.create_training_loader(dataset, batch_size=BATCH_SIZE)


seed_everything()
before = list(current_loader(current))
seed_everything()
after = list(optimised_loader(optimised))
same = len(before) == len(after) and all(
    torch.equal(old_x, new_x) and torch.equal(old_y, new_y) for (old_x, old_y), (new_x, new_y) in zip(before, after)
)
print(f"{len(before)} batches before, {len(after)} after; the same to the last bit: {'yes' if same else 'NO'}")
del before, after

# %% [markdown]
# Now the speed. What is timed is the wait for each next batch; the first batch, which includes starting the loader, is
# kept apart. The two sides are measured in turn, several times, and the middle value counts, so that other work on
# this machine disturbs both alike. *p99* is the wait that only one batch in a hundred exceeds.

# %%
candidates = {
    "current, standardised": lambda: current_loader(current),
    "optimised, standardised": lambda: optimised_loader(optimised),
    "current, augmented": lambda: current_loader(current_augmented),
    "optimised, augmented": lambda: optimised_loader(optimised_augmented),
}
taken = {name: [] for name in candidates}
for _ in range(ROUNDS):
    for name, make in candidates.items():
        taken[name].append(monitor.time_batch_loading(make(), num_batches=SAMPLES // BATCH_SIZE))


def middle(name, figure):
    return statistics.median(times[figure] for times in taken[name])


table(
    ["loading", "samples/s", "wait p50", "wait p99"],
    [
        [
            name,
            f"{middle(name, 'samples_per_second'):,.0f}",
            f"{middle(name, 'p50_batch_time') * 1e3:.1f} ms",
            f"{middle(name, 'p99_batch_time') * 1e3:.1f} ms",
        ]
        for name in candidates
    ],
)
for work in ("standardised", "augmented"):
    sides = [[times["samples_per_second"] for times in taken[f"{side}, {work}"]] for side in ("current", "optimised")]
    ratios = [new / old for old, new in zip(*sides)]
    print(
        f"{work}: the optimised loader gives {statistics.median(ratios):.2f} times as many samples a second as the "
        f"current one ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)"
    )
bars("Loading alone", {name: middle(name, "samples_per_second") for name in candidates}, "samples/s")

# %% [markdown]
# ## 4. Worker safety
#
# A dataset can be handed to worker processes only if it can be *pickled* (packed and sent to another process). A lambda
# or a class defined inside a function cannot. And randomness must not be shared: workers that start from one random
# state would all blank out the same bands.
#
# The datasets used here are pickled, and then loaded with several numbers of workers. Each sample must come exactly
# once, and the augmented samples must be the very same whatever the number of workers, since their randomness depends
# on the run's seed, the epoch and the sample, not on the process that happens to load it.

# %%
import pickle

small = TensorDataset(torch.rand(64, 1, 32, 40), torch.arange(64))
safe_standardised = WorkerSafeStandardizedDataset(small, range(64), 0.5, 0.29)
safe_augmented = WorkerSafeAugmentedDataset(
    safe_standardised, {"time_mask_param": 8, "freq_mask_param": 6, "p": 0.8}
)
for dataset in (safe_standardised, safe_augmented):
    print(f"{type(dataset).__name__}: pickles to {len(pickle.dumps(dataset)) / 1024:.0f} KiB")


def load_all(workers):
    """All samples in order, their labels, and the seconds until the first batch."""
    seed_everything(7)
    with warnings.catch_warnings():
        # Trying more workers than there are CPUs is the point here.
        warnings.filterwarnings("ignore", message=".*worker processes in total")
        # The factory would start no workers for samples in memory.
        loader = BatchedDataLoader(safe_augmented, batch_size=8, num_workers=workers)
        begun = time.perf_counter()
        xs, ys, first = [], [], None
        for x, y in loader:
            first = time.perf_counter() - begun if first is None else first
            xs.append(x)
            ys.append(y)
    loader.shutdown()
    return torch.cat(xs), torch.cat(ys).tolist(), first


reference, _, _ = load_all(0)
rows, safe = [], True
for workers in (0, 2) if QUICK else (0, 1, 2, 4, 8):
    x, y, first = load_all(workers)
    once, equal = y == list(range(64)), torch.equal(x, reference)
    safe = safe and once and equal
    rows.append([workers, len(y), "yes" if once else "NO", "yes" if equal else "NO", f"{first * 1e3:.0f} ms"])
table(["workers", "samples", "each exactly once", "same as without workers", "first batch after"], rows)
print("Safe with every number of workers tried." if safe else "NOT SAFE: see the table.")

# %% [markdown]
# ## 5. GPU utilisation during training
#
# A small convolutional network is trained on the augmented data, once with each kind of loading. With an NVIDIA GPU,
# its utilisation (the share of time in which it had work) is sampled meanwhile.
#
# Without one, the nearest thing that can be measured is the share of training time in which the model did *not* wait
# for data. On a CPU, loading and model share the same cores, so this is not a forecast for a GPU.

# %%
class TinyCNN(torch.nn.Module):
    """Small on purpose: like a large model on a GPU, it needs its batches quickly."""

    def __init__(self, classes=4):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 7, stride=4),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(6),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 36, classes),
        )

    def forward(self, x):
        return self.layers(x)


def train(make_loader, epochs=EPOCHS):
    """Train from the same start each time. Returns seconds, seconds waited for data, and the loss of each epoch."""
    seed_everything()
    model = TinyCNN().to(DEVICE)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = make_loader()
    losses, waited = [], 0.0
    begun = time.perf_counter()
    for _ in range(epochs):
        total, asked = 0.0, time.perf_counter()
        for x, y in loader:
            waited += time.perf_counter() - asked
            loss = torch.nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(y)
            asked = time.perf_counter()
        losses.append(total / SAMPLES)
    seconds = time.perf_counter() - begun
    if hasattr(loader, "shutdown"):
        loader.shutdown()
    return seconds, waited, losses


# The first optimiser in a process loads a lot of code, and a GPU has to be set up: not part of any measurement.
train(lambda: optimised_loader(optimised), epochs=1)

gpu = monitor.gpu_status()
rows = []
for name in ("current, augmented", "optimised, augmented"):
    with monitor.watch(interval_s=0.1) as usage:
        # NVML averages over up to a second: train for long enough to be seen.
        seconds, waited, _ = train(candidates[name], epochs=EPOCHS * (5 if gpu.readings else 1))
    busy = usage.mean_gpu_utilization
    memory = usage.peak_memory_bytes
    rows.append(
        [
            name,
            "no reading" if busy is None else f"{busy:.0f} %",
            f"{100 * (1 - waited / seconds):.0f} %",
            "not known" if memory is None else f"{memory / 2**20:.0f} MiB",
        ]
    )
print(gpu)
table(["loading", "GPU utilisation", "time not spent waiting", "peak memory"], rows)

# %% [markdown]
# ## 6. Training time with different settings
#
# The same training, from the same start, with different loaders. More workers are not faster by themselves: for data
# that is already in memory, sending a batch from one process to another often costs more than making it. Which setting
# wins here is for the table to say. The last column compares the losses with those of the first row: where it says
# *yes*, the model learned exactly the same, to the last bit.

# %%
import multiprocessing

settings = {
    "current, no workers": lambda: current_loader(current),
    "optimised, factory's choice": lambda: optimised_loader(optimised),
    "optimised, 2 workers": lambda: BatchedDataLoader(
        optimised, batch_size=BATCH_SIZE, shuffle=True, num_workers=2
    ),
}
if multiprocessing.get_start_method() == "fork":
    settings["current, 2 workers"] = lambda: current_loader(current, num_workers=2)
else:
    print("current, 2 workers: left out, a dataset defined in a notebook cannot be sent to workers on this system")

runs = {name: [] for name in settings}
for _ in range(ROUNDS):
    for name, make in settings.items():
        runs[name].append(train(make))

first = next(iter(settings))
training_times = {name: statistics.median(seconds for seconds, _, _ in taken) for name, taken in runs.items()}
waiting = {name: statistics.median(waited / seconds for seconds, waited, _ in taken) for name, taken in runs.items()}
table(
    ["setting", "training", "samples/s", "waiting for data", "last loss", "losses as in row 1"],
    [
        [
            name,
            f"{training_times[name]:.2f} s",
            f"{EPOCHS * SAMPLES / training_times[name]:,.0f}",
            f"{100 * waiting[name]:.0f} %",
            f"{taken[0][2][-1]:.4f}",
            "yes" if taken[0][2] == runs[first][0][2] else "no",
        ]
        for name, taken in runs.items()
    ],
)
bars("Training time", training_times, "seconds")

# %% [markdown]
# ## What to make of it
#
# The cell below puts the measurements into words. If little time is spent waiting for data, the model is the
# bottleneck, and no loader can make training much faster. To measure your own dataset and model, take `train` above, or
# run `DataLoaderPerformanceMonitor().benchmark_configurations(dataset, batch_size)`.

# %%
best = min(training_times, key=training_times.get)
chosen = training_times["optimised, factory's choice"]
print(f"fastest training here: {best} ({training_times[best]:.2f} s)")
print(f"the factory's choice took {chosen / training_times[first]:.2f} times as long as the current loading")
share = waiting["optimised, factory's choice"]
print(f"with it, {100 * share:.0f} % of the time is still spent waiting for data")
