"""Trees to work on, and processes that really die while they do."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from support import in_child

from chirp_migrate.plans.plan import FilePlan, Plan

#: Every kind of thing a migration meets: (path, bytes, mode).
BACKEND: tuple[tuple[str, bytes, int], ...] = (
    ("utils/engine.py", b"import torch\n\nx = 1\n", 0o644),
    ("utils/crlf.py", b"x = 1\r\ny = 2\r\n", 0o600),
    ("utils/bom.py", b"\xef\xbb\xbfx = '\xc3\xa4'", 0o755),
    ("latin.py", b"# coding: latin-1\nx = '\xe4'\n", 0o640),
    ("empty.py", b"", 0o664),
    ("requirements.txt", b"torch", 0o644),
    ("untouched.py", b"z = 0\n", 0o600),
)

#: Files that the plan adds, two folders deep too.
ADDED = {"notebooks/deep/Bench.ipynb": b"{}\n", "utils/dataloader_factory.py": b"from chirpid_patch import *\n"}


def write_tree(root: Path) -> None:
    """The backend before its migration."""
    for name, content, mode in BACKEND:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)


def migration(root: Path) -> Plan:
    """A plan that rewrites every file but one, and adds two."""
    rewritten = [
        FilePlan(name, content, content + b"# migrated\n", "rewrite")
        for name, content, _ in BACKEND
        if name != "untouched.py"
    ]
    added = [FilePlan(name, None, content, "scaffold") for name, content in ADDED.items()]
    return plan_of(root, *rewritten, *added)


def plan_of(root: Path, *files: FilePlan) -> Plan:
    """A plan without findings."""
    return Plan(root, files, (), ())


def rewrites(root: Path, contents: Mapping[str, bytes]) -> Plan:
    """A plan that gives existing files these bytes."""
    return plan_of(
        root, *(FilePlan(name, (root / name).read_bytes(), content, "rewrite") for name, content in contents.items())
    )


def dies_at(moment: int, root: Path, action: Callable[[], object]) -> bool:
    """Run ``action`` in a process that gets SIGKILL just before its file operation number ``moment`` below ``root``.

    Returns whether it died; False means that it ended before it came to that moment.
    """
    return in_child(lambda: _with_death(moment, root, action)) == -signal.SIGKILL


def _with_death(moment: int, root: Path, action: Callable[[], object]) -> None:
    left = moment
    below = str(root)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event != "open" and not event.startswith(("os.", "shutil.")):
            return
        if arguments and isinstance(arguments[0], str | Path) and str(arguments[0]).startswith(below):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)
    action()
