"""Copy a project to a separate folder, so that a training writes no files into the user's folder.

A copy omits files larger than 32 MiB, such as datasets and checkpoints, because the training normally uses synthetic
data. The command prints the names of these files, because a module may need one of them. A copy also omits folders of
version control, virtual environments and caches. Before each run, the files that the previous run wrote are removed, so
that a training cannot continue from a checkpoint.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

_PRISTINE = ".pristine"
"""Suffix of the name of a second folder next to a copy. This folder contains the files as they were before any training
ran."""

_FOLDER = (stat.S_IFDIR,)

LARGEST_FILE = 32 * 1024**2
"""Largest size of a copied file, in bytes."""
_LEFT_OUT_FOLDERS = frozenset({
    ".chirp-migrate", ".git", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache",
    ".svn", ".tox", "__pycache__", "node_modules", "site-packages",
})  # fmt: skip


def copy_tree(source: Path, target: Path) -> tuple[str, ...]:
    """Copy a project to the new folder ``target``.

    For a symbolic link to a file, the copy contains the file itself. The copy omits links to folders.

    Returns:
        The paths, relative to ``source``, of files that are too large to copy.
    """
    too_large: list[str] = []
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not _is_omitted_folder(here / name))
        (target / here.relative_to(source)).mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            path = here / name
            if not path.is_file():  # a socket, a pipe, or a broken link
                continue
            relative = path.relative_to(source)
            if path.stat().st_size > LARGEST_FILE:
                too_large.append(relative.as_posix())
            else:
                shutil.copy(path, target / relative)
    return tuple(too_large)


def write_originals(tree: Path, originals: Mapping[str, bytes | None]) -> None:
    """Write files to the copy of a project.

    Args:
        tree: folder of the copy.
        originals: dictionary, path relative to ``tree`` → bytes to write. If the value is None, the function removes
            the file.

    Raises:
        ValueError: a path leads out of ``tree``.
    """
    for name, content in originals.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise ValueError(f"the journal names a file outside the tree: {name}")
        path = tree / relative
        if content is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # the copied file may be read-only
        path.write_bytes(content)


def store_original_files(tree: Path) -> None:
    """Store the present files of a copy in a second folder, for :func:`restore_original_files`."""
    shutil.copytree(tree, _pristine_copy(tree), symlinks=True)


def restore_original_files(tree: Path) -> None:
    """Restore a copy to the files that :func:`store_original_files` stored; do nothing if no files are stored."""
    pristine = _pristine_copy(tree)
    if not pristine.is_dir():
        return
    try:
        _restore_files(pristine, tree)
    except OSError:  # a file cannot be removed, so move the whole folder away, and copy the stored files
        tree.rename(Path(tempfile.mkdtemp(prefix=f"{tree.name}.left-", dir=tree.parent)) / tree.name)
        shutil.copytree(pristine, tree, symlinks=True)


def restore_files_between_runs(tree: Path) -> None:
    """Restore the stored files of a copy between two runs in the same process; keep folders that the first run created.

    A module may create folders when it is imported. The second run needs these folders, but does not import the module
    again, because the process has already imported it.
    """
    if _pristine_copy(tree).is_dir():
        with suppress(PermissionError):  # on Windows, a file that the first run has open cannot be removed
            _restore_files(_pristine_copy(tree), tree, keep_folders=True)


def _restore_files(pristine: Path, tree: Path, keep_folders: bool = False) -> None:
    kept, now = _list_entries(pristine), _list_entries(tree)
    for name, version in sorted(now.items(), reverse=True):  # in this order, files come before their folder
        if version != kept.get(name) and not (keep_folders and version == _FOLDER and name not in kept):
            path = tree / name
            path.rmdir() if version == _FOLDER else path.unlink()
    for name, version in sorted(kept.items()):
        if version == _FOLDER:
            (tree / name).mkdir(exist_ok=True)
            shutil.copymode(pristine / name, tree / name)
        elif version != now.get(name):
            shutil.copy2(pristine / name, tree / name)


def _pristine_copy(tree: Path) -> Path:
    return tree.with_name(tree.name + _PRISTINE)


def _list_entries(tree: Path) -> dict[str, tuple[int, ...]]:
    """Return a dictionary: path of a file or folder below ``tree`` → its type.

    For a file, the value also contains the size and the time of the last change.
    """
    listing: dict[str, tuple[int, ...]] = {}
    for folder, folders, names in os.walk(tree):
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            regular = stat.S_ISREG(status.st_mode)
            version = (
                (status.st_mode, status.st_size, status.st_mtime_ns) if regular else (stat.S_IFMT(status.st_mode),)
            )
            listing[path.relative_to(tree).as_posix()] = version
    return listing


def _is_omitted_folder(folder: Path) -> bool:
    return folder.name in _LEFT_OUT_FOLDERS or folder.is_symlink() or (folder / "pyvenv.cfg").is_file()
