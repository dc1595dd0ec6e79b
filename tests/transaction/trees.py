"""Trees to write in, plans to write, and a way to see every byte, mode bit and name of a tree."""

from __future__ import annotations

import os
from pathlib import Path

from chirp_migrate.journal import journal_folder
from chirp_migrate.plan import FilePlan, Plan

#: Path, bytes before (None: created), bytes after, mode before.
FILES: list[tuple[str, bytes | None, bytes, int]] = [
    ("utils/engine.py", b"loader = DataLoader(data)\n", b"loader = create(data)\n", 0o644),
    ("utils/run.py", b"#!/usr/bin/env python\r\nx = 1\r\n", b"#!/usr/bin/env python\r\nx = 2\r\n", 0o755),
    ("utils/private.py", b"\xef\xbb\xbfx = 1", b"\xef\xbb\xbfx = 2", 0o600),
    ("utils/twin.py", b"#!/usr/bin/env python\r\nx = 1\r\n", b"x = 3\n", 0o640),
    ("latin.py", b"# coding: latin-1\n# \xe9\n", b"# coding: latin-1\n# \xe9\nx = 1\n", 0o664),
    ("utils/factory.py", None, b"from chirpid_patch import x\n", 0),
    ("notebooks/deep/New.ipynb", None, b"{}", 0),
    ("package/py.typed", None, b"", 0),
]


def make_tree(root: Path) -> Plan:
    """Write the tree before, beside files that no plan touches, and return the plan."""
    for name, before, _, mode in FILES:
        if before is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(before)
            path.chmod(mode)
    (root / "data.bin").write_bytes(bytes(range(256)))
    (root / "utils" / "link.py").symlink_to("engine.py")
    return Plan(root, tuple(FilePlan(name, before, after, "rewrite") for name, before, after, _ in FILES), (), ())


def listing(root: Path) -> dict[str, tuple[str, int, bytes | str]]:
    """Kind, mode bits and content of everything under ``root``, the journal included."""
    found: dict[str, tuple[str, int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        name, mode = path.relative_to(root).as_posix(), path.lstat().st_mode
        if path.is_symlink():
            found[name] = ("link", mode, os.fspath(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", mode, b"")
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


def without_journal(root: Path) -> dict[str, tuple[str, int, bytes | str]]:
    """The listing of everything that is the user's."""
    journal = journal_folder(root).name
    return {name: one for name, one in listing(root).items() if name.partition("/")[0] != journal}


def is_migrated(root: Path) -> bool:
    """Whether every file of the plan has its bytes from after, and its mode bits from before."""
    return all(
        (root / name).read_bytes() == after and (before is None or (root / name).stat().st_mode & 0o7777 == mode)
        for name, before, after, mode in FILES
    )
