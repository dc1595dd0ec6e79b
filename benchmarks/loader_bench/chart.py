"""Draw the results as a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .contenders import LIMIT, OURS, SIDES, TITLES
from .measure import Measured, relative

_COLOURS = {OURS: "#d95f02", LIMIT: "#c8c8c8", "others": "#7f9fbf"}
_COLUMNS = 4
_TICKS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
_FEW_TICKS = [0.01, 0.1, 1, 10, 100, 1000]


def draw(results: Sequence[Measured], path: Path, caption: str) -> bool:
    """Draw bars of throughput / original throughput for each workload. Return False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    shown = [result for result in results if relative(result, "original-0", "original-0") is not None]
    if not shown:
        return False
    columns = min(_COLUMNS, len(shown))
    height = max(sum(bool(one.seconds) for one in result.contenders.values()) for result in shown)
    rows = math.ceil(len(shown) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.6 * columns, (0.24 * height + 0.9) * rows + 0.6), squeeze=False, layout="constrained"
    )
    for panel, result in zip(axes.flat, shown, strict=False):
        ratios = {name: relative(result, name, "original-0") for name in result.contenders}
        bars = [(name, np.quantile(values, [0.25, 0.5, 0.75])) for name, values in ratios.items() if values is not None]
        bars.sort(key=lambda bar: float(bar[1][1]))
        medians = np.array([quartiles[1] for _, quartiles in bars])
        errors = np.array([[q[1] - q[0], q[2] - q[1]] for _, q in bars]).T
        places = np.arange(len(bars))
        panel.barh(
            places,
            medians - 1,
            left=1,
            xerr=errors,
            color=[_COLOURS[SIDES[name]] for name, _ in bars],
            error_kw={"ecolor": "#444444", "elinewidth": 1, "capsize": 2},
        )
        panel.set_yticks(places, [TITLES[name] for name, _ in bars], fontsize=8)
        panel.set_xscale("log")
        lowest, highest = float((medians - errors[0]).min()), float((medians + errors[1]).max())
        panel.set_xlim(min(0.5, lowest / 1.1), max(2.0, highest) * 1.9)
        for place, (_, quartiles) in zip(places, bars, strict=True):
            value = float(quartiles[1])
            panel.text(
                max(1.0, float(quartiles[2])) * 1.06, place, f"{value:.2f}" if value < 10 else f"{value:.0f}",
                va="center", fontsize=7.5,
            )  # fmt: skip
        panel.axvline(1, color="#444444", linewidth=0.8)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
        panel.xaxis.set_major_locator(FixedLocator(_FEW_TICKS if highest / lowest > 50 else _TICKS))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.tick_params(axis="x", labelsize=8)
        panel.set_title(result.title, fontsize=9.5, loc="left")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes.flat[len(shown) :]:
        panel.set_axis_off()
    figure.suptitle("Throughput relative to the original per-sample code without workers", fontsize=13)
    figure.supxlabel(f"Orange: this project. Grey: only copies the batches. {caption}", fontsize=8, color="#555555")
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return True
