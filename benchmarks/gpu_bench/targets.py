"""Judge whether device loading reaches its targets."""

from __future__ import annotations

from collections.abc import Sequence

from harness import Goal

from chirp_migrate.stats.ratios import Ratio

from .cells import Cell, Measured
from .measure import Timings, times_faster
from .ways import LIMIT, ORIGINAL, PINNED, RESIDENT, TITLES

_BUSY_PERCENT = 90.0
_GOODPUT = {RESIDENT: 0.95, PINNED: 0.90}
_FASTER = 2.0


def goodput(measured: Measured, way: str) -> Ratio | None:
    """Return samples per second / samples per second of the same training on one resident batch."""
    return _ratio(measured, LIMIT, way)


def speed_up(measured: Measured, way: str) -> Ratio | None:
    """Return samples per second / samples per second of the original code without workers."""
    return _ratio(measured, ORIGINAL, way)


def _ratio(measured: Measured, slow: str, fast: str) -> Ratio | None:
    one, other = measured.ways.get(slow), measured.ways.get(fast)
    return None if one is None or other is None else times_faster(one, other)


def judge(results: Sequence[Measured], key: Sequence[Cell]) -> list[Goal]:
    """Judge every target in every key cell."""
    by_cell = {result.cell: result for result in results}
    outcomes = []
    for cell in key:
        result = by_cell.get(cell, Measured(cell))
        outcomes.append(_busy(result))
        outcomes += [_good(result, way) for way in _GOODPUT]
        if cell.augmented:
            outcomes.append(_faster(result))
    return outcomes


def _busy(result: Measured) -> Goal:
    timings = result.ways.get(RESIDENT)
    busy = None if timings is None else timings.busy_percent
    what, wanted = f"{result.cell.title}: {TITLES[RESIDENT]}, GPU utilisation", f"≥ {_BUSY_PERCENT:.0f} %"
    if busy is None:
        return Goal(what, wanted, _why_not(timings, "NVML reports none"), None)
    return Goal(what, wanted, f"{busy:.0f} %", busy >= _BUSY_PERCENT)


def _good(result: Measured, way: str) -> Goal:
    found, bound = goodput(result, way), _GOODPUT[way]
    what = f"{result.cell.title}: {TITLES[way]}, goodput"
    return _goal(what, f"≥ {bound:.2f}", found, bound, result.ways.get(way))


def _faster(result: Measured) -> Goal:
    what = f"{result.cell.title}: {TITLES[RESIDENT]}, samples/s / samples/s of {TITLES[ORIGINAL]}"
    return _goal(what, f"≥ {_FASTER:.1f}", speed_up(result, RESIDENT), _FASTER, result.ways.get(RESIDENT))


def _goal(what: str, wanted: str, found: Ratio | None, bound: float, timings: Timings | None) -> Goal:
    if found is None:
        return Goal(what, wanted, _why_not(timings, "not measured"), None)
    return Goal(what, wanted, as_text(found), found.value >= bound)


def _why_not(timings: Timings | None, otherwise: str) -> str:
    if timings is None:
        return "not measured"
    return timings.failed or otherwise


def as_text(ratio: Ratio) -> str:
    """Return a ratio with its interval as text."""
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
