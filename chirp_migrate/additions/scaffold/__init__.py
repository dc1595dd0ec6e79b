"""The files that `apply` adds to a backend: loader factory, performance monitor, notebook and tests.

The requirements demand these files. The first two re-export `chirpid_patch`.
"""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path

from chirp_migrate.additions.scaffold.notebook import notebook_json

# Path in the backend, and its template.
_TEMPLATES = {
    "utils/dataloader_factory.py": "dataloader_factory.py",
    "utils/performance_monitor.py": "performance_monitor.py",
    "notebooks/DataLoaderBenchmarking.ipynb": "DataLoaderBenchmarking.py",
    "tests/test_dataloader_optimization.py": "test_dataloader_optimization.py",
}

#: A backend has one of these in `utils/`.
_TRAINING_MODULES = ("training_engine.py", "training_core.py", "training_utils.py", "cross_validation.py")

#: Where `apply` adds files, as POSIX paths in the backend.
SCAFFOLD_PATHS = frozenset(_TEMPLATES)


def scaffold_files(root: Path) -> list[tuple[str, str]]:
    """Return (POSIX path relative to `root`, text) of each file to be added to the backend at `root`.

    The result contains only files that do not exist, so that no file is overwritten. It is empty without a folder
    `utils/`, and contains no file in a place that is no folder, or is outside `root` because of a link. The function
    reads only names, and writes nothing.
    """
    if not (root / "utils").is_dir():
        return []
    return [(path, _template_text(path)) for path in _TEMPLATES if _is_free(root, path)]


def has_training_modules(root: Path) -> bool:
    """Return whether `root` has the shape that the added files need: a folder `utils/` with the training in it."""
    return any((root / "utils" / name).is_file() for name in _TRAINING_MODULES)


def is_scaffold(path: str, content: bytes) -> bool:
    """Return whether the file at `path` of a backend is one that `apply` added, edited since or not.

    Such a file may contain old code on purpose, as tests do that compare it with new code. It is identified by its
    place and its first line, a notebook by its title.
    """
    if path not in _TEMPLATES:
        return False
    template = files("chirp_migrate.additions.scaffold").joinpath("templates").joinpath(_TEMPLATES[path]).read_bytes()
    if path.endswith(".ipynb"):
        title = re.search(rb"^# (# .+)$", template, re.MULTILINE)
        return title is not None and title.group(1).strip() in content
    return content.split(b"\n", 1)[0].strip() == template.split(b"\n", 1)[0].strip()


def _is_free(root: Path, path: str) -> bool:
    target = root / path
    folder = target.parent
    if os.path.lexists(target):  # a dangling link is a file of the user, too
        return False
    if not os.path.lexists(folder):
        return True
    return folder.is_dir() and folder.resolve().is_relative_to(root.resolve())


def _template_text(path: str) -> str:
    template = files("chirp_migrate.additions.scaffold").joinpath("templates").joinpath(_TEMPLATES[path])
    text = template.read_text(encoding="utf-8")
    return notebook_json(text) if path.endswith(".ipynb") else text
