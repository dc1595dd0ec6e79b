"""Both sides as folders of their own: nothing that training writes can reach the user's tree.

Copied is what code needs: files up to 32 MiB. Version control, virtual environments, caches and larger files (data
sets, checkpoints) are left out, since verification trains on synthetic data; they are counted, so that a module
that wants one of them can be explained.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["Copied", "copy_tree", "restore"]

_LARGEST_FILE = 32 * 1024**2
_LEFT_OUT_FOLDERS = frozenset(
    {
        ".chirp-migrate",
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        "__pycache__",
        "node_modules",
        "site-packages",
    }
)


@dataclass(frozen=True)
class Copied:
    """What a copy took along.

    Attributes:
        files: number of files copied.
        too_large: paths relative to the tree of the files left out for their size.
    """

    files: int
    too_large: tuple[str, ...]


def copy_tree(source: Path, target: Path) -> Copied:
    """Copy a backend to the new folder ``target``; links to files are copied as files, links to folders left out."""
    files = 0
    too_large: list[str] = []
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not _left_out(here / name))
        (target / here.relative_to(source)).mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            path = here / name
            if not path.is_file():  # sockets, pipes, links to nothing
                continue
            relative = path.relative_to(source)
            if path.stat().st_size > _LARGEST_FILE:
                too_large.append(relative.as_posix())
            else:
                shutil.copy(path, target / relative)
                files += 1
    return Copied(files, tuple(too_large))


def restore(tree: Path, originals: Mapping[str, bytes | None]) -> None:
    """Give a copied tree its earlier files: bytes by path relative to the tree, None for files that did not exist.

    Raises:
        ValueError: a path leads outside the tree.
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
        path.unlink(missing_ok=True)  # a copy may have come without write permission
        path.write_bytes(content)


def _left_out(folder: Path) -> bool:
    return folder.name in _LEFT_OUT_FOLDERS or folder.is_symlink() or (folder / "pyvenv.cfg").is_file()
