"""Resolve names across the modules of a project, and find the modules that define them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import TypeVar

import libcst as cst

from chirp_migrate.syntax.import_table import ImportTable, qualified_member_name
from chirp_migrate.syntax.module import Module, UnparsableModule, module_name, package_name, syntax_tree
from chirp_migrate.syntax.module_paths import module_name_from_root
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project, cached_until_text_changes
from chirp_migrate.syntax.word_index import words_of

_Definition = TypeVar("_Definition", cst.ClassDef, cst.FunctionDef)

#: Largest number of re-exports to follow. The limit also ends cycles of imports.
_REEXPORT_LIMIT = 8
#: Largest number of lookups to resolve one name.
_LOOKUP_LIMIT = 200
#: An empty import table, for names that are not modules of the project.
_NO_TABLE = ImportTable()
#: Names for data loading that ``from torch.utils.data import *`` binds.
_TORCH_DATA = re.compile(
    r"(Chain|Concat|Iterable|Stack|Tensor)?Dataset|DataLoader|Subset|random_split|default_(collate|convert)"
    r"|(Batch|Distributed|Random|Sequential|SubsetRandom|WeightedRandom)?Sampler|get_worker_info"
)
_GLOBAL = re.compile(r"(?m)(?:^|[;:\r])[ \t\f]*global\b")
#: Text after ``sys.path`` in a script, and folder names in that text.
_PATH_CHANGE = re.compile(r"\bsys\.path\b(.*)")
_FOLDER = re.compile(r"[\w-]+")


def import_table(project: Project, path: str) -> ImportTable | None:
    """Return the names that the module at ``path`` binds at its top level; ``None`` if the text is not Python."""
    return project.fact(path, _read_table, path, project)


@cached_until_text_changes
def resolve_name(project: Project, qualified: str) -> str:
    """Follow re-exports through modules of the project, and return the qualified name of the definition.

    ``utils.common.DataLoader`` becomes ``torch.utils.data.DataLoader`` if ``utils/common.py`` imports the class
    from PyTorch. For a name that the project defines, the result is its dotted path from the root folder, such as
    ``backend.utils.common.Birds``. If the first folder has the name of a library, such as ``torch``, the result begins
    with a dot, so that the result is no name of the library. A name from outside the project, or with several possible
    meanings, is returned unchanged.
    """
    return _origin(project, qualified)


def _origin(
    project: Project, qualified: str, around: frozenset[str] = frozenset(), steps: Iterator[int] | None = None
) -> str:
    """Resolve a name as :func:`resolve_name` does, but without a cache.

    Args:
        qualified: the qualified name to resolve.
        around: the names whose lookups led to this lookup. These names are not looked up again. Otherwise, the lookup
            of ``pkg._C`` would be a cycle if ``pkg`` contains ``from ._C import *`` and the project has no module
            ``pkg._C``.
        steps: an iterator with one item for each lookup that is still allowed. The number is limited, because
            modules that import from each other can form many cycles.
    """
    steps = iter(range(_LOOKUP_LIMIT)) if steps is None else steps
    for _ in zip(range(_REEXPORT_LIMIT), steps, strict=False):
        owner, _, name = qualified.rpartition(".")
        path = project.module_paths.by_name.get(owner.lstrip("."))
        if path is None and owner and owner not in around:
            known = _origin(project, owner, around | {owner}, steps)
            if known != owner:
                qualified = f"{known}.{name}"
                continue
        table = import_table(project, path) if path is not None and _may_bind(project, path, name) else None
        if path is None or table is None:
            return qualified
        if table.defines(name):
            return f"{module_name_from_root(path)}.{name}" if owner else qualified
        targets = _imported_meanings(project, table, name)
        if len(targets) != 1 or qualified in targets:
            return qualified
        (qualified,) = targets
    return qualified


def _may_bind(project: Project, path: str, name: str) -> bool:
    text = project.text(path)
    return name in text or "*" in text


def _imported_meanings(project: Project, table: ImportTable, name: str) -> set[str]:
    """Return the possible qualified names of an imported name.

    An ``import *`` after the import of the name may rebind the name, so the result has the names from both imports.
    """
    bound = table.imports.get(name, set())
    stars = table.later_stars.get(name, ()) if bound else table.stars
    return bound | {f"{source}.{name}" for source in stars if _star_may_give(project, source, name)}


def find_names_from_star_imports(project: Project, module: Module, name: str) -> set[str]:
    """Return the possible qualified names of ``name`` in ``module`` if an ``import *`` binds the name.

    Only an ``import *`` from a module of the project counts. In the ``__init__.py`` of a package, ``name`` may also be
    a module of the package, because the import of this module binds its name in the package.
    """
    written = {f"{module.absolute(source)}.*" for source, _ in module.scopes.stars}
    sources = {one.rpartition(".")[0] for star in written for one in _from_root(project, module.path, star)}
    found = {
        resolve_name(project, f"{source}.{name}")
        for source in sources
        if _star_may_give(project, source, name, own=True)
    }
    inside = qualified_member_name(module.name, name)
    return found | (
        {inside} if module.path.endswith("__init__.py") and inside in project.module_paths.packages else set()
    )


def is_bound_to_other_object(project: Project, name: str, qualified: str, except_in: str) -> bool:
    """Return whether a file of the project binds ``name`` at its top level to an object other than ``qualified``.

    The file with the path ``except_in`` does not count.
    """
    tables = (import_table(project, path) or _NO_TABLE for path in project.paths_containing(name) if path != except_in)
    return any(
        table.defines(name) or any(resolve_name(project, one) != qualified for one in table.imports.get(name, ()))
        for table in tables
    )


def _star_may_give(project: Project, source: str, name: str, *, own: bool = False) -> bool:
    """Return whether ``from source import *`` may bind ``name``.

    Args:
        source: dotted name of the module.
        name: the name without dots.
        own: if True, only modules of the project may bind the name. The name may then also be the name of a submodule,
            or a name that a module binds by ``globals()``, ``setattr`` or ``__getattr__``. If False, a module outside
            the project may bind any name, except for ``torch.utils.data``, whose names are known.
    """
    return any(_may_give(project, one, name, own) for one in _star_sources(project, source, name))


def _may_give(project: Project, source: str, name: str, own: bool) -> bool:
    path = project.module_paths.by_name.get(source)
    if path is None and not own:
        return source != "torch.utils.data" or _TORCH_DATA.fullmatch(name) is not None
    table = import_table(project, path) if path is not None else _NO_TABLE
    if table is None or not table.exports(name):
        return table is None
    if table.defines(name) or name in table.imports:
        return True
    # The module may bind computed names, or create attributes on access. A module of a package becomes an attribute
    # of the package when code imports it.
    text = project.text(path) if path is not None else ""
    is_dynamic = "globals" in text or "setattr" in text or table.defines("__getattr__")
    return own and (f"{source}.{name}" in project.module_paths.packages or (is_dynamic and name in words_of(text)))


def _star_sources(project: Project, source: str, name: str) -> Iterator[str]:
    """Yield ``source``, and all modules from which ``source`` may get ``name`` by a chain of ``import *``."""
    pending, seen = [source], {source}
    while pending:
        yield (one := pending.pop())
        path = project.module_paths.by_name.get(one)
        table = import_table(project, path) if path is not None else None
        new = [star for star in table.stars if star not in seen] if table and table.exports(name) else []
        pending += new
        seen.update(new)


def resolve_node(project: Project, module: Module, node: cst.CSTNode) -> set[str]:
    """Return the possible qualified names of ``node``, with re-exports and ``import *`` resolved."""
    names = module.qualified_names(node)
    if module.scopes.stars:
        names = {name for name in names if _is_possible(project, module, name)}
        names |= {name for name in module.names_from_later_stars(node) if _is_possible(project, module, name)}
        names |= {one for name in names for one in _instead_of_builtin(project, module, name)}
    return {resolve_name(project, one) for name in names for one in _from_root(project, module.path, name)}


def resolve_ast_node(project: Project, outline: Outline, node: ast.AST) -> set[str]:
    """Return a superset of the names that :func:`resolve_node` would return, without parsing the module with LibCST."""
    names = outline.possible_names(node)
    return {resolve_name(project, one) for name in names for one in _from_root(project, outline.path, name)}


def _instead_of_builtin(project: Project, module: Module, qualified: str) -> set[str]:
    """Return the possible qualified names of a built-in name if an ``import *`` from the project rebinds the name.

    The result is empty if ``qualified`` is not the qualified name of a built-in name.
    """
    owner, _, path = qualified.partition(".")
    first, dot, rest = path.partition(".")
    if owner != "builtins":
        return set()
    return {one + dot + rest for one in find_names_from_star_imports(project, module, first)}


def _is_possible(project: Project, module: Module, name: str) -> bool:
    """Return whether ``name`` may be the qualified name of an object.

    The result is False only if an ``import *`` would bind the object, and the imported module provably lacks it.
    """
    for source in {module.absolute(source) for source, _ in module.scopes.stars}:
        if name.startswith(f"{source}."):
            first = name.removeprefix(f"{source}.").partition(".")[0]
            explicit = module.scopes.module.bindings.get(first, [])
            known = any(module.absolute(one.qualified) == f"{source}.{first}" for one in explicit)
            from_root = _from_root(project, module.path, f"{source}.{first}")
            return known or any(_star_may_give(project, one.rpartition(".")[0], first) for one in from_root)
    return True


def _from_root(project: Project, path: str, name: str) -> set[str]:
    """Return the possible dotted names, from the root folder, of a qualified name in the file at ``path``.

    A script in the folder ``backend`` may use the name ``utils.common`` for ``backend.utils.common``.
    """
    owner = name
    while owner := owner.rpartition(".")[0]:
        if modules := _possible_modules(project, owner, path):
            return {f"{one}{name[len(owner) :]}" for one in modules}
    return {name}


@cached_until_text_changes
def locate_import(project: Project, path: str, name: str) -> list[tuple[str, str]]:
    """Find the modules of the project to which an import of ``name`` in the file at ``path`` may refer.

    Returns:
        Pairs (path, member): the path of each module, and the part of ``name`` that names a member of the module. The
        member is "" if ``name`` is the name of the module itself.
    """
    found: list[tuple[str, str]] = []
    for full in sorted(_from_root(project, path, f"{name}.*")):
        module, rest = full.removesuffix(".*"), ""
        while module and module not in project.module_paths.by_name:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".rstrip(".")
        if module:
            found.append((project.module_paths.by_name[module], rest))
    return found


@cached_until_text_changes
def _possible_modules(project: Project, name: str, path: str) -> set[str]:
    # A file that cannot be read has no known changes of `sys.path`.
    search_paths = project.fact(path, _folders_on_path) if path in project.texts else ()
    return project.module_paths.find_modules(name, path, search_paths)


def _find_binding_module(project: Project, qualified: str) -> tuple[str, str, ImportTable]:
    """Return the last part of a qualified name, and the path and import table of the module that may bind it.

    The table is empty if no module of the project may bind the name.
    """
    owner, _, name = resolve_name(project, qualified).rpartition(".")
    path = project.module_paths.by_name.get(owner.lstrip("."))
    table = import_table(project, path) if path is not None and name in project.text(path) else None
    return name, path or "", table or _NO_TABLE


def is_defined_in_project(project: Project, qualified: str) -> bool:
    """Return whether a module of the project defines a qualified name at its top level."""
    name, _, table = _find_binding_module(project, qualified)
    return table.defines(name)


def find_base_classes(project: Project, qualified: str) -> set[str] | None:
    """Return the possible bases of a top-level class of the project; ``None`` if the class does not exist.

    The bases come from the import table, so the lookup does not need LibCST.
    """
    name, path, table = _find_binding_module(project, qualified)
    if name not in table.classes:
        return None
    names: set[str] = set()
    for base in filter(None, table.classes[name]):
        root, dot, rest = base.partition(".")
        if table.defines(root):
            names.add(f"{module_name(path)}.{base}".lstrip("."))
        else:
            names |= {f"{target}{dot}{rest}" for target in _imported_meanings(project, table, root)}
    return {resolve_name(project, one) for one in names}


def is_project_class(project: Project, qualified: str) -> bool:
    """Return whether ``qualified`` names a top-level class of the project. The lookup does not need LibCST."""
    name, _, table = _find_binding_module(project, qualified)
    return name in table.classes


def find_class(project: Project, qualified: str) -> tuple[Module, cst.ClassDef] | None:
    """Return module and definition of the project's top-level class ``qualified``; None if it does not exist."""
    return _find_definition(project, qualified, cst.ClassDef)


