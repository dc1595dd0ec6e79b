"""Draw a plot with matplotlib that shows the throughput for each number of worker processes.

Colour-blind readers can distinguish the lines, because the colours come from the palette of Okabe and Ito, and each
line has its own marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chirp_migrate.console.text import escape_for_matplotlib, format_percent
from chirp_migrate.errors import UsageProblem
from chirp_migrate.tune.tune_report import CandidateSettings, LoaderReport, SettingsOutcome, mean_rates

_SUFFIXES = (".svg", ".png", ".pdf")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")
_PICK = "#E69F00"
_LONGEST_TITLE = 70


def check_can_plot(target: Path) -> None:
    """Check before the measurement that the plot can be drawn and written.

    Raises:
        UsageProblem: the suffix is unknown, the folder does not exist, or matplotlib is not installed.
    """
    if target.suffix.lower() not in _SUFFIXES:
        raise UsageProblem(
            f"{target} is not a picture file: pass --plot with a file that ends in {', '.join(_SUFFIXES)}."
        )
    if not target.absolute().parent.is_dir():
        raise UsageProblem(
            f"{target} cannot be written, because its folder does not exist: pass --plot with a file in an existing "
            "folder."
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageProblem(
            "--plot needs matplotlib: install it (pip install 'chirp-migrate[plots]'), or omit --plot."
        ) from None


def draw_plot(target: Path, loaders: Sequence[LoaderReport], machine: str) -> None:
    """Draw a plot with one panel for each loader, and write the plot to a file.

    Args:
        target: the file to write or replace. Its suffix determines the format.
        loaders: the report on each loader, with its measurements.
        machine: description of the machine in one line, which appears below the plot.

    Raises:
        UsageProblem: the file cannot be written.
        ImportError: matplotlib is not installed (see :func:`check_can_plot`).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6 * len(loaders)), layout="constrained")
    panels = figure.subplots(len(loaders), 1, squeeze=False)[:, 0]
    for axes, loader in zip(panels, loaders, strict=True):
        _draw_panel(axes, loader)
    figure.supxlabel(escape_for_matplotlib(machine), fontsize=7, color="#555555", wrap=True)
    metadata = {"Date": None} if target.suffix.lower() == ".svg" else None
    try:
        figure.savefig(target, dpi=150, metadata=metadata)
    except OSError as error:
        raise UsageProblem(f"{target} cannot be written ({error.strerror}): pass --plot with another file.") from None


def _draw_panel(axes: Any, loader: LoaderReport) -> None:
    from chirpid_patch.thresholds import TIED  # imports PyTorch, which the command line does without

    rates = mean_rates(loader.measured)
    placed = zip(loader.measured, loader.comparisons, strict=True)
    fastest = next(
        (configuration.candidate for configuration, comparison in placed if comparison.outcome is SettingsOutcome.BEST),
        None,
    )
    if fastest is None:
        axes.set_title(escape_for_matplotlib(f"{loader.name}: nothing could be measured"), fontsize=10, loc="left")
        return
    best = rates[fastest].value
    counts = sorted({way.num_workers for way in rates})
    place = {workers: number for number, workers in enumerate(counts)}
    at_left = place[fastest.num_workers] < len(counts) / 2
    axes.axhspan((1 - TIED) * best, best, color="#999999", alpha=0.18, linewidth=0)
    axes.annotate(
        f"within {format_percent(TIED)} of the best",
        (float(at_left), best),
        xycoords=("axes fraction", "data"),
        xytext=(-4 if at_left else 4, 2),
        textcoords="offset points",
        ha="right" if at_left else "left",
        va="bottom",
        fontsize=7,
        color="#555555",
    )
    for number, (label, ways) in enumerate(_group_by_line(list(rates)).items()):
        shift = 0.05 * number
        shown = [rates[way] for way in ways]
        axes.errorbar(
            [place[way.num_workers] + shift for way in ways],
            [rate.value for rate in shown],
            yerr=[[rate.value - rate.low for rate in shown], [rate.high - rate.value for rate in shown]],
            marker=_MARKERS[number % len(_MARKERS)],
            linestyle="-" if len(ways) > 1 else "none",
            color=_COLOURS[number % len(_COLOURS)],
            capsize=3,
            label=escape_for_matplotlib(label),
        )
        if loader.picked in ways:
            ring = {"markerfacecolor": "none", "markeredgecolor": _PICK, "markeredgewidth": 2.5, "linestyle": "none"}
            at = (place[loader.picked.num_workers] + shift, rates[loader.picked].value)
            axes.plot(*at, "o", markersize=16, zorder=3, **ring)
            axes.plot([], [], "o", markersize=8, label=escape_for_matplotlib(f"picked: {loader.picked}"), **ring)
    axes.set_xticks(range(len(counts)), [str(workers) for workers in counts])
    axes.set_xlim(-0.4, len(counts) - 0.4)
    highest = max(rate.high for rate in rates.values())
    axes.set_ylim(0, 1.15 * max(min(highest, 1.7 * best), best))  # cut off much higher ends of intervals
    size = "" if loader.batch_size is None else f", batch size {loader.batch_size}"
    name = loader.name if len(loader.name) <= _LONGEST_TITLE else f"{loader.name[: _LONGEST_TITLE - 1]}…"
    axes.set_title(escape_for_matplotlib(f"{name}: {loader.role}{size}"), fontsize=10, loc="left")
    axes.set_xlabel("worker processes", fontsize=9)
    axes.set_ylabel("samples/s, loading alone", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines["top"].set_visible(False)
    if loader.batch_size:
        per_batch = float(loader.batch_size)
        right = axes.secondary_yaxis("right", functions=(lambda y: y / per_batch, lambda y: y * per_batch))
        right.set_ylabel("batches/s", fontsize=9)
        right.tick_params(labelsize=8)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), fontsize=8, frameon=False, loc="best")


def _group_by_line(ways: Sequence[CandidateSettings]) -> dict[str, list[CandidateSettings]]:
    """Return a dictionary: label of a line or point in the plot → the configurations that this line or point shows.

    For each prefetch factor, the plot has a line that begins at zero workers. For each number of threads, the plot has
    a point.
    """
    alone = [way for way in ways if way.is_in_main_process]
    series: dict[str, list[CandidateSettings]] = {}
    for way in ways:
        if way.num_workers:
            series.setdefault(f"prefetch_factor {way.prefetch_factor}", list(alone)).append(way)
        elif way.prefetch_threads:
            series.setdefault(str(way), []).append(way)
    return series or {"in the main process": alone}
