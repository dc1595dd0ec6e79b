"""Plots as inline SVG that follow the page's colours; what they show is in the tables beside them, too.

Text stands in HTML or at a size that stays readable on a phone; styles come from the page's style sheet, as its
content security policy allows no others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from chirp_migrate.report.page.html import escape

__all__ = ["SIDES", "time_bars", "waits_plot"]

#: Sides as they are called on the page.
SIDES = {"before": "before", "after": "after", "cached": "model only"}

_BAR, _GAP = 7, 2
_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 12, 42
_LEAST_MS = 0.01


def time_bars(seconds: Mapping[str, Sequence[float]], longest: float) -> str:
    """Bars of one entry point: medians of the rounds, with a line from the least to the most.

    Args:
        seconds: side → seconds of every round.
        longest: seconds that fill the width, the same for all that are compared.
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
    return (
        f'<svg class="bars" viewBox="0 0 100 {height}" width="100%" height="{height}" preserveAspectRatio="none" '
        f'aria-hidden="true" focusable="false">{"".join(shapes)}</svg>'
    )


def waits_plot(waits_ms: Mapping[str, Sequence[float]]) -> str:
    """Which share of the batches was waited for at most how long, by side, on a logarithmic scale.

    Args:
        waits_ms: side → waits in milliseconds, ascending.
    """
    known = {side: waits for side, waits in waits_ms.items() if waits}
    if not known:
        return ""
    least = max(min(waits[0] for waits in known.values()), _LEAST_MS)
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(max(waits[-1] for waits in known.values())) + 1e-9)
    high = max(high, low + 1)

    def x(wait: float) -> float:
        share = (math.log10(max(wait, 10.0**low)) - low) / (high - low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(share: float) -> float:
        return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for power in range(low, high + 1):
        at = x(10.0**power)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{y(0):.1f}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{10.0**power:g}</text>')
    for share in (0.0, 0.5, 1.0):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>'
        )
        parts.append(f'<text x="{_LEFT - 5}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for side, waits in known.items():
        points = "".join(f"L{x(wait):.1f} {y(share):.1f}" for wait, share in _steps(waits))
        parts.append(f'<path class="curve {side}" d="M{x(waits[0]):.1f} {y(0):.1f}{points}"/>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">milliseconds, logarithmic</text>')
    said = "; ".join(f"{side}: median {_ms(waits)} ms" for side, waits in known.items())
    return (
        f'<svg class="waits" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(f"Share of training batches that came within a time. {said}.")}">{"".join(parts)}</svg>'
    )


def _steps(waits: Sequence[float], points: int = 200) -> list[tuple[float, float]]:
    """At most so many points of the share of waits that were not longer."""
    every = max(1, len(waits) // points)
    chosen = sorted({*range(0, len(waits), every), len(waits) - 1})
    return [(waits[at], (at + 1) / len(waits)) for at in chosen]


def _ms(waits: Sequence[float]) -> str:
    return f"{statistics.median(waits):.3g}"
