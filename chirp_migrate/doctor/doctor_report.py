"""The JSON document of ``doctor``. ``doctor --json`` writes the document, and ``doctor`` prints its content."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from chirp_migrate.doctor.recording import CodeLine

SCHEMA: Final = 1


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A loading problem that a run of the training proves.

    Attributes:
        check: name of the check that found the problem, such as ``duplicated-samples``.
        message: the problem in one sentence.
        evidence: the observation that proves the problem, in one sentence with numbers.
        fix: the change that solves the problem, in one sentence.
        path, line: file (relative to PATH) and line of the fix; "" and 0 if the line is not known.
        entry_points: labels of the entry points with the problem.
    """

    check: str
    message: str
    evidence: str
    fix: str
    path: str = ""
    line: int = 0
    entry_points: tuple[str, ...] = ()

    @classmethod
    def at(cls, place: CodeLine, check: str, message: str, evidence: str, fix: str) -> Problem:
        """Return a problem whose fix is at ``place``, a line of the user's code."""
        return cls(check=check, message=message, evidence=evidence, fix=fix, path=place.file, line=place.line)


class WatchedEntryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point that ``doctor`` ran.

    Attributes:
        label: label of the entry point.
        seconds: wall time of the training in seconds.
        loaders, passes, batches: numbers of recorded loaders, loader passes and batches.
        error: error that the entry point raised, or how its process ended; an empty string if the entry point trained.
        printed: last lines of the traceback or output; an empty string if the entry point trained.
    """

    label: str
    seconds: float
    loaders: int
    passes: int
    batches: int
    error: str = ""
    printed: str = ""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The document of ``doctor``.

    Attributes:
        tool: name and version of this program.
        problems: the problems that the checks found.
        entry_points: the entry points that ran.
        notes: sentences on entry points that did not run or had too little time.
        exit_code: exit code of the command.
        created: time at the end of the run, ISO 8601 in UTC.
    """

    schema: Literal[1] = SCHEMA
    tool: str
    problems: list[Problem]
    entry_points: list[WatchedEntryPoint]
    notes: list[str]
    exit_code: int
    created: str = ""
