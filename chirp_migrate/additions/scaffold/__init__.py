"""Plan the files that `apply` adds to a project: loader factory, performance monitor, notebook and tests.

The loader factory and the performance monitor only re-export names of `chirpid_patch`.
"""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path

from chirp_migrate.additions.scaffold.notebook import notebook_json

# Name of the template of each added file, by path of the file in the project.
_TEMPLATES = {
    "utils/dataloader_factory.py": "dataloader_factory.py",
    "utils/performance_monitor.py": "performance_monitor.py",
    "notebooks/DataLoaderBenchmarking.ipynb": "DataLoaderBenchmarking.py",
    "tests/test_dataloader_optimization.py": "test_dataloader_optimization.py",
}

#: Names of training modules. If a folder `utils/` has one of these modules, the folder contains the training of a
#: backend.
_TRAINING_MODULES = ("training_engine.py", "training_core.py", "training_utils.py", "cross_validation.py")

#: POSIX paths of the files that `apply` adds to a project.
SCAFFOLD_PATHS = frozenset(_TEMPLATES)


def scaffold_files(root: Path) -> list[tuple[str, str]]:
    """Return (path, text) for each file to add to the project at `root`; POSIX paths are relative to `root`.

    A file that already exists is omitted, so that no file is overwritten. A file is also omitted if `root` has a file
    in place of the folder of the added file, or if this folder is a link to a place outside `root`. The result is empty
    if `root` has no folder `utils/`. The function writes no files.
    """
    if not (root / "utils").is_dir():
        return []
    return [(path, _template_text(path)) for path in _TEMPLATES if _is_free(root, path)]


def has_training_modules(root: Path) -> bool:
    """Return whether the folder `utils/` in `root` has a training module, such as `training_engine.py`."""
    return any((root / "utils" / name).is_file() for name in _TRAINING_MODULES)


def is_scaffold_file(path: str, content: bytes) -> bool:
    """Return whether `apply` added the file at `path` of a project, even if the user has edited the file since.

    The path and the first line must be those of a file that `apply` adds. For a notebook, the function compares the
    title instead of the first line. The rules must not rewrite added files, because the added tests compare the
    rewritten form of loading code with the original form.
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
    if os.path.lexists(target):  # also true for a broken link, which must not be overwritten either
        return False
    if not os.path.lexists(folder):
        return True
    return folder.is_dir() and folder.resolve().is_relative_to(root.resolve())


def _template_text(path: str) -> str:
    template = files("chirp_migrate.additions.scaffold").joinpath("templates").joinpath(_TEMPLATES[path])
    text = template.read_text(encoding="utf-8")
    return notebook_json(text) if path.endswith(".ipynb") else text
