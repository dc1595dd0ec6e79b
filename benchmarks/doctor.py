"""Measure how much time `chirp-migrate doctor` takes to record a training, per epoch and per batch.

The recording is timed inside the recorded training, so that other processes slow down the training and the recording
equally. The results are the share of the epoch time, and the CPU time for each batch.

Run: python benchmarks/doctor.py
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chirp_migrate.doctor.recording import Recording
from chirp_migrate.doctor.watch import reading, training
from chirp_migrate.doctor.watch.training import record_training

_ROUNDS = 5
_EPOCHS = 2
_PARTS = (
    (reading, ("describe_batch", "generator_states", "container_lengths", "read_plain_attributes", "large_containers")),
    (
        training,
        (
            "describe_batch",
            "read_plain_attributes",
            "record_tensors",
            "count_batch_samples",
            "_count_file_descriptors",
        ),
    ),
    (
        training._TrainingWatch,
        ("_record_module_call", "_record_backward", "_loader_info", "_end_training_if_late"),
    ),
)


class Recordings(Dataset[tuple[torch.Tensor, int]]):
    """Spectrograms of shape 1x224x313, computed from five seconds of sound in memory."""

    def __init__(self, samples: int) -> None:
        self.sounds = torch.rand(samples, 160_000)
        self.window = torch.hann_window(1024)

    def __len__(self) -> int:
        return len(self.sounds)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        spectrum = torch.stft(self.sounds[index], 1024, 512, window=self.window, return_complex=True)
        return spectrum.abs()[:224, :313].log1p().unsqueeze(0), index % 4


def main() -> None:
    """Train in turns with and without the recording."""
    torch.set_num_threads(1)
    cnn = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 4),
    )
    perceptron = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    in_memory = TensorDataset(torch.rand(192, 1, 224, 313), torch.arange(192) % 4)
    rows = TensorDataset(torch.rand(6400, 16), torch.arange(6400) % 4)
    _compare("recordings, read and trained", Recordings(96), cnn, 32)
    _compare("spectrograms in memory", in_memory, cnn, 32)
    _compare("rows of 16 numbers, nothing else", rows, perceptron, 64)


def _compare(name: str, dataset: Dataset[Any], model: nn.Module, size: int) -> None:
    loader = DataLoader(dataset, batch_size=size, shuffle=True)

    def train() -> None:
        for _ in range(_EPOCHS):
            for x, y in loader:
                nn.functional.cross_entropy(model(x), y).backward()

    def watch() -> None:
        with tempfile.TemporaryDirectory() as folder:
            record_training(train, Path.cwd(), Path(folder), 600, Recording(name))

    plain, seen, shares, inside = [], [], [], []
    for _ in range(_ROUNDS):
        plain.append(_cpu_s(train))
        seen.append(_cpu_s(watch))
        with _timed() as spent:
            whole = _cpu_s(watch)
        shares.append(spent[0] / (whole - spent[0]))
        inside.append(spent[0])
    batches = _EPOCHS * len(loader)
    share, whole_share = min(shares), min(seen) / min(plain) - 1
    print(
        f"{name}: {1e3 * min(inside) / batches:.2f} ms of CPU time a batch in the parts that record, "
        f"{100 * share:.1f} % of {_EPOCHS} epochs; from runs with and without the watch: {100 * whole_share:.1f} %"
    )


@contextmanager
def _timed() -> Iterator[list[float]]:
    """Return a context that yields the CPU seconds of the recording."""
    spent = [0.0]
    with ExitStack() as stack:
        for owner, names in _PARTS:
            for name in names:
                stack.enter_context(mock.patch.object(owner, name, _timing(getattr(owner, name), spent)))
        yield spent


def _timing(call: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    @functools.wraps(call)
    def timing(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return call(*arguments, **named)
        finally:
            spent[0] += time.process_time() - began

    return timing


def _cpu_s(call: Callable[[], None]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    main()
