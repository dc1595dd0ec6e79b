"""Measure how long calls such as `.item()` in every training step make a GPU wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from chirpid_patch.machine.nvml import GpuProbe

from .measure import Span, Timings, take_turns, wait_for
from .original import Backend, Data
from .ways import Loading, one_batch

NOTHING = "nothing"
_ROUNDS = 5


#: Name of a call → function that returns what the call makes of loss and predictions.
HABITS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    NOTHING: lambda loss, outputs: (loss.detach(), outputs.detach()),
    "loss.item()": lambda loss, outputs: (loss.item(), outputs.detach()),
    "outputs.cpu().numpy()": lambda loss, outputs: (loss.detach(), outputs.detach().cpu().numpy()),
    # Emptying the cache does nothing without CUDA.
    "torch.cuda.empty_cache()": lambda loss, outputs: (loss.detach(), outputs.detach(), torch.cuda.empty_cache()),
}


@dataclass
class Stalls:
    """The timings of training on one batch on the device, with each of ``HABITS`` in every step."""

    model: str
    batch_size: int
    habits: dict[str, Timings] = field(default_factory=dict)


def measure(
    backend: Backend,
    data: Data,
    sizes: Sequence[str],
    batch_size: int,
    device: torch.device,
    probe: GpuProbe,
    span: Span,
) -> list[Stalls]:
    """Time the loops with and without each call in turns. Skip networks for which no time is left."""
    found = []
    begun = time.monotonic()
    for number, size in enumerate(sizes, 1):
        if span.over:
            break
        until = begun + (span.until - begun) * number / len(sizes)
        network = backend.make_network(size).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.001)
        batches = one_batch(Loading(data, batch_size, False, device))
        stalls = Stalls(size, batch_size, {name: Timings() for name in HABITS})
        epochs = {
            name: _epoch(network, optimizer, batches, data.samples, device, habit) for name, habit in HABITS.items()
        }
        for epoch in epochs.values():
            epoch()
        take_turns(epochs, stalls.habits, _ROUNDS, replace(span, until=until), device, probe)
        batches.close()
        found.append(stalls)
    return found


def _epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Any],
    samples: int,
    device: torch.device,
    habit: Callable[[Tensor, Tensor], Any],
) -> Callable[[], int]:
    criterion = nn.CrossEntropyLoss()

    def epoch() -> int:
        network.train()
        kept: list[Any] = []
        for x, y in batches:
            optimizer.zero_grad()
            outputs = network(x)
            loss = criterion(outputs, y)
            loss.backward()
            optimizer.step()
            kept.append(habit(loss, outputs))
        wait_for(device)
        return samples

    return epoch
