"""Create the tree that the check migrates: many small files that ``apply`` rewrites, in several encodings and forms."""

from __future__ import annotations

import hashlib
import json
import os
import random
import stat
from pathlib import Path

__all__ = ["Snapshot", "build", "digest", "snapshot"]

#: Path below the root → (kind, permission bits, content). The kind is ``file``, ``folder`` or ``link``. The content is
#: the SHA-256 of a file, the target of a link, or "" for a folder.
Snapshot = dict[str, tuple[str, int, str]]

_FUNCTION = """\
from torch.utils.data import DataLoader


def make_{n}(data, workers=0):
    return DataLoader(data, batch_size={n}, shuffle=True, num_workers=workers, pin_memory=True)
"""
_ATTRIBUTE = """\
import torch.utils.data as tud

loaders = [tud.DataLoader(range({n}), batch_size=4) for _ in range(2)]
"""
_LAMBDA = """\
from torch.utils.data import DataLoader


class Trainer{n}:
    def loader(self, data):
        return DataLoader(data, batch_size={n}, collate_fn=lambda samples: samples)
"""
_PLAIN = (_FUNCTION, _ATTRIBUTE, _LAMBDA)
_MODES = (0o644, 0o644, 0o600, 0o755, 0o664)


def build(root: Path, files: int, seed: int) -> None:
    """Write a backend in which ``apply`` rewrites ``files`` Python files, the requirements and a notebook.

    The sizes of the files differ by some kilobytes, so that a limit on the size of files affects only some files.

    Args:
        root: folder of the backend.
        files: number of Python files that ``apply`` rewrites.
        seed: seed of the random contents and permission bits.
    """
    rng = random.Random(seed)
    for number in range(files):
        text = rng.choice(_PLAIN).format(n=number + 1) + f"# {'x' * rng.choice((0, 0, 0, 500, 5_000))}\n"
        data = text.encode()
        form = number % 7
        if form == 1:
            data = data.replace(b"\n", b"\r\n")
        elif form == 2:
            data = b"\xef\xbb\xbf" + data
        elif form == 3:
            data = b"# coding: latin-1\n# \xe4\n" + data
        elif form == 4:
            data = data.rstrip(b"\n")
        _write(root / f"package_{number % 20:02d}" / f"module_{number:04d}.py", data, rng.choice(_MODES))
    _write(root / "utils" / "__init__.py", b"", 0o644)
    _write(root / "untouched.py", b"answer = 42\n", 0o640)
    _write(root / "requirements.txt", b"torch\nnumpy", 0o644)
    _write(root / "notebooks" / "Train.ipynb", _notebook(_FUNCTION.format(n=8)), 0o644)
    (root / "linked.py").symlink_to("untouched.py")


def snapshot(root: Path, *, journal: bool = True) -> Snapshot:
    """Return kind, permission bits and content of every path below ``root``.

    Args:
        root: the tree.
        journal: whether to include the folder of the journal.
    """
    found: Snapshot = {}
    for folder, folders, names in os.walk(root):
        if not journal and Path(folder) == root and ".chirp-migrate" in folders:
            folders.remove(".chirp-migrate")
        for name in (*folders, *names):
            path = Path(folder) / name
            mode = path.lstat().st_mode
            relative = path.relative_to(root).as_posix()
            if stat.S_ISLNK(mode):
                found[relative] = ("link", 0, os.fspath(path.readlink()))
            elif stat.S_ISDIR(mode):
                found[relative] = ("folder", stat.S_IMODE(mode), "")
            else:
                found[relative] = ("file", stat.S_IMODE(mode), hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def digest(tree: Snapshot) -> str:
    """Return one SHA-256 for the names, kinds, permission bits and contents of a whole tree."""
    return hashlib.sha256(json.dumps(sorted(tree.items())).encode()).hexdigest()


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def _notebook(source: str) -> bytes:
    cell: dict[str, object] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "a",
        "metadata": {},
        "outputs": [],
        "source": source.splitlines(keepends=True),
    }
    whole = {
        "cells": [cell],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1).encode() + b"\n"
