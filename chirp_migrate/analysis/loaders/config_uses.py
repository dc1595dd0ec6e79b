"""Check whether code reads a configuration only key by key, so that an added key has no visible effect."""

from __future__ import annotations

import ast
import contextlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from chirp_migrate.syntax.module import UnparsableModule, walk_tree
from chirp_migrate.syntax.outline import Outline, last_part_of_name
from chirp_migrate.syntax.project import Project

_NAME = re.compile(r"\w*config", re.IGNORECASE)
_LOWER, _UPPER = re.compile("config"), re.compile("CONFIG")
#: Methods of a dictionary that return or change more than the value of one requested key.
_WHOLE = frozenset({"items", "keys", "values", "pop", "popitem", "clear", "fromkeys"})
#: Code that reads all attributes of an object. Objects with command-line arguments do not count.
_ALL_ATTRIBUTES = (
    r"\b__dict__\b|\bvars\s*\((?!\s*\w*(?:args|opts?|options)\s*\))|\b(?:asdict|astuple|getmembers)\s*\("
    r"|\bdir\s*\(|\.\s*__(?:getstate|reduce|reduce_ex)__\s*\("
)
_WORDS_OF_ATTRIBUTES = (
    *("__dict__", "vars", "asdict", "astuple", "getmembers", "dir", "__getstate__", "__reduce__", "__reduce_ex__"),
)
#: Code that lists all names of a module.
_ALL_NAMES = r"\b(?:dir|getmembers)\s*\(\s*\w|\bvars\s*\(\s*sys\.modules"
#: Functions and attributes that give access to all variables of the calling function.
_FRAMES = r"\b(?:f_locals|f_back|currentframe|_getframe|save_hyperparameters)\b"
_WORDS_OF_FRAMES = ("f_locals", "f_back", "currentframe", "_getframe", "save_hyperparameters")
#: Functions that read variables of the calling function or module.
_READING_VARIABLES = frozenset({"locals", "globals", "eval", "exec"})
#: Names of objects with command-line arguments. Programs often print all attributes of such objects.
_COMMAND_LINE = re.compile(r"\w*(?:args|opts?|options|namespace)")
#: Decorators that pass on the arguments of a function, and neither print nor store them.
_PLAIN_DECORATORS = frozenset(
    {"staticmethod", "classmethod", "property", "abstractmethod", "contextmanager", "override", "overload", "wraps"}
    | {"no_grad", "enable_grad", "inference_mode"}
)
#: Functions that save an object.
_SAVING = frozenset({"save", "dump", "dumps"})


def first_use_of_whole_config(project: Project) -> str | None:
    """Return the first code in the project that may use all keys of a configuration, such as ``print(config)``.

    The result is None if the project has no such code. A configuration is a variable or attribute whose name ends in
    ``config``.

    Code does not count if it only reads one key, or copies, tests or merges the configuration. Code that assigns the
    configuration to another name that ends in ``config``, or passes the configuration to a parameter with such a name,
    does not count either.
    """
    outlines = []
    for _, text in (*project.matching(_LOWER), *project.matching(_UPPER)):
        with contextlib.suppress(UnparsableModule):  # the code that reads this file already reports the error
            outlines.append(Outline("", text))
    known: dict[str, list[list[str]]] = defaultdict(list)
    for outline in outlines:
        for name, parameters in _definitions(outline):
            known[name].append(parameters)
    attributes_are_read = project.search(_ALL_ATTRIBUTES, *_WORDS_OF_ATTRIBUTES)
    names_are_read = project.search(_ALL_NAMES, "dir", "getmembers", "vars")
    frames_are_read = project.search(_FRAMES, *_WORDS_OF_FRAMES)
    attributes = [node for outline in outlines for node in outline.find(ast.Attribute)]
    stored = {node.attr for node in attributes if _is_config(node) and _is_stored(node)}
    for outline in outlines:
        libraries = _imported_libraries(outline, project)
        for node in walk_tree(outline.tree):
            if (
                (attributes_are_read and isinstance(node, ast.Attribute) and _is_config(node) and _is_stored(node))
                or (frames_are_read and isinstance(node, ast.arg) and _NAME.fullmatch(node.arg))
                or (names_are_read and _is_global(node, outline))
                or _exposes_stored_config(node, outline, stored)
                or _exposes_all_variables(node, outline)
            ):
                return ast.unparse(node).partition("\n")[0]
            if isinstance(node, ast.alias) and _is_renamed(node) and isinstance(outline.parents[node], ast.ImportFrom):
                return ast.unparse(node)
            if _is_config(node) and isinstance(getattr(node, "ctx", None), ast.Load):
                found = _find_whole_use(node, outline.parents, known, libraries)
                if found is not None:
                    return ast.unparse(found).partition("\n")[0]
    return None


def _imported_libraries(outline: Outline, project: Project) -> frozenset[str]:
    """Return the names that a module imports from other packages."""
    found = set[str]()
    for node in outline.find(ast.Import):
        foreign = (one for one in node.names if not project.module_paths.has_package(one.name.partition(".")[0]))
        found.update(one.asname or one.name.partition(".")[0] for one in foreign)
    for source in outline.find(ast.ImportFrom):
        if not source.level and not project.module_paths.has_package((source.module or "").partition(".")[0]):
            found.update(one.asname or one.name for one in source.names)
    return frozenset(found)


def _is_global(node: ast.AST, outline: Outline) -> bool:
    """Return whether a node assigns a configuration to a module-level name."""
    return (
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and _is_config(node)
        and not any(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in outline.ancestors(node))
    )


