"""Draw plots as inline SVG in the colours of the web page. Tables on the page show the values of the plots.

Text in a plot is large enough for a phone. The style sheet of the page defines the colours, because the content
security policy of the page forbids style attributes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chirp_migrate.report.verdict_rows import batch_waits_ms
from chirp_migrate.verify.verify_report import VerifyReport

#: Names on the page of the versions in the result of ``verify``.
SIDES = {"before": "before", "after": "after", "cached": "model only"}

_BAR, _GAP = 7, 2
_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 12, 42
_LEAST_MS = 0.01


@dataclass(frozen=True)
class Plot:
    """A plot of the page.

    Attributes:
        title: title of the plot.
        description: sentences that describe the plot.
        sides: the versions that the plot shows, such as ``before``.
        svg: content of the SVG element.
    """

    title: str
    description: str
    sides: tuple[str, ...]
    svg: Markup


def time_bars(seconds_by_version: Mapping[str, Sequence[float]], axis_seconds: float) -> Markup:
    """Draw a bar of the median training time for each version, with a line from shortest to longest time.

    Args:
        seconds_by_version: dictionary, version → seconds of the full training, one value for each round. The values are
            the times of one entry point (training function or script), or one total for all entry points.
        axis_seconds: length of the x axis in seconds. Bars that users compare must have the same axis.
    """
    shapes = []
    sides = [side for side in SIDES if seconds_by_version.get(side)]
    for number, side in enumerate(sides):
        seconds = seconds_by_version[side]
        middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
        y = number * (_BAR + _GAP)
        half = y + _BAR / 2
        scaled = [f"{100 * value / axis_seconds:.2f}" for value in (middle, least, most)]
        shapes.append(f'<rect class="bar {side}" x="0" y="{y}" width="{scaled[0]}" height="{_BAR}"/>')
        shapes.append(f'<line class="range" x1="{scaled[1]}" x2="{scaled[2]}" y1="{half}" y2="{half}"/>')
    height = len(sides) * (_BAR + _GAP) - _GAP
    return Markup(
        f'<svg class="bars" viewBox="0 0 100 {height}" width="100%" height="{height}" preserveAspectRatio="none" '
        f'aria-hidden="true" focusable="false">{"".join(shapes)}</svg>'
    )


def batch_wait_plots(report: VerifyReport) -> list[Plot]:
    """Return a list with one plot of the waits for batches; an empty list if no version has two waits."""
    waits = {side: of for side, of in batch_waits_ms(report).items() if len(of) > 1}
    if not waits:
        return []
    medians = "; ".join(f"{side}: median {statistics.median(of):.3g} ms" for side, of in waits.items())
    description = (
        "Share of training batches that arrived within each wait time; a curve further to the left is better. "
        f"{medians}."
    )
    return [Plot("Waiting for batches", description, tuple(waits), _draw_distributions(waits))]


def _draw_distributions(waits: Mapping[str, Sequence[float]]) -> Markup:
    """Draw the cumulative distribution of the waits for batches, for each version. The x axis is logarithmic.

    Args:
        waits: dictionary, version → sorted waits in milliseconds.
    """
    curves = {
        side: [(math.log10(max(one, _LEAST_MS)), share) for one, share in ((of[0], 0.0), *_cumulative_points(of))]
        for side, of in waits.items()
    }
    ends = [x for points in curves.values() for x, _ in points]
    ticks = range(math.floor(min(ends)), math.ceil(max(ends) + 1e-9) + 1)

    def across(value: float) -> float:
        return _LEFT + (value - ticks[0]) / max(ticks[-1] - ticks[0], 1e-9) * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        return _TOP + (1 - value) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for at in ticks:
        x = across(at)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{up(0):.1f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{10**at:.3g}</text>')
    for value in (0.0, 0.5, 1.0):
        y = up(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{value:.0%}</text>')
    for side, points in curves.items():
        path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in points)
        parts.append(f'<path class="curve {side}" d="M{path}"/>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    title = "milliseconds, logarithmic"
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{title}</text>')
    shown = f'<svg class="waits" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true" focusable="false">'
    return Markup(f"{shown}{''.join(parts)}</svg>")


def _cumulative_points(waits: Sequence[float], points: int = 200) -> list[tuple[float, float]]:
    """Return about ``points`` points of the cumulative distribution of sorted waits."""
    every = max(1, len(waits) // points)
    chosen = sorted({*range(0, len(waits), every), len(waits) - 1})
    return [(waits[at], (at + 1) / len(waits)) for at in chosen]
