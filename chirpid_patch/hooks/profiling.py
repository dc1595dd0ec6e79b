"""Telling, while training runs, what it waits for (R-001).

The document's hook takes the time from having a batch to being done with it for that of loading it. Here the wait for
the batch, its transfer and the step are kept apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import torch

from chirpid_patch.hooks.step_clock import HostMark, StepClock, StepTimes, cuda_mark
from chirpid_patch.hooks.step_summary import SlowBatch, SlowBatches, StepSummary, StepTally
from chirpid_patch.hooks.trainer import TrainerHooks
from chirpid_patch.loading.batch_timer import tell
from chirpid_patch.multi.multi_loader import LoaderBatch

logger = logging.getLogger("chirpid_patch")

#: So many slow batches of an epoch are named; the others are only counted.
_MOST_NAMED = 10
#: So many steps are taken down at a time: doing that once for many batches costs little more than for one.
_TOGETHER = 25


class DataLoaderProfilingHook(TrainerHooks):
    """Measures what training waits for (the batch, its transfer, the step), names slow batches, logs summaries.

    Register it with a trainer that calls ``TrainerHooks``, or use it in a loop of your own:

        profiler = DataLoaderProfilingHook()
        for batch in profiler.batches(loader):      # one epoch
            with profiler.transfer():
                batch = batch.to(device, non_blocking=True)
            ...

    or with ``profiler.step():`` around each step, and ``on_epoch_end`` after the last. It logs with the logger
    ``chirpid_patch``, level INFO (to standard error, where the program has set up no logging), and judges batches 25 at
    a time. Under ``torch.profiler``, and for NVTX on CUDA, the three are named ranges. On CUDA transfers and steps are
    times of the device, measured with events and read when they are known: the device is waited for once, at the end of
    an epoch.

    Args:
        log_every: batches after which what they cost is logged; None for epochs only.
        slow_factor: a batch is slow if wait and step together take more than so many times the median of the batches
            before it, and at least a millisecond more. The first of an epoch, for which a loader starts, never is.
        device: where the training computes; None is CUDA if this process uses it when the epoch begins.

    Attributes:
        summaries: one for each epoch that has ended.

    Raises:
        ValueError: ``log_every`` below 1, or ``slow_factor`` not above 1.
    """

    def __init__(
        self,
        log_every: int | None = 100,
        slow_factor: float = 3.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if log_every is not None and log_every < 1:
            raise ValueError(f"log_every must be a number of batches, 1 or more, or None, not {log_every}")
        if slow_factor <= 1:
            raise ValueError(f"slow_factor must be above 1, not {slow_factor}")
        self.log_every = log_every
        self.slow_factor = slow_factor
        self.device = None if device is None else torch.device(device)
        self.summaries: list[StepSummary] = []
        self.next_epoch = 0
        self._slow = SlowBatches(slow_factor)
        self._together = min(_TOGETHER, log_every or _TOGETHER)
        self._clock: StepClock | None = None
        self._begin_anew()

    @property
    def batch_load_times(self) -> list[float]:
        """Seconds waited for each batch of this epoch whose step has ended.

        Where ``on_epoch_start`` is not called, nobody knows when the first batch was asked for: its wait is missing.
        """
        self._take_down()
        return self._epoch.waits

    @property
    def gpu_transfer_times(self) -> list[float]:
        """Seconds of each transfer of this epoch that was marked with ``transfer()``."""
        self._take_down()
        return self._epoch.transfers

    @property
    def step_times(self) -> list[float]:
        """Seconds of each step of this epoch, without its transfers. On CUDA the last ones may still be to come."""
        self._take_down()
        return self._epoch.steps

    @property
    def slow_batches(self) -> list[SlowBatch]:
        """The slow batches of this epoch."""
        self._take_down()
        return self._slow_batches

    # --- what trainers call ---------------------------------------------------------------------------------------

    def on_epoch_start(self, trainer: Any, epoch: int) -> None:
        """An epoch begins: its first batch is asked for."""
        self._begin_anew()
        self._running().begin_wait()

    def on_train_batch_start(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str
    ) -> None:
        """A batch has come."""
        (self._clock or self._running()).begin_step(batch_idx, dataloader_name)

    def on_train_batch_end(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str, metrics: Any = None
    ) -> None:
        """The step of a batch has ended, and the next batch is asked for."""
        if self._clock is not None and self._clock.end_step():
            self._ended += 1
            if self._ended % self._together == 0:
                self._take_down()

    def on_validation_start(self, trainer: Any) -> None:
        """What follows is no wait for a training batch."""
        self._running().pause()

    def on_validation_end(self, trainer: Any) -> None:
        """The training goes on."""
        self._running().resume()

    def on_epoch_end(self, trainer: Any, epoch: int) -> None:
        """Log what the epoch spent on its data, keep that as a summary, and begin anew."""
        self._running().stop_waiting()
        self._take_down(wait=True)
        if self._epoch.steps:
            self.summaries.append(self._epoch.summary())
            tell(f"epoch {epoch}: {self.summaries[-1]}")
        else:
            tell(f"epoch {epoch}: no batches")
        self.next_epoch = epoch + 1
        self._begin_anew()

    # --- loops without a trainer ----------------------------------------------------------------------------------

    def batches(self, loader: Iterable[Any]) -> ProfiledLoader:
        """``loader``, each iteration an epoch, with its waits and steps (the loop's body) measured."""
        return ProfiledLoader(self, loader)

    def step(self) -> _Block:
        """``with hook.step():`` around one step; at its end the next batch is asked for. Not with ``batches``."""
        return _Block(self._begin_own_step, self._end_own_step)

    def transfer(self) -> _Block:
        """``with hook.transfer():`` around the transfer of a batch."""
        clock = self._running()
        return _Block(clock.begin_transfer, lambda whole: clock.end_transfer())

    def _begin_own_step(self) -> None:
        self.on_train_batch_start(None, None, self._ended, 0, "")

    def _end_own_step(self, whole: bool) -> None:
        if whole:
            self.on_train_batch_end(None, None, self._ended, 0, "")
        else:
            self._running().abandon_step()

    # --- what was measured ----------------------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """Nothing is measured yet in this epoch."""
        if self._clock is not None:
            self._clock.stop_waiting()
            self._clock.abandon_step()
        self._clock = None
        self._ended = 0
        self._epoch, self._stretch = StepTally(), StepTally()
        self._slow_batches: list[SlowBatch] = []

    def _running(self) -> StepClock:
        """The clock of this epoch, made when it is first needed: training may begin to use a device late."""
        if self._clock is None:
            cuda = _uses_cuda() if self.device is None else self.device.type == "cuda"
            self._clock = StepClock(cuda_mark if cuda else HostMark, nvtx=cuda)
        return self._clock

    def _take_down(self, *, wait: bool = False) -> None:
        """Count the steps that have ended, and say what is to be said of them."""
        if self._clock is None:
            return
        for step in self._clock.finished(wait=wait):
            slow = self._is_slow(step)
            self._epoch.add(step, slow=slow)
            self._stretch.add(step, slow=slow)
            if self.log_every is not None and len(self._stretch.steps) == self.log_every:
                last = len(self._epoch.steps)
                tell(f"batches {last - self.log_every + 1} to {last}: {self._stretch.summary()}")
                self._stretch = StepTally()

    def _is_slow(self, step: StepTimes) -> bool:
        """Whether that was a slow batch, which is then named."""
        first = not self._epoch.steps
        if first or step.wait is None or not self._slow.is_slow(step.wait + step.host_seconds):
            return False
        usual = self._slow.usual or 0.0
        slow = SlowBatch(step.batch_idx, step.dataloader_name, step.wait, step.host_seconds, usual)
        self._slow_batches.append(slow)
        if len(self._slow_batches) <= _MOST_NAMED:
            logger.warning("%s", slow)
        return True


class ProfiledLoader:
    """A loader whose iterations a ``DataLoaderProfilingHook`` measures; everything else is the loader's."""

    def __init__(self, hook: DataLoaderProfilingHook, loader: Iterable[Any]) -> None:
        self._hook = hook
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        hook, epoch = self._hook, self._hook.next_epoch
        hook.on_epoch_start(None, epoch)
        try:
            for number, batch in enumerate(self._loader):
                index, name = batch[:2] if isinstance(batch, LoaderBatch) else (0, "")
                hook.on_train_batch_start(None, batch, number, index, name)
                yield batch
                hook.on_train_batch_end(None, batch, number, index, name)
        finally:
            # Also where the loop was left early: its last step may not have come to its end, and does not count.
            hook.on_epoch_end(None, epoch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is being copied or unpickled there is no loader to ask
            raise AttributeError(name)
        return getattr(self._loader, name)


class _Block:
    """A context that calls ``begin``, and ``end`` with whether it was left without an exception."""

    def __init__(self, begin: Callable[[], None], end: Callable[[bool], None]) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(kind is None)


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
