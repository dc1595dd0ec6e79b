"""Names of other modules that a file replaces, as tests do: ``patch``, ``setattr`` and similar calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from chirp_migrate.syntax.module import UnparsableModule, syntax_tree

#: Functions that replace names of the module (or of its dictionary) in their first argument.
_SETTERS = frozenset({"setattr", "delattr", "setitem", "delitem", "__setattr__", "__setitem__"})
_PATCHES = frozenset({"patch", "object", "multiple", "dict"})
#: A text needs one of these words: the import names these functions under every alias.
_MAY_REPLACE = re.compile(r"patch|setattr|delattr|(?:set|del)item")
#: The last part of a module's name, and a name in it, as the end of a dotted path.
_PATH = re.compile(r"(?:\S*\.)?(\w+)\.(\w+)")
#: A path with a placeholder for its module.
_FORMAT = re.compile(r".*(?:\}|%s)\.(\w+)", re.DOTALL)
_QUOTED = re.compile(r"""["'](?:\w+\.)*?(?:(\w+)\.)?(\w+)\\?["']""")
_LAST = re.compile(r"\.?(\w+)")
#: No modules.
_OWN = frozenset({"self", "cls"})
#: Expressions that refer to a module without its name.
_FOUND_MODULES = re.compile(r"\b(sys\.modules|import_module|__import__|getmodule|reload)\b")


def may_replace(text: str) -> bool:
    """Return whether a text has a word that :func:`replacements` looks for."""
    return _MAY_REPLACE.search(text) is not None


def replacements(text: str, is_read: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, str]]:
    """Yield names that a file may replace, each with the last part of its module; "" is any module.

    ``patch("train.DataLoader")``, ``patch.object(train, "DataLoader")``, ``patch.multiple(train, DataLoader=…)``,
    ``patch.dict(train.__dict__, {"DataLoader": …})``, ``monkeypatch.setattr(train, "DataLoader", …)`` and similar calls
    count, and every string that ends with a dotted path, because a variable may pass it to such a call. In a text that
    is no Python, such as a notebook, every string that is a name or a path counts. An object that no import or
    definition of the file binds, such as a parameter, may be any module. A computed name, such as ``"Data" +
    "Loader"``, is "".

    Args:
        text: code.
        is_read: whether code of the project may read a variable of this name; strings in other constants do not count.
    """
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        yield from _QUOTED.findall(text)
        return
    known: dict[str, set[str]] = {}
    calls: list[ast.Call] = []
    written: set[str] = set()
    unread = unread_parts(tree, is_read)
    for node in ast.walk(tree):
        if node in unread:
            continue
        match node:
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                _add_imports(known, imported)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                known.setdefault(name, set())
            case ast.Constant(value=str(path)) if (found := _PATH.fullmatch(path)) is not None:
                yield found[1], found[2]
            case ast.Constant(value=str(path)) if (found := _FORMAT.fullmatch(path)) is not None:
                yield "", found[1]
            case ast.Constant(value=str(name)) | ast.keyword(arg=str(name)):
                written.add(name)
            case ast.Call() if _replaces(node.func):
                calls.append(node)
    for call in calls:
        modules = _modules(call, known)
        yield from ((module, name) for module in modules or {""} for name in _names(call))
        if _takes_names(call):  # `setattr` sets attributes with computed names on objects, hardly ever on modules
            named = modules or (set() if _last(call.func) == "setattr" and isinstance(call.func, ast.Name) else {""})
            yield from ((module, name) for module in named for name in written)
            yield from ((module, "") for module in named if module and _computes_name(call))


def unread_parts(tree: ast.Module, is_read: Callable[[str], bool]) -> set[ast.AST]:
    """Return the parts of lists and other displays that a module stores in a variable that no code reads."""
    parts: set[ast.AST] = set()
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.List() | ast.Tuple() | ast.Set() | ast.Dict() as value
            ):
                if not is_read(name):
                    parts.update(ast.walk(value))
    return parts


def reads_variable(text: str, name: str) -> bool:
    """Return whether code may read a variable or attribute of a name, imports it, or has the name as a string."""
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return True
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=found, ctx=ast.Load()) | ast.Attribute(attr=found) | ast.alias(name=found):
                if found == name:
                    return True
            case ast.Constant(value=found) if found == name:
                return True
    return False


def assignments(text: str, name: str) -> Iterator[str]:
    """Yield the possible names of modules whose attribute ``name`` a file assigns, as ``train.DataLoader = …`` does.

    Raises:
        UnparsableModule: the text is not Python.
    """
    known: dict[str, set[str]] = {}
    targets: list[ast.expr] = []
    for node in ast.walk(syntax_tree(text)):
        match node:
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                _add_imports(known, imported)
            case ast.Attribute(value=module, attr=attribute, ctx=ast.Store() | ast.Del()) if attribute == name:
                targets.append(module)
    for target in targets:
        yield from _modules_of(target, known)


def _add_imports(known: dict[str, set[str]], imported: list[ast.alias]) -> None:
    """Add the names that an import binds, each with the last part of its qualified name."""
    for one in imported:
        last = one.name.rpartition(".")[2]
        known.setdefault(one.asname or last, set()).add(last)


def _replaces(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=owner, attr=name) if name in _PATCHES - {"patch"}:
            return _last(owner) == "patch"
    return _last(function) == "patch" or _last(function) in _SETTERS


def _last(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _modules(call: ast.Call, known: dict[str, set[str]]) -> set[str]:
    """Return the last parts of the names of the modules that the first argument of a call may be; empty if unknown."""
    target = call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "target"), None)
    match target:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            target = owner
        case ast.Constant(value=str(path)):
            return {path.removesuffix(".__dict__").rpartition(".")[2]}
    return _modules_of(target, known)


def _modules_of(target: ast.expr | None, known: dict[str, set[str]]) -> set[str]:
    match target:
        case ast.Name(id="__name__"):  # this file's own module, whose name is unknown
            return {""}
        case ast.Name(id=name) if name in known or name in _OWN:
            return {name, *known.get(name, ())}
        case ast.Attribute(attr=name) if _first(target) in known:
            return {name}
        case ast.JoinedStr() | ast.BinOp():
            return {""}
        case ast.expr() if _FOUND_MODULES.search(ast.unparse(target)) is not None:
            return {""}
    return set()


def _first(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return _last(node)


def _takes_names(call: ast.Call) -> bool:
    """Return whether a call may get names that are written elsewhere in the file."""
    named = (one.value for one in call.keywords if one.arg in (None, "attribute", "values"))
    return any(not isinstance(one, ast.Constant | ast.Dict) for one in (*call.args[1:2], *named))


def _computes_name(call: ast.Call) -> bool:
    """Return whether the name in the arguments of a call is computed from parts."""
    return any(isinstance(one, ast.BinOp | ast.JoinedStr | ast.Call) for one in call.args[1:2])


def _names(call: ast.Call) -> Iterator[str]:
    """Yield names that a call may replace: in its strings, also as parts of them, and its keywords."""
    for node in ast.walk(call):
        match node:
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if (found := _LAST.fullmatch(text)) is not None:
                yield found[1]
