"""Define the result of ``doctor``, which ``doctor`` prints and ``doctor --json`` writes as a JSON document."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from chirp_migrate.doctor.recording import CodeLine

SCHEMA: Final = 1


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A data loading problem that occurred in the recorded training.

    Attributes:
        check: name of the check that found the problem, such as ``duplicated-samples``.
        message: the problem in one sentence.
        evidence: the recorded values that prove the problem, as text.
        fix: description of the change to the code that solves the problem.
        path: path of the file to change, relative to the argument PATH; an empty string if the place is not known.
        line: number of the line to change, from 1; 0 if the place is not known.
        entry_points: labels of the entry points (training functions or scripts) in which the problem occurred.
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
        """Return a problem at ``place``, the line of the user's code that must change."""
        return cls(check=check, message=message, evidence=evidence, fix=fix, path=place.file, line=place.line)


class WatchedEntryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """An entry point (a training function or script) that ``doctor`` ran.

    Attributes:
        label: short unique name of the entry point, such as ``train.main``.
        seconds: wall time of the entry point in seconds.
        loaders: number of recorded loaders.
        passes: number of recorded iterations over these loaders.
        batches: number of recorded batches.
        error: error that the entry point raised, or how its process ended; an empty string if no error occurred.
        printed: last lines of the traceback, or of the output of a process that crashed; an empty string if no error
            occurred.
    """

    label: str
    seconds: float
    loaders: int
    passes: int
    batches: int
    error: str = ""
    printed: str = ""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of ``doctor``.

    Attributes:
        tool: name and version of this program.
        problems: the problems that the checks found.
        entry_points: the entry points (training functions or scripts) that ran, including entry points that failed.
        notes: sentences on entry points that did not run or ended early, and on files that are not in the temporary
            copy.
        exit_code: exit code of the command: 0 if ``problems`` is empty, else 1.
        created: time at which the run of ``doctor`` ended, in ISO 8601 and UTC.
    """

    schema: Literal[1] = SCHEMA
    tool: str
    problems: list[Problem]
    entry_points: list[WatchedEntryPoint]
    notes: list[str]
    exit_code: int
    created: str = ""
