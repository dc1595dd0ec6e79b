"""Trials of whether a step fits in memory. On CUDA a trial may run out of memory, on the CPU it never does.

On the CPU a step runs in this process, and its peak of resident memory is measured. A step cannot be stopped half-way,
and a machine that swaps is almost unusable. So a size is tried only if it should fit according to smaller sizes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from chirpid_patch.machine.polling import call_repeatedly
from chirpid_patch.machine.process_memory import most_resident, resident_memory
from chirpid_patch.machine.usable_memory import available_memory

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("chirpid_patch")

_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory", "not enough memory")
_SAMPLED_EVERY_S = 0.002


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` means that a device, cuBLAS or this process is out of memory."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


class MemoryTrials(ABC):
    """Trials of a step on one device, within ``allowed_bytes``, as a context."""

    allowed_bytes: int

    def promising(self, shown: int, size: int) -> int:
        """Return the largest size above ``shown``, up to ``size``, that may be tried; ``shown`` if there is none."""
        return size

    def fits(self, size: int, run: Callable[[], object]) -> bool:
        """Return whether ``run``, a step with batches of ``size``, stays within the limit; raise all other errors."""
        try:
            peak = self.measured(size, run)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            peak = None
        self.clear()  # now nothing refers to the error, whose frames referred to the step's tensors
        said = "out of memory" if peak is None else f"{peak / 2**20:.0f} MiB at most"
        logger.info("batch size %d: %s, %.0f MiB allowed", size, said, self.allowed_bytes / 2**20)
        return peak is not None and peak <= self.allowed_bytes

    @abstractmethod
    def measured(self, size: int, run: Callable[[], object]) -> int:
        """Return the peak of the bytes in use during ``run``, a step with batches of ``size``."""

    def clear(self) -> None:
        """Free memory between two trials."""
        gc.collect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the trials."""
        self.clear()


def memory_trials(device: torch.device, memory_limit: int | None, safety_margin: float) -> MemoryTrials:
    """Return trials on ``device`` within ``memory_limit`` bytes (None: all memory), less the share ``safety_margin``.

    Raises:
        ValueError: the margin is not in [0, 1), the limit is not above 0, or the device is neither CUDA nor the CPU.
        NotImplementedError: on the CPU, without psutil.
    """
    if not 0 <= safety_margin < 1:
        raise ValueError(f"safety_margin must be from 0 to below 1, not {safety_margin}")
    if memory_limit is not None and memory_limit <= 0:
        raise ValueError(f"memory_limit must be above 0 bytes, not {memory_limit}")
    if device.type == "cuda":
        return CudaTrials(device, memory_limit, safety_margin)
    if device.type == "cpu":
        return CpuTrials(memory_limit, safety_margin)
    raise ValueError(f"batch sizes can be tried on CUDA devices and the CPU, not on {device}")


class CudaTrials(MemoryTrials):
    """Trials that may run out of memory. A tensor occupies the forbidden part of the memory, including the margin.

    ``cuda`` is ``torch.cuda``, or a stand-in for tests.
    """

    def __init__(self, device: torch.device, memory_limit: int | None, margin: float, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        cuda.empty_cache()
        free, _ = cuda.mem_get_info(device)
        everything = free + cuda.memory_reserved(device)
        self.allowed_bytes = int(min(everything, memory_limit or everything) * (1 - margin))
        self._kept_away = min(max(everything - self.allowed_bytes, 0), free)
        self._ballast: torch.Tensor | None = None

    def __enter__(self) -> Self:
        self._ballast = torch.empty(self._kept_away, dtype=torch.uint8, device=self._device)
        return self

    def __exit__(self, *_: object) -> None:
        self._ballast = None
        self.clear()

    def clear(self) -> None:
        super().clear()
        self._cuda.empty_cache()  # not in a training

    def measured(self, size: int, run: Callable[[], object]) -> int:
        self._cuda.reset_peak_memory_stats(self._device)
        run()
        self._cuda.synchronize(self._device)
        # Some drivers lend main memory instead of running out.
        return int(self._cuda.max_memory_allocated(self._device) - self._kept_away)


class CpuTrials(MemoryTrials):
    """Trials that measure the peak of this process's resident memory, and predict it from smaller trials first."""

    def __init__(self, memory_limit: int | None, margin: float) -> None:
        self.clear()
        resident = resident_memory()
        limit = resident + available_memory() if memory_limit is None else memory_limit
        self.allowed_bytes = int(limit * (1 - margin))
        #: The peak of each size that fitted, in bytes; for 0 samples, the memory of the process before.
        self._peaks = {0: resident}

    def promising(self, shown: int, size: int) -> int:
        if shown == 0:
            return size  # nothing is known yet
        sizes = range(size, shown, -1)
        return next((one for one in sizes if foreseen_peak(self._peaks, one) <= self.allowed_bytes), shown)

    def measured(self, size: int, run: Callable[[], object]) -> int:
        peak = peak_memory(run)
        if peak <= self.allowed_bytes:
            self._peaks[size] = peak
        return peak

    def clear(self) -> None:
        """Make the C library return freed memory: a trial that reused it would seem to need less."""
        super().clear()
        with contextlib.suppress(TypeError, OSError, AttributeError):  # the function is glibc's
            ctypes.CDLL(None).malloc_trim(0)


def foreseen_peak(peaks: Mapping[int, int], size: int) -> float:
    """Predict the most memory, in bytes, of a step with ``size`` samples.

    ``peaks`` maps 0 and smaller sizes to their peaks in bytes. The prediction grows at least in proportion to
    the peak of the largest size. If three well separated peaks show faster growth (a loss over all pairs of a batch),
    the prediction follows them. Peaks of sizes close to each other would show more noise than growth.
    """
    last, nothing = max(peaks), peaks[0]
    before = max(peak for peak in peaks if peak <= last * 2 // 3)
    first = max((peak for peak in peaks if peak <= before * 2 // 3), default=before)
    slope = (peaks[last] - peaks[before]) / max(last - before, 1)
    bend = 0.0
    if first != before:
        bend = max((slope - (peaks[before] - peaks[first]) / (before - first)) / (last - first), 0.0)
    in_proportion = nothing + max(peaks[last] - nothing, 0) * size / max(last, 1)
    return max(in_proportion, peaks[last] + (size - last) * (slope + bend * (size - before)))


def peak_memory(call: Callable[[], object]) -> int:
    """Return the peak of this process's resident memory during ``call``, in bytes.

    The value is exact if it is the largest peak of the process so far, which the system records. Otherwise it is
    sampled.
    """
    most = most_resident()
    seen = [resident_memory()]
    with call_repeatedly(lambda: seen.append(resident_memory()), _SAMPLED_EVERY_S, "chirpid-peak-memory"):
        call()
    now = most_resident()
    return now if now > most else max(*seen, resident_memory())
