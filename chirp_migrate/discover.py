"""Which Python files a run looks at, and which it leaves out and why."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.errors import UsageProblem
from chirp_migrate.gitguard import ignored_paths
from chirp_migrate.plan import Skipped
from chirp_migrate.scaffold import SCAFFOLD_PATHS, is_scaffold

__all__ = ["JOURNAL_FOLDER", "Discovery", "discover", "root_of"]

#: Where runs are recorded, directly under the root.
JOURNAL_FOLDER = ".chirp-migrate"

#: A file above this size is generated data rather than code that somebody maintains.
LARGEST_FILE_BYTES = 4 * 1024**2

#: Folders that hold no source of the backend, and what they are.
_FOLDERS = {
    ".chirp-migrate": "the journal of earlier runs",
    ".eggs": "build output",
    ".git": "version control",
    ".hg": "version control",
    ".hypothesis": "a cache",
    ".ipynb_checkpoints": "a cache",
    ".mypy_cache": "a cache",
    ".nox": "a virtual environment",
    ".pytest_cache": "a cache",
    ".ruff_cache": "a cache",
    ".svn": "version control",
    ".tox": "a virtual environment",
    "__pycache__": "a cache",
    "build": "build output",
    "dist": "build output",
    "node_modules": "installed packages",
    "site-packages": "installed packages",
}


@dataclass(frozen=True)
class Discovery:
    """Result of :func:`discover`.

    Attributes:
        root: absolute folder that the paths are relative to.
        files: posix paths of the Python files to look at, sorted.
        notebooks: posix paths of the notebooks beside them, sorted.
        left_out: folders and files that were not looked at, sorted, with the reason.
    """

    root: Path
    files: tuple[str, ...]
    notebooks: tuple[str, ...]
    left_out: tuple[Skipped, ...]


def root_of(path: Path) -> Path:
    """The absolute folder a run on ``path`` works in: ``path`` itself, or the folder of a single file.

    Raises:
        UsageProblem: there is nothing at ``path``, or it is neither a file nor a folder.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageProblem(f"{path} cannot be opened ({error.strerror}): give the folder of your backend.") from None
    except ValueError:
        raise UsageProblem("the path contains a NUL character: give the folder of your backend.") from None
    if stat.S_ISDIR(mode):
        return path.resolve()
    if stat.S_ISREG(mode):
        return path.resolve().parent
    raise UsageProblem(f"{path} is neither a folder nor a file: give the folder of your backend.")


def discover(path: Path) -> Discovery:
    """Find the Python files and notebooks at or below ``path``; only names are looked at.

    Left out are what an earlier ``apply`` added, version control, virtual environments, installed packages, caches,
    build output, a vendored ``chirpid_patch``, links that leave the tree, Python files above 4 MiB, and what git
    ignores (unless git ignores ``path`` itself: then it was named on purpose).

    Raises:
        UsageProblem: ``path`` does not exist or holds no Python file.
    """
    root = root_of(path)
    if not path.is_dir():
        if path.suffix != ".py":
            raise UsageProblem(f"{path} is not a Python file: give a .py file or the folder of your backend.")
        return Discovery(root, (path.resolve().name,), (), ())
    ignored = ignored_paths(root)
    left_out: list[Skipped] = []
    found = sorted(_walk(root, ignored, left_out))
    files = tuple(name for name in found if name.endswith(".py"))
    notebooks = tuple(name for name in found if name.endswith(".ipynb"))
    if not files:
        left = sorted({one.reason for one in left_out})
        why = f" (left out: {', '.join(left)})" if left else ""
        raise UsageProblem(f"{path} holds no Python file to migrate{why}: give the folder of your backend.")
    return Discovery(root, files, notebooks, tuple(sorted(left_out, key=lambda one: one.path)))


def _walk(root: Path, ignored: frozenset[str], left_out: list[Skipped]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        where = Path(error.filename).relative_to(root).as_posix()
        left_out.append(Skipped(where, f"cannot be listed: {error.strerror}"))

    for folder, folders, names in os.walk(root, onerror=unreadable):
        here = Path(folder)
        kept = []
        for name in sorted(folders):
            relative = (here / name).relative_to(root).as_posix()
            reason = _folder_reason(here / name, at_root=here == root)
            if reason is None and f"{relative}/" in ignored:
                reason = "ignored by git"
            if reason is None:
                kept.append(name)
            else:
                left_out.append(Skipped(relative, reason))
        folders[:] = kept
        for name in names:
            if not name.endswith((".py", ".ipynb")):
                continue
            relative = (here / name).relative_to(root).as_posix()
            reason = "ignored by git" if relative in ignored else _file_reason(here / name, root)
            if reason is None and _is_added(here / name, relative):
                reason = "added by an earlier apply"
            if reason is None:
                yield relative
            else:
                left_out.append(Skipped(relative, reason))


def _folder_reason(folder: Path, *, at_root: bool) -> str | None:
    if folder.is_symlink():
        return "a link to a folder"
    if folder.name in _FOLDERS:
        return _FOLDERS[folder.name]
    if folder.name.endswith(".egg-info"):
        return "build output"
    if (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir():
        return "a virtual environment"
    if at_root and folder.name == "chirpid_patch":
        return "the vendored runtime"
    return None


def _is_added(path: Path, relative: str) -> bool:
    try:
        return relative in SCAFFOLD_PATHS and is_scaffold(relative, path.read_bytes())
    except OSError:  # whoever reads it next says so
        return False


def _file_reason(path: Path, root: Path) -> str | None:
    try:
        found = path.stat()
        real = path.resolve()
    except (OSError, RuntimeError):  # dangling links and link loops
        return "a link that leads nowhere"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if path.is_symlink():
        if not real.is_relative_to(root):
            return "a link that leaves the folder"
        if real.suffix == path.suffix:
            return f"a link to {real.relative_to(root).as_posix()}"
    if path.suffix == ".py" and found.st_size > LARGEST_FILE_BYTES:
        return f"larger than {LARGEST_FILE_BYTES // 1024**2} MiB"
    return None
