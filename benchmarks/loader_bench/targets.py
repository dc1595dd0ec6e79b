"""Judge whether the loader reaches its targets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from harness import Goal, quartiles

from .contenders import TITLES
from .measure import NOT_WORSE, Measured, busy_shares, relative

# (workload, loader of this project, other loader, smallest ratio of throughputs)
_RATIOS: tuple[tuple[str, str, str, float], ...] = (
    ("standardise", "ours", "original-0", 1.5),
    ("standardise", "ours", "raw-gather", 0.50),
    ("spec", "ours", "original-0", 2.2),
    ("spec", "ours", "raw-gather", 0.42),
    ("noise", "ours", "original-0", 3.0),
    ("noise", "ours", "raw-gather", 0.12),
    ("pooled", "ours", "original-0", 5.5),
    ("pooled", "ours", "raw-gather", 0.25),
    ("decode-python", "ours-tuned", "original-0", 1.35),
    ("decode-numpy", "ours-tuned", "original-0", 1.6),
    ("decode-io", "ours-threads", "original-0", 5.0),
    ("decode-io", "ours-tuned", "original-0", 3.5),
)
_BUSY_SHARE = 0.93
_FIRST_BATCH = 1.2


def judge(results: Sequence[Measured]) -> list[Goal]:
    """Judge every target, in the order of the workloads."""
    by_name = {result.name: result for result in results}
    outcomes = [_ratio(by_name.get(name), name, ours, to, bound) for name, ours, to, bound in _RATIOS]
    outcomes.append(_busy(by_name.get("consumer")))
    outcomes += [_first_batch(result) for result in results if result.first is not None]
    outcomes += [_not_worse(result) for result in results if result.duel is not None]
    return outcomes


def _goal(what: str, wanted: str, values: Sequence[float], holds: bool, *, percent: bool = False) -> Goal:
    """Return a goal whose measured text has the three ``values``: the value, and both ends of its interval."""
    shown = [f"{value:.1%}" if percent else f"{value:.2f}" for value in values]
    return Goal(what, wanted, f"{shown[0]} ({shown[1]} to {shown[2]})", holds)


def _ratio(result: Measured | None, name: str, ours: str, to: str, bound: float) -> Goal:
    what = f"{name}: throughput of {TITLES[ours]} / throughput of {TITLES[to]}"
    values = None if result is None else relative(result, ours, to)
    if values is None:
        return Goal(what, f"≥ {bound:.2f}", "", None)
    low, median, high = quartiles(values)
    return _goal(what, f"≥ {bound:.2f}", (median, low, high), median >= bound)


def _busy(result: Measured | None) -> Goal:
    what, wanted = "consumer: share of the time in which the consumer is busy, ours", f"≥ {_BUSY_SHARE:.0%}"
    if result is None or "ours" not in result.contenders or not result.contenders["ours"].seconds:
        return Goal(what, wanted, "", None)
    low, median, high = quartiles(busy_shares(result, "ours"))
    return _goal(what, wanted, (median, low, high), median >= _BUSY_SHARE, percent=True)


def _first_batch(result: Measured) -> Goal:
    assert result.first is not None
    low, median, high = quartiles(np.asarray(result.first.ours_s) / np.asarray(result.first.plain_s))
    what = f"{result.name}: time to the first batch of a new loader, ours / original, 0 workers"
    return _goal(what, f"≤ {_FIRST_BATCH:.2f}", (median, low, high), median <= _FIRST_BATCH)


def _not_worse(result: Measured) -> Goal:
    duel = result.duel
    assert duel is not None
    what = (
        f"{result.name}: {TITLES[duel.ours]} not worse than the best other loader, {TITLES[duel.other]} (95 % interval)"
    )
    return _goal(what, f"not below {NOT_WORSE}", (duel.ratio, duel.low, duel.high), duel.not_worse)
