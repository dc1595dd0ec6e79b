"""The decision as a reader checks it: each entry point's own verdict, and the rounds behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.process.background_load import BUSY_ABOVE, not_watched
from chirp_migrate.verify.session import Outcome
from chirp_migrate.verify.timing.rounds import Rounds
from chirp_migrate.verify.verdict import Verdict

__all__ = ["entry_lines", "rounds_line", "to_json"]

_ENTRY_VERDICTS = {
    Verdict.FASTER: "meets the threshold",
    Verdict.MODEL_BOUND: "model-bound",
    Verdict.NOT_SHOWN: "not shown",
    Verdict.UNDECIDED: "undecided",
    Verdict.SLOWER: "slower",
}


def entry_lines(outcome: Outcome, threshold: float, shorten: Callable[[str], str]) -> list[str]:
    """A table with the verdict of each entry point; at most 100 columns wide.

    Args:
        threshold: share of the time that must be saved, 0 to 1.
        shorten: makes a label fit for a table.
    """
    if not outcome.verdicts:
        return []
    lines = [f"{f'each one by itself ({threshold:.0%} wanted)':42} {'saved':>17} {'perfect loading':>17}  verdict"]
    for label, verdict in outcome.verdicts.items():
        perfect = outcome.perfect_entries.get(label)
        saved = _saved(outcome.entries[label])
        could = "-" if perfect is None else _saved(perfect)
        lines.append(f"{shorten(label):42.42} {saved:>17} {could:>17}  {_ENTRY_VERDICTS[verdict]}")
    return lines


def rounds_line(rounds: Rounds) -> str:
    """How many rounds were made, discarded and why, how busy the machine was, and why there were no more."""
    text = f"{len(rounds.made)} made, {len(rounds.used)} count"
    some = len(rounds.used) - len(rounds.whole)
    if some:
        text += f" ({some} of them with the entry points that were still open)"
    others = rounds.others()
    ended = "" if rounds.stopped is None else f" Ended with {rounds.stopped.value}."
    if others is None:
        return f"{text}; whether other processes had the cores was not watched ({_why_not()}).{ended}"
    busy = f"other processes used {others[0]:.0%} of the CPUs in the median round, at most {others[1]:.0%}"
    limit = f"{BUSY_ABOVE:.0%}"
    if rounds.kept_though_disturbed:
        return (
            f"{text}, {rounds.kept_though_disturbed} of them though others used more than {limit} of the CPUs: the "
            f"machine was busy too often to wait for quiet ({busy}), which makes intervals wide.{ended}"
        )
    return f"{text}, {rounds.discarded} discarded because others used more than {limit} of the CPUs ({busy}).{ended}"


def to_json(outcome: Outcome, rounds: Rounds) -> dict[str, Any]:
    """Fields ``rounds`` and ``verdicts`` of the JSON report."""
    used = {id(each) for each in rounds.used}
    others = rounds.others()
    return {
        "rounds": {
            "made": [{**asdict(each), "disturbed": each.disturbed, "counts": id(each) in used} for each in rounds.made],
            "count": len(rounds.used),
            "discarded": rounds.discarded,
            "disturbed_but_counted": rounds.kept_though_disturbed,
            "looks": [asdict(look) for look in rounds.looks],
            "ended_with": None if rounds.stopped is None else rounds.stopped.value,
            "others_median": None if others is None else others[0],
            "others_most": None if others is None else others[1],
            "others_limit": BUSY_ABOVE,
            "not_watched": None if others is not None or not rounds.made else _why_not(),
        },
        "verdicts": {
            label: {
                "verdict": _ENTRY_VERDICTS[verdict],
                "perfect": None if (perfect := outcome.perfect_entries.get(label)) is None else asdict(perfect),
                "headspace": None if perfect is None else max(0.0, 1 - perfect.value),
            }
            for label, verdict in outcome.verdicts.items()
        },
        "perfect": None if outcome.perfect is None else asdict(outcome.perfect),
    }


def _why_not() -> str:
    return not_watched() or "this system does not count CPU time"


def _saved(ratio: Ratio) -> str:
    """``38 % [31, 45]``: share of the time before that is saved, with its interval; negative where it is lost."""
    share, low, high = (f"{100 * (1 - value):.0f}" for value in (ratio.value, ratio.high, ratio.low))
    return f"{share} % [{low}, {high}]"
