"""Four plots of a verification as SVG files, drawn with matplotlib where it is installed.

Colours are those of Okabe and Ito, which colour-blind people tell apart; markers and line styles differ as well.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from chirp_migrate.console.text import in_picture
from chirp_migrate.errors import UsageProblem
from chirp_migrate.report.verdict import waits_ms
from chirp_migrate.verify.document import VerifyReport

__all__ = ["FILES", "drawn", "prepare"]

FILES = ("training-time.svg", "batch-waits.svg", "worker-counts.svg", "memory.svg")
"""What is written, in this order; a plot for which nothing was measured is left out."""

_COLOURS = {"before": "#D55E00", "after": "#0072B2", "cached": "#999999", "factory": "#009E73"}
_LINES = {"before": "--", "after": "-"}
_NAMES = {"before": "before", "after": "after", "cached": "model only (one cached batch)"}
_LONGEST_LABEL = 48


def prepare(folder: Path) -> str | None:
    """Make the folder; one sentence when no plots can be drawn because matplotlib is not installed.

    Raises:
        UsageProblem: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"{folder} cannot be made ({error.strerror}): give another --plot.") from None
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "No plots are drawn: they need matplotlib (pip install 'chirp-migrate[plots]')."
    return None


def drawn(folder: Path, report: VerifyReport) -> str:
    """Draw what was measured into an existing folder, replacing files of these names, and say so in one sentence.

    Raises:
        UsageProblem: a file cannot be written.
        ImportError: matplotlib is not installed (see :func:`prepare`).
    """
    from matplotlib.figure import Figure

    written = []
    for name, plot in zip(FILES, (_training_time, _batch_waits, _worker_counts, _memory), strict=True):
        figure = Figure(figsize=(8, 4.8), layout="constrained")
        if not plot(figure, report):
            continue
        caption = f"Machine: {report.described.machine}."
        if report.simulated is not None:
            figure.suptitle("simulated", x=0.99, ha="right", fontsize=11, weight="bold", color="#CC0000")
            caption += f"\nSIMULATED device steps of {report.simulated.step_ms:g} ms, which use no CPU."
        figure.supxlabel(in_picture(caption), fontsize=7, color="#555555", wrap=True)
        path = folder / name
        try:
            figure.savefig(path, metadata={"Date": None})
        except OSError as error:
            raise UsageProblem(f"{path} cannot be written ({error.strerror}): give another --plot.") from None
        written.append(name)
    return f"Plots in {folder}: {', '.join(written) or 'none, as nothing was measured'}."


def _training_time(figure: Any, report: VerifyReport) -> bool:
    import numpy as np

    seconds = report.seconds
    labels = [label for label, taken in seconds.get("before", {}).items() if taken]
    if not labels:
        return False
    figure.set_size_inches(8, 1.6 + 0.45 * len(labels))
    axes = figure.add_subplot()
    sides = [side for side in ("before", "after", "cached") if seconds.get(side, {}).get(labels[0])]
    height = 0.8 / len(sides)
    for number, side in enumerate(sides):
        medians = np.array([statistics.median(seconds[side][label]) for label in labels])
        ends = np.array([[min(seconds[side][label]), max(seconds[side][label])] for label in labels]).T
        axes.barh(
            np.arange(len(labels)) + height * (number - (len(sides) - 1) / 2),
            medians,
            height,
            xerr=np.abs(ends - medians),
            color=_COLOURS[side],
            hatch="//" if side == "before" else None,
            edgecolor="white",
            label=_NAMES[side],
            error_kw={"ecolor": "#333333", "elinewidth": 0.8},
        )
    axes.set_yticks(np.arange(len(labels)), [_label(label) for label in labels], fontsize=7)
    axes.invert_yaxis()
    _finish(axes, "Training time: medians of the rounds, lines from least to most", "seconds", None)
    return True


def _batch_waits(figure: Any, report: VerifyReport) -> bool:
    axes = figure.add_subplot()
    for side, waits in waits_ms(report).items():
        share = [100 * (number + 1) / len(waits) for number in range(len(waits))]
        label = f"{side}: {len(waits)} batches, median {statistics.median(waits):.2f} ms"
        shown = [max(wait, 1e-3) for wait in waits]
        axes.step(shown, share, _LINES[side], where="post", color=_COLOURS[side], label=label)
    if not axes.lines:
        return False
    axes.set_xscale("log")
    _finish(axes, "Wait for the next training batch", "milliseconds", "batches that waited no longer, %")
    return True


def _worker_counts(figure: Any, report: VerifyReport) -> bool:
    after = report.measures.raw.get("after")
    rates = [] if after is None else after.rates
    plain = [(rate.workers, rate.samples_per_second) for rate in rates if rate.loader == "plain"]
    known = [(workers, rate) for workers, rate in plain if rate is not None]
    if not known:
        return False
    axes = figure.add_subplot()
    axes.plot(*zip(*known, strict=True), "o-", color=_COLOURS["after"], label="PyTorch's loader")
    chosen = next((rate.samples_per_second for rate in rates if rate.loader == "factory"), None)
    if chosen is not None:
        axes.axhline(chosen, linestyle=":", color=_COLOURS["factory"], label="the factory's loader")
    axes.set_ylim(bottom=0)
    axes.set_xticks([workers for workers, _ in known])
    _finish(axes, f"Loading alone: {rates[0].dataset}", "worker processes", "samples/s")
    return True


def _memory(figure: Any, report: VerifyReport) -> bool:
    axes = figure.add_subplot()
    for side, found in report.measures.raw.items():
        points = [(one.seconds, one.memory_bytes / 2**20) for one in found.usage if one.memory_bytes is not None]
        if points:
            label = f"{side}, {found.memory_kind.upper()} with workers"
            axes.plot(*zip(*points, strict=True), _LINES[side], color=_COLOURS[side], label=label)
    if not axes.lines:
        return False
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    _finish(axes, "Memory while training", "seconds of training, all entry points one after the other", "MiB")
    return True


def _finish(axes: Any, title: str, x: str, y: str | None) -> None:
    axes.set_title(in_picture(title), fontsize=10, loc="left")
    axes.set_xlabel(x, fontsize=9)
    if y is not None:
        axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)


def _label(text: str) -> str:
    return in_picture(text if len(text) <= _LONGEST_LABEL else "…" + text[1 - _LONGEST_LABEL :])
