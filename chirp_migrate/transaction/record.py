"""The form of ``journal.json``, read as something that anybody may have changed.

Schema 1: ``schema``, ``tool`` (version that wrote it), ``state``, ``created`` (UTC), ``folders`` (made by the run) and
``files``: each with ``path``, ``action`` (``rewrite`` or ``create``), ``mode`` (permission bits before; null for a
created file), ``sha256_before`` (null for a created file) and ``sha256_after``; while a rollback is under way also
``sha256_found`` and ``mode_found``, what it found in place.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

__all__ = [
    "JOURNAL_FOLDER",
    "SCHEMA",
    "JournalFile",
    "NewerRecord",
    "Record",
    "State",
    "Version",
    "checked_path",
    "read_record",
    "write_record",
]

#: Where runs are recorded, directly under the root of the project (see :func:`journal_root`).
JOURNAL_FOLDER = ".chirp-migrate"

#: Version of the form.
SCHEMA = 1

_HASH = re.compile(r"[0-9a-f]{64}")
_NOT_THE_BACKENDS = frozenset({".git", JOURNAL_FOLDER})


class NewerRecord(ValueError):
    """A newer version of chirp-migrate wrote it; ``tool`` says which, as far as can be told."""

    def __init__(self, schema: int, tool: object) -> None:
        super().__init__(f"its form is {schema}, and this version of chirp-migrate reads {SCHEMA}")
        self.tool = tool if isinstance(tool, str) else "unknown version"


class State(str, Enum):
    """Where a run stands. Only ``APPLIED`` is ever seen while nobody is at work, unless somebody was interrupted."""

    PENDING = "pending"
    APPLIED = "applied"
    ROLLING_BACK = "rolling-back"


@dataclass(frozen=True)
class Version:
    """Content and permission bits of a file at one time; ``mode`` is None where a file gets what the umask gives."""

    sha256: str
    mode: int | None


@dataclass(frozen=True)
class JournalFile:
    """One file of a run.

    Attributes:
        path: posix path relative to the root, with every link on the way already followed.
        before: what it was, or what a rollback that keeps later edits makes of it; None when the run created it.
        after: what the run made of it.
        found: what a rollback that is under way found in its place; None otherwise, and when it found nothing.
    """

    path: str
    before: Version | None
    after: Version
    found: Version | None = None

    @property
    def action(self) -> str:
        """``rewrite`` or ``create``."""
        return "create" if self.before is None else "rewrite"

    @property
    def mode(self) -> int | None:
        """Permission bits before the run; None when the run created the file."""
        return None if self.before is None else self.before.mode

    @property
    def sha256_before(self) -> str | None:
        """Hash of the bytes before the run; None when the run created the file."""
        return None if self.before is None else self.before.sha256

    @property
    def sha256_after(self) -> str:
        """Hash of the bytes that the run wrote."""
        return self.after.sha256


@dataclass(frozen=True)
class Record:
    """All that ``journal.json`` says.

    Attributes:
        state: where the run stands.
        created: when it was begun, ISO 8601 in UTC.
        tool: version of chirp-migrate that wrote it.
        files: its files, in the order in which they are written.
        folders: posix paths of folders it made, parents first.
    """

    state: State
    created: str
    tool: str
    files: tuple[JournalFile, ...]
    folders: tuple[str, ...]


def write_record(record: Record) -> bytes:
    """The record as the bytes of ``journal.json``."""
    files: list[dict[str, object]] = []
    for file in record.files:
        entry: dict[str, object] = {
            "path": file.path,
            "action": file.action,
            "mode": file.mode,
            "sha256_before": file.sha256_before,
            "sha256_after": file.sha256_after,
        }
        if file.found is not None:
            entry |= {"sha256_found": file.found.sha256, "mode_found": file.found.mode}
        files.append(entry)
    whole = {
        "schema": SCHEMA,
        "tool": record.tool,
        "state": record.state.value,
        "created": record.created,
        "folders": list(record.folders),
        "files": files,
    }
    return (json.dumps(whole, indent=2) + "\n").encode("ascii")


def read_record(content: bytes) -> Record:
    """The record that :func:`write_record` wrote.

    Raises:
        NewerRecord: a newer version wrote it.
        ValueError: it is not one, or it names a path that no journal may touch.
    """
    try:
        whole = json.loads(content)
        if type(whole["schema"]) is int and whole["schema"] > SCHEMA:
            raise NewerRecord(whole["schema"], whole.get("tool"))
        if whole["schema"] != SCHEMA:
            raise ValueError(f"its schema is {whole['schema']!r}, and this version of chirp-migrate reads {SCHEMA}")
        files = tuple(_read_file(entry) for entry in whole["files"])
        if len({file.path for file in files}) != len(files):
            raise ValueError("it names a file twice")
        folders = tuple(checked_path(path) for path in whole["folders"])
        return Record(State(whole["state"]), str(whole["created"]), str(whole["tool"]), files, folders)
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not built as a journal is: {error}") from error


def checked_path(path: object) -> str:
    """``path`` itself if it is a plain relative posix path that stays below its root.

    Raises:
        ValueError: it is not, or it leads into a journal or into git's own files.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"{path!r} is not a path")
    pure = PurePosixPath(path)
    plain = str(pure) == path and not pure.is_absolute() and ".." not in pure.parts and path != "."
    if os.name == "nt" and ("\\" in path or ":" in path):
        plain = False
    if not plain:
        raise ValueError(f"the path {path!r} leads outside the tree")
    if any(part.lower() in _NOT_THE_BACKENDS for part in pure.parts):
        raise ValueError(f"the path {path!r} is not the project's")
    return path


def _read_file(entry: Mapping[str, Any]) -> JournalFile:
    path = checked_path(entry["path"])
    after = Version(_hash(entry["sha256_after"]), None)
    found = None
    if entry.get("sha256_found") is not None:
        found = Version(_hash(entry["sha256_found"]), _mode(entry["mode_found"]))
    if entry["action"] == "create":
        if entry["sha256_before"] is not None:
            raise ValueError(f"{path} is said to be created from something")
        return JournalFile(path, None, after, found)
    if entry["action"] != "rewrite":
        raise ValueError(f"the action {entry['action']!r} is unknown")
    before = Version(_hash(entry["sha256_before"]), _mode(entry["mode"]))
    return JournalFile(path, before, replace(after, mode=before.mode), found)


def _hash(value: object) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ValueError(f"{value!r} is not a SHA-256")
    return value


def _mode(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 0o7777:
        raise ValueError(f"{value!r} are not permission bits")
    return value
