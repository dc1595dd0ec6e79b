"""Look up names across the files of a project: find the module that defines a name."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import accumulate
from pathlib import PurePosixPath
from typing import TypeVar

import libcst as cst

from chirp_migrate.syntax.import_table import ImportTable, qualified_member_name
from chirp_migrate.syntax.module import Module, UnparsableModule, module_name, package_name, syntax_tree
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project_files import ProjectFiles, answered_once
from chirp_migrate.syntax.word_index import words_of

_Definition = TypeVar("_Definition", cst.ClassDef, cst.FunctionDef)

#: Largest number of re-exports to follow. The limit also ends cycles of imports.
_REEXPORT_LIMIT = 8
#: Largest number of lookups for the resolution of one name.
_LOOKUP_LIMIT = 200
#: An empty import table, which stands for modules outside of the backend.
_NO_TABLE = ImportTable()
#: Libraries whose classes and functions the rules identify by qualified name.
_LIBRARIES = frozenset({"numpy", "pandas", "PIL", "sklearn", "torch", "torchaudio", "torchvision", "tqdm"})
#: Top-level names of libraries. An import of such a name finds a module of the project only if this module is next to
#: the script or at the root.
_ELSEWHERE = (sys.stdlib_module_names | _LIBRARIES) - {"test"}
#: Names for data loading that ``from torch.utils.data import *`` binds.
_TORCH_DATA = re.compile(
    r"(Chain|Concat|Iterable|Stack|Tensor)?Dataset|DataLoader|Subset|random_split|default_(collate|convert)"
    r"|(Batch|Distributed|Random|Sequential|SubsetRandom|WeightedRandom)?Sampler|get_worker_info"
)
#: Text after ``sys.path`` in a script, and folder names in that text.
_PATH_CHANGE = re.compile(r"\bsys\.path\b(.*)")
_FOLDER = re.compile(r"[\w-]+")


class NameResolution(ProjectFiles):
    """The names of a project, resolved through its imports and re-exports."""

    @cached_property
    def _paths(self) -> dict[str, str]:
        """Return the paths of all modules. The key is the dotted name of the module, counted from the root folder.

        If the root folder is itself a package, each module has a second key, which begins with the name of this
        package.
        """
        named = {f"{self._name}.{module_name(path)}".rstrip("."): path for path in self._texts if self._name}
        return {**named, **{module_name(path): path for path in self._texts}}

    @cached_property
    def _names_in_subfolders(self) -> dict[str, set[str]]:
        """Return the names under which scripts in subfolders import modules.

        The value of each name contains the dotted names of these modules from the root.

        For ``backend/utils/common.py``, scripts in the folder ``backend`` use the name ``utils.common``. The result
        then has the key ``utils.common`` with the value ``{"backend.utils.common"}``.
        """
        packages = {PurePosixPath(path).parent for path in self._texts if path.endswith("__init__.py")}
        found: dict[str, set[str]] = defaultdict(set)
        for path in self._texts:
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
    def _names_below_folders(self) -> dict[tuple[str, str], set[str]]:
        """Return dotted names of modules, by the name of a folder and the dotted name of the module below this folder.

        For ``a/b/c.py``, the key ``("a", "b.c")`` has the value ``{"a.b.c"}``.
        """
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name in map(module_name, self._texts):
            parts = name.split(".")
            for start in range(1, len(parts)):
                found[parts[start - 1], ".".join(parts[start:])].add(name)
        return found

    @cached_property
    def _packages(self) -> set[str]:
        """Return the dotted names of all modules, and of the packages that contain them."""
        parts = (name.split(".") for name in (*self._paths, *self._names_in_subfolders))
        return {".".join(one[:length]) for one in parts for length in range(1, len(one) + 1)}

    def has_package(self, name: str) -> bool:
        """Return whether the backend has a package or a module called ``name``."""
        return name == self._name or name in self._packages

    def table(self, path: str) -> ImportTable | None:
        """Return the names that the module at ``path`` binds at its top level; ``None`` if the text is not Python."""
        return self._fact(path, _read_table, path, self._from_root)

    @answered_once
    def resolve(self, qualified: str) -> str:
        """Follow re-exports through modules of the backend, and return the qualified name of the definition.

        ``utils.common.DataLoader`` becomes ``torch.utils.data.DataLoader`` if ``utils/common.py`` imports the class
        from PyTorch. For a name that the backend defines, the result starts with the dotted name of the defining
        module, counted from the root folder. If a library has the same name as the module's top-level package, the
        result begins with a dot. The method returns a name from outside the backend, or a name with several possible
        meanings, unchanged.
        """
        return self._resolve_uncached(qualified)

    def _resolve_uncached(
        self, qualified: str, around: frozenset[str] = frozenset(), steps: Iterator[int] | None = None
    ) -> str:
        """Resolve a name like :meth:`resolve`, but without a cache.

        Args:
            qualified: the name.
            around: the names whose lookups led to this lookup. The method does not look up these names again, because
                ``from ._C import *`` may form a cycle.
            steps: an iterator with one item for each lookup that is still allowed. The number is limited, because
                modules that import from each other can form many cycles.
        """
        steps = iter(range(_LOOKUP_LIMIT)) if steps is None else steps
        for _ in zip(range(_REEXPORT_LIMIT), steps, strict=False):
            owner, _, name = qualified.rpartition(".")
            path = self._paths.get(owner.lstrip("."))
            if path is None and owner and owner not in around:
                known = self._resolve_uncached(owner, around | {owner}, steps)
                if known != owner:
                    qualified = f"{known}.{name}"
                    continue
            table = self.table(path) if path is not None and self._may_bind(path, name) else None
            if path is None or table is None:
                return qualified
            if table.defines(name):
                return f"{_name_from_root(path)}.{name}" if owner else qualified
            targets = self._imported_meanings(table, name)
            if len(targets) != 1 or qualified in targets:
                return qualified
            (qualified,) = targets
        return qualified

    def _may_bind(self, path: str, name: str) -> bool:
        text = self._texts[path]
        return name in text or "*" in text

    def _imported_meanings(self, table: ImportTable, name: str) -> set[str]:
        """Return the possible qualified names of an imported name. A later ``import *`` may add further names."""
        bound = table.imports.get(name, set())
        stars = table.later_stars.get(name, ()) if bound else table.stars
        return bound | {f"{source}.{name}" for source in stars if self._star_may_bind(source, name)}

    def meanings_from_elsewhere(self, module: Module, name: str) -> set[str]:
        """Return the qualified names that ``name`` in ``module`` may get by an ``import *`` from the backend.

        In a package, ``name`` may also be a module of the package, which becomes an attribute when it is imported.
        """
        written = {f"{module.absolute(source)}.*" for source, _ in module.scopes.stars}
        sources = {one.rpartition(".")[0] for star in written for one in self._from_root(module.path, star)}
        found = {self.resolve(f"{source}.{name}") for source in sources if self._star_may_bind(source, name, own=True)}
        inside = qualified_member_name(module.name, name)
        return found | ({inside} if module.path.endswith("__init__.py") and inside in self._packages else set())

    def binds_other_object(self, besides: str, name: str, qualified: str) -> bool:
        """Return whether a file binds ``name`` at its top level to an object other than ``qualified``.

        The file ``besides`` does not count.
        """
        tables = (self.table(path) or _NO_TABLE for path in self.paths_containing(name) if path != besides)
        return any(
            table.defines(name) or any(self.resolve(one) != qualified for one in table.imports.get(name, ()))
            for table in tables
        )

    def _star_may_bind(self, source: str, name: str, *, own: bool = False) -> bool:
        """Return whether ``from source import *`` may bind ``name``. A module outside the backend may bind any name.

        Args:
            source: dotted name of the module.
            name: a name.
            own: whether only objects in modules of the backend count. If so, submodules and computed names also count.
        """
        return any(self._module_may_export(one, name, own) for one in self._star_sources(source, name))

    def _module_may_export(self, source: str, name: str, own: bool) -> bool:
        path = self._paths.get(source)
        if path is None and not own:
            return source != "torch.utils.data" or _TORCH_DATA.fullmatch(name) is not None
        table = self.table(path) if path is not None else _NO_TABLE
        if table is None or not table.exports(name):
            return table is None
        if table.defines(name) or name in table.imports:
            return True
        # The module may bind computed names, or create attributes on access. A module of a package becomes an attribute
        # of the package when code imports it.
        text = self._texts[path] if path is not None else ""
        is_dynamic = "globals" in text or "setattr" in text or table.defines("__getattr__")
        return own and (f"{source}.{name}" in self._packages or (is_dynamic and name in words_of(text)))

    def _star_sources(self, source: str, name: str) -> Iterator[str]:
        """Yield ``source``, and all modules from which ``source`` may get ``name`` by a chain of ``import *``."""
        pending, seen = [source], {source}
        while pending:
            yield (one := pending.pop())
            path = self._paths.get(one)
            table = self.table(path) if path is not None else None
            new = [star for star in table.stars if star not in seen] if table and table.exports(name) else []
            pending += new
            seen.update(new)

    def resolved_names(self, module: Module, node: cst.CSTNode) -> set[str]:
        """Return the possible qualified names of ``node``, with re-exports and ``import *`` resolved."""
        names = module.qualified_names(node)
        if module.scopes.stars:
            names = {name for name in names if self._is_possible(module, name)}
            names |= {name for name in module.names_from_later_stars(node) if self._is_possible(module, name)}
            names |= {one for name in names for one in self._instead_of_builtin(module, name)}
        return {self.resolve(one) for name in names for one in self._from_root(module.path, name)}

    def possible_names(self, outline: Outline, node: ast.AST) -> set[str]:
        """Return a superset of :meth:`resolved_names` for an expression of a module that LibCST has not parsed."""
        names = outline.possible_names(node)
        return {self.resolve(one) for name in names for one in self._from_root(outline.path, name)}

    def _instead_of_builtin(self, module: Module, qualified: str) -> set[str]:
        """Return the qualified names that a built-in name may get by an ``import *`` from a module of the backend."""
        owner, _, path = qualified.partition(".")
        first, dot, rest = path.partition(".")
        return (
            {one + dot + rest for one in self.meanings_from_elsewhere(module, first)} if owner == "builtins" else set()
        )

    def _is_possible(self, module: Module, name: str) -> bool:
        """Return whether an object with this qualified name may exist.

        The result is False only for a name from an ``import *`` whose module provably lacks the name.
        """
        for source in {module.absolute(source) for source, _ in module.scopes.stars}:
            if name.startswith(f"{source}."):
                first = name.removeprefix(f"{source}.").partition(".")[0]
                explicit = module.scopes.module.bindings.get(first, [])
                known = any(module.absolute(one.qualified) == f"{source}.{first}" for one in explicit)
                from_root = self._from_root(module.path, f"{source}.{first}")
                return known or any(self._star_may_bind(one.rpartition(".")[0], first) for one in from_root)
        return True

    def _from_root(self, path: str, name: str) -> set[str]:
        """Convert a qualified name, as the file at ``path`` uses it, to its possible dotted names from the root."""
        owner = name
        while owner := owner.rpartition(".")[0]:
            if modules := self._possible_modules(owner, path):
                return {f"{one}{name[len(owner) :]}" for one in modules}
        return {name}

    @answered_once
    def located(self, path: str, name: str) -> list[tuple[str, str]]:
        """Find the modules of the backend to which an import of ``name`` in the file at ``path`` may refer.

        Returns:
            The path of each module, with the part of ``name`` that names a member of the module ("" for the module
            itself).
        """
        found: list[tuple[str, str]] = []
        for full in sorted(self._from_root(path, f"{name}.*")):
            module, rest = full.removesuffix(".*"), ""
            while module and module not in self._paths:
                module, _, last = module.rpartition(".")
                rest = f"{last}.{rest}".rstrip(".")
            if module:
                found.append((self._paths[module], rest))
        return found

    @answered_once
    def _possible_modules(self, name: str, path: str) -> set[str]:
        """Return the dotted names, from the root, of modules that ``import name`` in the file at ``path`` may find.

        Scripts import modules from their own folder, or from a folder that they add to ``sys.path``. Modules of a
        package import from the folder that contains the package. The result has no modules in any other folder, because
        a library may have the same name.
        """
        folder = package_name(path)
        folders = list(accumulate(folder.split("."), "{}.{}".format)) if folder else []
        # Imports start from folders that are not packages. Only a script also imports from its own folder in a package.
        around = folders[-1:] if _is_elsewhere(name) else folders
        outside = (f"{one}.{name}" for one in reversed(around) if one not in self._paths)
        found = {next((one for one in outside if one in self._paths), ""), name if name in self._paths else ""} - {""}
        found |= self._in_named_folders(name, path)
        beside = f"{folder}.{name}"
        if found or (beside in self._paths and not _is_elsewhere(name)):
            return found or {beside}
        below = self._names_in_subfolders.get(name, set())
        sources = (f"{one}.src.{name}".lstrip(".") for one in (*reversed(folders), ""))
        nearest = next((one for one in sources if one in below), "")
        return {nearest} if nearest else below

    def _in_named_folders(self, name: str, path: str) -> set[str]:
        """Return the modules called ``name`` in folders that the file at ``path`` may add to ``sys.path``.

        The method compares only the last parts of the folders' paths.
        """
        found: set[str] = set()
        # A file that cannot be read has no known changes of `sys.path`.
        for words in self._fact(path, _folders_on_path) if path in self._texts else ():
            found |= next(
                (self._names_below_folders[word, name] for word in words if (word, name) in self._names_below_folders),
                set(),
            )
        return found

    def _find_binding_module(self, qualified: str) -> tuple[str, str, ImportTable]:
        """Return the last part of a qualified name, and the path and import table of the module that may bind it.

        The table is empty if no module of the backend may bind the name.
        """
        owner, _, name = self.resolve(qualified).rpartition(".")
        path = self._paths.get(owner.lstrip("."))
        table = self.table(path) if path is not None and name in self._texts[path] else None
        return name, path or "", table or _NO_TABLE

    def defines(self, qualified: str) -> bool:
        """Return whether a module of the backend defines a qualified name at its top level."""
        name, _, table = self._find_binding_module(qualified)
        return table.defines(name)

    def base_classes(self, qualified: str) -> set[str] | None:
        """Return the possible bases of a top-level class of the backend; ``None`` if the class does not exist.

        The bases come from the import table, so the lookup does not need LibCST.
        """
        name, path, table = self._find_binding_module(qualified)
        if name not in table.classes:
            return None
        names: set[str] = set()
        for base in filter(None, table.classes[name]):
            root, dot, rest = base.partition(".")
            if table.defines(root):
                names.add(f"{module_name(path)}.{base}".lstrip("."))
            else:
                names |= {f"{target}{dot}{rest}" for target in self._imported_meanings(table, root)}
        return {self.resolve(one) for one in names}

    def is_class(self, qualified: str) -> bool:
        """Return whether ``qualified`` names a top-level class of the backend. The lookup does not need LibCST."""
        name, _, table = self._find_binding_module(qualified)
        return name in table.classes

    def class_definition(self, qualified: str) -> tuple[Module, cst.ClassDef] | None:
        """Return module and definition of the backend's top-level class ``qualified``; None if it does not exist."""
        return self._definition(qualified, cst.ClassDef)

    def function_definition(self, qualified: str) -> tuple[Module, cst.FunctionDef] | None:
        """Return module and definition of the top-level function ``qualified`` of the backend.

        The result is None if the function does not exist.
        """
        return self._definition(qualified, cst.FunctionDef)

    def parameter_names(self, qualified: str) -> tuple[str, ...]:
        """Return the parameter names of a top-level function or class of the backend; empty for any other name."""
        name, _, table = self._find_binding_module(qualified)
        return table.parameters.get(name, ())

    def _definition(self, qualified: str, kind: type[_Definition]) -> tuple[Module, _Definition] | None:
        name, path, table = self._find_binding_module(qualified)
        if name not in table.classes and name not in table.functions:
            return None
        try:
            module = self.module(path)
        except UnparsableModule:
            return None
        definitions = (one for one in module.tree.body if isinstance(one, cst.ClassDef | cst.FunctionDef))
        first = next((one for one in definitions if one.name.value == name), None)
        return (module, first) if isinstance(first, kind) else None


def _read_table(text: str, path: str, from_root: Callable[[str, str], set[str]]) -> ImportTable | None:
    try:
        read = ImportTable.read(syntax_tree(text), package_name(path), has_globals="global" in words_of(text))
    except UnparsableModule:
        return None
    return read.renamed(partial(from_root, path))


def _folders_on_path(text: str) -> list[list[str]]:
    """Return the words after each ``sys.path`` in a text, in reverse order."""
    return [_FOLDER.findall(change)[::-1] for change in _PATH_CHANGE.findall(text)]


def _name_from_root(path: str) -> str:
    """Return the dotted name of the module at ``path``, with a leading dot if a library has the same name."""
    name = module_name(path)
    return f".{name}" if name.partition(".")[0] in _LIBRARIES else name


def _is_elsewhere(name: str) -> bool:
    """Return whether an import of ``name`` finds a library, even if a module in the backend has the same name."""
    return name.partition(".")[0] in _ELSEWHERE
