"""Find names that a file replaces in other modules, as tests do with ``patch``, ``setattr`` and similar calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from chirp_migrate.syntax.module import UnparsableModule, syntax_tree, walk_tree
from chirp_migrate.syntax.outline import last_part_of_name

#: Functions that replace a name in a module. The module, or its dictionary, is their first argument.
_SETTERS = frozenset({"setattr", "delattr", "setitem", "delitem", "__setattr__", "__setitem__"})
_PATCHES = frozenset({"patch", "object", "multiple", "dict"})
#: A text that replaces names contains one of these words. An import under an alias contains the word, too.
_MAY_REPLACE = re.compile(r"patch|setattr|delattr|(?:set|del)item")
#: A dotted path. The groups of the pattern are the last part of the module's name, and the name in the module.
_PATH = re.compile(r"(?:\S*\.)?(\w+)\.(\w+)")
#: A dotted path with a placeholder for the module's name.
_FORMAT = re.compile(r".*(?:\}|%s)\.(\w+)", re.DOTALL)
_QUOTED = re.compile(r"""["'](?:\w+\.)*?(?:(\w+)\.)?(\w+)\\?["']""")
_LAST = re.compile(r"\.?(\w+)")
#: Names that never refer to a module.
_OWN = frozenset({"self", "cls"})
#: Expressions that find a module at run time.
_FOUND_MODULES = re.compile(r"\b(sys\.modules|import_module|__import__|getmodule|reload)\b")


def names_replaced_in_modules(text: str) -> frozenset[tuple[str, str, str]]:
    """Return the names that a file may replace in modules, as tuples (module, name, variable).

    The function recognises ``patch("train.DataLoader")``, ``patch.object(train, "DataLoader")``,
    ``patch.multiple(train, DataLoader=…)``, ``patch.dict(train.__dict__, {"DataLoader": …})``,
    ``monkeypatch.setattr(train, "DataLoader", …)`` and similar calls. Every other string that ends with a dotted path
    also counts, because code may store the string in a variable and pass the variable to such a call. In a text that is
    not Python, such as a notebook, every string that is a name or a dotted path counts.

    ``module`` is the last part of the module's name. It is "" if the module is unknown, as for an object that the file
    neither imports nor defines. ``name`` is "" for a computed name, such as ``"Data" + "Loader"``. ``variable`` is
    ``"TARGETS"`` if the call or string is inside a literal that the file assigns to a variable, as in
    ``TARGETS = ["train.DataLoader"]``. If no code reads this variable, the call or string replaces nothing. Outside
    such literals, ``variable`` is "".
    """
    return frozenset(_find_replaced_names(text)) if _MAY_REPLACE.search(text) is not None else frozenset()


def _find_replaced_names(text: str) -> Iterator[tuple[str, str, str]]:
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        yield from ((module, name, "") for module, name in _QUOTED.findall(text))
        return
    known: dict[str, set[str]] = {}
    calls: list[ast.Call] = []
    written: set[tuple[str, str]] = set()
    variables = variables_of_literals(tree)
    for node in walk_tree(tree):
        variable = variables.get(node, "")
        match node:
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                _add_imports(known, imported)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                known.setdefault(name, set())
            case ast.Constant(value=str(path)) if (found := _PATH.fullmatch(path)) is not None:
                yield found[1], found[2], variable
            case ast.Constant(value=str(path)) if (found := _FORMAT.fullmatch(path)) is not None:
                yield "", found[1], variable
            case ast.Constant(value=str(name)) | ast.keyword(arg=str(name)):
                written.add((name, variable))
            case ast.Call() if _replaces(node.func):
                calls.append(node)
    for call in calls:
        modules, variable = _modules(call, known), variables.get(call, "")
        yield from ((module, name, variable) for module in modules or {""} for name in _names_in_call(call))
        if _may_receive_names(call):  # code uses `setattr` with computed names for objects, hardly ever for modules
            named = modules or (
                set() if last_part_of_name(call.func) == "setattr" and isinstance(call.func, ast.Name) else {""}
            )
            yield from ((module, name, variable or holder) for module in named for name, holder in written)
            yield from ((module, "", variable) for module in named if module and _computes_name(call))


def variables_of_literals(tree: ast.Module) -> dict[ast.AST, str]:
    """Return a dictionary: node inside a literal → name of the variable to which the module assigns the literal.

    In ``TARGETS = ["train.DataLoader"]``, the string has the value ``"TARGETS"``. Literals are lists, tuples, sets and
    dictionaries. Only assignments at the top level of the module count.
    """
    found: dict[ast.AST, str] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.List() | ast.Tuple() | ast.Set() | ast.Dict() as value
            ):
                found |= dict.fromkeys(walk_tree(value), name)
    return found


