"""Run each program in separate processes, one for each loader, and several programs at a time."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qa.forks import in_fork

from .cases import Case
from .compare import differences
from .observe import SIDES, observe

_SECONDS = 120


@dataclass(frozen=True)
class Outcome:
    """The result of one program: loader of `chirpid_patch` → differences from PyTorch's loader."""

    case: Case
    found: dict[str, dict[str, Any]]
    differing: dict[str, list[str]]

    @property
    def is_same(self) -> bool:
        """Return whether there are no differences."""
        return not any(self.differing.values())


def run_case(case: Case) -> Outcome:
    """Run one program with each loader, and compare."""
    found = {side: _in_child(case, side) for side in SIDES}
    expected = found["torch"]
    differing = {}
    for side in SIDES:
        if side != "torch":
            if "crash" in expected or "crash" in found[side]:
                differing[side] = [] if expected.get("crash") == found[side].get("crash") else ["crash"]
            else:
                differing[side] = differences(case, expected, found[side], side)
    return Outcome(case, found, differing)


def run_cases(cases: list[Case], jobs: int) -> Iterator[Outcome]:
    """Run many programs, ``jobs`` at a time."""
    with ThreadPoolExecutor(jobs) as executor:
        yield from executor.map(_run_until_timing_is_excluded, cases)


#: Name of the one observation that depends on timing, also with PyTorch's loader. If the loop ends early, the number of
#: samples that a worker has read ahead can differ from run to run.
_RACE = "calls in worker"
_RACE_RUNS = 4


def _run_until_timing_is_excluded(case: Case) -> Outcome:
    """Run a program, and repeat the run if only the number of calls in workers differs.

    This number depends on timing. It is a difference only if PyTorch's loader never shows this number in any run.
    """
    outcome = run_case(case)
    seen = [outcome.found]
    while any(_RACE in names for names in outcome.differing.values()):
        if len(seen) == _RACE_RUNS or any(name != _RACE for names in outcome.differing.values() for name in names):
            break
        outcome = run_case(case)
        seen.append(outcome.found)
        possible = [found["torch"].get("calls", {}).get("worker") for found in seen]
        for side, names in outcome.differing.items():
            if names == [_RACE] and any(found[side].get("calls", {}).get("worker") in possible for found in seen):
                names.clear()
    return outcome


def _in_child(case: Case, side: str) -> dict[str, Any]:
    """Run ``observe`` in a fork of this process. If the fork crashes or hangs, return this as the result."""
    folder = Path(tempfile.mkdtemp(prefix="loader-oracle-"))
    try:
        return in_fork(partial(_observed, case, side, folder), _SECONDS) or {"crash": "silence"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _observed(case: Case, side: str, folder: Path) -> dict[str, Any]:
    try:
        return observe(case, side, folder)
    except BaseException:
        return {"crash": traceback.format_exc()}


def explain(outcome: Outcome) -> str:
    """Return the program and its differences as text."""
    lines = [repr(outcome.case)]
    for side, names in outcome.differing.items():
        for name in names:
            kind = name.removeprefix("calls in ") if name.startswith("calls in ") else None
            values: list[Any] = [
                one.get("crash") if name == "crash" else one["calls"][kind] if kind else one[name]
                for one in (outcome.found["torch"], outcome.found[side])
            ]
            lines.append(f"  {side}: {name}")
            if isinstance(values[0], list) and isinstance(values[1], list):
                place = next(
                    (n for n, (a, b) in enumerate(zip(*values, strict=False)) if a != b), min(map(len, values))
                )
                values = [f"[{place}] {value[place : place + 2]} of {len(value)}" for value in values]
            elif isinstance(values[0], dict) and isinstance(values[1], dict):
                keys = [key for key in {**values[0], **values[1]} if values[0].get(key) != values[1].get(key)]
                values = [{key: value.get(key) for key in keys[:6]} for value in values]
            lines += [f"    torch {str(values[0])[:600]}", f"    {side:5} {str(values[1])[:600]}"]
    return "\n".join(lines)
