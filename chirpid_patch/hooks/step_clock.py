"""Where the time of a training loop goes: waiting for data, transfers to the device, steps (R-001)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch

from chirpid_patch.torch_private import profiler_enabled

#: The names of the ranges in traces of ``torch.profiler`` and NVTX.
DATA_WAIT, TRANSFER, STEP = "chirpid: data wait", "chirpid: transfer", "chirpid: step"


class Mark(Protocol):
    """A point in time on the host or a device, as ``torch.cuda.Event`` is one."""

    def record(self) -> Any:
        """Set the mark: now on the host, or when the work submitted so far is done on a device."""

    def query(self) -> bool:
        """Whether its time is known."""

    def synchronize(self) -> None:
        """Wait until its time is known."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this mark to ``end_event``."""


class HostMark:
    """A mark on the host's clock."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = 0.0

    def record(self) -> None:
        """Set the mark to now."""
        self._seconds = time.perf_counter()

    def query(self) -> bool:
        """Whether its time is known: always."""
        return True

    def synchronize(self) -> None:
        """Wait until its time is known: nothing to do."""

    def elapsed_time(self, end_event: HostMark) -> float:
        """Milliseconds from this mark to ``end_event``."""
        return (end_event._seconds - self._seconds) * 1e3


def cuda_mark() -> Mark:
    """A mark on the current CUDA stream, read later without waiting for the device."""
    event: Mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


class TraceRange:
    """A named range, begun and ended at different places: in ``torch.profiler`` traces, and NVTX where asked for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._recorded: Any = None
        self._nvtx: int | None = None
        #: Whether it was begun and not ended, in a trace.
        self.is_open = False

    def begin(self, *, nvtx: bool) -> None:
        """Begin the range where a profiler runs; end it first if it is open."""
        if self.is_open:
            self.end()
        if profiler_enabled():
            self._recorded = torch.autograd.profiler.record_function(self._name)
            self._recorded.__enter__()
            self.is_open = True
        if nvtx:
            # Not push and pop: these would have to nest with ranges of the user's own.
            self._nvtx = torch.cuda.nvtx.range_start(self._name)
            self.is_open = True

    def end(self) -> None:
        """End the range, if it is open."""
        self.is_open = False
        recorded, self._recorded = self._recorded, None
        if recorded is not None:
            recorded.__exit__(None, None, None)
        nvtx, self._nvtx = self._nvtx, None
        if nvtx is not None:
            torch.cuda.nvtx.range_end(nvtx)


class StepTimes(NamedTuple):
    """What one step took, in seconds.

    Attributes:
        batch_idx, dataloader_name: of its batch.
        wait: from asking for the batch to having it, on the host's clock; None where nobody said when it was asked for.
        host_seconds: from having the batch to being done with it, on the host's clock.
        seconds: the same without the transfers, on CUDA of the device.
        transfers: of each block that was marked as a transfer.
    """

    batch_idx: int
    dataloader_name: str
    wait: float | None
    host_seconds: float
    seconds: float
    transfers: list[float]


class _Step:
    """A step, with the marks of its beginning, end and transfers."""

    __slots__ = ("batch_idx", "before", "begun", "begun_at", "ended", "host_seconds", "name", "transfers", "wait")

    def __init__(self, batch_idx: int, name: str, wait: float | None, begun_at: float, begun: Mark | None) -> None:
        self.batch_idx = batch_idx
        self.name = name
        self.wait = wait
        self.begun_at = begun_at
        self.begun = begun  # None, and so is `ended`, where the host's clock says it all
        self.ended = begun
        self.host_seconds = 0.0
        self.before: list[tuple[Mark, Mark]] | None = None  # transfers made before the step began
        self.transfers: list[tuple[Mark, Mark]] | None = None

    def times(self) -> StepTimes:
        """Its times, once they are known."""
        seconds = self.host_seconds if self.begun is None else self.begun.elapsed_time(self.ended) * 1e-3
        before, within = ([a.elapsed_time(b) * 1e-3 for a, b in made or ()] for made in (self.before, self.transfers))
        if within:
            seconds -= sum(within)
        return StepTimes(self.batch_idx, self.name, self.wait, self.host_seconds, seconds, before + within)

    def marks(self) -> list[Mark]:
        """All of them, to be used again."""
        own = [] if self.begun is None or self.ended is None else [self.begun, self.ended]
        return own + [mark for both in (*(self.before or ()), *(self.transfers or ())) for mark in both]


