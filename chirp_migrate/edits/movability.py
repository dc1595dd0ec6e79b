"""What keeps a function from being moved out of the functions and classes around it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.capture_timing import early_binding_problem
from chirp_migrate.analysis.dataflow.closures import Capture
from chirp_migrate.analysis.dataflow.onlookers import is_replaced
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, find_own, is_read
from chirp_migrate.syntax.scopes import Scope

#: Names whose meaning depends on the function, or the class, they stand in.
_OF_FUNCTION = frozenset({"dir", "eval", "exec", "locals", "vars"})
_OF_CLASS = frozenset({"super", "__class__"})
#: Files in which pytest looks for tests.
_TESTS = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")


def check_body(module: Module, node: cst.FunctionDef | cst.Lambda | cst.ClassDef) -> None:
    """See that nothing in a function or class depends on where it stands, besides the names it reads, nor the function
    around on having it, nor the module on having it not.

    Raises:
        NotMovable: something does.
    """
    if "__getattr__" in module.scopes.module.bindings:
        raise NotMovable("the module's `__getattr__` answers for names that the module does not have")
    outer = module.enclosing_function(node)
    for call in find_own(outer, cst.Call) if outer is not None else ():
        word = dotted(call.func) or ""
        if word in _OF_FUNCTION and module.scopes.lookup(word, call) is None:
            raise NotMovable(f"`{word}` in the function around it may look at its names")
    for one in walk(node.body):
        if isinstance(one, cst.Nonlocal):
            for item in one.names:
                owner = module.scopes.lookup(item.name.value, one)
                if owner is None or node not in (owner[0].node, *module.ancestors(owner[0].node)):
                    raise NotMovable(f"it rebinds `{item.name.value}` of the function around it")
        elif isinstance(one, cst.Name) and one.value in (_OF_FUNCTION | _OF_CLASS):
            is_moved = one.value in _OF_CLASS and _own_class(module, one, node) is not None
            called = isinstance(module.parents[one], cst.Call) or one.value == "__class__"
            if called and not is_moved and module.scopes.lookup(one.value, one) is None:
                raise NotMovable(f"`{one.value}` in it depends on where it stands")
        elif isinstance(one, cst.Name) and re.fullmatch(r"__\w*(?<!__)", one.value):
            around = module.enclosing_class(one)
            if around is not None and around is not _own_class(module, one, node):
                raise NotMovable(f"`{one.value}` in it is private to the class around it")


def _own_class(module: Module, name: cst.CSTNode, node: cst.CSTNode) -> cst.ClassDef | None:
    """The class around ``name`` that is ``node``, or lies in it, and so moves with it."""
    owner = module.enclosing_class(name)
    return owner if owner is not None and node in (owner, *module.ancestors(owner)) else None


def check_values(module: Module, node: cst.CSTNode, captured: Iterable[Capture]) -> None:
    """See that captured values can be bound where ``node`` stands, and go to another process.

    Raises:
        NotMovable: one cannot.
    """
    captured = list(captured)
    for one in captured:
        for binding in one.bindings:
            holder = module.parents.get(binding.node)
            value = getattr(holder if isinstance(binding.node, cst.AssignTarget) else binding.node, "value", None)
            if isinstance(binding.node, cst.FunctionDef | cst.ClassDef):
                kind = "class" if isinstance(binding.node, cst.ClassDef) else "function"
                raise NotMovable(f"it uses the local {kind} `{one.name}`, which would have to move first")
            if isinstance(value, cst.Lambda):
                raise NotMovable(f"it uses the lambda `{one.name}`, which would have to move first")
    problem = early_binding_problem(module, node, captured)
    if problem is not None:
        raise NotMovable(problem)


def outer_name(module: Module, node: cst.CSTNode) -> str:
    """What the function around is called in the names of what moves out of it; for ``__init__`` that is the class."""
    function = module.enclosing_function(node)
    name = function.name.value if function is not None else ""
    owner = module.enclosing_class(function) if function is not None else None
    return (owner.name.value if owner is not None and name.startswith("__") else name).strip("_")


def is_unused(module: Module, project: Project, name: str, scope: Scope) -> bool:
    """Whether a name of a function's ``scope`` is free around it and in the module, and nothing reads it there.

    What pytest takes for a test at the top of a module, by its name, is read.
    """
    if re.match("test|Test", name) and _TESTS.search(module.path) is not None:
        return False
    outer = scope.parent
    while outer is not None:
        if name in outer.bindings:
            return False
        outer = outer.parent
    reads = (one for one in module.named(name) if is_read(module, one))
    used = any(module.scopes.lookup(name, one) is None for one in reads)
    elsewhere = project.imported_elsewhere(module, name) or is_replaced(module, project, name)
    return not used and not module.scopes.is_builtin(name) and not elsewhere
