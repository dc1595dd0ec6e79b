"""Advice on which settings of a loader to change when memory runs out or loading is slow."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from chirpid_patch.loader_speed.measure import Times
from chirpid_patch.loading.limits import worker_processes
from chirpid_patch.thresholds import NOTICEABLE
from chirpid_patch.torch_private import DataLoader

logger = logging.getLogger("chirpid_patch")


@dataclass(frozen=True)
class SettingAdvice:
    """A setting of a loader to change, with its current value, the suggested value and the reason."""

    setting: str
    current: Any
    suggested: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.current} -> {self.suggested}: {self.reason}"


def handle_oom_errors(
    loader: DataLoader[Any] | None = None,
    *,
    batch_size: int | None = None,
    num_workers: int | None = None,
    gradient_accumulation_steps: int = 1,
) -> dict[str, Any]:
    """Return settings that need less memory, for another attempt after memory ran out.

    The function roughly halves the batch size and doubles the number of accumulation steps, so that each optimiser step
    uses the same number of samples. If no batch size between a quarter and a half of ``batch_size`` allows the same
    number, the number changes slightly: 1 batch of 5 samples becomes 2 batches of 2 samples. The function also halves
    the number of workers, and switches persistent workers off.

    Fewer workers save only memory of the CPU. So if the device ran out of memory, only the smaller batch size helps. If
    the batch size is already 1, reduce the memory of the model (``torch.utils.checkpoint``, ``setup_mixed_precision``).

    The logger ``chirpid_patch`` logs each change with the reason at level INFO.

    Args:
        loader: a loader, whose settings are the defaults of the other arguments; None: no loader.
        batch_size: current number of samples in a batch; None: the batch size of ``loader``, or 32 without a loader.
        num_workers: current number of worker processes; None: the number of ``loader``, or 4 without a loader.
        gradient_accumulation_steps: current number of batches in an optimiser step.

    Returns:
        A dictionary with ``batch_size``, ``num_workers``, ``persistent_workers`` and ``gradient_accumulation_steps``.

    Raises:
        ValueError: a number is out of range, or ``loader`` has a batch sampler without the attribute ``batch_size``.
    """
    if batch_size is None:
        batch_size = 32 if loader is None else _batch_size(loader)
    if num_workers is None:
        num_workers = 4 if loader is None else worker_processes(loader)
    if batch_size < 1 or num_workers < 0 or gradient_accumulation_steps < 1:
        raise ValueError("batch_size and gradient_accumulation_steps must be at least 1, num_workers at least 0")
    smaller, steps = _halve_batch(batch_size, gradient_accumulation_steps)
    changes = {
        "batch_size": (batch_size, smaller, "activations take memory for each sample of the batch"),
        "gradient_accumulation_steps": (gradient_accumulation_steps, steps, "with these settings, an optimiser step "
                            f"uses {smaller * steps} samples, instead of {batch_size * gradient_accumulation_steps}"),
        "num_workers": (num_workers, num_workers // 2, "each worker process stores batches and a copy of the dataset"),
    }  # fmt: skip
    for name, (current, suggested, why) in changes.items():
        if suggested != current:
            logger.info("%s", SettingAdvice(name, current, suggested, why))
    return {
        "batch_size": smaller,
        "num_workers": num_workers // 2,
        "persistent_workers": False,
        "gradient_accumulation_steps": steps,
    }


def _batch_size(loader: Any) -> int:
    size = loader.batch_size if loader.batch_size is not None else getattr(loader.batch_sampler, "batch_size", None)
    if not isinstance(size, int):
        raise ValueError("the loader has no batch_size: pass the argument batch_size")
    return size


def _halve_batch(batch_size: int, steps: int) -> tuple[int, int]:
    """Return a batch size of about half of ``batch_size``, and a new number of accumulation steps.

    The product of both numbers is ``batch_size * steps``, if a batch size between a quarter and a half of
    ``batch_size`` divides ``batch_size * steps``. Otherwise the product is slightly smaller or larger.
    """
    samples = batch_size * steps
    if batch_size == 1:
        return 1, steps
    half = batch_size // 2
    smaller = next((size for size in range(half, batch_size // 4, -1) if samples % size == 0), half)
    return smaller, round(samples / smaller)


def advise_persistent_workers(times: Times, workers: int, batches: int) -> SettingAdvice | None:
    """Return the advice to use persistent workers; None if starting workers takes less than 5 % of the loading time.

    Args:
        times: results of ``measure_batch_waits`` for the loader.
        workers: number of worker processes.
        batches: number of batches in an epoch.
    """
    load = float(times["mean_batch_time"])
    # A single worker loads the first batch, in ``workers`` times the mean time.
    start = float(times["first_batch_time"]) - workers * load
    part = start / (start + batches * load) if start > 0 else 0.0
    if part < NOTICEABLE:
        return None
    why = f"starting the workers takes {start:.2f} s in every epoch, {100 * part:.0f} % of the epoch's loading time"
    return SettingAdvice(
        "persistent_workers", False, True, f"{why}; persistent workers change the random numbers of later epochs"
    )


def advise_prefetching(times: Times, workers: int, prefetch_factor: int, step_seconds: float) -> SettingAdvice | None:
    """Return the advice to prefetch more batches, so that the training does not wait for the slowest batches.

    The result is None if the batches that the workers already prefetch are enough to avoid these waits. The result is
    also None if loading a batch takes longer on average than a training step.

    Args:
        times: results of ``measure_batch_waits`` for the loader.
        workers: number of worker processes.
        prefetch_factor: current number of batches that each worker loads in advance.
        step_seconds: seconds of a training step without loading.
    """
    mean, slowest = float(times["mean_batch_time"]), float(times["p99_batch_time"])
    hidden = workers * prefetch_factor * step_seconds
    if mean > step_seconds or slowest <= hidden:
        return None
    wanted = math.ceil(slowest / step_seconds / workers)
    why = (
        f"the slowest batch took {1e3 * slowest:.0f} ms; loading {workers * prefetch_factor} batches ahead hides waits "
        f"of up to {1e3 * hidden:.0f} ms"
    )
    return SettingAdvice("prefetch_factor", prefetch_factor, wanted, why)


def advise_pinning(pin_memory: bool, device: str | None) -> SettingAdvice | None:
    """Return the advice to switch pinned memory on or off; None if the current ``pin_memory`` is right.

    Args:
        pin_memory: whether the loader pins batches.
        device: type of the accelerator, such as ``"cuda"``; None: there is no accelerator.
    """
    if device is not None and not pin_memory:
        why = (
            f"batches in pinned memory can be copied to {device} while the training computes (non_blocking=True or "
            "DevicePrefetcher)"
        )
        return SettingAdvice("pin_memory", False, True, why)
    if device is None and pin_memory:
        return SettingAdvice("pin_memory", True, False, "without an accelerator, pinned memory has no benefit")
    return None
