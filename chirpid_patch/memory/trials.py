"""Whether a step fits in memory: on CUDA by running out of it, on the CPU without ever doing so.

On the CPU a step runs in this process while its peak of resident memory is measured. Nothing can stop a step half-way,
and a machine that swaps is as good as down: a size is only tried if the largest that fitted, in proportion, says that
it fits, too.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from chirpid_patch.machine.polling import repeated
from chirpid_patch.machine.process_memory import most_resident, resident_memory
from chirpid_patch.machine.usable_memory import available_memory

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("chirpid_patch")

_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory", "not enough memory")
_SAMPLED_EVERY_S = 0.002


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that a device, cuBLAS or this process could not get memory."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


class MemoryTrials:
    """Trials of a step on one device, within ``allowed_bytes``, as a context."""

    allowed_bytes: int

    def fits(self, size: int, run: Callable[[], object]) -> bool:
        """Whether ``run``, a step with batches of ``size``, stays within what is allowed. All other errors go on."""
        try:
            peak = self.measured(size, run)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            peak = None
        if peak is None:
            gc.collect()  # by now nothing refers to the error, whose frames held the step's tensors
        self.clear()
        said = "not tried or out of memory" if peak is None else f"{peak / 2**20:.0f} MiB at most"
        logger.info("batch size %d: %s, %.0f MiB allowed", size, said, self.allowed_bytes / 2**20)
        return peak is not None and peak <= self.allowed_bytes

    def measured(self, size: int, run: Callable[[], object]) -> int | None:
        """The most bytes in use while ``run`` runs; None where it is surely too large."""
        raise NotImplementedError

    def clear(self) -> None:
        """Between two trials: the next one begins with all there is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the trials."""


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


class CudaTrials(MemoryTrials):
    """Trials by running out of memory. What may not be used, the margin included, is held by a tensor meanwhile.

    ``cuda`` is ``torch.cuda``, or what stands for it.
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
        self._cuda.empty_cache()

    def clear(self) -> None:
        self._cuda.empty_cache()  # not in a training

    def measured(self, size: int, run: Callable[[], object]) -> int:
        self._cuda.reset_peak_memory_stats(self._device)
        run()
        self._cuda.synchronize(self._device)
        # Some drivers lend main memory instead of running out.
        return int(self._cuda.max_memory_allocated(self._device) - self._kept_away)


class CpuTrials(MemoryTrials):
    """Trials by the peak of this process's resident memory, each one foreseen from the largest that fitted."""

    def __init__(self, memory_limit: int | None, margin: float) -> None:
        gc.collect()
        self._before = resident_memory()
        limit = self._before + available_memory() if memory_limit is None else memory_limit
        self.allowed_bytes = int(limit * (1 - margin))
        self._bytes_a_sample = 0.0

    def measured(self, size: int, run: Callable[[], object]) -> int | None:
        if self._before + size * self._bytes_a_sample > self.allowed_bytes:
            return None
        peak = peak_memory(run)
        if peak <= self.allowed_bytes:
            self._bytes_a_sample = max(peak - self._before, 0) / size
        return peak


def peak_memory(call: Callable[[], object]) -> int:
    """The most memory, in bytes, that this process held resident while ``call`` ran.

    Exact where that is more than the process ever held, which the system keeps; else it is sampled.
    """
    most = most_resident()
    seen = [resident_memory()]
    with repeated(lambda: seen.append(resident_memory()), _SAMPLED_EVERY_S, "chirpid-peak-memory"):
        call()
    now = most_resident()
    return now if now > most else max(*seen, resident_memory())
