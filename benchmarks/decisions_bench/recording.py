"""Record rounds of real processes with the code of `verify`, on two versions whose difference in time is known exactly.

The versions are small example projects. The machine may have additional load, so that the recorded times have the same
disturbances as on the machines of users.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chirp_migrate.training.workload.entry_points import WorkloadSizes, find_entry_points
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.timing.process_turns import ChildStarter
from chirp_migrate.verify.timing.rounds import TimedRound

__all__ = ["CONDITIONS", "Pool", "other_load", "read_pool", "record", "write_trees"]

SIZES = WorkloadSizes(samples=96, shape=(1, 64, 96), epochs=30, batch_size=32)
"""Thirty epochs of three batches: a tenth of the training is three whole epochs."""

#: Entry point → true ratio of its times after / before.
CONDITIONS = {
    **{f"training_less_{percent}": 1 - percent / 100 for percent in (50, 30, 20, 10)},
    "training_unchanged": 1.0,
    **{f"training_more_{percent}": 1 + percent / 100 for percent in (10, 20, 30, 50)},
}

_MODELS = """
import torch


class SmallCNN(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, kernel_size=5, stride=2, padding=2)
        self.pool = torch.nn.AdaptiveAvgPool2d((4, 4))
        self.fc = torch.nn.Linear(8 * 16, num_classes)

    def forward(self, x):
        return self.fc(self.pool(torch.relu(self.conv(x))).flatten(1))
"""

_TRAINING = """
import torch
from torch.utils.data import DataLoader, Dataset


class Standardized(Dataset):
    def __init__(self, base, indices):
        self.base, self.indices = base, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        x, y = self.base[self.indices[index]]
        return (x - x.mean()) / (x.std() + 1e-8), y


def _train(dataset, train_indices, val_indices, model_class, num_classes, num_epochs, batch_size):
    model = model_class(num_classes)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train_loader = DataLoader(Standardized(dataset, train_indices), batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(Standardized(dataset, val_indices), batch_size=batch_size)
    losses = []
    for _ in range(num_epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(sum(criterion(model(x), y).item() for x, y in val_loader))
    return losses
"""

_ENTRY = """

def {function}(dataset, train_indices, val_indices, model_class, num_classes, num_epochs=30, batch_size=32):
    epochs = max(1, round(num_epochs * {ratio}))
    return _train(dataset, train_indices, val_indices, model_class, num_classes, epochs, batch_size)
"""

# The process ends when its parent ends, for any reason.
_BUSY = """
import os, random, sys, time
lot, rest_s = random.Random(sys.argv[1]), float(sys.argv[2])
parent = os.getppid()
while os.getppid() == parent:
    until = time.monotonic() + lot.uniform(1, 20)
    while time.monotonic() < until:
        sum(range(100_000))
    time.sleep(lot.uniform(0, rest_s))
"""


@dataclass(frozen=True)
class Pool:
    """Recorded rounds, and whether the benchmark put load on the machine.

    Attributes:
        load: whether the benchmark itself kept another process busy during the recording.
        rounds: recorded rounds, with the seconds of every condition's entry point.
    """

    load: bool
    rounds: tuple[TimedRound, ...]


def read_pool(path: Path) -> Pool:
    """Read a recording from a file."""
    return msgspec.convert(json.loads(path.read_text(encoding="utf-8"))["pool"], Pool)


@contextmanager
def other_load(rest_s: float = 40.0) -> Iterator[None]:
    """Return a context with a process that keeps one core busy for 1 to 20 s, then sleeps, and so on.

    Args:
        rest_s: largest number of seconds of a sleep; 0 keeps the core busy all the time.
    """
    process = subprocess.Popen([sys.executable, "-c", _BUSY, str(random.Random(435).random()), str(rest_s)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def write_trees(folder: Path) -> dict[str, Path]:
    """Write both versions. Each condition has an entry point, whose number of epochs differs in the version after.

    Fewer or more epochs change every part of the time equally, so the total changes by exactly the wanted share.
    (``verify`` itself would report different trainings. So the benchmark times rounds without comparing the trainings.)
    """
    # The first training of a process takes 8 ms longer (measured), because its batch shapes are new. This time is short
    # for a verification, but is a twentieth of the shortest training here. So an entry point that is not judged runs
    # first.
    functions = {"training_first": 1.0, **CONDITIONS}
    trees = {}
    for side in ("before", "after"):
        utils = folder / side / "utils"
        utils.mkdir(parents=True)
        entries = (
            _ENTRY.format(function=function, ratio=ratio if side == "after" else 1.0)
            for function, ratio in functions.items()
        )
        (utils / "models.py").write_text(_MODELS, encoding="utf-8")
        (utils / "training_utils.py").write_text(_TRAINING + "".join(entries), encoding="utf-8")
        trees[side] = utils.parent
    return trees


def record(rounds: int, threads: int, load: bool, folder: Path, progress: Callable[[str], None]) -> Iterator[Pool]:
    """Time ``rounds`` pairs of new processes with the entry points of all conditions. Yield the recording so far.

    Args:
        rounds: number of rounds.
        threads: number of compute threads.
        load: whether to put load on the machine.
        folder: folder for the trees.
        progress: called with one line for each round.
    """
    trees = write_trees(folder / "trees")
    settings = VerifyOptions(
        SIZES, max_rounds=rounds, budget_s=float("inf"), threshold_percent=20.0, threads=threads, timeout_s=600
    )
    children = ChildStarter(trees, find_entry_points(trees["before"]), settings)
    made: list[TimedRound] = []
    with other_load() if load else nullcontext():
        began = time.monotonic()
        for number in range(rounds):
            made.append(children.time_round(number, None, float("inf"), float("inf")))
            others = made[-1].others
            beside = "not watched" if others is None else f"others used {others:.0%}"
            progress(f"{number + 1}/{rounds} rounds, {time.monotonic() - began:.0f} s, {beside}")
            yield Pool(load, tuple(made))
