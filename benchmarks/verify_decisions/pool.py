"""Record rounds of real processes with the code of `verify`, and store them as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from chirp_migrate.training.workload.entry_points import find_entry_points
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.timing.process_turns import ChildStarter
from chirp_migrate.verify.timing.rounds import TimedRound
from verify_decisions.load import OtherLoad
from verify_decisions.trees import SIZES, write_trees

__all__ = ["Pool", "record"]


@dataclass(frozen=True)
class Pool:
    """Recorded rounds, and whether the benchmark put load on the machine.

    Attributes:
        load: whether the benchmark itself kept another process busy during the recording.
        rounds: recorded rounds, with the seconds of every condition's entry point.
    """

    load: bool
    rounds: tuple[TimedRound, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the recording as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Pool:
        """Build a recording from the result of :meth:`to_json`."""
        rounds = [msgspec.convert(each, TimedRound) for each in values["rounds"]]
        return cls(values["load"], tuple(rounds))

    @classmethod
    def read(cls, path: Path) -> Pool:
        """Read a recording from a file."""
        return cls.from_json(json.loads(path.read_text(encoding="utf-8"))["pool"])


def record(rounds: int, threads: int, load: bool, folder: Path, progress: Callable[[str], None]) -> Iterator[Pool]:
    """Time ``rounds`` pairs of new processes with the entry points of all conditions. Yield the recording so far.

    Args:
        folder: folder for the trees.
        progress: called with one line for each round.
    """
    trees = write_trees(folder / "trees")
    settings = VerifyOptions(
        SIZES, max_rounds=rounds, budget_s=float("inf"), threshold_percent=20.0, threads=threads, timeout_s=600
    )
    children = ChildStarter(trees, find_entry_points(trees["before"]), settings)
    made: list[TimedRound] = []
    with OtherLoad() if load else nullcontext():
        began = time.monotonic()
        for number in range(rounds):
            made.append(children.time_round(number, None, float("inf"), float("inf")))
            others = made[-1].others
            beside = "not watched" if others is None else f"others used {others:.0%}"
            progress(f"{number + 1}/{rounds} rounds, {time.monotonic() - began:.0f} s, {beside}")
            yield Pool(load, tuple(made))
