"""Measurement of what a training waits for while it runs: the batch, its transfer and the step."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from chirpid_patch.hooks.steps import SlowBatch, StepSummary, StepTally, TrainingStep, UsualTime
from chirpid_patch.hooks.trace import DATA_WAIT, STEP, TRANSFER, TraceRange
from chirpid_patch.hooks.trainer import TrainerHooks
from chirpid_patch.loading.batch_timer import BatchTimer, log_or_print
from chirpid_patch.multi.multi_loader import LoaderBatch

logger = logging.getLogger("chirpid_patch")

#: Number of slow batches to name per epoch; the others are only counted.
_MOST_NAMED = 10


class DataLoaderProfilingHook(TrainerHooks):
    """Measure the waits, transfers and steps of a training, list slow batches, and log summaries.

    Register the hook with a trainer that calls ``TrainerHooks``, or use it in your own loop:

        profiler = DataLoaderProfilingHook()
        for batch in profiler.batches(loader):      # one epoch
            with profiler.transfer():
                batch = batch.to(device, non_blocking=True)
            ...

    Under ``torch.profiler``, and for NVTX on CUDA, waits, transfers and steps are named ranges. On CUDA, the times of
    transfers and steps are those of the device, measured with events. The hook waits for the device only once, at the
    end of an epoch.

    Args:
        log_every: number of batches between logged summaries; None logs epochs only.
        slow_factor: a batch is slow if its wait and step together take more than this multiple of the median of earlier
            batches, and at least a millisecond more. The first batch of an epoch, for which a loader starts, is never
            slow.
        device: device of the training. None is CUDA if this process uses CUDA when the epoch begins, else the CPU.

    Attributes:
        summaries: one summary for each epoch that has ended.
        slow_batches: the slow batches of this epoch.

    Raises:
        ValueError: ``log_every`` is below 1, or ``slow_factor`` is not above 1.
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
        self.device = None if device is None else torch.device(device)
        self.summaries: list[StepSummary] = []
        self._usual = UsualTime(slow_factor)
        self._timer = BatchTimer()
        self._waiting, self._moving, self._stepping = map(TraceRange, (DATA_WAIT, TRANSFER, STEP))
        self._uses_cuda: bool | None = None
        self._step: TrainingStep | None = None
        self._loose: list[tuple[Any, Any]] = []  # transfers before the step that comes
        self._unread: deque[TrainingStep] = deque()  # steps that have ended and are not recorded yet
        self._epoch, self._stretch = StepTally(), StepTally()
        self.slow_batches: list[SlowBatch] = []

    @property
    def batch_load_times(self) -> list[float]:
        """Return the seconds of waiting for each batch of this epoch whose step has ended.

        The wait for the first batch is missing if the trainer does not call ``on_epoch_start``.
        """
        return self._epoch.waits

    @property
    def gpu_transfer_times(self) -> list[float]:
        """Return the seconds of each transfer of this epoch inside ``transfer()``."""
        return self._epoch.transfers

    @property
    def step_times(self) -> list[float]:
        """Return the seconds of each step of this epoch, without transfers; on CUDA the last may be missing."""
        return self._epoch.steps

    # --- what trainers call ---------------------------------------------------------------------------------------

    def on_epoch_start(self, trainer: Any, epoch: int) -> None:
        self._reset_epoch()
        self._request_batch()

    def on_train_batch_start(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str
    ) -> None:
        wait = self._timer.arrive()
        self._waiting.end()
        self._stepping.begin(nvtx=self._on_cuda)
        before, self._loose = self._loose, []
        self._step = TrainingStep(batch_idx, dataloader_name, wait, self._mark(), before)

    def on_train_batch_end(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str, metrics: Any = None
    ) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        step.ended = self._mark()
        self._stepping.end()
        step.host_seconds = self._request_batch()
        self._unread.append(step)
        self._count_finished_steps()

    def on_validation_start(self, trainer: Any) -> None:
        self._timer.pause()
        self._waiting.end()

    def on_validation_end(self, trainer: Any) -> None:
        self._timer.resume()

    def on_epoch_end(self, trainer: Any, epoch: int) -> None:
        """Log the times of the epoch, append them to ``summaries``, and reset the hook."""
        if self._unread:
            torch.cuda.synchronize(self.device)
        self._count_finished_steps()
        if self._epoch.steps:
            self.summaries.append(self._epoch.summary())
            log_or_print(f"epoch {epoch}: {self.summaries[-1]}")
        else:
            log_or_print(f"epoch {epoch}: no batches")
        self._reset_epoch()

    # --- loops without a trainer ----------------------------------------------------------------------------------

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of one epoch of ``loader``, and measure waits and steps (the body of the loop)."""
        epoch = len(self.summaries)
        self.on_epoch_start(None, epoch)
        try:
            for number, batch in enumerate(loader):
                index, name = batch[:2] if isinstance(batch, LoaderBatch) else (0, "")
                self.on_train_batch_start(None, batch, number, index, name)
                yield batch
                self.on_train_batch_end(None, batch, number, index, name)
        finally:
            # Also after a `break`: the last step may be incomplete, and does not count.
            self.on_epoch_end(None, epoch)

    @contextmanager
    def transfer(self) -> Iterator[None]:
        """Return a context for the transfer of a batch: ``with hook.transfer():``."""
        self._moving.begin(nvtx=self._on_cuda)
        begun = self._mark()
        try:
            yield
        finally:
            self._moving.end()
        (self._loose if self._step is None else self._step.within).append((begun, self._mark()))

    # --- what was measured ----------------------------------------------------------------------------------------

    @property
    def _on_cuda(self) -> bool:
        """Return whether this epoch is measured on a CUDA device, as decided at the first call in the epoch."""
        if self._uses_cuda is None:
            in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            self._uses_cuda = in_use if self.device is None else self.device.type == "cuda"
        return self._uses_cuda

    def _mark(self) -> Any:
        """Return the current time of the host, or an event on the current CUDA stream, whose time is known later."""
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _request_batch(self) -> Any:
        """Record a request of the loop, and return the seconds of its last step."""
        self._waiting.begin(nvtx=self._on_cuda)
        return self._timer.ask()

    def _reset_epoch(self) -> None:
        """Reset all measurements at the start of an epoch."""
        for part in (self._waiting, self._moving, self._stepping):
            part.end()
        self._timer.restart()
        self._uses_cuda = self._step = None
        self._loose, self._unread = [], deque()
        self._epoch, self._stretch = StepTally(), StepTally()
        self.slow_batches = []

    def _count_finished_steps(self) -> None:
        """Count the steps that have ended and whose times are known, and log slow batches and summaries."""
        while self._unread and self._unread[0].is_known():
            step = self._unread.popleft()
            slow = self._is_slow(step)
            self._epoch.add(step, slow=slow)
            self._stretch.add(step, slow=slow)
            if self.log_every is not None and len(self._stretch.steps) == self.log_every:
                last = len(self._epoch.steps)
                log_or_print(f"batches {last - self.log_every + 1} to {last}: {self._stretch.summary()}")
                self._stretch = StepTally()

    def _is_slow(self, step: TrainingStep) -> bool:
        """Return whether ``step`` was slow; log a slow step."""
        first = not self._epoch.steps
        if first or step.wait is None or not self._usual.is_exceeded(step.wait + step.host_seconds):
            return False
        usual = self._usual.seconds or 0.0
        slow = SlowBatch(step.batch_idx, step.dataloader_name, step.wait, step.host_seconds, usual)
        self.slow_batches.append(slow)
        if len(self.slow_batches) <= _MOST_NAMED:
            logger.warning("%s", slow)
        return True
