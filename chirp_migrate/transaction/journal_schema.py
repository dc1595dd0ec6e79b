"""The format of ``journal.json``, which records the state and the files of a run of ``apply``.

The reader checks the whole file, because any program may have changed the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Annotated, Final, Literal

import msgspec

#: Name of the folder, at the root of the project, in which runs are recorded (see ``journal.journal_folder``).
JOURNAL_FOLDER = ".chirp-migrate"

#: Version of the format of ``journal.json``.
SCHEMA: Final = 1

_NOT_THE_BACKENDS = frozenset({".git", JOURNAL_FOLDER})
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
_Mode = Annotated[int, msgspec.Meta(ge=0, le=0o7777)]


class RunState(str, Enum):
    """The state of a run of ``apply``, as the journal records the state.

    ``PENDING``: the run is being applied. ``APPLIED``: all files of the run are written. ``ROLLING_BACK``: the run is
    being undone. ``PENDING`` and ``ROLLING_BACK`` occur only while a command changes files, or after a command was
    interrupted.
    """

    PENDING = "pending"
    APPLIED = "applied"
    ROLLING_BACK = "rolling-back"


@dataclass(frozen=True)
class FileVersion:
    """The content and the permission bits of a file at one time.

    Attributes:
        sha256: the SHA-256 of the content.
        mode: the permission bits; None for the default bits of a new file (from the umask).
    """

    sha256: str
    mode: int | None


class JournalFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a run.

    Attributes:
        path: posix path relative to the root, with links resolved.
        mode: permission bits before the run; None if the run created the file. During a rollback with ``--merge``, the
            value is the permission bits that the merged file gets.
        sha256_before: the SHA-256 of the bytes before the run; None if the run created the file. During a rollback with
            ``--merge``, the value is the SHA-256 of the merged bytes.
        sha256_after: the SHA-256 of the bytes that the run wrote.
        sha256_found: the SHA-256 of the file when a rollback began; None without a rollback, or if the file did not
            exist.
        mode_found: permission bits of the file when a rollback began; None without a rollback, or if the file did not
            exist.
    """

    path: str
    mode: _Mode | None
    sha256_before: _Hash | None
    sha256_after: _Hash
    sha256_found: _Hash | None = None
    mode_found: _Mode | None = None

    @classmethod
    def of(cls, path: str, before: FileVersion | None, after: str, found: FileVersion | None = None) -> JournalFile:
        """Return the record of a file.

        Args:
            path: posix path relative to the root.
            before: the version before the run; None if the run creates the file.
            after: the SHA-256 of the bytes that the run writes.
            found: the version at the start of a rollback; None without a rollback, or if the file did not exist.
        """
        return cls(
            path=path,
            mode=None if before is None else before.mode,
            sha256_before=None if before is None else before.sha256,
            sha256_after=after,
            sha256_found=None if found is None else found.sha256,
            mode_found=None if found is None else found.mode,
        )

    def __post_init__(self) -> None:
        check_relative_path(self.path)
        if (self.sha256_before is None) != (
            self.mode is None
        ):  # a created file has neither content nor permission bits before the run
            raise ValueError(f"the record of {self.path} lacks the earlier content or the earlier permissions")
        if self.sha256_found is not None and self.mode_found is None:
            raise ValueError(f"the record of {self.path} lacks the earlier permissions")

    @property
    def before(self) -> FileVersion | None:
        """Return the version before the run; None for a created file."""
        return None if self.sha256_before is None else FileVersion(self.sha256_before, self.mode)

    @property
    def after(self) -> FileVersion:
        """Return the version that the run wrote."""
        return FileVersion(self.sha256_after, self.mode)

    @property
    def found(self) -> FileVersion | None:
        """Return the version at the start of a rollback; None without a rollback, or if the file did not exist."""
        return None if self.sha256_found is None else FileVersion(self.sha256_found, self.mode_found)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of ``journal.json``.

    Attributes:
        tool: version of chirp-migrate that wrote the record.
        state: the state of the run.
        created: time at which the run began, as ISO 8601 in UTC.
        folders: posix paths of the folders that the run created; parents come before their subfolders.
        files: the files of the run, in the order of the plan.
    """

    schema: Literal[1] = SCHEMA
    tool: str
    state: RunState
    created: str
    folders: tuple[str, ...]
    files: tuple[JournalFile, ...]

    def __post_init__(self) -> None:
        for path in self.folders:
            check_relative_path(path)
        if len({file.path for file in self.files}) != len(self.files):
            raise ValueError("the journal lists a file twice")


def check_relative_path(path: str) -> str:
    """Return ``path`` unchanged if it is a plain relative posix path that stays below the root of the project.

    Raises:
        ValueError: the path has another form, or contains a part ``.git`` or ``.chirp-migrate`` (the journal).
    """
    if not path or "\0" in path:
        raise ValueError(f"{path!r} is not a valid path")
    pure = PurePosixPath(path)
    plain = str(pure) == path and not pure.is_absolute() and ".." not in pure.parts and path != "."
    if isinstance(PurePath(), PureWindowsPath) and ("\\" in path or ":" in path):
        plain = False
    if not plain:
        raise ValueError(f"the path {path!r} leads outside the project")
    if any(part.lower() in _NOT_THE_BACKENDS for part in pure.parts):
        raise ValueError(f"the path {path!r} is not a file of the project")
    return path
