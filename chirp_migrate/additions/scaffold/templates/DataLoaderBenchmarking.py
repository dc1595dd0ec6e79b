# %% [markdown]
# # How fast does this backend load its data?
#
# Training loads a batch, lets the model learn from it, and then loads the next batch. While a batch is being loaded,
# the model (and the GPU) has nothing to do. This notebook measures that waiting time, in six parts:
#
# 1. the verdict of `chirp-migrate verify`, which trained this backend before and after its migration;
# 2. the data for the measurements below: synthetic spectrograms of the backend's size, 1 × 224 × 313;
# 3. loading before the migration, compared with loading now;
# 4. whether several worker processes can read the datasets, and then load the same samples;
# 5. how busy the GPU is during training;
# 6. training time with different loader settings.
#
# The first part shows results of an earlier measurement. The other parts are measured when their cells run, so their
# results differ a little from run to run. The whole notebook takes about a minute. It changes none of your files.
#
# Terms: a *sample* is one spectrogram with its label. A *batch* is a few dozen samples that the model gets at once. An
# *epoch* is one pass over all samples. A *loader* builds the batches for the training. A *worker* is an additional
# process that loads batches while the model is busy.

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

# The root of the backend: the current folder, or the nearest folder above it, with a folder `utils/`.
HERE = Path.cwd()
ROOT = next((folder for folder in (HERE, *HERE.parents) if (folder / "utils").is_dir()), HERE)
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

# These classes are the same as in utils.dataloader_factory and utils.performance_monitor.
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
except ImportError:  # without matplotlib, the plots are printed as text
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
    """Return a number as text with three significant digits; a large number keeps all digits before the point."""
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


BEFORE, AFTER = "#D55E00", "#0072B2"  # colours that colour-blind people can distinguish, too


def bars(title, values, unit):
    """Draw horizontal bars with their values, as a plot or as text. Loading before the migration has its own colour."""
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
    print(f"BUSY MACHINE: a load of {os.getloadavg()[0]:.1f}. The measurements below would differ on an idle machine.")

# %% [markdown]
# ## 1. The verdict
#
# `chirp-migrate verify` trains this backend several times, in turn with the code from before the migration and with the
# present code. It reports whether training got faster, and whether it is still the same training: with the same
# samples, losses and results, or, for random augmentation, with the same distribution. Its last result is in the folder
# `.chirp-migrate`. The next cell prints the report, or the command that you have to run first.

# %%
told = subprocess.run(
    [sys.executable, "-m", "chirp_migrate", "report", str(ROOT), "--quiet"], capture_output=True, text=True
)
print(told.stdout or told.stderr)
print(f"With plots and every change, as one page: chirp-migrate report {shlex.quote(str(ROOT))} -o report.html")

# %% [markdown]
# ## 2. The data
#
# The data are random spectrograms in [0, 1]. Each has a brighter band whose height depends on the class of the sample,
# so that a model has something to learn. All samples are in memory, as in the backend. Training uses *standardised*
# samples: the mean is subtracted, and the result is divided by the standard deviation.

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
# *Current* is the code that this backend had before its migration. It reads, standardises and augments each sample
# separately; PyTorch's DataLoader then stacks the samples into a batch. *Augmented* means two random changes, each
# applied to 80 % of the samples: a random band of time and a random band of frequency are blanked out, and noise is
# added.
#
# *Optimised* is a loader of `OptimalDataLoaderFactory`. It gathers, standardises and augments a whole batch at once.
#
# First, the next cell checks that both load the same data. It compares the batches without augmentation bit by bit.

# %%
class CurrentDataset(Dataset):
    """Standardises and augments one sample at a time, as the code before the migration did."""

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
# Now the speed. The next cell measures how long the training waits for each batch. The first batch, which includes
# starting the loader, is measured separately. The current and the optimised loader are measured in turn, several times,
# and the table shows the median. So other work on this machine affects both in the same way. *p99* is the wait that
# only one batch in a hundred exceeds.

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
        f"{work}: the optimised loader loads {statistics.median(ratios):.2f} times as many samples per second as the "
        f"current loader ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)"
    )
bars("Loading alone", {name: middle(name, "samples_per_second") for name in candidates}, "samples/s")

# %% [markdown]
# ## 4. Worker safety
#
# Worker processes can read a dataset only if it can be *pickled*, which means packed and sent to another process. A
# lambda, or a class that is defined inside a function, cannot be pickled. In addition, workers must not share their
# randomness: workers that start from the same random state would all blank out the same bands.
#
# The next cell pickles the datasets of this notebook, and then loads one with several numbers of workers. Each sample
# must be loaded exactly once. The augmented samples must be the same with any number of workers: their random numbers
# depend on the seed of the run, the epoch and the sample, and not on the process that loads the sample.

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
    """Return all samples in order, their labels, and the seconds until the first batch."""
    seed_everything(7)
    with warnings.catch_warnings():
        # This test also uses more workers than there are CPUs, so PyTorch's warning is expected.
        warnings.filterwarnings("ignore", message=".*worker processes in total")
        # Do not use the factory here: it starts no workers for samples in memory.
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
print("Safe with each of these numbers of workers." if safe else "NOT SAFE: see the table.")

# %% [markdown]
# ## 5. GPU utilisation during training
#
# The next cell trains a small convolutional network on the augmented data, once with each kind of loading. On an NVIDIA
# GPU, it measures the utilisation meanwhile: the share of time in which the GPU had work.
#
# Without a GPU, it measures the share of training time in which the model did *not* wait for data. On a CPU, loading
# and the model share the same cores, so this share does not predict the utilisation of a GPU.

# %%
class TinyCNN(torch.nn.Module):
    """A model that is small on purpose: like a large model on a GPU, it needs its batches quickly."""

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
    """Train from the same seed each time; return the seconds, the seconds of waiting, and the loss of each epoch."""
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


# Train once without measuring: the first optimiser in a process loads a lot of code, and a GPU has to be set up.
train(lambda: optimised_loader(optimised), epochs=1)

gpu = monitor.gpu_status()
rows = []
for name in ("current, augmented", "optimised, augmented"):
    with monitor.watch(interval_s=0.1) as usage:
        # NVML averages over up to one second, so the training must be longer.
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
# The next cell repeats the same training, from the same seed, with different loaders. More workers do not always make
# training faster: for data in memory, sending a batch from one process to another often takes longer than computing it.
# The table shows which setting is fastest here. The last column compares the losses with those of the first row. *yes*
# means that the model learned exactly the same, to the last bit.

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
    print("current, 2 workers: omitted, because this system cannot send a dataset of a notebook to workers")

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
# ## Summary
#
# The next cell summarises the measurements. If training waits for data only a small share of the time, the model is the
# bottleneck, and no loader can make training much faster. To measure your own dataset and model, use `train` from
# above, or run `DataLoaderPerformanceMonitor().benchmark_configurations(dataset, batch_size)`.

# %%
best = min(training_times, key=training_times.get)
chosen = training_times["optimised, factory's choice"]
print(f"fastest training here: {best} ({training_times[best]:.2f} s)")
ratio = chosen / training_times[first]
print(f"training with the factory's choice took {ratio:.2f} times as long as with the current loader")
share = waiting["optimised, factory's choice"]
print(f"with the factory's choice, the training still waits for data during {100 * share:.0f} % of the time")
