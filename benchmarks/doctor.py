"""What recording for `chirp-migrate doctor` costs: CPU time for a batch, and its share of an epoch of a small model.

Run: python benchmarks/doctor.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chirp_migrate.doctor.recording import Recording
from chirp_migrate.doctor.watch.training import watched

_ROUNDS = 12
_EPOCHS = 2


def main() -> None:
    """Train in turns with and without the watch, and print the least of each."""
    torch.set_num_threads(1)
    labels = torch.arange(192) % 4
    spectrograms = TensorDataset(torch.rand(192, 1, 224, 313), labels)
    rows = TensorDataset(torch.rand(6400, 16), torch.arange(6400) % 4)
    cnn = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 4),
    )
    perceptron = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    for name, dataset, model, size in (("spectrograms", spectrograms, cnn, 32), ("rows", rows, perceptron, 64)):
        _compare(name, dataset, model, size)


def _compare(name: str, dataset: Dataset[object], model: nn.Module, size: int) -> None:
    loader = DataLoader(dataset, batch_size=size, shuffle=True)

    def train() -> None:
        for _ in range(_EPOCHS):
            for x, y in loader:
                nn.functional.cross_entropy(model(x), y).backward()

    def watch() -> None:
        with tempfile.TemporaryDirectory() as folder:
            watched(name, train, Path.cwd(), Path(folder), 600, Recording(name))

    plain, seen = [], []
    for _ in range(_ROUNDS):
        plain.append(_cpu_s(train))
        seen.append(_cpu_s(watch))
    before, after = min(plain), min(seen)  # what disturbs a round only adds to it
    batch_ms = 1e3 * (after - before) / (_EPOCHS * len(loader))
    print(f"{name}: {batch_ms:.2f} ms of CPU time a batch, {100 * (after / before - 1):.1f} % of {_EPOCHS} epochs")


def _cpu_s(call: Callable[[], None]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    main()