def _exposes_stored_config(node: ast.AST, outline: Outline, stored: Collection[str]) -> bool:
    """Return whether ``node`` gives other code access to a whole configuration that an attribute stores.

    This is the case for three kinds of code:

    * The code contains the name of the attribute as a string, as in ``getattr(self, "config")``.
    * The code stores a configuration in command-line arguments, as in ``args.config = config``.
    * The code saves an object that may have the attribute, as in ``torch.save(model, path)``.

    ``stored`` contains the names of the attributes that store a configuration.
    """
    parent = outline.parents.get(node)
    match node:
        case ast.Constant(value=str(name)) if name in stored:
            listed = isinstance(parent, ast.Tuple | ast.List | ast.Set)
            return listed or (isinstance(parent, ast.Call) and _name_of_callee(parent) in ("getattr", "attrgetter"))
        case ast.Attribute(value=ast.Name(id=owner)) if _is_config(node) and _is_stored(node):
            return _COMMAND_LINE.fullmatch(owner) is not None
        case ast.Call(args=[ast.Name(id=name), *_]) if stored and _name_of_callee(node) in _SAVING:
            return isinstance(node.func, ast.Attribute) and not _is_dictionary(name, outline)
    return False


def _is_dictionary(name: str, outline: Outline) -> bool:
    """Return whether all values of a variable are dictionaries, lists, tuples or results of ``state_dict()``."""
    assigned = (one for one in outline.find(ast.Assign) if name in [getattr(to, "id", "") for to in one.targets])
    values = [one.value for one in assigned]
    plain, calls = (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Tuple), ("dict", "list", "state_dict")
    return bool(values) and all(isinstance(one, plain) or _name_of_callee(one) in calls for one in values)


def _exposes_all_variables(node: ast.AST, outline: Outline) -> bool:
    """Return whether code may read all variables at once, as ``locals()`` does.

    The declaration of a configuration as a field of a class, as in ``config: dict``, counts, too, because code such as
    the ``repr`` of a dataclass reads all fields.
    """
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _READING_VARIABLES
        case ast.AnnAssign(target=ast.Name() as field):
            return _is_config(field) and isinstance(outline.parents[node], ast.ClassDef)
    return False


def _definitions(outline: Outline) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each function, method and class, with the names of the parameters after ``self``.

    The parameters of a class are those of its ``__init__``. A function with an unknown decorator has no parameters in
    the result, because the decorator may print the arguments.
    """
    for function in outline.functions:
        called = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
        if any(last_part_of_name(one) not in _PLAIN_DECORATORS for one in called):
            yield function.name, []  # the decorator may print the arguments
            continue
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        yield function.name, names
        owner = outline.parents[function]
        if function.name == "__init__" and isinstance(owner, ast.ClassDef):
            yield owner.name, names


def _is_config(node: ast.AST | None) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return _NAME.fullmatch(name) is not None


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_renamed(imported: ast.alias) -> bool:
    """Return whether an import gives a configuration a name that does not end in ``config``."""
    return _NAME.fullmatch(imported.name) is not None and _NAME.fullmatch(imported.asname or imported.name) is None


def _find_whole_use(
    node: ast.AST,
    parents: Mapping[ast.AST, ast.AST],
    known: Mapping[str, list[list[str]]],
    libraries: Collection[str],
) -> ast.AST | None:
    """Return the code that uses all keys of the configuration ``node``, such as ``print(config)``.

    The result is ``None`` for the uses that do not count (see :func:`first_use_of_whole_config`).
    """
    parent = parents[node]
    match parent:
        case ast.BoolOp() | ast.IfExp():  # config or {}
            return _find_whole_use(parent, parents, known, libraries)
        case ast.Dict(keys=keys, values=values):  # {**config, …}
            merged = any(key is None and value is node for key, value in zip(keys, values, strict=True))
            return _find_whole_use(parent, parents, known, libraries) if merged else parent
        case ast.Attribute(attr="copy") if isinstance(parents[parent], ast.Call):
            return _find_whole_use(parents[parent], parents, known, libraries)
        case ast.Attribute(attr=name):
            return parent if name in _WHOLE or name == "copy" or name.startswith("__") else None
        case ast.Assign(targets=targets):
            return None if all(map(_is_config, targets)) else parent
        case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            return None if _is_config(target) else parent
        case ast.keyword(arg=keyword):
            call = parents[parent]
            callees = _callees(call, known, libraries)
            is_kept = _NAME.fullmatch(keyword or "") and callees and all(keyword in names for names in callees)
            return None if is_kept else call
        case ast.Call(func=ast.Attribute(value=owner, attr="update")) if node in parent.args and _is_config(owner):
            return None
        case ast.Call(args=args) if node in args:
            place, starred = args.index(node), any(isinstance(argument, ast.Starred) for argument in args)
            taking = [names[place : place + 1] for names in _callees(parent, known, libraries)]
            same = bool(taking) and all(names and _NAME.fullmatch(names[0]) for names in taking)
            return None if same and not starred else parent
        case ast.Compare(ops=operators):
            asked = all(isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot) for operator in operators)
            return None if asked else parent
        case ast.Subscript(value=value) if value is node:
            return None
        case ast.If() | ast.While() | ast.Assert() | ast.UnaryOp() | ast.Expr():
            return None
    return parent


def _callees(call: ast.AST, known: Mapping[str, list[list[str]]], libraries: Collection[str]) -> list[list[str]]:
    """Return the parameter names of each function of the project that a call may call."""
    root = call.func if isinstance(call, ast.Call) else call
    while isinstance(root, ast.Attribute):
        root = root.value
    is_foreign = isinstance(root, ast.Name) and root.id in libraries
    return [] if is_foreign else known.get(_name_of_callee(call), [])


def _name_of_callee(call: ast.AST) -> str:
    function = call.func if isinstance(call, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))
