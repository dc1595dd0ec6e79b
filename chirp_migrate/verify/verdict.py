"""One verdict from the measurements, one for each entry point, and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.verify.statistics import Ratio, holm

__all__ = ["SLOWER_THAN", "Decision", "Timing", "Verdict", "decide", "entry_verdicts", "still_open"]

SLOWER_THAN = 1.02
"""A time ratio above this counts as slower; less is not told apart from equal."""


class Verdict(Enum):
    """The outcome of a verification: text for the report and exit code of the command."""

    FASTER = ("faster", ExitCode.OK)
    NOT_SHOWN = ("not shown to be faster", ExitCode.NOT_SHOWN)
    MODEL_BOUND = ("model-bound", ExitCode.MODEL_BOUND)
    SLOWER = ("slower", ExitCode.SLOWER)
    NOT_EQUIVALENT = ("not equivalent", ExitCode.NOT_EQUIVALENT)
    FAILED = ("failed", ExitCode.WORKLOAD_FAILED)

    def __init__(self, text: str, exit_code: ExitCode) -> None:
        self.text = text
        self.exit_code = exit_code


@dataclass(frozen=True)
class Decision:
    """A verdict with its reason, one sentence."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Timing:
    """What was measured of one entry point, or of all together.

    Attributes:
        ratio: time after / time before.
        perfect: time with perfect loading (the same training fed from one cached batch) / time before; None where
            that was not measured.
    """

    ratio: Ratio
    perfect: Ratio | None = None

    @property
    def headspace(self) -> float | None:
        """Share of the time before that perfect loading would save, 0 to 1."""
        return None if self.perfect is None else max(0.0, 1 - self.perfect.value)

    def model_bound(self, threshold: float) -> bool:
        """Whether even perfect loading is shown to save less than ``threshold`` (a share of the time before)."""
        return self.perfect is not None and self.perfect.wholly_above(1 - threshold)


def entry_verdicts(entries: Mapping[str, Timing], threshold: float) -> dict[str, Verdict]:
    """Each entry point's own verdict.

    "Slower" is corrected for the number of entry points (Holm), because one of them is enough to make the whole
    verification say so. The other verdicts speak about that entry point alone.
    """
    adjusted = holm([timing.ratio.p_above(SLOWER_THAN) for timing in entries.values()])
    return {
        label: Verdict.SLOWER if p < (1 - timing.ratio.confidence) / 2 else _not_slower(timing, threshold)
        for (label, timing), p in zip(entries.items(), adjusted, strict=True)
    }


def decide(
    total: Timing,
    entries: Mapping[str, Timing],
    threshold: float,
    differences: tuple[str, ...] = (),
    left_out: int = 0,
) -> Decision:
    """Judge a finished verification.

    Args:
        total: all entry points together.
        entries: each entry point.
        threshold: share of the time that must be saved for "faster", 0 to 1.
        differences: what is not equivalent.
        left_out: entry points that are not among them.
    """
    if differences:
        return Decision(Verdict.NOT_EQUIVALENT, differences[0])
    saved = f"{_percent(total.ratio)}, {threshold:.0%} less wanted"
    who = f"{len(entries)} of {len(entries) + left_out}" if left_out else "all"
    together = f"{who} entry points together: {saved}"
    slower = [label for label, verdict in entry_verdicts(entries, threshold).items() if verdict is Verdict.SLOWER]
    if slower:
        takes = "takes" if len(slower) == 1 else "take"
        return Decision(
            Verdict.SLOWER,
            f"{', '.join(slower)} {takes} longer after the migration (95 % confidence over all entry points)",
        )
    if total.ratio.wholly_above(SLOWER_THAN):
        return Decision(Verdict.SLOWER, together)
    verdict = _not_slower(total, threshold)
    if verdict is Verdict.FASTER:
        return Decision(verdict, f"{together}, and no entry point is shown to be slower")
    if total.headspace is None:
        return Decision(verdict, together)
    perfect = f"perfect loading would save {total.headspace:.0%}"
    if verdict is Verdict.MODEL_BOUND:
        return Decision(verdict, f"{perfect}, so no loader can save {threshold:.0%}; {together}")
    return Decision(verdict, f"{together}; {perfect}")


def still_open(total: Timing, entries: Mapping[str, Timing], threshold: float, each: bool = False) -> frozenset[str]:
    """Entry points of which further rounds could still change :func:`decide`'s verdict; with ``each``, or their own.

    There is none when something is shown to be slower (without ``each``). All are open until the total lies wholly on
    one side of the threshold, and where it lies on the wrong one, the headspace does, too. Then an entry point is open
    until it is shown either way about being slower, and, with ``each``, until the same is known of it as of the total.
    """
    if not each and decide(total, entries, threshold).verdict is Verdict.SLOWER:
        return frozenset()
    if not _is_clear(total, threshold):
        return frozenset(entries)
    return frozenset(
        label
        for label, timing in entries.items()
        if not _one_side(timing.ratio, SLOWER_THAN) or (each and not _is_clear(timing, threshold))
    )


def _is_clear(timing: Timing, threshold: float) -> bool:
    """Whether it is known if the threshold is met, and where it is not, if perfect loading could meet it."""
    wanted = 1 - threshold
    if timing.ratio.wholly_below(wanted):
        return True
    return timing.ratio.wholly_above(wanted) and (timing.perfect is None or _one_side(timing.perfect, wanted))


def _not_slower(timing: Timing, threshold: float) -> Verdict:
    if timing.ratio.wholly_below(1 - threshold):
        return Verdict.FASTER
    return Verdict.MODEL_BOUND if timing.model_bound(threshold) else Verdict.NOT_SHOWN


def _one_side(ratio: Ratio, bound: float) -> bool:
    return ratio.wholly_below(bound) or ratio.wholly_above(bound)


def _percent(total: Ratio) -> str:
    """``34 % less time`` with the interval, or ``more``; always the smaller end first."""
    less = [100 * (1 - value) for value in (total.value, total.high, total.low)]
    if less[0] >= 0:
        return f"{less[0]:.1f} % less time (95 % interval {less[1]:.1f} to {less[2]:.1f} %)"
    return f"{-less[0]:.1f} % more time (95 % interval {-less[2]:.1f} to {-less[1]:.1f} %)"
