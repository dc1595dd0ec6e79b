"""One verdict from the measurements, and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from chirp_migrate.verify.statistics import Ratio, holm

__all__ = ["Decision", "Verdict", "decide"]

SLOWER_THAN = 1.02
"""A time ratio above this counts as slower; less is not told apart from equal."""

_ALPHA = 0.05


class Verdict(Enum):
    """The outcome of a verification: text for the report and exit code of the command."""

    FASTER = ("faster", 0)
    NOT_SHOWN = ("not shown to be faster", 10)
    MODEL_BOUND = ("model-bound", 11)
    SLOWER = ("slower", 12)
    NOT_EQUIVALENT = ("not equivalent", 13)
    FAILED = ("failed", 14)

    def __init__(self, text: str, exit_code: int) -> None:
        self.text = text
        self.exit_code = exit_code


@dataclass(frozen=True)
class Decision:
    """A verdict with its reason, one sentence."""

    verdict: Verdict
    reason: str


def decide(
    total: Ratio, entries: Mapping[str, Ratio], headspace: float, threshold: float, differences: tuple[str, ...]
) -> Decision:
    """Judge a finished verification.

    Args:
        total: time ratio over all entry points together.
        entries: time ratio of each entry point.
        headspace: share of the time before that perfect loading would save, 0 to 1.
        threshold: share of the time that must be saved for "faster", 0 to 1.
        differences: what is not equivalent.
    """
    if differences:
        return Decision(Verdict.NOT_EQUIVALENT, differences[0])
    saved = f"{_percent(total)}, {threshold:.0%} less wanted"
    adjusted = dict(zip(entries, holm([ratio.p_above(SLOWER_THAN) for ratio in entries.values()]), strict=True))
    slower = [label for label, p in adjusted.items() if p < _ALPHA]
    if slower:
        return Decision(
            Verdict.SLOWER,
            f"{', '.join(slower)} takes longer after the migration (95 % confidence over all entry points)",
        )
    if total.low > SLOWER_THAN:
        return Decision(Verdict.SLOWER, f"all entry points together: {saved}")
    if total.high <= 1 - threshold:
        return Decision(Verdict.FASTER, f"all entry points together: {saved}, and no entry point is slower")
    if headspace < threshold:
        return Decision(
            Verdict.MODEL_BOUND,
            f"perfect loading would save {headspace:.0%}, so no loader can save {threshold:.0%}; "
            f"all entry points together: {saved}",
        )
    return Decision(Verdict.NOT_SHOWN, f"all entry points together: {saved}")


def _percent(total: Ratio) -> str:
    """``34 % less time`` with the interval, or ``more``; always the smaller end first."""
    less = [100 * (1 - value) for value in (total.value, total.high, total.low)]
    if less[0] >= 0:
        return f"{less[0]:.1f} % less time (95 % interval {less[1]:.1f} to {less[2]:.1f} %)"
    return f"{-less[0]:.1f} % more time (95 % interval {-less[2]:.1f} to {-less[1]:.1f} %)"
