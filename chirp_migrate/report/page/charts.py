"""Draw plots as inline SVG in the colours of the web page. Tables on the page contain the same values.

Text in a plot is large enough for a phone. The colours are in the style sheet of the page, because the content security
policy of the page forbids styles in elements.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chirp_migrate.report.verdict_rows import batch_waits_ms
from chirp_migrate.verify.verify_report import VerifyReport

#: Dictionary: version in the result of ``verify`` → its name on the page.
SIDES = {"before": "before", "after": "after", "cached": "model only"}

_BAR, _GAP = 7, 2
_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 12, 42
_LEAST_MS = 0.01
_MIB = 2**20


@dataclass(frozen=True)
class Plot:
    """A plot of the page.

    Attributes:
        title: title of the plot.
        says: sentence that describes the plot.
        sides: the versions that the plot shows, such as ``before``.
        svg: content of the SVG element.
    """

    title: str
    says: str
    sides: tuple[str, ...]
    svg: Markup


def time_bars(seconds: Mapping[str, Sequence[float]], longest: float) -> Markup:
    """Draw a bar of the median time for each version of one entry point, with a line from shortest to longest time.

    Args:
        seconds: dictionary, version → seconds of every round.
        longest: seconds of a bar that fills the width; the same value for all bars that users compare.
    """
    shapes = []
    sides = [side for side in SIDES if seconds.get(side)]
    for number, side in enumerate(sides):
        middle, least, most = statistics.median(seconds[side]), min(seconds[side]), max(seconds[side])
        y = number * (_BAR + _GAP)
        half = y + _BAR / 2
        scaled = [f"{100 * value / longest:.2f}" for value in (middle, least, most)]
        shapes.append(f'<rect class="bar {side}" x="0" y="{y}" width="{scaled[0]}" height="{_BAR}"/>')
        shapes.append(f'<line class="range" x1="{scaled[1]}" x2="{scaled[2]}" y1="{half}" y2="{half}"/>')
    height = len(sides) * (_BAR + _GAP) - _GAP
    return Markup(
        f'<svg class="bars" viewBox="0 0 100 {height}" width="100%" height="{height}" preserveAspectRatio="none" '
        f'aria-hidden="true" focusable="false">{"".join(shapes)}</svg>'
    )


def plots_of_measurements(report: VerifyReport) -> list[Plot]:
    """Return the plots of waits for batches, loading speed by number of workers, and memory, without empty plots."""
    raw = {side: of for side, of in report.measures.raw.items() if side in SIDES}
    waits = batch_waits_ms(report)
    logs = {
        side: [(math.log10(max(one, _LEAST_MS)), share) for one, share in ((of[0], 0.0), *_cumulative_points(of))]
        for side, of in waits.items()
    }
    ends = [x for points in logs.values() for x, _ in points]
    decades = range(math.floor(min(ends)), math.ceil(max(ends) + 1e-9) + 1) if ends else ()
    after = raw["after"].rates if "after" in raw else []
    plain = [(float(rate.workers), rate.samples_per_second) for rate in after if rate.loader == "plain"]
    rates = {"after": [(workers, rate) for workers, rate in plain if rate is not None]}
    factory = next((rate.samples_per_second for rate in after if rate.loader == "factory"), None)
    own = "" if factory is None else f" The loader that the factory chooses: {factory:,.0f} samples/s."
    memory = {
        side: [(one.seconds, one.memory_bytes / _MIB) for one in of.usage if one.memory_bytes is not None]
        for side, of in raw.items()
    }
    said = "; ".join(f"{side}: median {statistics.median(of):.3g} ms" for side, of in waits.items())
    every = (
        Plot(
            "Waiting for batches",
            f"Share of the training batches that arrived within a time; further left is better. {said}.",
            *_draw_curves(logs, "milliseconds, logarithmic", lambda at: f"{10**at:.3g}", "{:.0%}", ticks=decades),
        ),
        Plot(
            "Loading at several worker counts",
            f"Samples/s of the migrated datasets without training, for each number of PyTorch's worker processes.{own}",
            *_draw_curves(
                rates, "worker processes", "{:g}".format, "{:,.0f}", ticks=sorted({count for count, _ in plain})
            ),
        ),
        Plot(
            "Memory while training",
            "Memory of the training process and its workers in MiB. The entry points follow each other in time.",
            *_draw_curves(memory, "seconds of training", "{:.3g}".format, "{:,.0f}"),
        ),
    )
    return [plot for plot in every if plot.sides]


def _draw_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    x_title: str,
    x_text: Callable[[float], str],
    y_text: str,
    *,
    ticks: Sequence[float] | None = None,
) -> tuple[tuple[str, ...], Markup]:
    """Draw one curve for each version that has at least two points. The y axis begins at 0.

    Args:
        curves: dictionary, version → points (x, y).
        x_title: title of the x axis.
        x_text: function that formats an x value.
        y_text: format string for y values.
        ticks: x values of the grid lines; None for five lines from 0 on.

    Returns:
        The versions that have a curve, and the SVG element.
    """
    known = {side: points for side, points in curves.items() if len(points) > 1}
    if not known:
        return (), Markup()
    most = max(x for points in known.values() for x, _ in points)
    ticks = ticks or [most * step / 4 for step in range(5)]
    low, high = ticks[0], max(ticks[-1], ticks[0] + 1e-9)
    top = max(y for points in known.values() for _, y in points) or 1.0

    def across(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for at in ticks:
        x = across(at)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{up(0):.1f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{x_text(at)}</text>')
    for value in (0.0, top / 2, top):
        y = up(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{y_text.format(value)}</text>')
    for side, points in known.items():
        path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in points)
        parts.append(f'<path class="curve {side}" d="M{path}"/>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{x_title}</text>')
    shown = f'<svg class="waits" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true" focusable="false">'
    return tuple(known), Markup(f"{shown}{''.join(parts)}</svg>")


def _cumulative_points(waits: Sequence[float], points: int = 200) -> list[tuple[float, float]]:
    """Return about ``points`` points of the cumulative distribution of sorted waits."""
    every = max(1, len(waits) // points)
    chosen = sorted({*range(0, len(waits), every), len(waits) - 1})
    return [(waits[at], (at + 1) / len(waits)) for at in chosen]
