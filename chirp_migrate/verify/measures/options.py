"""What the user may say about measuring: worker counts and a simulated device step."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_WORKERS", "EXTRA_S", "NO_OPTIONS", "MeasureOptions"]

DEFAULT_WORKERS = (0, 2, 4, 8, 12)
"""Worker counts that the requirements name (R-000-5.1: 8 and more)."""

EXTRA_S = 4.0
"""Enough for a first look; all worker counts of every dataset take longer."""


@dataclass(frozen=True)
class MeasureOptions:
    """Options of the MEASURED pass and of the simulated device.

    Attributes:
        simulate_step_ms: milliseconds of a simulated device step for each training batch; 0 for none.
        worker_counts: numbers of workers that migrated datasets are tried with; empty for none.
        extra_s: seconds that each side may spend on its datasets, beyond training.
    """

    simulate_step_ms: float = 0.0
    worker_counts: tuple[int, ...] = ()
    extra_s: float = EXTRA_S

    @property
    def simulates(self) -> bool:
        """Whether device steps are simulated."""
        return self.simulate_step_ms > 0


NO_OPTIONS = MeasureOptions()
