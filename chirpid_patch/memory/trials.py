"""Whether a step fits in memory: on CUDA by running out of it, on the CPU without ever doing so.

On the CPU a step runs in this process while its peak of resident memory is measured. A process of its own for each
trial would need a model that can be pickled and a ``__main__`` guard, or a copy of a process with compute threads,
which can hang. Nothing can stop a step half-way, and a machine that swaps is as good as down. So a size is only tried
if what smaller sizes took says that it fits, and never more than twice the largest that did.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol

import torch

from chirpid_patch.machine.polling import repeated
from chirpid_patch.machine.process_memory import most_resident, process_memory
from chirpid_patch.machine.usable_memory import cgroup_memory_limit

try:
    import psutil
except ImportError:  # optional: only batch sizes on the CPU need it
    psutil = None

logger = logging.getLogger("chirpid_patch")

_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory", "not enough memory")
_SAMPLED_EVERY_S = 0.002


class MemoryTrials(Protocol):
    """Trials of a step on one device, within ``allowed_bytes``, as a context."""

    allowed_bytes: int

    def promising(self, shown: int, size: int) -> int:
        """The largest size above ``shown``, up to ``size``, that may be tried; ``shown`` itself if there is none."""

    def fits(self, size: int, run: Callable[[], object]) -> bool:
        """Whether ``run``, a step with batches of ``size``, stays within what is allowed."""

    def __enter__(self) -> MemoryTrials: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def memory_trials(device: torch.device, memory_limit: int | None, safety_margin: float) -> MemoryTrials:
    """Trials on ``device`` within ``memory_limit`` bytes (None: what there is), less the part ``safety_margin`` of it.

    Raises:
        ValueError: the margin is not in [0, 1), the limit not above 0, or the device neither CUDA nor the CPU.
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


@contextmanager
def little_garbage() -> Iterator[None]:
    """Within, garbage is only looked for among what was made there: that takes milliseconds instead of a second."""
    if gc.get_freeze_count():  # the program has done so itself
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that a device, cuBLAS or this process could not get memory."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


class CudaTrials:
    """Trials by running out of memory. What may not be used, the margin included, is held by a tensor meanwhile.

    ``cuda`` is ``torch.cuda``, or what stands for it.
    """

    def __init__(self, device: torch.device, memory_limit: int | None, margin: float, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._free()
        free, _ = cuda.mem_get_info(device)
        everything = free + cuda.memory_reserved(device)
        self.allowed_bytes = int(min(everything, memory_limit or everything) * (1 - margin))
        self._kept_away = min(max(everything - self.allowed_bytes, 0), free)
        self._ballast: torch.Tensor | None = None

    def __enter__(self) -> CudaTrials:
        self._ballast = torch.empty(self._kept_away, dtype=torch.uint8, device=self._device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ballast = None
        self._free()

    def promising(self, shown: int, size: int) -> int:
        """Any size may be tried."""
        return size

    def fits(self, size: int, run: Callable[[], object]) -> bool:
        """Whether ``run`` ends without the device running out of memory; all else it raises goes on."""
        self._cuda.reset_peak_memory_stats(self._device)
        completed = self._completes(run)
        # Some drivers lend main memory instead of running out.
        peak = self._cuda.max_memory_allocated(self._device) - self._kept_away
        self._free()
        logger.info("batch size %d: %s", size, f"{_mib(peak)} at most" if completed else "out of memory")
        return completed and peak <= self.allowed_bytes

    def _completes(self, run: Callable[[], object]) -> bool:
        try:
            run()
            self._cuda.synchronize(self._device)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return False  # from here on nothing refers to the error, whose frames hold the step's tensors
        return True

    def _free(self) -> None:
        gc.collect()
        self._cuda.empty_cache()  # between trials, not in a training: the next one begins with all there is


class CpuTrials:
    """Trials by the peak of this process's resident memory, each one foreseen from those before."""

    def __init__(self, memory_limit: int | None, margin: float) -> None:
        _give_back_free_memory()
        resident = resident_memory()
        limit = resident + available_memory() if memory_limit is None else memory_limit
        self.allowed_bytes = int(limit * (1 - margin))
        #: The peak of each size tried, in bytes; for no batch at all, what the process held after the last trial.
        self._peaks = {0: resident}

    def __enter__(self) -> CpuTrials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _give_back_free_memory()

    def promising(self, shown: int, size: int) -> int:
        """The largest size up to ``size`` that the sizes shown to fit say will fit."""
        peaks = {one: peak for one, peak in self._peaks.items() if one <= shown}
        sizes = range(size, shown, -1)
        return next((one for one in sizes if foreseen_peak(peaks, one) <= self.allowed_bytes), shown)

    def fits(self, size: int, run: Callable[[], object]) -> bool:
        """Whether ``run`` ends and its peak is allowed; all it raises but a lack of memory goes on."""
        try:
            peak = peak_memory(run)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            logger.info("batch size %d: out of memory", size)
            return False
        finally:
            _give_back_free_memory()
        self._peaks |= {size: peak, 0: resident_memory()}
        logger.info("batch size %d: %s at most, %s allowed", size, _mib(peak), _mib(self.allowed_bytes))
        return peak <= self.allowed_bytes


def foreseen_peak(peaks: Mapping[int, int], size: int) -> float:
    """The most memory, in bytes, that a step with ``size`` samples should reach.

    ``peaks`` are those of smaller sizes, 0 among them. What the largest of them took grows in proportion at least,
    and as three of them that lie well apart show where it grows ever faster (a loss over all pairs of a batch). Sizes
    close to each other would tell more of the noise than of a sample.
    """
    last, nothing = max(peaks), peaks[0]
    if last == 0:
        return nothing
    taken = peaks[last] - nothing
    before = max(one for one in peaks if one <= last * 2 // 3)
    first = max((one for one in peaks if one <= before * 2 // 3), default=before)
    slope = (peaks[last] - peaks[before]) / (last - before)
    bend = 0.0
    if first != before:
        bend = max((slope - (peaks[before] - peaks[first]) / (before - first)) / (last - first), 0.0)
    in_proportion = nothing + max(taken, 0) * size / last
    return max(in_proportion, peaks[last] + (size - last) * (slope + bend * (size - before)))


def peak_memory(call: Callable[[], object]) -> int:
    """The most memory, in bytes, that this process held resident while ``call`` ran.

    Exact where that is more than the process ever held, which the system keeps; else it is sampled.
    """
    most = _most_ever()
    seen = [resident_memory()]
    with repeated(lambda: seen.append(resident_memory()), _SAMPLED_EVERY_S, "chirpid-peak-memory"):
        call()
    now = _most_ever()
    return now if now > most else max(*seen, resident_memory())


def _most_ever() -> int:
    """The most memory, in bytes, that this process ever held resident; 0 where the system does not keep it."""
    try:
        return most_resident()
    except NotImplementedError:
        return 0


def resident_memory() -> int:
    """Bytes of memory that this process holds now. Raises NotImplementedError without psutil."""
    return int(_psutil().Process().memory_info().rss)


def available_memory() -> int:
    """Bytes that this process can take without the machine swapping or its cgroup's limit being reached.

    Raises NotImplementedError without psutil.
    """
    free = int(_psutil().virtual_memory().available)
    limit = cgroup_memory_limit()
    return free if limit is None else max(min(free, limit - process_memory(include_children=True).bytes), 0)


def _psutil() -> Any:
    if psutil is None:
        raise NotImplementedError("install psutil to find out what fits into this machine's memory")
    return psutil


def _give_back_free_memory() -> None:
    """Have the C library give back what it keeps of memory that was freed, so that resident memory is memory in use."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
