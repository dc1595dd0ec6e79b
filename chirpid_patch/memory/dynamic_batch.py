"""Training steps in smaller parts while memory is short: the same samples, the same gradients (R-003)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from chirpid_patch.memory.batch_parts import batch_length, batch_part, even_parts, uses_batch_statistics
from chirpid_patch.memory.trials import is_out_of_memory
from chirpid_patch.memory.watch import MemoryPressure, MemoryWatch

logger = logging.getLogger("chirpid_patch")

_MOST_PATIENCE = 100_000


class MicroBatchSize:
    """How many samples are run at once: halved when memory is short, doubled again after a while without trouble.

    After a halving for pressure, ``settle`` steps pass before the next one, so that a reading taken before it does
    not count twice. If memory is short again within ``grow_after`` steps of growing, ``grow_after`` is doubled: a size
    that does not fit is tried less and less often.

    Raises ValueError unless 1 <= ``smallest`` <= ``largest`` and ``grow_after`` and ``settle`` are at least 1.
    """

    def __init__(self, largest: int, *, smallest: int = 1, grow_after: int = 100, settle: int = 10) -> None:
        if not 1 <= smallest <= largest:
            raise ValueError(f"micro-batches must have from 1 up to {largest} samples, not at least {smallest}")
        if grow_after < 1 or settle < 1:
            raise ValueError("grow_after and settle are numbers of steps, at least 1")
        self.largest = largest
        self.smallest = smallest
        self.grow_after = grow_after
        self.settle = settle
        #: Samples run at once now.
        self.size = largest
        self._calm = 0
        self._since_halving = settle
        self._since_growing: int | None = None

    def begin_step(self, pressure: MemoryPressure) -> None:
        """Adapt to ``pressure`` before a step."""
        if pressure is MemoryPressure.NONE:
            if self._calm >= self.grow_after and self.size < self.largest:
                self._change(min(self.largest, 2 * self.size), "memory has not been short for a while")
                self._since_growing = 0
        elif self._since_halving >= self.settle and self.size > self.smallest:
            self._halve("the memory watch reports pressure")
        else:
            self._calm = 0

    def end_step(self, pressure: MemoryPressure) -> None:
        """Count a step that went through."""
        self._since_halving += 1
        self._calm = self._calm + 1 if pressure is MemoryPressure.NONE else 0
        if self._since_growing is not None:
            self._since_growing += 1

    def ran_out(self, size: int) -> bool:
        """Memory ran out running ``size`` samples: whether fewer can be tried."""
        if min(size, self.size) <= self.smallest:
            return False
        self.size = min(size, self.size)
        self._halve("memory ran out, the step is repeated")
        return True

    def _halve(self, why: str) -> None:
        if self._since_growing is not None and self._since_growing <= self.grow_after:
            self.grow_after = min(_MOST_PATIENCE, 2 * self.grow_after)
        self._since_growing = None
        self._since_halving = 0
        self._change(max(self.smallest, self.size // 2), why)

    def _change(self, size: int, why: str) -> None:
        logger.warning("micro-batches of %d samples instead of %d: %s", size, self.size, why)
        self.size, self._calm = size, 0


class DynamicBatchStep:
    """A training step over whole batches that are run in micro-batches while memory is short.

    Gradients of the micro-batches are summed and the optimiser steps once a batch, so that the batch the optimiser
    sees, the order of samples, and every sample's place in it stay as the loader gives them. A step that runs out of
    memory (CUDA, or this machine's; no other error) is done again from its beginning with half the samples at once:
    gradients, random generators and the statistics of normalising layers are put back first. With a single
    micro-batch, which is how it starts, a step is exactly ``zero_grad``, forward, ``backward``, ``step``.

        step = DynamicBatchStep(model, optimizer, lambda batch: criterion(model(batch[0]), batch[1]), batch_size=64)
        for batch in loader:
            loss = step(batch)

    Args:
        model: whose statistics are put back. If it normalises by the batch (batch norm while training), it is told
            once that the statistics are those of micro-batches then.
        optimizer: its gradients are cleared before each batch, and it steps after it.
        loss_of: the loss of a batch, or of a part of it, that it is given on the loader's device: it moves it itself.
        batch_size: the most samples to run at once: the loader's batch size.
        reduction: how that loss reduces over samples: "mean", each sample counting the same, or "sum". With class
            weights or ignored labels a mean is neither: sum, and divide by a constant.
        watch: its pressure, from SOFT on, makes micro-batches smaller, too.
        backward: called with a loss instead of ``loss.backward()``.
        advance: called instead of ``optimizer.step()``, such as
            ``lambda: (grad_scaler.step(optimizer), grad_scaler.update())``.
        smallest, grow_after, settle: see ``MicroBatchSize``.

    Raises:
        ValueError: as ``MicroBatchSize``.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_of: Callable[[Any], Tensor],
        batch_size: int,
        *,
        reduction: Literal["mean", "sum"] = "mean",
        watch: MemoryWatch | None = None,
        backward: Callable[[Tensor], object] = Tensor.backward,
        advance: Callable[[], object] | None = None,
        smallest: int = 1,
        grow_after: int = 100,
        settle: int = 10,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss_of = loss_of
        self.reduction = reduction
        self.watch = watch
        #: The number of samples run at once, and how it changes.
        self.micro_batch = MicroBatchSize(batch_size, smallest=smallest, grow_after=grow_after, settle=settle)
        self._backward = backward
        self._advance = advance or optimizer.step
        self._told = False

    def __call__(self, batch: Any) -> Tensor:
        """One step of the optimiser; the loss of the whole batch, 0-dim, without a graph.

        Raises:
            ValueError: a batch that cannot be cut, see ``memory.batch_parts``.
            Exception: whatever ``loss_of`` raises; out of memory only if ``smallest`` samples are too many.
        """
        count = batch_length(batch)
        self.micro_batch.begin_step(self._pressure())
        put_back = _state_of(self.model)
        while True:
            parts = even_parts(count, self.micro_batch.size)
            if len(parts) > 1:
                self._tell_of_batch_statistics()
            try:
                self.optimizer.zero_grad(set_to_none=True)
                loss = self._gradients(batch, parts, count)
                break
            except (RuntimeError, MemoryError) as error:
                largest = max(part.stop - part.start for part in parts)
                if not is_out_of_memory(error) or not self.micro_batch.ran_out(largest):
                    raise
            # Outside the except block: the error's traceback would keep what the failed attempt had made.
            self.optimizer.zero_grad(set_to_none=True)
            put_back()
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.empty_cache()  # once for each error: what is left is cut up for the larger size
        self._advance()
        self.micro_batch.end_step(self._pressure())
        return loss

    def _gradients(self, batch: Any, parts: list[slice], count: int) -> Tensor:
        """Sum the gradients of ``parts``; the loss of the whole."""
        if len(parts) == 1:
            loss = self.loss_of(batch)
            self._backward(loss)
            return loss.detach()
        losses = [self._part_gradients(batch_part(batch, part), part, count) for part in parts]
        return torch.stack(losses).sum()

    def _part_gradients(self, samples: Any, part: slice, count: int) -> Tensor:
        share = (part.stop - part.start) / count if self.reduction == "mean" else 1.0
        loss = self.loss_of(samples) * share
        self._backward(loss)
        return loss.detach()

    def _pressure(self) -> MemoryPressure:
        return MemoryPressure.NONE if self.watch is None else self.watch.pressure

    def _tell_of_batch_statistics(self) -> None:
        if not self._told and uses_batch_statistics(self.model):
            logger.warning(
                "the model normalises by the batch: with micro-batches, by %d samples", self.micro_batch.size
            )
        self._told = True


def _state_of(model: nn.Module) -> Callable[[], None]:
    """A function that puts back random generators, and the statistics of normalising layers, as they are now."""
    layers = [layer for layer in model.modules() if isinstance(layer, _NormBase)]
    statistics = [(buffer, buffer.detach().clone()) for layer in layers for buffer in layer.buffers()]
    on_cuda = sorted({part.device.index for part in model.parameters() if part.device.type == "cuda"})
    cpu, cuda = torch.get_rng_state(), [(device, torch.cuda.get_rng_state(device)) for device in on_cuda]

    def put_back() -> None:
        torch.set_rng_state(cpu)
        for device, state in cuda:
            torch.cuda.set_rng_state(state, device)
        with torch.no_grad():
            for buffer, value in statistics:
                buffer.copy_(value)

    return put_back
