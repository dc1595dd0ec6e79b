"""A hook that measures where a running training spends its time: waits for batches, transfers and steps."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from chirpid_patch.hooks.steps import SlowBatch, StepSummary, StepTimes, TrainingStep, UsualBatchTime
from chirpid_patch.hooks.trace import DATA_WAIT, STEP, TRANSFER, TraceRange
from chirpid_patch.hooks.trainer import TrainerHooks
from chirpid_patch.loading.batch_timer import BatchTimer, log_or_print
from chirpid_patch.multi.multi_loader import LoaderBatch

logger = logging.getLogger("chirpid_patch")

#: Largest number of slow batches that are logged in an epoch. Further slow batches are only counted.
_MOST_NAMED = 10


class DataLoaderProfilingHook(TrainerHooks):
    """Measure the waits for batches, the transfers and the steps of a training, and log summaries and slow batches.

    Register the hook with a trainer that calls ``TrainerHooks``, or use the hook in your own loop:

        profiler = DataLoaderProfilingHook()
        for batch in profiler.batches(loader):      # one epoch
            with profiler.transfer():
                batch = batch.to(device, non_blocking=True)
            ...

    Waits, transfers and steps are named ranges in traces of ``torch.profiler``, and on CUDA also in NVTX traces. On
    CUDA, the hook measures transfers and steps with CUDA events. The hook waits for the device only at the end of an
    epoch.

    Args:
        log_every: number of batches between two logged summaries; None logs only a summary of each epoch.
        slow_factor: a batch is slow if wait and step together take more than ``slow_factor`` times the median of
            earlier batches, and at least a millisecond longer than this median. The first batch of an epoch never
            counts as slow, because its wait includes the start of the loader.
        device: device of the training. None: CUDA if this process uses CUDA when the epoch begins, else the CPU.

    Attributes:
        summaries: a summary of each epoch that has ended.
        slow_batches: the slow batches of the current epoch.

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
            raise ValueError(f"log_every must be None or a number of batches, at least 1, not {log_every}")
        if slow_factor <= 1:
            raise ValueError(f"slow_factor must be above 1, not {slow_factor}")
        self.log_every = log_every
        self.device = None if device is None else torch.device(device)
        self.summaries: list[StepSummary] = []
        self._usual = UsualBatchTime(slow_factor)
        self._timer = BatchTimer()
        self._waiting, self._moving, self._stepping = map(TraceRange, (DATA_WAIT, TRANSFER, STEP))
        self._uses_cuda: bool | None = None
        self._step: TrainingStep | None = None
        self._loose: list[tuple[Any, Any]] = []  # transfers after the last step, which count for the next step
        self._unread: deque[TrainingStep] = deque()  # steps that have ended, but are not counted yet
        self._epoch, self._stretch = StepTimes(), StepTimes()
        self.slow_batches: list[SlowBatch] = []

    @property
    def batch_load_times(self) -> list[float]:
        """Return the seconds that the training waited for each batch of this epoch.

        The list contains a batch only after its step has ended. If the trainer does not call ``on_epoch_start``, the
        wait for the first batch is missing.
        """
        return self._epoch.waits

    @property
    def gpu_transfer_times(self) -> list[float]:
        """Return the seconds that each ``with transfer():`` block of this epoch took."""
        return self._epoch.transfers

    @property
    def step_times(self) -> list[float]:
        """Return the seconds of each step of this epoch, without transfers.

        On CUDA, steps that the device has not finished yet are missing.
        """
        return self._epoch.steps

    # --- the hooks that trainers call -----------------------------------------------------------------------------

    def on_epoch_start(self, trainer: Any, epoch: int) -> None:
        self._reset_epoch()
        self._request_batch()

    def on_train_batch_start(
        self, trainer: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_name: str
    ) -> None:
        wait = self._timer.batch_arrived()
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
        """Log the summary of the epoch, append the summary to ``summaries``, and reset the hook."""
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
        """Yield the batches of one epoch of ``loader``, and measure waits and steps. A step is the body of the loop."""
        epoch = len(self.summaries)
        self.on_epoch_start(None, epoch)
        try:
            for number, batch in enumerate(loader):
                index, name = batch[:2] if isinstance(batch, LoaderBatch) else (0, "")
                self.on_train_batch_start(None, batch, number, index, name)
                yield batch
                self.on_train_batch_end(None, batch, number, index, name)
        finally:
            # This code also runs after a `break`. After a `break`, the step of the last batch is incomplete, and does
            # not count.
            self.on_epoch_end(None, epoch)

    @contextmanager
    def transfer(self) -> Iterator[None]:
        """Measure the body of ``with hook.transfer():`` as the transfer of a batch."""
        self._moving.begin(nvtx=self._on_cuda)
        begun = self._mark()
        try:
            yield
        finally:
            self._moving.end()
        (self._loose if self._step is None else self._step.within).append((begun, self._mark()))

    # --- the measurements -----------------------------------------------------------------------------------------

    @property
    def _on_cuda(self) -> bool:
        """Return whether this epoch is measured on CUDA. The result does not change within an epoch."""
        if self._uses_cuda is None:
            in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            self._uses_cuda = in_use if self.device is None else self.device.type == "cuda"
        return self._uses_cuda

    def _mark(self) -> Any:
        """Return the current time in seconds; on CUDA, return a recorded event instead."""
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _request_batch(self) -> Any:
        """Record that the loop requests a batch, and return the seconds of the last step."""
        self._waiting.begin(nvtx=self._on_cuda)
        return self._timer.batch_requested()

    def _reset_epoch(self) -> None:
        for part in (self._waiting, self._moving, self._stepping):
            part.end()
        self._timer.restart()
        self._uses_cuda = self._step = None
        self._loose, self._unread = [], deque()
        self._epoch, self._stretch = StepTimes(), StepTimes()
        self.slow_batches = []

    def _count_finished_steps(self) -> None:
        """Add the finished steps to the times of the epoch, and log slow batches.

        After every ``log_every`` steps, also log a summary. A step is finished if its end time is known.
        """
        while self._unread and self._unread[0].has_end_time():
            step = self._unread.popleft()
            slow = self._is_slow(step)
            self._epoch.add(step, slow=slow)
            self._stretch.add(step, slow=slow)
            if self.log_every is not None and len(self._stretch.steps) == self.log_every:
                last = len(self._epoch.steps)
                log_or_print(f"batches {last - self.log_every + 1} to {last}: {self._stretch.summary()}")
                self._stretch = StepTimes()

    def _is_slow(self, step: TrainingStep) -> bool:
        """Return whether the batch of ``step`` was slow, and log a slow batch."""
        first = not self._epoch.steps
        if first or step.wait is None or not self._usual.is_exceeded(step.wait + step.host_seconds):
            return False
        usual = self._usual.seconds or 0.0
        slow = SlowBatch(step.batch_idx, step.dataloader_name, step.wait, step.host_seconds, usual)
        self.slow_batches.append(slow)
        if len(self.slow_batches) <= _MOST_NAMED:
            logger.warning("%s", slow)
        return True
