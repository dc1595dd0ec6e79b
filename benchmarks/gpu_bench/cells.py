"""Train every network with every batch size, with and without augmentation, and with every loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from chirpid_patch.machine.nvml import GpuProbe

from .measure import Span, Timings, take_turns
from .original import MEDIUM, SMALL, Backend, Data
from .ways import LIMIT, WAYS, Loading, Running

_KEY_WEIGHT, _KEY_ROUNDS, _ROUNDS = 4, 5, 3
NO_TIME = "the budget was used up"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One training set-up.

    Attributes:
        model: name of the network.
        batch_size: number of samples in a batch.
        augmented: whether the samples are augmented.
        key: whether targets are judged for this cell. Such cells are measured first and longer.
    """

    model: str
    batch_size: int
    augmented: bool
    key: bool

    @property
    def title(self) -> str:
        """Return the title for tables."""
        return f"{self.model} CNN, batch {self.batch_size}, {'augmented' if self.augmented else 'not augmented'}"


@dataclass
class Measured:
    """The measurements of a cell, by name of the loader."""

    cell: Cell
    ways: dict[str, Timings] = field(default_factory=dict)


def cells(batch_sizes: Sequence[int], key_size: int) -> list[Cell]:
    """Return all cells, key cells first."""
    everything = [
        Cell(model, size, augmented, model == MEDIUM and size == key_size)
        for model in (MEDIUM, SMALL)
        for size in batch_sizes
        for augmented in (True, False)
    ]
    return sorted(everything, key=lambda cell: not cell.key)


def seconds_for_cell(left_s: float, cell: Cell, still: Sequence[Cell]) -> float:
    """Return the seconds for the measurement of ``cell``.

    Args:
        left_s: seconds that are left for all cells.
        cell: the next cell.
        still: the cells that are not measured yet, including ``cell``.
    """
    weights = [_KEY_WEIGHT if one.key else 1 for one in still]
    return left_s * (_KEY_WEIGHT if cell.key else 1) / sum(weights)


def measure(
    cell: Cell,
    backend: Backend,
    data: Data,
    device: torch.device,
    probe: GpuProbe,
    span: Span,
    say: Say,
) -> Measured:
    """Create all loaders, train an untimed epoch with each, and then time them in turns.

    A loader that fails is recorded with the reason, and does not take part in the rounds.
    """
    result = Measured(cell)
    torch.manual_seed(0)
    network = backend.make_network(cell.model).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
    running: dict[str, Running] = {}

    def epoch_with(batches: Running) -> Callable[[], int]:
        def epoch() -> int:
            backend.train_epoch(network, batches, optimizer, device)
            return data.samples

        return epoch

    try:
        for name in sorted(WAYS, key=lambda name: name != LIMIT):  # the limit comes first, to warm up the device
            title, make = WAYS[name]
            say(f"{cell.title}: setting up {title}")
            timings = result.ways[name] = Timings()
            if span.over:
                timings.failed = NO_TIME
                continue
            try:
                batches = make(Loading(data, cell.batch_size, cell.augmented, device))
                running[name], timings.detail = batches, batches.detail
                epoch_with(batches)()
            except Exception as error:  # for example, there is no memory for the samples
                timings.failed = f"{type(error).__name__}: {error}".splitlines()[0]
                if name in running:
                    running.pop(name).close()
        say(f"{cell.title}: {len(running)} loaders in turns")
        epochs = {name: epoch_with(batches) for name, batches in running.items()}
        take_turns(epochs, result.ways, _KEY_ROUNDS if cell.key else _ROUNDS, span, device, probe)
    finally:
        for batches in running.values():
            batches.close()
    return result
