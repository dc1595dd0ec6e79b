"""Keeping of later edits while an earlier change is undone, by git's three-way merge of a file."""

from __future__ import annotations

import ast
import json
import tempfile
import warnings
from pathlib import Path, PurePosixPath

from chirp_migrate.errors import Refused
from chirp_migrate.source.git import run_git

__all__ = ["Conflict", "three_way_merge"]

#: Largest number of conflicts that ``git merge-file`` counts; a larger exit status means that it did not merge.
_MOST_CONFLICTS = 127
_MARKER = b"<<<<<<< "


class Conflict(Exception):
    """The reason why a file cannot be merged."""


def three_way_merge(path: str, edited: bytes, base: bytes, other: bytes) -> bytes:
    """Apply the changes from ``base`` to ``other`` to ``edited``, with ``git merge-file``, and return the result.

    Args:
        path: name of the file, which determines the format of a valid result: Python, or JSON for a notebook.
        edited: the file with later edits.
        base: the file before the later edits.
        other: the file that ``base`` should become.

    Raises:
        Conflict: the same lines were edited, or git's result is no Python.
        Refused: git is not installed.
    """
    if edited == base:
        return other
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-merge-") as folder:
        names = {"edited": edited, "base": base, "other": other}
        for name, content in names.items():
            (Path(folder) / name).write_bytes(content)
        ended = run_git(Path(folder), ["merge-file", "-p", "-q", *names])
    if ended is None:
        raise Refused("--merge needs git, which is not installed: nothing was changed. Install it, or see --force.")
    if not 0 <= ended.returncode <= _MOST_CONFLICTS:
        raise Conflict("git cannot merge it as text")
    if ended.returncode:
        places = "1 place was" if ended.returncode == 1 else f"{ended.returncode} places were"
        raise Conflict(
            f"{places} edited where the migration had changed the code, the first near line {_first(ended.stdout)}"
        )
    if _is_whole(path, edited) and not _is_whole(path, ended.stdout):
        raise Conflict("the edits need the migration")
    return ended.stdout


def _first(merged: bytes) -> int:
    """Return the number of the line at which the first conflict begins."""
    lines = merged.split(b"\n")
    return next((number for number, line in enumerate(lines, 1) if line.startswith(_MARKER)), 1)


def _is_whole(path: str, content: bytes) -> bool:
    """Return whether a file has the format of its name, if that can be checked."""
    suffix = PurePosixPath(path).suffix
    try:
        if suffix == ".py":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(content)
        elif suffix == ".ipynb":
            json.loads(content)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True
