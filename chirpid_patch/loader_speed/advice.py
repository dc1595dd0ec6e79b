"""Settings to change when memory runs out or loading is slow, with the reason."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from chirpid_patch.loader_speed.measure import Times
from chirpid_patch.loading.limits import worker_processes

logger = logging.getLogger("chirpid_patch")

#: Least share of an epoch's loading that is worth saving.
_WORTH = 0.05


@dataclass(frozen=True)
class Finding:
    """A setting to change, with the old value, the new value and the reason."""

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
    """Return the settings for another attempt after memory ran out; the reason is logged (``chirpid_patch``, INFO).

    The function halves the batch and doubles the accumulation steps, so that each step of the optimiser still covers
    the same number of samples (a few less if no divisor of that number is between a quarter and half of the batch). It
    halves the number of workers and does not keep workers between epochs. Memory of the device depends only on the
    batch; workers use main memory. A batch of one sample stays: then the model must need less memory
    (``torch.utils.checkpoint``, ``setup_mixed_precision``).

    Args:
        loader: its settings replace missing arguments.
        batch_size: current number of samples in a batch (without a loader: 32).
        num_workers: current number of worker processes (without a loader: 4).
        gradient_accumulation_steps: current number of batches in a step of the optimiser.

    Returns:
        ``batch_size``, ``num_workers``, ``persistent_workers`` and ``gradient_accumulation_steps``.

    Raises:
        ValueError: a number is out of range, or the loader's batches come from a sampler without a ``batch_size``.
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
        "gradient_accumulation_steps": (gradient_accumulation_steps, steps, f"the optimiser sees {smaller * steps}"
                                        f" samples a step, before {batch_size * gradient_accumulation_steps}"),
        "num_workers": (num_workers, num_workers // 2, "each worker process holds batches and a copy of the dataset"),
    }  # fmt: skip
    for name, (current, suggested, why) in changes.items():
        if suggested != current:
            logger.info("%s", Finding(name, current, suggested, why))
    return {
        "batch_size": smaller,
        "num_workers": num_workers // 2,
        "persistent_workers": False,
        "gradient_accumulation_steps": steps,
    }


def _batch_size(loader: Any) -> int:
    size = loader.batch_size if loader.batch_size is not None else getattr(loader.batch_sampler, "batch_size", None)
    if not isinstance(size, int):
        raise ValueError("the loader has no batch_size: pass batch_size=")
    return size


def _halve_batch(batch_size: int, steps: int) -> tuple[int, int]:
    """Return about half of the batch size, and the number of such batches for ``batch_size * steps`` samples."""
    samples = batch_size * steps
    if batch_size == 1:
        return 1, steps
    half = batch_size // 2
    smaller = next((size for size in range(half, batch_size // 4, -1) if samples % size == 0), half)
    return smaller, round(samples / smaller)


def start_up_finding(times: Times, workers: int, batches: int) -> Finding | None:
    """Return the advice to keep the workers, if starting them in every epoch of ``batches`` takes long."""
    load = float(times["mean_batch_time"])
    start = float(times["first_batch_time"]) - workers * load  # the first batch is loaded by one of them
    part = start / (start + batches * load) if start > 0 else 0.0
    if part < _WORTH:
        return None
    why = f"starting the workers takes {start:.2f} s of every epoch, {100 * part:.0f} % of its loading"
    return Finding(
        "persistent_workers", False, True, f"{why}; random numbers are then drawn once for all epochs, not in each"
    )


def prefetch_finding(times: Times, workers: int, prefetch_factor: int, step_seconds: float) -> Finding | None:
    """Return the advice to prefetch more, if that hides the slowest batch and loading is fast enough on average."""
    mean, slowest = float(times["mean_batch_time"]), float(times["p99_batch_time"])
    hidden = workers * prefetch_factor * step_seconds
    if mean > step_seconds or slowest <= hidden:
        return None
    wanted = math.ceil(slowest / step_seconds / workers)
    why = (
        f"the slowest batch took {1e3 * slowest:.0f} ms; loading {workers * prefetch_factor} batches ahead hides waits "
        f"of up to {1e3 * hidden:.0f} ms"
    )
    return Finding("prefetch_factor", prefetch_factor, wanted, why)


def pinning_finding(pin_memory: bool, device: str | None) -> Finding | None:
    """Return the advice about pinned memory for a device of the type ``device`` (None: no device)."""
    if device is not None and not pin_memory:
        why = (
            f"batches are then copied to {device} while the training computes (non_blocking=True, or DevicePrefetcher)"
        )
        return Finding("pin_memory", False, True, why)
    if device is None and pin_memory:
        return Finding("pin_memory", True, False, "no device here gains from pinned memory")
    return None
