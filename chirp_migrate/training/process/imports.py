"""Import the user's code from the copy of a project, and describe what to do if a module is missing."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chirp_migrate.console.text import suggest_name
from chirp_migrate.training.errors import NoSuchObject, TaskNotPossible

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
"""Folder from which Python imports ``chirp_migrate``."""

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
"""Dictionary: name of a module → name of the package to install, for well-known packages in which these names differ.
"""

_LEFT_OUT = ("tests", "test", "build", "dist", "site-packages", "node_modules")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')


def check_imports_use_copy(tree: Path, origin: str) -> None:
    """Check that Python imported the modules of a project from its copy, not from the original folder.

    If a package is installed in development mode (``pip install -e``), Python may import the package from the original
    folder. The command would then measure the wrong version of the code.

    Args:
        tree: the copy of the project.
        origin: the original folder of the project; if the string is empty, the function checks nothing.

    Raises:
        TaskNotPossible: a module was imported from ``origin``.
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
            raise TaskNotPossible(
                f"Python imported {name} from {origin}, and not from the copy that is measured. The package is "
                "installed in development mode from a folder other than PATH and PATH/src: pass the folder that "
                f"contains {name} as PATH"
            )


def import_object(reference: str, kind: str, is_kind: Callable[[Any], bool] = callable) -> Any:
    """Import the object that ``package.module:name`` or ``folder/file.py:name`` refers to, and return the object.

    A file is found relative to the working directory, and imported as a module with the name of the file. For this
    import, the function adds the folder of the file to ``sys.path``, so that worker processes can import the module,
    too.

    Args:
        reference: the module or file, a colon, and the name of the object.
        kind: kind of object that the caller expects, such as ``class``, for messages.
        is_kind: function that returns whether an object is of this kind; by default, whether the object is callable.

    Raises:
        NoSuchObject: the module, the file or the name does not exist, or the name refers to another kind of object.
    """
    place, _, name = reference.rpartition(":")
    module = _import_module(place)
    value = getattr(module, name, None)
    if value is None or not is_kind(value):
        own = [
            one
            for one, other in vars(module).items()
            if not one.startswith("_") and getattr(other, "__module__", None) == module.__name__ and is_kind(other)
        ]
        there = f"{place} has no {kind} {name}" if value is None else f"{reference} is no {kind}"
        raise NoSuchObject(f"{there}; {suggest_name(name, own, 'it has')}")
    return value


def project_modules(tree: Path) -> dict[str, Path]:
    """Return a dictionary: import name of each module of the project → its file.

    The result omits modules in hidden folders, and in folders for tests, builds and installed packages.
    """
    found = {}
    for path in sorted([*tree.glob("*.py"), *tree.glob("*/*.py"), *tree.glob("src/*/*.py")]):
        parts = path.relative_to(tree / "src" if (tree / "src") in path.parents else tree).with_suffix("").parts
        hidden = any(part.startswith(".") or part in _LEFT_OUT for part in parts)
        if not hidden and all(part.isidentifier() for part in parts):
            found[".".join(parts)] = path
    return found


def check_runnable_module(module: str) -> None:
    """Check that ``python -m MODULE`` finds a module to run.

    The check imports the packages that contain the module, but not the module itself.

    Raises:
        NoSuchObject: the module does not exist, or is a package without a module ``__main__``.
    """
    with _convert_module_errors(module):
        found = find_spec(module)
    if found is not None and found.submodule_search_locations is not None:
        check_runnable_module(f"{module}.__main__")
    elif found is None:
        raise _module_not_found(module)


@contextmanager
def _convert_module_errors(module: str) -> Iterator[None]:
    """Return a context that raises NoSuchObject if Python does not find ``module`` or a package that contains it.

    If ``module`` itself imports a missing module, the ModuleNotFoundError does not change.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise _module_not_found(module) from None
        raise


def _module_not_found(module: str) -> NoSuchObject:
    names = [name.removesuffix(".__init__") for name in project_modules(Path())]
    there = f"PATH has no module {module}"
    return NoSuchObject(f"{there}; {suggest_name(module, names, 'its modules are')}")


def _import_module(place: str) -> Any:
    if not place.endswith(".py"):
        with _convert_module_errors(place):
            return importlib.import_module(place)
    path = Path(place)
    if not path.is_file():
        files = map(str, project_modules(Path()).values())
        raise NoSuchObject(f"PATH has no file {place}; {suggest_name(place, files, 'its files are')}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(1, folder)
    return importlib.import_module(path.stem)


def advice_on_missing_module(printed_lines: str) -> str | None:
    """Return a sentence on how to install the module whose absence made a program fail; None if no module is missing.

    Args:
        printed_lines: the last lines that the program printed, with the traceback.
    """
    missing = list(_MISSING.finditer(printed_lines))
    if not missing:
        return None
    name = missing[-1].group(1)
    top = name.partition(".")[0]
    places = [
        place for place in _PLACE.finditer(printed_lines, 0, missing[-1].start()) if "importlib" not in place.group(1)
    ]
    where = ""
    if places:
        file, line = places[-1].groups()
        where = f" (imported in {file}, line {line})"
    return (
        f"The module {name} is missing{where}: install the module where chirp-migrate runs "
        f"({sys.executable} -m pip install {_DISTRIBUTIONS.get(top, top)}). If the module is your own, pass the folder "
        "that contains the module as PATH"
    )


def enter_project_copy(tree: Path) -> None:
    """Make ``tree`` the working directory and the first import path.

    If ``tree`` has a folder ``src/``, this folder becomes the second import path. Python then imports the packages in
    ``src/`` instead of installed packages with the same names. The folder of ``chirp_migrate`` stays an import path,
    after these folders.
    """
    os.chdir(tree)
    sys.path[0] = str(tree)
    if (tree / "src").is_dir():
        sys.path.insert(1, str(tree / "src"))
    if str(PACKAGE_ROOT) not in sys.path:
        sys.path.append(str(PACKAGE_ROOT))