class StepClock:
    """Times the waits, transfers and steps of one training loop.

    ``marks`` makes the marks on which transfers and steps are measured: those of the host, or ``cuda_mark``, whose
    times are read once the device has got there; nothing waits for it unless ``finished`` is told to.

    What is called for each batch does as little as can be: after a step, little of it is in the processor's caches.
    """

    def __init__(self, marks: Callable[[], Mark] = HostMark, *, nvtx: bool = False) -> None:
        self._marks = marks
        self._on_host = marks is HostMark
        self._nvtx = nvtx
        self._spare: list[Mark] = []
        self._ended: deque[_Step] = deque()
        self._asked: float | None = None
        self._paused: float | None = None
        self._step: _Step | None = None
        self._transfer: Mark | None = None
        self._loose: list[tuple[Mark, Mark]] = []
        self._wait_range, self._transfer_range, self._step_range = map(TraceRange, (DATA_WAIT, TRANSFER, STEP))

    def begin_wait(self) -> None:
        """The loop asks for a batch."""
        if self._nvtx or profiler_enabled():
            self._wait_range.begin(nvtx=self._nvtx)
        self._asked = time.perf_counter()

    def stop_waiting(self) -> None:
        """There will be no further batch, or it is there."""
        self._asked = self._paused = None
        self._wait_range.end()

    def pause(self) -> None:
        """Until ``resume`` the loop does not wait, if it did, but validates or saves."""
        if self._asked is not None and self._paused is None:
            self._paused = time.perf_counter()
            self._wait_range.end()

    def resume(self) -> None:
        """The loop goes on waiting."""
        paused, self._paused = self._paused, None
        if paused is not None and self._asked is not None:
            self._asked += time.perf_counter() - paused
            self._wait_range.begin(nvtx=self._nvtx)

    def begin_step(self, batch_idx: int, name: str) -> None:
        """The batch is there."""
        if self._paused is not None:
            self.resume()
        now, wait = time.perf_counter(), None
        if self._asked is not None:
            wait = now - self._asked
            self._asked = None
            if self._wait_range.is_open:
                self._wait_range.end()
        if self._step is not None:
            self.abandon_step()
        if self._nvtx or profiler_enabled():
            self._step_range.begin(nvtx=self._nvtx)
        self._step = step = _Step(batch_idx, name, wait, now, None if self._on_host else self._mark())
        if self._loose:
            step.before, self._loose = self._loose, []

    def begin_transfer(self) -> None:
        """A transfer of the batch begins."""
        self._transfer_range.begin(nvtx=self._nvtx)
        self._transfer = self._mark()

    def end_transfer(self) -> None:
        """The transfer ends, or on CUDA has been submitted."""
        begun, self._transfer = self._transfer, None
        if begun is not None:
            transfers = self._loose
            if self._step is not None:
                transfers = self._step.transfers = self._step.transfers or []
            transfers.append((begun, self._mark()))
            self._transfer_range.end()

    def end_step(self) -> bool:
        """The step is over, and the loop asks for the next batch. False where no step was begun."""
        step, self._step = self._step, None
        if step is None:
            return False
        if not self._on_host:
            step.ended = self._mark()
        if self._step_range.is_open:
            self._step_range.end()
        self._ended.append(step)
        if self._nvtx or profiler_enabled():
            self._wait_range.begin(nvtx=self._nvtx)
        self._asked = now = time.perf_counter()
        step.host_seconds = now - step.begun_at
        return True

    def abandon_step(self) -> None:
        """Forget a step that was begun and did not come to its end."""
        self._step = self._transfer = None
        self._transfer_range.end()
        self._step_range.end()

    def finished(self, *, wait: bool = False) -> Iterator[StepTimes]:
        """The times of the steps that have ended and were not given yet, in order, as far as they are known by now.

        ``wait`` for the device, to have them all.
        """
        while self._ended:
            step = self._ended[0]
            if step.ended is not None and not step.ended.query():
                if not wait:
                    return
                step.ended.synchronize()
            self._ended.popleft()
            yield step.times()
            self._spare += step.marks()

    def _mark(self) -> Mark:
        mark = self._spare.pop() if self._spare else self._marks()
        mark.record()
        return mark
