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
        "# Comparison of loaders",
        "",
        f"{made_by(settings)}, NumPy {settings['machine']['numpy']}.",
        "",
        f"Each batch has {BATCH_SIZE} samples of {'x'.join(map(str, SHAPE))} float32. Each epoch yields every sample "
        f"once in random order. In each of {settings['rounds']} rounds, every loader is timed once for one epoch (or "
        "several short epochs), in a changing order. The loaders are warm, and a batch is freed as soon as one of "
        "its values has been read. The tables have medians with quartiles in brackets. *x original* is the throughput "
        "/ the throughput of the original code without workers, computed for each round.",
    ]
    if settings["reduced"]:
        lines += ["", "**A reduced run, whose results are not representative.**"]
    disturbed = {result.name: result.others_cpu for result in results if (result.others_cpu or 0) > _DISTURBED}
    if disturbed:
        shown = ", ".join(f"{name} {share:.0%}" for name, share in disturbed.items())
        lines += ["", f"**Other processes used the CPUs ({shown}): measure again on a quiet machine.**"]
    if chart is not None:
        lines += ["", f"![Throughput of every loader for every workload, relative to the original code]({chart})"]
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
    lines = [f"{result.samples} samples per epoch.", "", *table(header, rows)]
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
            f"{TITLES[duel.ours].capitalize()} compared with the best other loader, {TITLES[duel.other]}, in "
            f"{len(duel.ours_s)} pairs: {duel.ratio:.2f} times the throughput (95 % interval {duel.low:.2f} to "
            f"{duel.high:.2f}), {verdict}.",
        ]
    if result.first is not None:
        plain, ours = (float(np.median(times)) for times in (result.first.plain_s, result.first.ours_s))
        lines += [
            "",
            f"Time to the first batch of a new loader, in {len(result.first.ours_s)} pairs: original code without "
            f"workers {_milliseconds(plain)} ms, ours {_milliseconds(ours)} ms.",
        ]
    return lines


def _first_batch_cell(timings: Timings) -> str:
    warm = float(np.median(timings.first_batch_s))
    return f"{_milliseconds(timings.cold_first_batch_s)} / {_milliseconds(warm)}"


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
