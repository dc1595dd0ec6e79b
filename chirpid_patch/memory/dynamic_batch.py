"""Training steps in smaller parts while memory is short: the same samples, the same gradients (R-003)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from chirpid_patch.loading.batch_timer import batch_samples
from chirpid_patch.memory.batch_parts import batch_part, even_parts, uses_batch_statistics
from chirpid_patch.memory.trials import is_out_of_memory
from chirpid_patch.memory.watch import MemoryPressure, MemoryWatch

logger = logging.getLogger("chirpid_patch")

_MOST_PATIENCE = 100_000


class DynamicBatchStep:
    """A training step over whole batches that are run in micro-batches while memory is short.

    Gradients of the micro-batches are summed and the optimiser steps once a batch, so that the batch the optimiser
    sees, and the order of samples, stay as the loader gives them. A step that runs out of memory (CUDA, or this
    machine's; no other error) is done again with half the samples at once: gradients, random generators and the
    model's buffers are put back first. With a single micro-batch, which is how it starts, a step is exactly
    ``zero_grad``, forward, ``backward``, ``step``.

        step = DynamicBatchStep(model, optimizer, lambda batch: criterion(model(batch[0]), batch[1]), batch_size=64)
        for batch in loader:
            loss = step(batch)

    After ``grow_after`` steps without trouble the micro-batch is doubled again; where that was in vain, so is
    ``grow_after``.

    Args:
        model: if it normalises by the batch (batch norm while training), it is told once that the statistics are those
            of micro-batches then.
        optimizer: its gradients are cleared before each batch, and it steps after it.
        loss_of: the mean loss, each sample counting the same, of a batch or a part of it, on the loader's device.
        batch_size: the most samples to run at once: the loader's batch size.
        watch: its pressure, from SOFT on, makes micro-batches smaller, too.
        backward: called with a loss instead of ``loss.backward()``.
        advance: called instead of ``optimizer.step()``, such as
            ``lambda: (grad_scaler.step(optimizer), grad_scaler.update())``.

    Attributes:
        size: samples run at once now.
        grow_after: steps without trouble before that is doubled.
    """

    #: Steps after a halving for pressure before the next one: a reading taken before it does not count twice.
    SETTLE = 10

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_of: Callable[[Any], Tensor],
        batch_size: int,
        *,
        watch: MemoryWatch | None = None,
        backward: Callable[[Tensor], object] = Tensor.backward,
        advance: Callable[[], object] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self.model = model
        self.optimizer = optimizer
        self.loss_of = loss_of
        self.batch_size = self.size = batch_size
        self.watch = watch
        self.grow_after = 100
        self._backward = backward
        self._advance = advance or optimizer.step
        self._calm = 0
        self._since_halving = self.SETTLE
        self._since_growing: int | None = None
        self._told = False

    def __call__(self, batch: Any) -> Tensor:
        """One step of the optimiser; the loss of the whole batch, 0-dim, without a graph.

        Raises whatever ``loss_of`` raises; out of memory only if a single sample is too large.
        """
        self._adapt()
        count = batch_samples(batch)
        put_back = _state_of(self.model)
        while True:
            parts = even_parts(count, self.size)
            if len(parts) > 1:
                self._tell_of_batch_statistics()
            try:
                self.optimizer.zero_grad(set_to_none=True)
                loss = self._gradients(batch, parts, count)
                break
            except (RuntimeError, MemoryError) as error:
                largest = min(count, self.size)
                if not is_out_of_memory(error) or largest == 1:
                    raise
            # Outside the except block: the error's traceback would keep what the failed attempt had made.
            self._halve(largest, "memory ran out, the step is repeated")
            self.optimizer.zero_grad(set_to_none=True)
            put_back()
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.empty_cache()  # once for each error: what is left is cut up for the larger size
        self._advance()
        self._since_halving += 1
        self._calm += 1
        if self._since_growing is not None:
            self._since_growing += 1
        return loss

    def _adapt(self) -> None:
        """Fewer samples at once under pressure, more after a while without."""
        if self.watch is not None and self.watch.pressure is not MemoryPressure.NONE:
            self._calm = 0
            if self._since_halving >= self.SETTLE and self.size > 1:
                self._halve(self.size, "the memory watch reports pressure")
        elif self._calm >= self.grow_after and self.size < self.batch_size:
            self._change(min(self.batch_size, 2 * self.size), "memory has not been short for a while")
            self._since_growing = 0

    def _halve(self, size: int, why: str) -> None:
        if self._since_growing is not None and self._since_growing <= self.grow_after:
            self.grow_after = min(_MOST_PATIENCE, 2 * self.grow_after)
        self._since_growing = None
        self._since_halving = 0
        self._change(size // 2, why)

    def _change(self, size: int, why: str) -> None:
        logger.warning("micro-batches of %d samples instead of %d: %s", size, self.size, why)
        self.size, self._calm = size, 0

    def _gradients(self, batch: Any, parts: list[slice], count: int) -> Tensor:
        """Sum the gradients of ``parts``; the loss of the whole."""
        losses = [self._part_gradients(batch, part, count) for part in parts]
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _part_gradients(self, batch: Any, part: slice, count: int) -> Tensor:
        samples = part.stop - part.start
        loss = self.loss_of(batch if samples == count else batch_part(batch, part))
        if samples < count:
            loss = loss * (samples / count)
        self._backward(loss)
        return loss.detach()

    def _tell_of_batch_statistics(self) -> None:
        if not self._told and uses_batch_statistics(self.model):
            logger.warning("the model normalises by the batch: with micro-batches, by %d samples", self.size)
        self._told = True


def _state_of(model: nn.Module) -> Callable[[], None]:
    """A function that puts back random generators and the buffers of ``model`` as they are now."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    on_cuda = sorted({part.device.index for part in model.parameters() if part.device.type == "cuda"})
    cpu, cuda = torch.get_rng_state(), [(device, torch.cuda.get_rng_state(device)) for device in on_cuda]

    def put_back() -> None:
        torch.set_rng_state(cpu)
        for device, state in cuda:
            torch.cuda.set_rng_state(state, device)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)

    return put_back
