"""What the migrated project is compared with: the journal's originals, a git revision, or a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.engine.discover import journal_root
from chirp_migrate.source.git import ignored_paths, run_git
from chirp_migrate.training.errors import InvalidTree, NotMigrated
from chirp_migrate.training.process.snapshot import LARGEST_FILE, copy_tree, restore
from chirp_migrate.transaction.journal import applied_runs

__all__ = ["Before", "before_side"]

_EXECUTABLE, _LINK = "100755", "120000"


@dataclass(frozen=True)
class Before:
    """The side before, not yet made.

    Attributes:
        described: what it is, for the report.
        write: makes it as a new folder; gives what was left out for its size.
    """

    described: str
    write: Callable[[Path], tuple[str, ...]]


def before_side(root: Path, against: str | None) -> Before:
    """Find the side before; nothing is written, and git's index and work tree are only read.

    Args:
        root: the migrated project.
        against: a folder, or else a git revision of the repository that ``root`` lies in; None for the files before
            ``apply``, from its journal.

    Raises:
        NotMigrated: ``against`` is None and nothing is applied.
        InvalidTree: ``against`` is neither a folder nor a revision that has ``root``.
        JournalDamaged: a journal cannot be read or trusted.
    """
    if against is None:
        originals = original_files(root)
        return Before("the files before `apply`, from its journal", lambda target: _as_before(root, originals, target))
    folder = Path(against)
    if folder.is_dir():
        folder = folder.resolve()
        if folder == root:
            raise InvalidTree(f"--baseline {against} is PATH itself: give the folder of the project before.")
        return Before(f"the folder {folder}", lambda target: copy_tree(folder, target))
    revision = _Revision.find(root, against)
    return Before(f"git revision {against} ({revision.commit[:12]})", revision.write)


def original_files(root: Path) -> dict[str, bytes | None]:
    """Bytes before the first applied run, by posix path relative to ``root``; None for files that a run created.

    Raises:
        NotMigrated: nothing is applied there.
        JournalDamaged: a journal cannot be read or trusted.
    """
    project = journal_root(root)
    below = f"{root.resolve().relative_to(project).as_posix()}/".removeprefix("./")
    originals: dict[str, bytes | None] = {}
    for run in applied_runs(project):
        for file in run.files:
            path = file.path.removeprefix(below)
            # The first run to touch a file knows its original.
            if file.path.startswith(below) and path not in originals:
                originals[path] = None if file.before is None else run.original(file.path)
    if not originals:
        raise NotMigrated(
            f"nothing was applied in {root}: run `chirp-migrate apply {root}` first, then verify it. To compare with "
            "something else, give --baseline a revision or folder."
        )
    return originals


def _as_before(root: Path, originals: dict[str, bytes | None], target: Path) -> tuple[str, ...]:
    too_large = copy_tree(root, target)
    restore(target, originals)
    return too_large


@dataclass(frozen=True)
class _Revision:
    """The folder ``root`` at a commit; ``prefix`` is its path from the top of the repository, empty or ending in /."""

    root: Path
    commit: str
    prefix: str

    @classmethod
    def find(cls, root: Path, revision: str) -> _Revision:
        neither = f"--baseline {revision} is neither a folder nor a git revision"
        place = _git(root, ["rev-parse", "--show-prefix"])
        if place is None:
            raise InvalidTree(f"{neither}: {root} is in no git work tree, or git is not installed.")
        found = _git(root, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"])
        if found is None:
            raise InvalidTree(f"{neither} of {root}: give a commit, a branch, a tag or a folder.")
        self = cls(root, found.decode("ascii").strip(), os.fsdecode(place).removesuffix("\n"))
        if self._list() is None:
            raise InvalidTree(f"git revision {revision} has no folder {self.prefix}: give a later one.")
        return self

    def write(self, target: Path) -> tuple[str, ...]:
        """The revision's files, with what git ignores today (data, compiled modules, configuration) beside them."""
        too_large = set(copy_tree(self.root, target))
        ignored = ignored_paths(self.root)
        for path in [path for path in target.rglob("*") if not path.is_dir()]:
            name = path.relative_to(target).as_posix()
            if name not in ignored and not any(name.startswith(one) for one in ignored if one.endswith("/")):
                path.unlink()
        entries = self._list() or {}
        wanted = {name: entry for name, entry in entries.items() if entry.size <= LARGEST_FILE}
        contents = self._contents(list(dict.fromkeys(entry.object for entry in wanted.values())))
        files: dict[str, bytes | None] = {
            name: contents[entry.object] for name, entry in wanted.items() if entry.mode != _LINK
        }
        for name, entry in wanted.items():
            if entry.mode == _LINK:
                meant = os.path.normpath(Path(name).parent / os.fsdecode(contents[entry.object]))
                if files.get(meant) is not None:  # as in a copy: a link to a file becomes a file
                    files[name] = files[meant]
        restore(target, files)
        for name, entry in wanted.items():
            if entry.mode == _EXECUTABLE:
                (target / name).chmod(0o755)
        return tuple(sorted(too_large | (entries.keys() - wanted.keys())))

    def _list(self) -> dict[str, _Entry] | None:
        """Files and links by name; submodules are left out."""
        tree = f"{self.commit}:{self.prefix}"
        listed = _git(self.root, ["ls-tree", "-r", "-z", "-l", "--full-tree", tree])
        if listed is None:
            return None
        entries = {}
        for line in listed.split(b"\0"):
            facts, _, name = line.partition(b"\t")
            if name:
                mode, kind, name_of_object, size = facts.decode("ascii").split()
                if kind == "blob":
                    entries[os.fsdecode(name)] = _Entry(mode, name_of_object, int(size))
        return entries

    def _contents(self, names: list[str]) -> dict[str, bytes]:
        """Bytes of git's objects."""
        answer = _git(self.root, ["cat-file", "--batch"], "".join(f"{name}\n" for name in names).encode())
        found: dict[str, bytes] = {}
        start = 0
        for name in names:
            header = b"" if answer is None else answer[start : answer.find(b"\n", start)]
            parts = header.decode("ascii", errors="replace").split()
            if answer is None or len(parts) != 3:
                raise InvalidTree(
                    f"git has no content for a file of {self.commit[:12]} in {self.root}: fetch all of it first."
                )
            begin = start + len(header) + 1
            start = begin + int(parts[2])
            found[name] = answer[begin:start]
            start += 1
        return found


@dataclass(frozen=True)
class _Entry:
    mode: str
    object: str
    size: int


def _git(folder: Path, arguments: Sequence[str], given: bytes = b"") -> bytes | None:
    """Output of a git command that only reads; None when it fails. Nothing is fetched from elsewhere."""
    ended = run_git(folder, arguments, given, fetch=False)
    return ended.stdout if ended is not None and ended.returncode == 0 else None
