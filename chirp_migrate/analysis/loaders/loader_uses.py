"""What a mention of PyTorch's ``DataLoader`` is for: a call, a name only, or the class handed on as a value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.closures import is_variable
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.scopes import Scope

__all__ = ["Use", "UseKind", "use_of"]

#: Functions that look at a class and make nothing of it.
_LOOKS = re.compile(
    r"builtins\.(isinstance|issubclass|hasattr|getattr|repr|str|id|type|super|dir|vars|print|hash)"
    r"|inspect\.\w+|typing\.(cast|TypeVar|NewType|get_type_hints)"
    r"|unittest\.mock\.(create_autospec|patch\.object)|functools\.(wraps|update_wrapper)"
)
_PARTIAL = frozenset({"functools.partial"})


class UseKind(Enum):
    """What a mention of the class is for."""

    CALL = "call"
    NAMED = "named"
    CALLABLE = "callable"
    SUBCLASS = "subclass"
    VALUE = "value"


@dataclass(frozen=True)
class Use:
    """How a mention of the class is used.

    Attributes:
        kind: ``CALL``: it is called; ``NAMED``: nothing is built from it here; ``CALLABLE``: it is only ever called
            with a loader's arguments, later; ``SUBCLASS``: a class inherits from it; ``VALUE``: anything else.
        call: the call, for ``CALL``.
        where: for ``VALUE`` and ``SUBCLASS``, where it goes, in words.
    """

    kind: UseKind
    call: cst.Call | None = None
    where: str = ""


def use_of(module: Module, project: Project, node: cst.Name | cst.Attribute) -> Use:
    """How the mention ``node`` of the class is used."""
    top: cst.CSTNode = node
    parent = module.parents[top]
    if isinstance(parent, cst.Subscript) and parent.value is top:
        top, parent = parent, module.parents[parent]  # DataLoader[Batch](…)
    if isinstance(parent, cst.Call) and parent.func is top:
        return Use(UseKind.CALL, parent)
    while isinstance(parent, cst.IfExp | cst.BooleanOperation) and not (
        isinstance(parent, cst.IfExp) and parent.test is top
    ):
        top, parent = parent, module.parents[parent]
    if isinstance(parent, cst.Arg):
        return _as_argument(module, parent)
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        return _assigned(module, project, parent.targets[0].target)
    if isinstance(parent, cst.Param) and parent.default is top:
        return _held(module, project, parent.name)
    return Use(UseKind.NAMED) if _only_names(module, node) else Use(UseKind.VALUE, where=_where(module, node))


def _as_argument(module: Module, argument: cst.Arg) -> Use:
    owner = module.parents[argument]
    if isinstance(owner, cst.ClassDef):
        return Use(UseKind.SUBCLASS, where=owner.name.value)
    assert isinstance(owner, cst.Call)
    names = module.qualified_names(owner.func)
    if names and names <= _PARTIAL and owner.args[0] is argument and not argument.star:
        return Use(UseKind.CALLABLE)
    if names and all(_LOOKS.fullmatch(name) for name in names):
        return Use(UseKind.NAMED)
    return Use(UseKind.VALUE, where=f"given to {module.source(owner.func).strip()}(…)")


def _assigned(module: Module, project: Project, target: cst.BaseExpression) -> Use:
    if isinstance(target, cst.Name):
        return _held(module, project, target)
    if m.matches(target, m.Attribute(m.Name("self"), m.Name())):
        assert isinstance(target, cst.Attribute)
        return _held_by_attribute(module, project, target.attr.value)
    return Use(UseKind.VALUE, where=f"kept in {module.source(target).strip()}")


def _held(module: Module, project: Project, name: cst.Name) -> Use:
    """The class is the value of a variable or parameter."""
    scope = module.scopes.scope_of(name)
    if isinstance(scope.node, cst.ClassDef):
        return _held_by_attribute(module, project, name.value)
    elsewhere = Use(UseKind.VALUE, where=f"kept in {name.value}")
    if scope is module.scopes.module and project.imported_elsewhere(module, name.value):
        return elsewhere
    return Use(UseKind.CALLABLE) if _only_called(module, scope, name.value) else elsewhere


def _held_by_attribute(module: Module, project: Project, attribute: str) -> Use:
    elsewhere = Use(UseKind.VALUE, where=f"kept in the attribute {attribute}")
    mentions = [one for one in module.find(cst.Attribute) if one.attr.value == attribute]
    reads = [one for one in mentions if not isinstance(module.parents[one], cst.AssignTarget)]
    if not reads or project.mentions(attribute, besides=module.path):
        return elsewhere
    return Use(UseKind.CALLABLE) if all(_is_called(module, one) for one in reads) else elsewhere


def _only_called(module: Module, scope: Scope, name: str) -> bool:
    reads = 0
    for mention in module.find(cst.Name):
        if mention.value != name or not is_variable(module, mention):
            continue
        found = module.scopes.lookup(name, mention)
        if found is None or found[0] is not scope:
            continue
        parent = module.parents[mention]
        if isinstance(parent, cst.AssignTarget) or (isinstance(parent, cst.Param) and parent.name is mention):
            continue
        reads += 1
        if not _is_called(module, mention):
            return False
    return reads > 0


def _is_called(module: Module, node: cst.CSTNode) -> bool:
    return isinstance(module.parents[node], cst.Call)


def _only_names(module: Module, node: cst.CSTNode) -> bool:
    """Whether the class is only named: in an import, annotation, type, comparison, ``isinstance`` and the like."""
    child = node
    for ancestor in module.ancestors(node):
        if isinstance(ancestor, cst.ImportFrom | cst.Import | cst.Annotation | cst.Comparison | cst.Del):
            return True
        if isinstance(ancestor, cst.SubscriptElement | cst.Attribute):
            return True  # inside a generic type, or a look at one of its attributes
        if isinstance(ancestor, cst.BinaryOperation) and isinstance(ancestor.operator, cst.BitOr):
            return True
        if isinstance(ancestor, cst.Call):
            names = module.qualified_names(ancestor.func)
            return child is not ancestor.func and bool(names) and all(_LOOKS.fullmatch(name) for name in names)
        if isinstance(ancestor, cst.Expr):
            return child is node
        if isinstance(ancestor, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return False
        child = ancestor
    return False


def _where(module: Module, node: cst.CSTNode) -> str:
    for ancestor in module.ancestors(node):
        if isinstance(ancestor, cst.Return):
            return "returned"
        if isinstance(ancestor, cst.Dict | cst.List | cst.Tuple | cst.Set):
            return "kept in a collection"
        if isinstance(ancestor, cst.Call):
            return f"given to {module.source(ancestor.func).strip()}(…)"
        if isinstance(ancestor, cst.BaseSmallStatement):
            break
    return "used as a value"
