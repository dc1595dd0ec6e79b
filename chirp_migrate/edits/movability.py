"""What keeps a function from being moved out of the functions and classes around it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.capture_timing import early_binding_problem
from chirp_migrate.analysis.dataflow.closures import Capture, mentions
from chirp_migrate.analysis.dataflow.origins import backend_holds
from chirp_migrate.edits.move_definition import NotMovable, free_name
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.scopes import Scope

#: Names whose meaning depends on the function, or the class, they stand in.
_OF_FUNCTION = frozenset({"dir", "eval", "exec", "locals", "vars"})
_OF_CLASS = frozenset({"super", "__class__"})


def check_body(module: Module, node: cst.FunctionDef | cst.Lambda | cst.ClassDef) -> None:
    """See that nothing in a function or class depends on where it stands, besides the names it reads.

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


#: Looks at what differs in functions where one has moved, and what partial objects have not.
_LOOKS = (
    r"(?<!\))(?<!__class__)(?<!\bcls)\.__(name|qualname|code|defaults|closure)__\b"
    r"""|["']__(name|qualname|code|defaults|closure)__["']|\b(isfunction|isroutine|FunctionType|LambdaType)\b"""
)
_LOOKED_AT = (
    *("__name__", "__qualname__", "__code__", "__defaults__", "__closure__"),
    *("isfunction", "isroutine", "FunctionType", "LambdaType"),
)
#: Copies of an object with all it holds; those of models, their state and settings hold no function of a dataset's.
_COPIES = (
    r"\bdeepcopy\((?!\s*[\w.]*(state_dict\(\)|\w*model\w*|\w*net|\w*config\w*|\w*params?|\w*weights)\s*[,)])"
    r"|\bdeepcopy\s+as\b|__deepcopy__"
)


def check_onlookers(module: Module, project: Project, uses: Iterable[cst.Name], holds: bool) -> None:
    """See that nothing can tell a function from what it becomes.

    Args:
        module: where the function stands.
        project: searched for code that looks at functions or copies what may hold them.
        uses: where the function is read by its name.
        holds: whether values are bound to what it becomes, which a deep copy copies as well (of a function, it does
            not).

    Raises:
        NotMovable: something may.
    """
    if any(isinstance(module.parents[use], cst.Attribute) for use in uses):
        raise NotMovable("attributes of it are used")
    if backend_holds(project, _LOOKS, *_LOOKED_AT):
        raise NotMovable("the project reads names or code of functions")
    if holds and backend_holds(project, _COPIES, "deepcopy", "__deepcopy__"):
        raise NotMovable("a deep copy of what holds it would copy the values that it uses as well")


def check_calls(module: Module, project: Project, names: Collection[str], positional: int) -> None:
    """See that nothing called by one of ``names`` is given more than ``positional`` arguments by position.

    Raises:
        NotMovable: something is.
    """
    problem = NotMovable("a call passes a parameter by position whose default is evaluated where it stands")
    for call in module.find(cst.Call):
        last = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
        if isinstance(last, cst.Name) and last.value in names:
            by_position = [one for one in call.args if one.keyword is None]
            if len(by_position) > positional or any(one.star for one in call.args):
                raise problem
    elsewhere = re.compile(rf"(?<!def )\b(?:{'|'.join(map(re.escape, sorted(names)))})\s*\((?:[^()=]*,|\s*\*)")
    if any(path != module.path for path, _ in project.matching(elsewhere, *names)):
        raise problem


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
    name = free_name(module, wishes, used)
    while has_relatives and project.search(rf"\b{name}\b", name):
        used.add(name)
        name = free_name(module, wishes, used)
    return name
