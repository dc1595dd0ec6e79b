"""Whether the code that runs is the copy's, and what to do about a module that is missing."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from chirp_migrate.training.errors import NotUsable

__all__ = ["PACKAGE_ROOT", "check_imports", "enter_tree", "importable", "missing_module"]

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
"""Folder that this package is imported from."""

_OURS = ("chirp_migrate", "chirpid_patch")
_DISTRIBUTIONS = {
    "Bio": "biopython",
    "PIL": "Pillow",
    "attr": "attrs",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
"""Well-known distributions whose name is not that of their module."""

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')


def check_imports(tree: Path, origin: str) -> None:
    """See that no module was imported from ``origin``: an installed package would hide what is compared.

    Args:
        tree: the copy, which is to be imported from.
        origin: the user's folder; empty for none.

    Raises:
        NotUsable: a module of the backend comes from there.
    """
    if not origin:
        return
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name.partition(".")[0] in _OURS:
            continue
        path = Path(file)
        own_environment = path.is_relative_to(sys.prefix) or "site-packages" in path.parts
        if path.is_relative_to(origin) and not path.is_relative_to(tree) and not own_environment:
            raise NotUsable(
                f"{name} was imported from {origin} and not from the copy that is measured: it is installed in "
                "development mode from a folder that is neither the root of PATH nor its src/; give as PATH the "
                "folder that it is imported from"
            )


def importable(place: str) -> str | None:
    """The name to import ``place`` by, a module or a ``.py`` file relative to here; None where there is no such file.

    A file is imported under its own name, from its folder, so that worker processes can import it, too.
    """
    if not place.endswith(".py"):
        return place
    path = Path(place)
    if not path.is_file():
        return None
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(1, folder)
    return path.stem


def missing_module(log: str) -> str | None:
    """What to do about the missing module that ended a program, from the end of what it printed; None for none.

    Args:
        log: the last lines of its output, traceback included.
    """
    missing = list(_MISSING.finditer(log))
    if not missing:
        return None
    name = missing[-1].group(1)
    top = name.partition(".")[0]
    places = [place for place in _PLACE.finditer(log, 0, missing[-1].start()) if "importlib" not in place.group(1)]
    where = ""
    if places:
        file, line = places[-1].groups()
        where = f" (imported in {file}, line {line})"
    return (
        f"The module {name} is missing{where}: install it where chirp-migrate runs "
        f"({sys.executable} -m pip install {_DISTRIBUTIONS.get(top, top)}), or, if it is your own, give as PATH the "
        "folder that it is imported from"
    )


def enter_tree(tree: Path) -> None:
    """Make the tree the working directory and first import path; this package stays importable, as the last.

    Where packages lie in ``src/``, that comes next, before an installation of the same package.
    """
    os.chdir(tree)
    sys.path[0] = str(tree)
    if (tree / "src").is_dir():
        sys.path.insert(1, str(tree / "src"))
    if str(PACKAGE_ROOT) not in sys.path:
        sys.path.append(str(PACKAGE_ROOT))
