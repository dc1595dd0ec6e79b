"""Compare the speed of a migrated loader and of the original loader with two workers, after accelerate's `prepare`.

The samples are in memory, with and without augmentation. The loaders take turns. The benchmark prints the time of the
shortest epoch of each loader in seconds, without and with a training step for each batch.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from chirpid_patch import OptimalDataLoaderFactory, WorkerSafeAugmentedDataset

SAMPLES, BATCH, WORKERS, EPOCHS, MASK = 6000, 32, 2, 3, 10


class Masked(Dataset[Any]):
    """A dataset that applies a time mask to most samples, one by one."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        x, y = self.dataset[index]
        if random.random() < 0.9:
            width = random.randint(0, MASK)
            start = random.randint(0, x.shape[-1] - width)
            x = x.clone()
            x[..., start : start + width] = 0
        return x, y


def seconds(loader: Any, step: Callable[[Any], None]) -> float:
    """Return the seconds of one epoch."""
    begin = time.perf_counter()
    for batch in loader:
        step(batch)
    return time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    plain = TensorDataset(torch.randn(SAMPLES, 1, 64, 128), torch.randint(0, 8, (SAMPLES,)))
    masked = WorkerSafeAugmentedDataset(plain, {"time_mask_param": MASK, "num_freq_masks": 0, "p": 0.9})
    model = nn.Sequential(nn.Flatten(), nn.Linear(64 * 128, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train(batch: Any) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    print(f"{'samples':10} {'step':10} {'original':>9} {'migrated':>9}")
    for name, old, new in (("as stored", plain, plain), ("masked", Masked(plain), masked)):
        loaders = [
            accelerator.prepare(DataLoader(old, batch_size=BATCH, shuffle=True, num_workers=WORKERS)),
            accelerator.prepare(OptimalDataLoaderFactory.create_training_loader(new, BATCH, num_workers=WORKERS)),
        ]
        steps: list[tuple[str, Callable[[Any], None]]] = [("none", lambda batch: None), ("training", train)]
        for step_name, step in steps:
            rounds = [[seconds(loader, step) for loader in loaders] for _ in range(EPOCHS)]
            before, after = (min(times) for times in zip(*rounds, strict=True))
            print(f"{name:10} {step_name:10} {before:9.2f} {after:9.2f}")


if __name__ == "__main__":
    main()
