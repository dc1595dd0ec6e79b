"""Compare the findings of the rules about pickling, for generated programs, with the results of actual pickling."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project
from qa.pickling_programs.programs import Program
from qa.pickling_programs.truth import RAISED

__all__ = ["CODES", "Answer", "answers"]

#: Codes of the rules about objects that cannot be pickled for workers.
CODES = frozenset({"CHP006", "CHP007", "CHP012", "CHP018"})
_ORACLE = Path(__file__).parent / "truth.py"
#: Number of programs that one process pickles.
_AT_ONCE = 400


@dataclass(frozen=True)
class Answer:
    """The results of pickling and of the rules for a program.

    Attributes:
        error: error of pickling the objects that workers need; "" if there is none.
        reported: findings of the rules without a rewrite.
        rewritten: findings of the rules with a rewrite.
    """

    program: Program
    error: str
    reported: tuple[str, ...]
    rewritten: tuple[str, ...]

    @property
    def is_missed(self) -> bool:
        """Return whether pickling fails and no rule has a finding."""
        return bool(self.error) and not self.reported and not self.rewritten

    @property
    def is_false(self) -> bool:
        """Return whether a rule has a finding although pickling succeeds."""
        return not self.error and bool(self.reported)


def answers(programs: Sequence[Program], jobs: int = 1) -> Iterator[Answer]:
    """Yield the answers for all programs, in their order.

    Raises:
        AssertionError: a program itself fails.
    """
    parts = [programs[start : start + _AT_ONCE] for start in range(0, len(programs), _AT_ONCE)]
    with ThreadPoolExecutor(jobs) as pool:
        for part, errors in zip(parts, pool.map(_errors, parts), strict=True):
            for program, error in zip(part, errors, strict=True):
                assert not error.startswith(RAISED), error
                yield Answer(program, error, *_found(program))


def _errors(programs: Sequence[Program]) -> list[str]:
    """Return the pickling error of each program, from a separate process."""
    request = json.dumps([one.texts for one in programs])
    done = subprocess.run([sys.executable, _ORACLE], input=request, capture_output=True, text=True, check=True)
    errors: list[str] = json.loads(done.stdout)
    return errors


def _found(program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rules = [rule for rule in all_rules() if rule.code in CODES]
    project = Project(program.texts)
    found = []
    for path, text in program.texts.items():
        found += rewrite_text(path, text, project, rules=rules)[1]
        project.update(path, text)
    shown = [(one.status, f"{one.path}:{one.line}: {one.rule} {one.message}") for one in found]
    return (
        tuple(text for status, text in shown if status is FindingStatus.REPORT),
        tuple(text for status, text in shown if status is FindingStatus.REWRITE),
    )
