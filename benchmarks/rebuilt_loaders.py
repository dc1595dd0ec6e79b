"""Compare the speed of a migrated loader and of the original loader with two workers, after accelerate's `prepare`.

The samples are in memory, with and without augmentation. The loaders take turns. The benchmark prints the time of the
shortest epoch of each loader in seconds, without and with a training step for each batch.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from harness import epoch_s, paired
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
        loaders = {
            "original": DataLoader(old, batch_size=BATCH, shuffle=True, num_workers=WORKERS),
            "migrated": OptimalDataLoaderFactory.create_training_loader(new, BATCH, num_workers=WORKERS),
        }
        prepared = {side: accelerator.prepare(loader) for side, loader in loaders.items()}
        for step_name, step in (("none", None), ("training", train)):
            timed = {side: partial(epoch_s, loader, step) for side, loader in prepared.items()}
            shortest = {side: min(times) for side, times in paired(timed, EPOCHS, 0).items()}
            print(f"{name:10} {step_name:10} {shortest['original']:9.2f} {shortest['migrated']:9.2f}")


if __name__ == "__main__":
    main()
