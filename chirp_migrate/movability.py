"""What keeps a function from being moved out of the functions and classes around it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import libcst as cst

from chirp_migrate.closures import Capture, mentions
from chirp_migrate.early_binding import early_binding_problem
from chirp_migrate.lifting import NotMovable, free_name
from chirp_migrate.module import Module, walk
from chirp_migrate.names import Scope
from chirp_migrate.project import Project

__all__ = ["check_body", "check_calls", "check_values", "is_unused", "method_name", "outer_name", "owning_method"]

#: Names whose meaning depends on the function, or the class, they stand in.
_OF_FUNCTION = frozenset({"locals", "vars", "eval", "exec"})
_OF_CLASS = frozenset({"super", "__class__"})


def check_body(module: Module, node: cst.FunctionDef | cst.Lambda) -> None:
    """See that nothing in a function depends on where it stands, besides the names it reads.

    Raises:
        NotMovable: something does.
    """
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
    """The class around ``name`` that lies in ``node`` and moves with it."""
    owner = module.enclosing_class(name)
    return owner if owner is not None and node in module.ancestors(owner) else None


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


#: Attributes of functions that differ where one has moved, and that partial objects have not.
LOOKS_AT_FUNCTIONS = r"(?<!\))(?<!__class__)(?<!\bcls)\.__(name|qualname|code|defaults|closure)__\b|\bisfunction\b"


def check_calls(module: Module, uses: Iterable[cst.Name], positional: int) -> None:
    """See that no direct call of a function gives more than its first ``positional`` parameters by position.

    Raises:
        NotMovable: one does.
    """
    for use in uses:
        call = module.parents[use]
        if isinstance(call, cst.Call) and call.func is use:
            by_position = [one for one in call.args if one.keyword is None]
            if len(by_position) > positional or any(one.star for one in call.args):
                raise NotMovable("a call of it gives a parameter whose default is made where it stands")


def owning_method(module: Module, captured: Capture) -> cst.FunctionDef | None:
    """The method whose ``self`` is captured, if it is one."""
    method = captured.scope.node
    if captured.name != "self" or not isinstance(method, cst.FunctionDef) or method.decorators:
        return None
    parameters = [*method.params.posonly_params, *method.params.params]
    is_first = bool(parameters) and parameters[0].name.value == "self" and len(captured.bindings) == 1
    return method if is_first and isinstance(module.scopes.scope_of(method).node, cst.ClassDef) else None


def outer_name(module: Module, node: cst.CSTNode) -> str:
    """What the function around is called in the names of what moves out of it; for ``__init__`` that is the class."""
    function = module.enclosing_function(node)
    name = function.name.value if function is not None else ""
    owner = module.enclosing_class(function) if function is not None else None
    return (owner.name.value if owner is not None and name.startswith("__") else name).strip("_")


def is_unused(module: Module, project: Project, name: str, scope: Scope) -> bool:
    """Whether a name of a function's ``scope`` is free around it and in the module, and nothing reads it there."""
    outer = scope.parent
    while outer is not None:
        if name in outer.bindings:
            return False
        outer = outer.parent
    owners = (module.scopes.lookup(name, one) for one in mentions(module, name))
    is_read = any(one is None or isinstance(one[0].node, cst.Module) for one in owners)
    return not is_read and not module.scopes.is_builtin(name) and not project.imported_elsewhere(module, name)


def method_name(
    module: Module, project: Project, method: cst.FunctionDef, wishes: list[str], taken: Collection[str]
) -> str:
    """A free name for a method beside ``method``, also in classes of the project that share methods with its class.

    Of ``taken`` only those count that stand behind ``self.``.
    """
    owner = module.enclosing_class(method)
    assert owner is not None
    bases = {name for base in owner.bases for name in project.resolved_names(module, base.value)}
    subclass = rf"class\s+\w+\s*\([^)]*\b{re.escape(owner.name.value)}\b"
    has_relatives = any(project.class_definition(base) is not None for base in bases) or project.search(
        subclass, owner.name.value
    )
    used = {one.removeprefix("self.") for one in taken if one.startswith("self.")}
    while project.search(rf"\b{(name := free_name(module, wishes, used))}\b") and has_relatives:
        used.add(name)
    return name
