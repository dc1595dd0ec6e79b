"""Trials that find out whether a training step fits in memory.

On CUDA, a trial is allowed to run out of memory, because PyTorch then only raises an error. On the CPU, a trial must
not run out of memory: the machine would begin to swap, and a running step cannot be stopped. So the CPU trials measure
the resident memory of this process during steps with small batches. From these measurements, the trials predict the
memory of a larger batch. The trials run a step with the larger batch only if the predicted memory is within the limit.
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
from chirpid_patch.machine.process_memory import peak_resident_memory, resident_memory
from chirpid_patch.machine.usable_memory import available_memory

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("chirpid_patch")

_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory", "not enough memory")
_SAMPLED_EVERY_S = 0.002


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` means that a device, cuBLAS or this process has run out of memory."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


class MemoryTrials(ABC):
    """A context for trials of a training step. During a step, up to ``allowed_bytes`` bytes may be in use."""

    allowed_bytes: int

    def largest_size_to_try(self, shown: int, size: int) -> int:
        """Return the largest batch size up to ``size`` that fits according to the prediction.

        ``shown`` is the largest size that fitted in a trial, or 0. The result is at least ``shown``. Without a
        prediction, the result is ``size``.
        """
        return size

    def fits(self, size: int, run: Callable[[], object]) -> bool:
        """Return whether a training step fits in memory.

        Args:
            size: batch size of the step, for the log.
            run: function that runs the step.

        Raises:
            Exception: any error of the step, except the errors that ``is_out_of_memory`` recognises.
        """
        try:
            peak = self.measure_peak(size, run)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            peak = None
        self.clear()  # the error is deleted now, so its traceback no longer keeps tensors of the step alive
        result = "out of memory" if peak is None else f"{peak / 2**20:.0f} MiB at most"
        logger.info("batch size %d: %s, %.0f MiB allowed", size, result, self.allowed_bytes / 2**20)
        return peak is not None and peak <= self.allowed_bytes

    @abstractmethod
    def measure_peak(self, size: int, run: Callable[[], object]) -> int:
        """Call ``run``, which runs a step with batch size ``size``, and return the largest memory use in bytes."""

    def clear(self) -> None:
        """Free unused memory between two trials."""
        gc.collect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the trials."""
        self.clear()


def create_memory_trials(device: torch.device, memory_limit: int | None, safety_margin: float) -> MemoryTrials:
    """Return a ``MemoryTrials`` for ``device``.

    Args:
        device: a CUDA device or the CPU.
        memory_limit: number of bytes that may be in use during a step: on CUDA by PyTorch in this process, on the CPU
            by the whole process. None: the bytes that are in use now plus all free bytes.
        safety_margin: share of ``memory_limit`` that must stay free, from 0 to below 1.

    Raises:
        ValueError: an argument is out of range, or the device is neither CUDA nor the CPU.
        NotImplementedError: the device is the CPU, and psutil is not installed.
    """
    if not 0 <= safety_margin < 1:
        raise ValueError(f"safety_margin must be from 0 to below 1, not {safety_margin}")
    if memory_limit is not None and memory_limit <= 0:
        raise ValueError(f"memory_limit must be above 0 bytes, not {memory_limit}")
    if device.type == "cuda":
        return CudaMemoryTrials(device, memory_limit, safety_margin)
    if device.type == "cpu":
        return CpuMemoryTrials(memory_limit, safety_margin)
    raise ValueError(f"batch sizes can be tried on CUDA devices and the CPU, not on {device}")