def reads_variable(text: str, name: str) -> bool:
    """Return whether a text reads a variable or attribute ``name``, imports ``name``, or contains it as a string."""
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return True
    for node in walk_tree(tree):
        match node:
            case ast.Name(id=found, ctx=ast.Load()) | ast.Attribute(attr=found) | ast.alias(name=found):
                if found == name:
                    return True
            case ast.Constant(value=found) if found == name:
                return True
    return False


def modules_with_assignment(text: str, name: str) -> set[str]:
    """Return the last name of each module in which a file may assign or delete ``name``.

    For ``package.train.DataLoader = …``, the last name is ``train``. The result contains "" if the file finds a module
    at run time, as with ``import_module``, or if the text is not Python.
    """
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return {""}
    known: dict[str, set[str]] = {}
    targets: list[ast.expr] = []
    for node in walk_tree(tree):
        match node:
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                _add_imports(known, imported)
            case ast.Attribute(value=module, attr=attribute, ctx=ast.Store() | ast.Del()) if attribute == name:
                targets.append(module)
    return {module for target in targets for module in _modules_of(target, known)}


def _add_imports(known: dict[str, set[str]], imported: list[ast.alias]) -> None:
    """For each name that an import binds, add the last part of the imported object's name to ``known``."""
    for one in imported:
        last = one.name.rpartition(".")[2]
        known.setdefault(one.asname or last, set()).add(last)


def _replaces(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=owner, attr=name) if name in _PATCHES - {"patch"}:
            return last_part_of_name(owner) == "patch"
    return last_part_of_name(function) == "patch" or last_part_of_name(function) in _SETTERS


def _modules(call: ast.Call, known: dict[str, set[str]]) -> set[str]:
    """Return the last name of each module to which a call's first argument may refer; an empty set if unknown."""
    target = call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "target"), None)
    match target:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            target = owner
        case ast.Constant(value=str(path)):
            return {path.removesuffix(".__dict__").rpartition(".")[2]}
    return _modules_of(target, known)


def _modules_of(target: ast.expr | None, known: dict[str, set[str]]) -> set[str]:
    match target:
        case ast.Name(id="__name__"):  # the module of this file, whose name is unknown
            return {""}
        case ast.Name(id=name) if name in known or name in _OWN:
            return {name, *known.get(name, ())}
        case ast.Attribute(attr=name) if _first_name(target) in known:
            return {name}
        case ast.JoinedStr() | ast.BinOp():
            return {""}
        case ast.expr() if _FOUND_MODULES.search(ast.unparse(target)) is not None:
            return {""}
    return set()


def _first_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return last_part_of_name(node)


def _may_receive_names(call: ast.Call) -> bool:
    """Return whether a call may replace names that are strings elsewhere in the file.

    The result is True if the argument for the name is not a literal, as in ``setattr(train, name, …)``.
    """
    named = (one.value for one in call.keywords if one.arg in (None, "attribute", "values"))
    return any(not isinstance(one, ast.Constant | ast.Dict) for one in (*call.args[1:2], *named))


def _computes_name(call: ast.Call) -> bool:
    """Return whether the second argument of a call, which is the name to replace, is a computed string."""
    return any(isinstance(one, ast.BinOp | ast.JoinedStr | ast.Call) for one in call.args[1:2])


def _names_in_call(call: ast.Call) -> Iterator[str]:
    """Yield names that a call may replace: its keywords, and each string in its arguments that is a name."""
    for node in walk_tree(call):
        match node:
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if (found := _LAST.fullmatch(text)) is not None:
                yield found[1]
