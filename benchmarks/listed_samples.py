"""`make bench-listed`: compare two ways to collate samples in a list, and both with PyTorch's loader.

The samples (x, y) are items of a list, as datasets of standardised samples often are. The factory's loader collates a
batch either with PyTorch's own code, or checks all samples and then stacks each x into reused memory. The size of a
batch decides (see ``chirpid_patch/datasets/sequence.py``). This benchmark measures both ways for batches of different
sizes, with a small training step for each batch and without. A round times one epoch with each loader, in one process,
in an order that changes from round to round. The result is the mean ratio of times (factory / PyTorch), with its 95 %
interval. How malloc reuses the memory of the training step affects the ratios, so single rows vary from run to run.
The benchmark writes `listed-samples.md` and `listed-samples.json`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import click
import torch
from harness import Progress, conditions, epoch_s, made_by, output_option, paired, ratio_ends, table, write
from torch import nn
from torch.utils.data import DataLoader

from chirp_migrate.stats.ratios import paired_ratio
from chirpid_patch import OptimalDataLoaderFactory, WorkerSafeSequenceDataset
from chirpid_patch.datasets import sequence

#: Height and width of a sample of one channel, in float32 values.
_SIDES = (64, 96, 128, 160, 192, 224, 256, 320, 384)
_BATCH = 32
_BATCHES = 8
#: For each way to collate: the smallest batch in bytes that is stacked into reused memory.
_WAYS = {"PyTorch's collation": 1 << 62, "reused memory": 0}


@dataclass(frozen=True)
class _Row:
    """The ratios of one batch size.

    Attributes:
        megabytes: size of a batch in MB.
        trains: whether a training step follows each batch.
        pytorch_s: median seconds of an epoch with PyTorch's loader.
        ratios: dictionary, way to collate → (ratio, lower end, upper end of its 95 % interval).
    """

    megabytes: float
    trains: bool
    pytorch_s: float
    ratios: dict[str, tuple[float, float, float]]


class _Training:
    """A small convolutional model, and a training step for a batch."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).sum().backward()
        self.optimizer.step()


def _epoch_s(loader: Any, training: _Training | None, smallest: int) -> float:
    with mock.patch.object(sequence, "_SMALLEST_BYTES", smallest):
        return epoch_s(loader, None if training is None else lambda batch: training.step(batch[0]))


def _measure(side: int, trains: bool, rounds: int) -> _Row:
    samples = [(torch.rand(1, side, side), torch.tensor(number % 7)) for number in range(_BATCH * _BATCHES)]
    training = _Training() if trains else None
    plain: Any = DataLoader(samples, batch_size=_BATCH, shuffle=True)  # type: ignore[arg-type]
    dataset = WorkerSafeSequenceDataset(samples)
    timed = {"PyTorch": partial(_epoch_s, plain, training, 0)}
    for name, smallest in _WAYS.items():
        loader = OptimalDataLoaderFactory.create_loader(dataset, _BATCH, shuffle=True)
        timed[name] = partial(_epoch_s, loader, training, smallest)
    times = paired(timed, rounds, 2)  # the first epochs prepare memory
    ratios = {name: ratio_ends(paired_ratio(times["PyTorch"], times[name])) for name in _WAYS}
    return _Row(_BATCH * side**2 * 4 / 1e6, trains, sorted(times["PyTorch"])[rounds // 2], ratios)


@click.command(context_settings={"max_content_width": 100})
@click.option("--rounds", type=click.IntRange(min=4), default=30, show_default=True, help="Epochs with each loader.")
@output_option
def main(rounds: int, output: Path) -> None:
    """Compare two ways to collate samples in a list."""
    torch.set_num_threads(1)
    progress, rows = Progress(), []
    for trains in (False, True):
        for side in _SIDES:
            progress.step(f"samples of {side}x{side}, {'with' if trains else 'without'} training steps")
            rows.append(_measure(side, trains, rounds))
    progress.end()
    settings = {**conditions(), "rounds": rounds}
    header = ("batch, MB", "training step", "PyTorch's loader, ms per epoch", *_WAYS)
    body = [
        (
            f"{row.megabytes:.1f}",
            "yes" if row.trains else "no",
            f"{row.pytorch_s * 1e3:.1f}",
            *(f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in row.ratios.values()),
        )
        for row in rows
    ]
    lines = ["# Samples in a list: time of an epoch / time with PyTorch's loader", "", made_by(settings), ""]
    text = "\n".join([*lines, *table(header, body, left=0)]) + "\n"
    write(output, "listed-samples", text, {**settings, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
