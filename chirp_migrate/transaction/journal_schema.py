"""``journal.json``: the state of a run and its files, read as data that any program may have changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Annotated, Final, Literal

import msgspec

from chirp_migrate.console.json_document import as_bytes, read_as, read_json

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

#: Where runs are recorded, directly under the root of the project (see ``journal.journal_folder``).
JOURNAL_FOLDER = ".chirp-migrate"

#: Version of the schema.
SCHEMA: Final = 1

_NOT_THE_BACKENDS = frozenset({".git", JOURNAL_FOLDER})
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
_Mode = Annotated[int, msgspec.Meta(ge=0, le=0o7777)]


class NewerRecord(ValueError):
    """A newer version of chirp-migrate wrote the record; ``tool`` is that version, if known."""

    def __init__(self, schema: int, tool: object) -> None:
        super().__init__(f"its schema is {schema}, and this version of chirp-migrate reads {SCHEMA}")
        self.tool = tool if isinstance(tool, str) else "unknown version"


class State(str, Enum):
    """The state of a run. Other states than ``APPLIED`` only occur during a run or after an interruption."""

    PENDING = "pending"
    APPLIED = "applied"
    ROLLING_BACK = "rolling-back"


@dataclass(frozen=True)
class Version:
    """Content and permission bits of a file at one time; ``mode`` None: the bits follow from the umask."""

    sha256: str
    mode: int | None


class JournalFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a run.

    Attributes:
        path: posix path relative to the root, with links resolved.
        action: ``create`` if the run created it.
        mode: permission bits before the run, or those that a rollback with merged edits sets.
        sha256_before: hash before the run, or after a rollback with merged edits; None if the run created the file.
        sha256_after: hash of the bytes that the run wrote.
        sha256_found, mode_found: the version that a running rollback found; None without a running rollback, or if it
            found no file.
    """

    path: str
    action: Literal["rewrite", "create"]
    mode: _Mode | None
    sha256_before: _Hash | None
    sha256_after: _Hash
    sha256_found: _Hash | None = None
    mode_found: _Mode | None = None

    @classmethod
    def of(cls, path: str, before: Version | None, after: str, found: Version | None = None) -> JournalFile:
        """Return the record of a file that was ``before`` (None: nothing) and gets bytes with the hash ``after``."""
        return cls(
            path=path,
            action="create" if before is None else "rewrite",
            mode=None if before is None else before.mode,
            sha256_before=None if before is None else before.sha256,
            sha256_after=after,
            sha256_found=None if found is None else found.sha256,
            mode_found=None if found is None else found.mode,
        )

    def __post_init__(self) -> None:
        checked_path(self.path)
        if self.action == "create" and self.sha256_before is not None:
            raise ValueError(f"{self.path} is a created file, but the journal names its earlier bytes")
        if self.action == "rewrite" and (self.sha256_before is None or self.mode is None):
            raise ValueError(f"the earlier content of {self.path} is missing")
        if self.sha256_found is not None and self.mode_found is None:
            raise ValueError(f"the earlier mode of {self.path} is missing")

    @property
    def before(self) -> Version | None:
        """Return the version before the run; None for a created file."""
        return None if self.sha256_before is None else Version(self.sha256_before, self.mode)

    @property
    def after(self) -> Version:
        """Return the version after the run."""
        return Version(self.sha256_after, None if self.action == "create" else self.mode)

    @property
    def found(self) -> Version | None:
        """Return the version that a rollback found."""
        return None if self.sha256_found is None else Version(self.sha256_found, self.mode_found)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``journal.json``.

    Attributes:
        tool: version of chirp-migrate that wrote it.
        state: the state of the run.
        created: time of its beginning, ISO 8601 in UTC.
        folders: posix paths of the folders that it created, parents first.
        files: its files, in the order in which they are written.
    """

    schema: Literal[1] = SCHEMA
    tool: str
    state: State
    created: str
    folders: tuple[str, ...]
    files: tuple[JournalFile, ...]

    def __post_init__(self) -> None:
        for path in self.folders:
            checked_path(path)
        if len({file.path for file in self.files}) != len(self.files):
            raise ValueError("it names a file twice")


def write_record(record: Record) -> bytes:
    """Return the record as the bytes of ``journal.json``."""
    return as_bytes(record)


def read_record(content: bytes) -> Record:
    """Return the record that :func:`write_record` wrote.

    Raises:
        NewerRecord: a newer version wrote it.
        ValueError: it is no record, or it contains a path that no journal may change.
    """
    found = read_json(content)
    schema = found.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise NewerRecord(schema, found.get("tool"))
    return read_as(found, Record)


def checked_path(path: str) -> str:
    """Return ``path`` itself if it is a plain relative posix path that stays below its root.

    Raises:
        ValueError: it is not such a path, or it leads into a journal or into git's own files.
    """
    if not path or "\0" in path:
        raise ValueError(f"{path!r} is not a path")
    pure = PurePosixPath(path)
    plain = str(pure) == path and not pure.is_absolute() and ".." not in pure.parts and path != "."
    if isinstance(PurePath(), PureWindowsPath) and ("\\" in path or ":" in path):
        plain = False
    if not plain:
        raise ValueError(f"the path {path!r} leads outside the tree")
    if any(part.lower() in _NOT_THE_BACKENDS for part in pure.parts):
        raise ValueError(f"the path {path!r} is not the project's")
    return path
