"""Undo the changes of a run in a file but keep later edits of the user, with git's three-way merge."""

from __future__ import annotations

import ast
import json
import tempfile
import warnings
from pathlib import Path, PurePosixPath

from chirp_migrate.errors import WriteRefused
from chirp_migrate.source.git import run_git

#: Largest number of conflicts that ``git merge-file`` counts. A larger exit status means that the merge failed.
_MOST_CONFLICTS = 127
_MARKER = b"<<<<<<< "


class MergeConflict(Exception):
    """Raised if a file cannot be merged. The message is the reason."""


def three_way_merge(path: str, edited: bytes, base: bytes, other: bytes) -> bytes:
    """Undo the changes of ``apply`` in ``edited`` with ``git merge-file``, and return the result.

    Args:
        path: path of the file. If ``edited`` is valid Python (suffix ``.py``) or JSON (``.ipynb``), the result must
            also be valid.
        edited: the bytes of the file with later edits.
        base: the bytes that ``apply`` wrote, before the later edits.
        other: the bytes before ``apply``. The result differs from these bytes only by the later edits.

    Raises:
        MergeConflict: the later edits and ``apply`` changed the same lines, git cannot merge the file as text, or the
            merged file is not valid.
        WriteRefused: git is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-merge-") as folder:
        names = {"edited": edited, "base": base, "other": other}
        for name, content in names.items():
            (Path(folder) / name).write_bytes(content)
        ended = run_git(Path(folder), ["merge-file", "-p", "-q", *names])
    if ended is None:
        raise WriteRefused(
            "--merge needs git, which is not installed: nothing was changed. Install git, or run rollback with "
            "--force to lose the edits."
        )
    if not 0 <= ended.returncode <= _MOST_CONFLICTS:
        raise MergeConflict("git cannot merge the file as text")
    if ended.returncode:
        places = "1 place" if ended.returncode == 1 else f"{ended.returncode} places"
        line = _first_conflict_line(ended.stdout)
        raise MergeConflict(
            f"the migration and the later edits changed the same code in {places}, the first near line {line}"
        )
    if _is_valid(path, edited) and not _is_valid(path, ended.stdout):
        raise MergeConflict("without the code that the migration added, the edited file would not be valid")
    return ended.stdout


def _first_conflict_line(merged: bytes) -> int:
    """Return the number of the line at which the first conflict begins, counted from 1."""
    lines = merged.split(b"\n")
    return next((number for number, line in enumerate(lines, 1) if line.startswith(_MARKER)), 1)


def _is_valid(path: str, content: bytes) -> bool:
    """Return whether a Python file or notebook can be parsed; True for any other file."""
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
