"""Find the files of a project that an import may load, from the paths of the files, without reading the files."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import PurePosixPath

from chirp_migrate.syntax.module import module_name, package_name

#: Libraries whose classes and functions the rules identify by qualified name.
_LIBRARIES = frozenset({"numpy", "pandas", "PIL", "sklearn", "torch", "torchaudio", "torchvision", "tqdm"})
#: Top-level names that an import normally finds outside the project. Such an import finds a module of the project only
#: if the module is next to the script or at the root.
_ELSEWHERE = (sys.stdlib_module_names | _LIBRARIES) - {"test"}


class ModulePaths:
    """The modules of a project, by the dotted names that imports use for them.

    Args:
        paths: posix paths of the files, relative to the root.
        root_name: dotted name of the root if the root is itself a package, else "".
    """

    def __init__(self, paths: Collection[str], root_name: str = "") -> None:
        self._paths = paths
        self.root_name = root_name

    @cached_property
    def by_name(self) -> dict[str, str]:
        """Return the paths of all modules. The key is the dotted name of the module, counted from the root folder.

        If the root is itself a package, each module has a second key that begins with the name of this package.
        """
        named = {f"{self.root_name}.{module_name(path)}".rstrip("."): path for path in self._paths if self.root_name}
        return {**named, **{module_name(path): path for path in self._paths}}

    @cached_property
    def _below(self) -> dict[str, set[str]]:
        """Map each name by which scripts in subfolders import modules to the modules' dotted names from the root.

        For ``backend/utils/common.py``, scripts in the folder ``backend`` use the name ``utils.common``. The result
        then has the key ``utils.common`` with the value ``{"backend.utils.common"}``.
        """
        packages = {PurePosixPath(path).parent for path in self._paths if path.endswith("__init__.py")}
        found: dict[str, set[str]] = defaultdict(set)
        for path in self._paths:
            around = PurePosixPath(path).parents
            if around[0] not in packages:
                continue
            # If a folder without `__init__.py` is inside a package, the names of its modules begin with the package.
            inside = [folder for folder in around if folder in packages and folder.name]
            # Some projects have a needless `src/__init__.py`, although they install the packages in `src`.
            outermost = inside[-2:] if inside and inside[-1].name == "src" else inside[-1:]
            for folder in (one.parent for one in outermost):
                name = module_name(str(PurePosixPath(path).relative_to(folder)))
                if folder.name and not _is_elsewhere(name):
                    found[name].add(module_name(path))
        return found

    @cached_property
    def _within(self) -> dict[tuple[str, str], set[str]]:
        """Map the name of a folder, and the dotted name of a module from this folder, to dotted names from the root.

        For ``a/b/c.py``, the key ``("a", "b.c")`` has the value ``{"a.b.c"}``.
        """
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name in map(module_name, self._paths):
            parts = name.split(".")
            for start in range(1, len(parts)):
                found[parts[start - 1], ".".join(parts[start:])].add(name)
        return found

    @cached_property
    def packages(self) -> set[str]:
        """Return the dotted names of all modules, and of the packages that contain them."""
        parts = (name.split(".") for name in (*self.by_name, *self._below))
        return {".".join(one[:length]) for one in parts for length in range(1, len(one) + 1)}

    def has_package(self, name: str) -> bool:
        """Return whether the project has a package or a module called ``name``."""
        return name == self.root_name or name in self.packages

    def find_modules(self, name: str, path: str, search_paths: Sequence[Sequence[str]]) -> set[str]:
        """Return the dotted names, from the root, of modules that ``import name`` in the file at ``path`` may find.

        Scripts import modules from their own folder, or from a folder that they put on ``sys.path``. Modules of a
        package import from the folder that contains the package. If these folders lack the module, the function
        searches the packages in all folders. For example, ``import utils.common`` then finds
        ``backend/utils/common.py``. The function does not find a module whose folder has no ``__init__.py`` in this
        way, because a library may have the same name.

        Args:
            name: dotted name of the module, as the import statement contains it.
            path: path of the importing file.
            search_paths: for each ``sys.path`` in the file, the words after ``sys.path`` on the same line, in reverse
                order. Each word may be the name of a folder that the script puts on ``sys.path``. Of the words with
                which the module can be found, the last word on the line decides.
        """
        folder = package_name(path)
        folders = list(accumulate(folder.split("."), "{}.{}".format)) if folder else []
        # Imports start from folders that are not packages. Only a script also imports from its own folder in a package.
        around = folders[-1:] if _is_elsewhere(name) else folders
        outside = (f"{one}.{name}" for one in reversed(around) if one not in self.by_name)
        found = {next((one for one in outside if one in self.by_name), ""), name if name in self.by_name else ""} - {""}
        for words in search_paths:
            found |= next((self._within[word, name] for word in words if (word, name) in self._within), set())
        beside = f"{folder}.{name}"
        if found or (beside in self.by_name and not _is_elsewhere(name)):
            return found or {beside}
        below = self._below.get(name, set())
        sources = (f"{one}.src.{name}".lstrip(".") for one in (*reversed(folders), ""))
        nearest = next((one for one in sources if one in below), "")
        return {nearest} if nearest else below


def module_name_from_root(path: str) -> str:
    """Return the dotted name of the module at ``path``, counted from the root folder.

    The name gets a leading dot if a library such as ``torch`` has the same name as the module's top-level package. The
    dot distinguishes the module from a module of the library.
    """
    name = module_name(path)
    return f".{name}" if name.partition(".")[0] in _LIBRARIES else name


def _is_elsewhere(name: str) -> bool:
    """Return whether an import of ``name`` finds a library, even if a module in the project has the same name."""
    return name.partition(".")[0] in _ELSEWHERE
