"""Find the version before the migration: the files in the journal of ``apply``, a git revision, or a folder."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from chirp_migrate.engine.discover import journal_root
from chirp_migrate.errors import UsageProblem
from chirp_migrate.source.git import ignored_paths, run_git
from chirp_migrate.training.errors import NoTrainingFound
from chirp_migrate.training.process.snapshot import LARGEST_FILE, copy_tree, write_originals
from chirp_migrate.transaction.journal import applied_runs

_EXECUTABLE, _LINK = "100755", "120000"


@dataclass(frozen=True)
class OriginalVersion:
    """The version of the project before the migration, with a function that writes the version to a folder.

    Attributes:
        described: description of the version for the report, such as ``the folder /home/me/original``.
        write: function that gets the path of a new folder, and writes the version to this folder. The function returns
            the paths of files that are too large to copy.
    """

    described: str
    write: Callable[[Path], tuple[str, ...]]


def find_original_version(root: Path, baseline: str | None) -> OriginalVersion:
    """Find the version before the migration. The function changes neither files nor the git work tree.

    Args:
        root: the migrated project.
        baseline: path of a folder, or a git revision in the repository that contains ``root``. None stands for the
            files before ``apply``, which are in the journal of ``apply``.

    Raises:
        UsageProblem: the argument ``baseline`` is None, but the journal has no original files. Either ``apply`` changed
            no file, or all its runs are rolled back.
        NoTrainingFound: the argument ``baseline`` is neither a folder nor a revision that contains ``root``.
        JournalDamaged: a journal cannot be read, or is invalid. For example, it lists a path outside the project.
    """
    if baseline is None:
        originals = original_files(root)
        return OriginalVersion(
            "the files before `apply`, from its journal", lambda target: _write_version_before(root, originals, target)
        )
    folder = Path(baseline)
    if folder.is_dir():
        folder = folder.resolve()
        if folder == root:
            raise NoTrainingFound(
                f"--baseline {baseline} is the folder PATH itself: pass the folder of the project before the migration."
            )
        return OriginalVersion(f"the folder {folder}", lambda target: copy_tree(folder, target))
    if folder.is_file():
        raise NoTrainingFound(
            f"--baseline {baseline} is a file: pass the folder of the project before the migration, or a git revision."
        )
    return _find_revision(root, baseline)


def original_files(root: Path) -> dict[str, bytes | None]:
    """Return a dictionary: path of a file that ``apply`` changed → its original bytes.

    The paths are POSIX paths relative to ``root``. The value is None if ``apply`` added the file.

    Raises:
        UsageProblem: the command ``apply`` changed no file below ``root``, or all its runs are rolled back.
        JournalDamaged: a journal cannot be read, or is invalid. For example, it lists a path outside the project.
    """
    project = journal_root(root)
    below = f"{root.resolve().relative_to(project).as_posix()}/".removeprefix("./")
    originals: dict[str, bytes | None] = {}
    for run in applied_runs(project):
        for file in run.files:
            path = file.path.removeprefix(below)
            # Several runs may have changed a file. The journal of the first of these runs has the original bytes.
            if file.path.startswith(below) and path not in originals:
                originals[path] = None if file.before is None else run.original(file.path)
    if not originals:
        raise UsageProblem(
            f"nothing was applied in {root}: run `chirp-migrate apply {root}` first. To compare with another version, "
            "pass --baseline with a git revision or a folder."
        )
    return originals


def _write_version_before(root: Path, originals: dict[str, bytes | None], target: Path) -> tuple[str, ...]:
    too_large = copy_tree(root, target)
    write_originals(target, originals)
    return too_large


class _RevisionFile(NamedTuple):
    """A file or symbolic link in a git revision."""

    name: str
    mode: str
    object: str
    size: int


def _find_revision(root: Path, revision: str) -> OriginalVersion:
    neither = f"--baseline {revision} is neither a folder nor a git revision"
    place = _git(root, ["rev-parse", "--show-prefix"])
    if place is None:
        raise NoTrainingFound(f"{neither}: {root} is not in a git work tree, or git is not installed.")
    answer = _git(root, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"])
    if answer is None:
        raise NoTrainingFound(f"{neither} of {root}: pass a commit, a branch, a tag or a folder.")
    # The prefix is the path from the top of the repository to ``root``. The prefix is empty or ends in /.
    prefix, commit = os.fsdecode(place).removesuffix("\n"), answer.decode("ascii").strip()
    listed = _git(root, ["ls-tree", "-r", "-z", "-l", "--full-tree", f"{commit}:{prefix}"])
    if listed is None:
        raise NoTrainingFound(f"git revision {revision} has no folder {prefix}: pass a later revision.")
    files = []
    for line in listed.split(b"\0")[:-1]:
        facts, _, name = line.partition(b"\t")
        mode, kind, name_of_object, size = facts.decode("ascii").split()
        if kind == "blob":  # submodules are skipped
            files.append(_RevisionFile(os.fsdecode(name), mode, name_of_object, int(size)))
    return OriginalVersion(
        f"git revision {revision} ({commit[:12]})", lambda target: _write_revision(root, commit, files, target)
    )


def _write_revision(root: Path, commit: str, files: Sequence[_RevisionFile], target: Path) -> tuple[str, ...]:
    """Write the files of a git revision to ``target``, and copy files that git ignores, such as data, from ``root``."""
    too_large = {*copy_tree(root, target), *(file.name for file in files if file.size > LARGEST_FILE)}
    ignored = ignored_paths(root)
    ignored_folders = tuple(path for path in ignored if path.endswith("/"))
    for path in [path for path in target.rglob("*") if not path.is_dir()]:
        name = path.relative_to(target).as_posix()
        if name not in ignored and not name.startswith(ignored_folders):
            path.unlink()
    wanted = [file for file in files if file.size <= LARGEST_FILE]
    objects = _read_objects(root, commit, list(dict.fromkeys(file.object for file in wanted)))
    contents: dict[str, bytes | None] = {file.name: objects[file.object] for file in wanted if file.mode != _LINK}
    for file in wanted:
        if file.mode == _LINK:
            meant = os.path.normpath(Path(file.name).parent / os.fsdecode(objects[file.object]))
            if contents.get(meant) is not None:  # write a file instead of the link, like `copy_tree`
                contents[file.name] = contents[meant]
    write_originals(target, contents)
    for file in wanted:
        if file.mode == _EXECUTABLE:
            (target / file.name).chmod(0o755)
    return tuple(sorted(too_large))


def _read_objects(root: Path, commit: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return a dictionary: name of a git object → its bytes."""
    answer = io.BytesIO(_git(root, ["cat-file", "--batch"], "".join(f"{name}\n" for name in names).encode()) or b"")
    contents = {}
    for name in names:
        header = answer.readline().split()
        if len(header) != 3:
            raise NoTrainingFound(
                f"git lacks the content of a file of revision {commit[:12]} in {root}: fetch this revision first."
            )
        contents[name] = answer.read(int(header[2]))
        answer.readline()
    return contents


def _git(folder: Path, arguments: Sequence[str], given: bytes = b"") -> bytes | None:
    """Run a git command, and return its output; None if the command fails.

    Pass only commands that read. Git does not download objects that a partial clone lacks.
    """
    ended = run_git(folder, arguments, given, may_fetch=False)
    return ended.stdout if ended is not None and ended.returncode == 0 else None