def find_function(project: Project, qualified: str) -> tuple[Module, cst.FunctionDef] | None:
    """Return module and definition of the top-level function ``qualified`` of the project.

    The result is None if the function does not exist.
    """
    return _find_definition(project, qualified, cst.FunctionDef)


def locate_function(project: Project, qualified: str) -> tuple[str, str] | None:
    """Return path and name of the top-level function ``qualified`` of the project; None if it does not exist.

    The lookup does not need LibCST.
    """
    name, path, table = _find_binding_module(project, qualified)
    return (path, name) if name in table.functions else None


def find_parameter_names(project: Project, qualified: str) -> tuple[str, ...]:
    """Return the parameter names of a top-level function or class of the project; empty for any other name."""
    name, _, table = _find_binding_module(project, qualified)
    return table.parameters.get(name, ())


def _find_definition(project: Project, qualified: str, kind: type[_Definition]) -> tuple[Module, _Definition] | None:
    name, path, table = _find_binding_module(project, qualified)
    if name not in table.classes and name not in table.functions:
        return None
    try:
        module = project.module(path)
    except UnparsableModule:
        return None
    definitions = (one for one in module.tree.body if isinstance(one, cst.ClassDef | cst.FunctionDef))
    first = next((one for one in definitions if one.name.value == name), None)
    return (module, first) if isinstance(first, kind) else None


def _read_table(text: str, path: str, project: Project) -> ImportTable | None:
    try:
        read = ImportTable.read(syntax_tree(text), package_name(path), has_globals=_has_globals(text))
    except UnparsableModule:
        return None
    return read.renamed(partial(_from_root, project, path))


def _folders_on_path(text: str) -> list[list[str]]:
    """Return, for each ``sys.path`` in a text, the words after it on the same line, the last word first.

    A word may be the name of a folder that the code puts on ``sys.path``. The last word comes first, because the last
    folder of a path contains the modules, as ``src`` in ``sys.path.append(str(ROOT / "backend" / "src"))``.
    """
    return [_FOLDER.findall(change)[::-1] for change in _PATH_CHANGE.findall(text)]


def _has_globals(text: str) -> bool:
    """Return whether a text may contain a ``global`` statement."""
    return "global" in text and _GLOBAL.search(text) is not None
