"""Write the results as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from harness import Goal, goal_lines, made_by, quartiles, table

from .contenders import CONTENDERS, OTHERS, OURS, SIDES, TITLES
from .measure import Measured, Timings, busy_shares, rates, relative
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
    lines = [
        "# Loading, side by side",
        "",
        f"{made_by(settings)}, NumPy {settings['machine']['numpy']}.",
        "",
        f"Batches of {BATCH_SIZE} samples of {'x'.join(map(str, SHAPE))} float32, shuffled; each epoch gives every "
        f"sample once. {settings['rounds']} rounds, each of which times every loader once (an epoch, or several short "
        "ones), in an order that changes; loaders are warm, and a batch is let go as soon as one value of it has "
        "been read. Figures are medians with quartiles in brackets. "
        "'x original' is throughput relative to the original code without workers, round by round.",
    ]
    if settings["reduced"]:
        lines += ["", "**A reduced run: not the figures to quote.**"]
    disturbed = {result.name: result.others_cpu for result in results if (result.others_cpu or 0) > _DISTURBED}
    if disturbed:
        shown = ", ".join(f"{name} {share:.0%}" for name, share in disturbed.items())
        lines += ["", f"**Other processes used the CPUs meanwhile ({shown}): measure again on a quiet machine.**"]
    if chart is not None:
        lines += ["", f"![Throughput of every loader at every workload, relative to the original]({chart})"]
    lines += ["", "## Targets", "", *_targets(outcomes)]
    for result in results:
        lines += ["", f"## {result.name}: {result.title}", "", *_workload(result)]
    lines += ["", "## Loaders", "", *_legend(results, settings)]
    return "\n".join(lines) + "\n"


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


def _targets(goals: Sequence[Goal]) -> list[str]:
    kept, judged = sum(one.holds is True for one in goals), sum(one.holds is not None for one in goals)
    return [f"{kept} of {judged} hold.", "", *goal_lines(goals)]


def _workload(result: Measured) -> list[str]:
    header = ["loader", "samples/s", "x original", "x raw gather", "first batch, ms: new / warm"]
    if not any(name.startswith("raw-gather") for name in result.contenders):
        header.remove("x raw gather")
    if result.step_s:
        header += ["consumer busy", "wait for a batch, ms: median / p99"]
    ran = {name: timings for name, timings in result.contenders.items() if timings.seconds}
    rows = []
    for name, timings in sorted(ran.items(), key=lambda item: float(np.median(item[1].seconds))):
        cells = {
            "loader": TITLES[name],
            "samples/s": _spread(rates(result, name)),
            "x original": _spread(relative(result, name, "original-0")),
            "x raw gather": _spread(relative(result, name, "raw-gather")),
            "first batch, ms: new / warm": _first_batch_cell(timings),
        }
        if result.step_s:
            busy = busy_shares(result, name)
            cells["consumer busy"] = f"{float(np.median(busy)):.1%}"
            cells["wait for a batch, ms: median / p99"] = " / ".join(map(_milliseconds, timings.waits_s))
        rows.append([cells[column] for column in header])
    lines = [f"{result.samples} samples an epoch.", "", *table(header, rows)]
    missing = [f"{TITLES[name]}: {one.unavailable}" for name, one in result.contenders.items() if one.unavailable]
    if missing:
        lines += ["", "Not run: " + "; ".join(missing) + "."]
    decisions = [f"{TITLES[name]}: {one.detail}" for name, one in ran.items() if SIDES[name] == OURS]
    if decisions:
        lines += ["", *(f"* {decision}" for decision in decisions)]
    duel = result.duel
    if duel is not None:
        verdict = "not worse" if duel.not_worse else "**worse**"
        lines += [
            "",
            f"{TITLES[duel.ours].capitalize()} against the best other, {TITLES[duel.other]}, in "
            f"{len(duel.ours_s)} pairs: {duel.ratio:.2f} times the throughput (95 % interval {duel.low:.2f} to "
            f"{duel.high:.2f}): {verdict}.",
        ]
    if result.first is not None:
        plain, ours = (float(np.median(times)) for times in (result.first.plain_s, result.first.ours_s))
        lines += [
            "",
            f"First batch of a new loader, in {len(result.first.ours_s)} pairs: original in the process "
            f"{_milliseconds(plain)} ms, ours {_milliseconds(ours)} ms.",
        ]
    return lines


def _first_batch_cell(timings: Timings) -> str:
    warm = float(np.median(timings.first_batch_s))
    return f"{_milliseconds(timings.cold_first_batch_s)} / {_milliseconds(warm)}"


_NOTES = {
    "original-0": "per-sample datasets in PyTorch's DataLoader",
    "original-2": "the same with persistent workers",
    "original-4": "the same with persistent workers",
    "guide": "the same with the fixed settings of an optimisation guide written for 16 cores; no sample dropped",
    "ours": "`OptimalDataLoaderFactory.create_training_loader(dataset, 32)`",
    "ours-exact": "the same with `'mode': 'exact'` noise, as the original draws it",
    "ours-pooled": "the same with `'mode': 'pooled'` noise, which is not independent",
    "ours-tuned": "the same with `tune=True`: settings chosen by measuring for some seconds when the loader starts",
    "ours-threads": "the same with `thread_safe=True` too: the dataset is declared safe to be read in threads",
    "hand-tuned": "30 lines an expert writes for this work: batches gathered and standardised at once, exact noise "
    "drawn in place, no workers; where samples are decoded, a pool of threads",
    "hand-pooled": "the same with noise from a pool",
    "spdl": "SPDL's DataLoader over the original's datasets, in threads",
    "torchdata": "torchdata's ParallelMapper over the original's datasets, in threads",
    "tensordict": "a TensorDict in PyTorch's DataLoader: batches gathered and standardised at once, samples augmented "
    "by the original's transforms",
    "raw-gather": "`index_select` of the batches as stored, into one block of memory, and nothing else: the limit",
    "raw-gather-fresh": "the same as a loader does it, each batch in memory of its own; at times several times slower, "
    "because the C library may give a batch's memory back and fault it in again",
}


def _legend(results: Sequence[Measured], settings: Settings) -> list[str]:
    lines = []
    for contender in CONTENDERS:
        used = [result.contenders[contender.name] for result in results if contender.name in result.contenders]
        if not used:
            continue
        version = settings["machine"]["libraries"].get(contender.needs or "")
        details = sorted({timings.detail for timings in used if timings.detail and contender.side == OTHERS})
        lines.append(
            f"* **{contender.title}**{f' {version}' if version else ''}: {_NOTES[contender.name]}"
            + (f" ({'; '.join(details)})." if details else ".")
        )
    return lines
