"""The document with the result of ``doctor``: ``--json`` writes it, the terminal and SARIF show it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from chirp_migrate.console.json_document import as_bytes, read_as, read_json
from chirp_migrate.doctor.recording import Place

__all__ = ["DoctorReport", "Problem", "WatchedEntryPoint", "decode", "encode"]

SCHEMA: Final = 1


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem that a training run showed.

    Attributes:
        check: name of the check, such as ``duplicated-samples``.
        message: what is wrong, in one sentence.
        evidence: the observation, in one sentence with its numbers.
        fix: what to change, in one sentence.
        path, line: where to change it, relative to PATH; "" and 0 if the place is unknown.
        entry_points: entry points with the problem.
    """

    check: str
    message: str
    evidence: str
    fix: str
    path: str = ""
    line: int = 0
    entry_points: tuple[str, ...] = ()

    @classmethod
    def at(cls, place: Place, check: str, message: str, evidence: str, fix: str) -> Problem:
        """Return a problem at a line of the user's code."""
        return cls(check=check, message=message, evidence=evidence, fix=fix, path=place.file, line=place.line)


class WatchedEntryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point that ran.

    Attributes:
        label: the entry point.
        seconds: wall time.
        loaders, passes, batches: numbers of recorded loaders, passes and batches.
        error: what the entry point raised, or how its process ended; empty if it trained.
        printed: the end of the traceback or output; empty if it trained.
    """

    label: str
    seconds: float
    loaders: int
    passes: int
    batches: int
    error: str = ""
    printed: str = ""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All problems and entry points of a run of doctor; ``created`` is the time, ISO 8601 in UTC."""

    schema: Literal[1] = SCHEMA
    tool: str
    problems: list[Problem]
    entry_points: list[WatchedEntryPoint]
    notes: list[str]
    exit_code: int
    created: str = ""


def encode(report: DoctorReport) -> bytes:
    """Return the document as JSON."""
    return as_bytes(report)


def decode(data: bytes) -> DoctorReport:
    """Decode a document of :func:`encode`, which users may have edited.

    Raises:
        ValueError: the data is not such a document; the message has the reason.
    """
    found = read_json(data)
    if not {"problems", "entry_points"} <= found.keys():
        raise ValueError("doctor did not write it")
    if found.get("schema") != SCHEMA:
        raise ValueError(f"its schema is {found.get('schema')!r}, and this version of chirp-migrate reads {SCHEMA}")
    return read_as(found, DoctorReport)
