"""Draw the results as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .cells import Measured
from .ways import LIMIT, PINNED, RESIDENT, TITLES

_COLOURS = {PINNED: "#f0a35e", RESIDENT: "#d95f02", LIMIT: "#4d4d4d"}
_GREYS = ["#c6d3e0", "#9fb4c9", "#7f9fbf"]


def draw(results: Sequence[Measured], path: Path, caption: str) -> bool:
    """Draw the samples per second of every loader. The chart has panels for each network with and without augmentation.

    Returns:
        False if matplotlib is missing or there are no results.
    """
    try:
        import matplotlib
    except ImportError:
        return False
    if not results:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    kinds = sorted({(result.cell.model, result.cell.augmented) for result in results})
    columns = min(2, len(kinds))
    rows = -(-len(kinds) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(6.4 * columns, 3.4 * rows), squeeze=False, layout="constrained")
    others = iter(_GREYS)
    colours = {name: _COLOURS.get(name) or next(others) for name in TITLES}
    for panel, (model, augmented) in zip(axes.flat, kinds, strict=False):
        shown = [one for one in results if (one.cell.model, one.cell.augmented) == (model, augmented)]
        shown.sort(key=lambda one: one.cell.batch_size)
        width = 0.8 / len(TITLES)
        for place, (name, title) in enumerate(TITLES.items()):
            rates = [one.ways[name].rate or 0.0 if name in one.ways else 0.0 for one in shown]
            at = [number + (place - (len(TITLES) - 1) / 2) * width for number in range(len(shown))]
            panel.bar(at, rates, width, color=colours[name], label=title)
        panel.set_xticks(range(len(shown)), [f"batch {one.cell.batch_size}" for one in shown])
        panel.set_title(f"{model} CNN, {'augmented' if augmented else 'not augmented'}", loc="left", fontsize=10)
        panel.set_ylabel("samples a second")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes.flat[len(kinds) :]:
        panel.set_axis_off()
    bars, titles = axes.flat[0].get_legend_handles_labels()
    figure.legend(bars, titles, loc="outside upper center", ncols=len(TITLES), fontsize=8, frameon=False)
    figure.supxlabel(caption, fontsize=8, color="#555555")
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return True