class CudaMemoryTrials(MemoryTrials):
    """Trials on a CUDA device. A trial is allowed to run out of memory.

    During the trials, a tensor occupies the memory that the step must not use.

    Args:
        device: the CUDA device.
        memory_limit: number of bytes that PyTorch in this process may use during a step. None: the bytes that PyTorch
            holds now plus all free bytes.
        margin: share of ``memory_limit`` that must stay free.
        cuda: ``torch.cuda``, or a replacement in tests.
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
        self._cuda.empty_cache()  # slow, but between trials speed does not matter

    def measure_peak(self, size: int, run: Callable[[], object]) -> int:
        self._cuda.reset_peak_memory_stats(self._device)
        run()
        self._cuda.synchronize(self._device)
        # Some drivers use the CPU's memory instead of raising an error, so the caller also compares the peak with the
        # limit.
        return int(self._cuda.max_memory_allocated(self._device) - self._kept_away)


class CpuMemoryTrials(MemoryTrials):
    """Trials on the CPU.

    The trials predict the memory of a step before the step runs, and measure the memory during the step.

    Args:
        memory_limit: number of bytes that this process may use. None: the bytes that this process uses now, plus all
            free memory.
        margin: share of ``memory_limit`` that must stay free.
    """

    def __init__(self, memory_limit: int | None, margin: float) -> None:
        self.clear()
        resident = resident_memory()
        limit = resident + available_memory() if memory_limit is None else memory_limit
        self.allowed_bytes = int(limit * (1 - margin))
        #: Maps each batch size that fits to the largest memory of this process during the step, in bytes. Batch size 0
        #: stands for the memory before the trials.
        self._peaks = {0: resident}

    def largest_size_to_try(self, shown: int, size: int) -> int:
        if shown == 0:
            return size  # no smaller batch has run yet, so no prediction is possible
        sizes = range(size, shown, -1)
        return next((one for one in sizes if predict_peak_memory(self._peaks, one) <= self.allowed_bytes), shown)

    def measure_peak(self, size: int, run: Callable[[], object]) -> int:
        peak = measure_peak_memory(run)
        if peak <= self.allowed_bytes:
            self._peaks[size] = peak
        return peak

    def clear(self) -> None:
        """Return freed memory to the system. A trial that reuses freed memory would measure too little memory."""
        super().clear()
        with contextlib.suppress(TypeError, OSError, AttributeError):  # only glibc has the function
            ctypes.CDLL(None).malloc_trim(0)


def predict_peak_memory(peaks: Mapping[int, int], batch_size: int) -> float:
    """Predict the largest memory in bytes during a step with ``batch_size`` samples.

    The prediction assumes that the memory above ``peaks[0]`` grows at least in proportion to the batch size. If the
    memory grew faster than the batch size over three measured sizes, the prediction continues this faster growth. These
    sizes differ by a factor of at least 1.5. For example, memory grows faster than the batch size if the loss compares
    all pairs of samples.

    Args:
        peaks: maps batch sizes to the largest memory during a step, in bytes. The dictionary must contain the batch
            size 0.
        batch_size: batch size for which to predict the memory.
    """
    last, nothing = max(peaks), peaks[0]
    before = max(peak for peak in peaks if peak <= last * 2 // 3)
    first = max((peak for peak in peaks if peak <= before * 2 // 3), default=before)
    slope = (peaks[last] - peaks[before]) / max(last - before, 1)
    bend = 0.0
    if first != before:
        bend = max((slope - (peaks[before] - peaks[first]) / (before - first)) / (last - first), 0.0)
    in_proportion = nothing + max(peaks[last] - nothing, 0) * batch_size / max(last, 1)
    return max(in_proportion, peaks[last] + (batch_size - last) * (slope + bend * (batch_size - before)))


def measure_peak_memory(call: Callable[[], object]) -> int:
    """Return the largest resident memory of this process during ``call``, in bytes.

    If the process uses more memory during ``call`` than ever before, the result is exact, because the system records
    the largest value. Otherwise the result is the largest of repeated readings, which may miss a short peak.
    """
    most = peak_resident_memory()
    seen = [resident_memory()]
    with call_repeatedly(lambda: seen.append(resident_memory()), _SAMPLED_EVERY_S, "chirpid-peak-memory"):
        call()
    now = peak_resident_memory()
    return now if now > most else max(*seen, resident_memory())
