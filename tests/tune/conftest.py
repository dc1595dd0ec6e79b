"""Measurements of candidates for tests, with chosen values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chirp_migrate.tune.tune_report import CandidateMeasurement, CandidateSettings


@pytest.fixture
def measured() -> Callable[..., CandidateMeasurement]:
    """A measured way of loading, by its workers and rates."""

    def make(workers: int, rates: Sequence[float], *, prefetch: int = 2, threads: int = 0, error: str | None = None):  # type: ignore[no-untyped-def]
        ahead = prefetch if workers else None
        return CandidateMeasurement(
            CandidateSettings(workers, ahead, threads, 32), list(rates), [0.1] * len(rates), error
        )

    return make
