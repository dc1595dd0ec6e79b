"""Examine the tree that an interrupted run left: the phase of the run, and the contents of all files.

Every file must be equal to its old or its new version. This module reads the journal with ``json`` and not with the
code that wrote the journal, so that an error in that code is not hidden.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from .trees import Snapshot, snapshot

__all__ = ["PHASES", "TreeState", "TreeVersions", "examine_tree"]

JOURNAL = ".chirp-migrate"

#: Phases in which a run can be interrupted, in the order of a run. In the first phase, the run has not written
#: anything, or has undone all its changes.
PHASES = (
    "nothing left on disk",
    "writing the journal",
    "journal written, no file changed",
    "replacing files",
    "all files changed, journal not sealed",
    "applied",
    "rolling back, no file changed",
    "rolling back",
    "rolled back, journal not removed",
    "rolled back",
)

_TEMPORARY = re.compile(r"\.chirp-migrate-\d{4,}-\d+\.tmp")


@dataclass(frozen=True)
class TreeVersions:
    """The tree before and after the migration, without the journal."""

    before: Snapshot
    after: Snapshot

    @property
    def rewritten(self) -> list[str]:
        """Return the paths of the files that are different in the two versions."""
        return [path for path, one in self.before.items() if path in self.after and self.after[path] != one]

    @property
    def added(self) -> list[str]:
        """Return the paths of the files that only the migrated version has."""
        return [path for path, one in self.after.items() if path not in self.before and one[0] == "file"]


@dataclass
class TreeState:
    """The state of the tree after an interruption.

    Attributes:
        phase: the phase of the interrupted run, one of :data:`PHASES`.
        needs_recovery: whether the next command must finish or undo the interrupted run, and must report this.
        migrated_files: number of files that are equal to their migrated version.
        problems: sentences on errors in the tree; empty for a correct tree.
    """

    phase: str
    needs_recovery: bool
    migrated_files: int
    problems: list[str] = field(default_factory=list)


def examine_tree(root: Path, versions: TreeVersions, compiled: set[str], *, rollback: bool = False) -> TreeState:
    """Examine a tree between an interruption and the next command.

    Args:
        root: the tree.
        versions: the tree before and after the migration.
        compiled: SHA-256 of Python sources that are known to compile. The function adds the sources that it compiles.
        rollback: True if a rollback was interrupted; False if ``apply`` was interrupted.
    """
    tree = snapshot(root, journal=False)
    problems: list[str] = []
    for path in sorted({*tree, *versions.before, *versions.after}):
        if _TEMPORARY.fullmatch(Path(path).name):
            continue
        if tree.get(path) not in (versions.before.get(path), versions.after.get(path)):
            problems.append(f"{path} is equal to neither the old nor the new version")
    changed = [path for path in versions.rewritten if tree.get(path) == versions.after[path]]
    missing = [path for path in versions.added if path not in tree]
    if changed and missing:
        problems.append(f"{changed[0]} is migrated, but may import {missing[0]}, which is missing")
    problems += _syntax_errors(root, tree, compiled)
    migrated = len(changed) + len(versions.added) - len(missing)
    phase, needs_recovery = _phase(root, versions, migrated, rollback, problems)
    return TreeState(phase, needs_recovery, migrated, problems)


def _phase(root: Path, versions: TreeVersions, migrated: int, rollback: bool, problems: list[str]) -> tuple[str, bool]:
    """Return the phase of the interrupted run, and whether the run needs recovery. Append errors to ``problems``."""
    home = root / JOURNAL
    names = {path.name for path in home.iterdir()} if home.is_dir() else set()
    everything = len(versions.rewritten) + len(versions.added)
    if any(name.startswith("old-") for name in names):
        return "rolled back, journal not removed", True
    if any(name.startswith("new-") for name in names):
        if migrated:
            problems.append("files changed before the journal was complete")
        return "writing the journal", True
    if "0001" not in names:
        if migrated:
            problems.append("files changed without a journal")
        return ("rolled back" if rollback else PHASES[0]), False
    journal = json.loads((home / "0001" / "journal.json").read_bytes())
    problems += _differences_from_journal(root, journal)
    if journal["state"] == "applied":
        if migrated != everything:
            problems.append("the state in the journal is `applied`, but some files are not migrated")
        return "applied", False
    if journal["state"] == "rolling-back":
        return ("rolling back, no file changed" if migrated == everything else "rolling back"), True
    if not migrated:
        return "journal written, no file changed", True
    return ("replacing files" if migrated < everything else "all files changed, journal not sealed"), True


def _differences_from_journal(root: Path, journal: dict[str, object]) -> list[str]:
    """Return a sentence for each file that differs from the journal, or whose original the journal lacks.

    A file is correct if its hash is the hash before or the hash after the run.
    """
    problems: list[str] = []
    files = journal["files"]
    assert isinstance(files, list)
    for file in files:
        try:
            now: str | None = hashlib.sha256((root / file["path"]).read_bytes()).hexdigest()
        except FileNotFoundError:
            now = None
        if now not in (file["sha256_before"], file["sha256_after"]):
            problems.append(f"{file['path']} has neither the old nor the new hash in the journal")
        if file["sha256_before"] is not None:
            kept = root / JOURNAL / "0001" / file["sha256_before"]
            if not kept.is_file() or hashlib.sha256(kept.read_bytes()).hexdigest() != file["sha256_before"]:
                problems.append(f"the journal lacks the original of {file['path']}")
    return problems


def _syntax_errors(root: Path, tree: Snapshot, compiled: set[str]) -> list[str]:
    problems: list[str] = []
    for path, (kind, _, content) in tree.items():
        if kind != "file" or not path.endswith(".py") or content in compiled:
            continue
        try:
            compile((root / path).read_bytes(), path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            problems.append(f"{path} does not compile: {error}")
        else:
            compiled.add(content)
    return problems
