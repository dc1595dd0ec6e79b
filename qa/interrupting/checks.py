"""What an interrupted run left: which phase it was in, and whether every file is wholly the old or wholly the new one.

The journal is read here with ``json`` and not with the code that wrote it.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from .trees import Snapshot, snapshot

__all__ = ["PHASES", "Interrupted", "Sides", "look"]

JOURNAL = ".chirp-migrate"

#: Where an interruption can find a run, in the order in which it comes there. The first is before anything is written,
#: or after a run undid what it had written.
PHASES = (
    "nothing of it on disk",
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
class Sides:
    """The tree before and after the migration, without the journal."""

    before: Snapshot
    after: Snapshot

    @property
    def rewritten(self) -> list[str]:
        """Paths of files that are there on both sides and differ."""
        return [path for path, one in self.before.items() if path in self.after and self.after[path] != one]

    @property
    def added(self) -> list[str]:
        """Paths of files that only the migrated tree has."""
        return [path for path, one in self.after.items() if path not in self.before and one[0] == "file"]


@dataclass
class Interrupted:
    """What an interruption left.

    Attributes:
        phase: one of :data:`PHASES`.
        to_recover: whether the next command has something to bring to an end, and must say so.
        new: number of files that are as after the migration.
        problems: what is not as it must be, as sentences; the aim is none.
    """

    phase: str
    to_recover: bool
    new: int
    problems: list[str] = field(default_factory=list)


def look(root: Path, sides: Sides, compiled: set[str], *, rollback: bool = False) -> Interrupted:
    """Examine a tree between an interruption and the next command.

    Args:
        root: the tree.
        sides: how it may be.
        compiled: SHA-256 of sources known to compile; more are added.
        rollback: whether a rollback was interrupted.
    """
    tree = snapshot(root, journal=False)
    problems: list[str] = []
    for path in sorted({*tree, *sides.before, *sides.after}):
        if _TEMPORARY.fullmatch(Path(path).name):
            continue
        if tree.get(path) not in (sides.before.get(path), sides.after.get(path)):
            problems.append(f"{path} is neither the old nor the new one")
    changed = [path for path in sides.rewritten if tree.get(path) == sides.after[path]]
    missing = [path for path in sides.added if path not in tree]
    if changed and missing:
        problems.append(f"{changed[0]} is migrated and {missing[0]} is not there, so it may not be importable")
    problems += _not_compiling(root, tree, compiled)
    new = len(changed) + len(sides.added) - len(missing)
    phase, to_recover = _phase(root, sides, new, rollback, problems)
    return Interrupted(phase, to_recover, new, problems)


def _phase(root: Path, sides: Sides, new: int, rollback: bool, problems: list[str]) -> tuple[str, bool]:
    home = root / JOURNAL
    names = {path.name for path in home.iterdir()} if home.is_dir() else set()
    everything = len(sides.rewritten) + len(sides.added)
    if any(name.startswith("old-") for name in names):
        return "rolled back, journal not removed", True
    if any(name.startswith("new-") for name in names):
        if new:
            problems.append("files changed before the journal was complete")
        return "writing the journal", True
    if "0001" not in names:
        if new:
            problems.append("files changed without a journal")
        return ("rolled back" if rollback else "nothing of it on disk"), False
    journal = json.loads((home / "0001" / "journal.json").read_bytes())
    problems += _against_the_journal(root, journal)
    if journal["state"] == "applied":
        if new != everything:
            problems.append("the journal says applied, and not every file is")
        return "applied", False
    if journal["state"] == "rolling-back":
        return ("rolling back, no file changed" if new == everything else "rolling back"), True
    if not new:
        return "journal written, no file changed", True
    return ("replacing files" if new < everything else "all files changed, journal not sealed"), True


def _against_the_journal(root: Path, journal: dict[str, object]) -> list[str]:
    """Every file of the journal must be there as it was or as it is to be, and its original in the journal."""
    problems: list[str] = []
    files = journal["files"]
    assert isinstance(files, list)
    for file in files:
        try:
            now: str | None = hashlib.sha256((root / file["path"]).read_bytes()).hexdigest()
        except FileNotFoundError:
            now = None
        if now not in (file["sha256_before"], file["sha256_after"]):
            problems.append(f"{file['path']} is not what the journal says")
        if file["sha256_before"] is not None:
            kept = root / JOURNAL / "0001" / file["sha256_before"]
            if not kept.is_file() or hashlib.sha256(kept.read_bytes()).hexdigest() != file["sha256_before"]:
                problems.append(f"the original of {file['path']} is lost")
    return problems


def _not_compiling(root: Path, tree: Snapshot, compiled: set[str]) -> list[str]:
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
