"""Write the results as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from harness import Goal, page, quartiles

from .contenders import CONTENDERS, OTHERS, OURS, SIDES, TITLES
from .measure import Measured, busy_shares, rates, relative
from .workloads import BATCH_SIZE, SHAPE

Settings = dict[str, Any]

_DISTURBED = 0.05  # the report mentions other processes that use more than this share of the CPUs


def as_data(results: Sequence[Measured], outcomes: Sequence[Goal], settings: Settings) -> dict[str, Any]:
    """Return all results with their raw values."""
    return {
        "schema": 1,
        **settings,
        "workloads": [asdict(result) for result in results],
        "targets": [asdict(outcome) for outcome in outcomes],
    }


def as_markdown(results: Sequence[Measured], outcomes: Sequence[Goal], settings: Settings, chart: str | None) -> str:
    """Return the report: targets first, then a table for each workload."""
    disturbed = {result.name: result.others_cpu for result in results if (result.others_cpu or 0) > _DISTURBED}
    return page(
        "loader",
        settings=settings,
        batch_size=BATCH_SIZE,
        shape=SHAPE,
        disturbed=", ".join(f"{name} {share:.0%}" for name, share in disturbed.items()),
        chart=chart,
        goals=outcomes,
        workloads=[(result, *_table(result)) for result in results],
        titles=TITLES,
        our_names=[name for name, side in SIDES.items() if side == OURS],
        milliseconds=_milliseconds,
        median=lambda seconds: float(np.median(seconds)),
        loaders=list(_loaders(results, settings)),
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _spread(values: np.ndarray[Any, np.dtype[np.float64]] | None) -> str:
    if values is None:
        return ""
    low, median, high = quartiles(values)
    return f"{_number(median)} ({_number(low)} to {_number(high)})"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else _number(seconds * 1000)


def _table(result: Measured) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a workload. The fastest loader comes first."""
    header = ["loader", "samples/s", "x original", "x raw gather", "first batch, ms: new / warm"]
    if not any(name.startswith("raw-gather") for name in result.contenders):
        header.remove("x raw gather")
    if result.step_s:
        header += ["consumer busy", "wait for a batch, ms: median / p99"]
    ran = {name: timings for name, timings in result.contenders.items() if timings.seconds}
    rows = []
    for name, timings in sorted(ran.items(), key=lambda item: float(np.median(item[1].seconds))):
        first = map(_milliseconds, (timings.cold_first_batch_s, float(np.median(timings.first_batch_s))))
        cells = {
            "loader": TITLES[name],
            "samples/s": _spread(rates(result, name)),
            "x original": _spread(relative(result, name, "original-0")),
            "x raw gather": _spread(relative(result, name, "raw-gather")),
            "first batch, ms: new / warm": " / ".join(first),
            "consumer busy": f"{float(np.median(busy_shares(result, name))):.1%}",
            "wait for a batch, ms: median / p99": " / ".join(map(_milliseconds, timings.waits_s)),
        }
        rows.append([cells[column] for column in header])
    return header, rows


_NOTES = {
    "original-0": "per-sample datasets in PyTorch's DataLoader",
    "original-2": "the original code with persistent workers",
    "original-4": "the original code with persistent workers",
    "guide": "the original code with the fixed settings of an optimisation guide for 16 cores, without dropped samples",
    "ours": "`OptimalDataLoaderFactory.create_training_loader(dataset, 32)`",
    "ours-exact": "the call of *ours* with `'mode': 'exact'` noise, which the original code also uses",
    "ours-pooled": "the call of *ours* with `'mode': 'pooled'` noise, which is not independent",
    "ours-tuned": "the call of *ours* with `tune=True`, which measures for some seconds to choose the settings",
    "ours-threads": "the call of *ours, tuned* with `thread_safe=True`, so that threads may read the dataset",
    "hand-tuned": "30 lines by an expert: batches are gathered and standardised at once, exact noise is drawn in "
    "place, and no workers are used; a pool of threads reads samples that must be decoded",
    "hand-pooled": "the hand-tuned code with noise from a pool",
    "spdl": "SPDL's DataLoader with the datasets of the original code, in threads",
    "torchdata": "torchdata's ParallelMapper with the datasets of the original code, in threads",
    "tensordict": "a TensorDict in PyTorch's DataLoader: batches are gathered and standardised at once, and the "
    "transforms of the original code augment samples one by one",
    "raw-gather": "only `index_select` of the stored batches into one block of memory, the limit of any loader",
    "raw-gather-fresh": "only `index_select`, with new memory for each batch as in a loader; sometimes several times "
    "slower, because the C library may return the memory of a batch to the system",
}


def _loaders(results: Sequence[Measured], settings: Settings) -> Iterator[tuple[str, str | None, str, list[str]]]:
    """Yield title, version, note and settings of each loader that the benchmark used."""
    for contender in CONTENDERS:
        used = [result.contenders[contender.name] for result in results if contender.name in result.contenders]
        if used:
            version = settings["machine"]["libraries"].get(contender.needs or "")
            details = sorted({timings.detail for timings in used if timings.detail and contender.side == OTHERS})
            yield contender.title, version, _NOTES[contender.name], details
