"""What a mention of PyTorch's ``DataLoader`` is for: a call, a name only, or the class handed on as a value."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.dataflow.value_flow import Assigned, Called, Chosen, Default, Given, Inherited, step_of
from chirp_migrate.analysis.qualified_names import is_call_of, resolves_to
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.outline import Outline, last_name
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import Mention, mention
from chirp_migrate.syntax.scopes import Scope

#: What a name can be without being used.
_NO_USE = (Mention.LABEL, Mention.BOUND, Mention.DECLARED)
#: Functions that look at a class and make nothing of it.
_LOOKS = re.compile(
    r"builtins\.(isinstance|issubclass|hasattr|getattr|repr|str|id|type|super|dir|vars|print|hash)"
    r"|inspect\.\w+|typing\.(cast|TypeVar|NewType|get_type_hints)"
    r"|unittest\.mock\.(create_autospec|patch\.object)|functools\.(wraps|update_wrapper)"
)
#: Methods of the factory.
_METHOD = re.compile(r"create_(\w+_)?loader")
_PARTIAL = frozenset({"functools.partial"})


def may_build(outline: Outline, spellings: frozenset[str]) -> bool:
    """Whether the class, or the factory, under one of these names is more than imported and annotated with."""
    if any(one.asname and one.name in spellings for one in outline.find(ast.alias)):
        return True
    named = (one for one in outline.find(ast.Name, ast.Attribute) if last_name(one) in spellings)
    return any(not _is_annotation(outline, one) for one in named)


def _is_annotation(outline: Outline, node: ast.AST) -> bool:
    """Whether an expression is an annotation, or part of one."""
    for parent in outline.ancestors(node):
        if node in (getattr(parent, "annotation", None), getattr(parent, "returns", None)):
            return True
        node = parent
    return False


def loader_mentions(module: Module, spellings: Collection[str]) -> list[cst.Name | cst.Attribute]:
    """Names that may be the class, and attributes that may be the factory's methods, in order of the text."""
    names = [one for one in module.find(cst.Name) if one.value in spellings]
    attributes = [
        one for one in module.find(cst.Attribute) if one.attr.value in spellings or _METHOD.fullmatch(one.attr.value)
    ]
    return sorted([*names, *attributes], key=lambda one: module.span(one)[0])


@dataclass(frozen=True)
class Built:
    """A loader is built from it by ``call``."""

    call: cst.Call


@dataclass(frozen=True)
class Named:
    """Nothing is built from it here."""


@dataclass(frozen=True)
class CalledLater:
    """It is only ever called with a loader's arguments, later."""


@dataclass(frozen=True)
class NotFollowed:
    """It is a ``subclass`` of it that is used then, or it is ``used-as-value``: which class, or where, in words."""

    why: str
    what: str


Use = Built | Named | CalledLater | NotFollowed


def use_of(module: Module, project: Project, node: cst.Name | cst.Attribute) -> Use:
    """How the mention ``node`` of the class is used."""
    top: cst.CSTNode = node
    if isinstance(generic := module.parents[node], cst.Subscript) and generic.value is node:
        top = generic  # DataLoader[Batch](…)
    step = step_of(module, top)
    while isinstance(step, Chosen):
        step = step_of(module, step.whole)
    match step:
        case Called(call) if call.func is top:
            return Built(call)
        case Inherited(definition):
            return NotFollowed("subclass", definition.name.value)
        case Given(argument, call):
            return _as_argument(module, argument, call)
        case Assigned((cst.Name() as name,), cst.Assign()):
            return _held(module, project, name)
        case Assigned((cst.Attribute(value=cst.Name(value="self"), attr=attribute),), cst.Assign()):
            return _held_by_attribute(module, project, attribute.value)
        case Assigned((target,), cst.Assign()):
            return _handed_on(f"kept in {module.source(target).strip()}")
        case Default(parameter):
            return _held(module, project, parameter.name)
    return Named() if _only_names(module, node) else _handed_on(_where(module, node))


def _handed_on(where: str) -> NotFollowed:
    return NotFollowed("used-as-value", where)


def _as_argument(module: Module, argument: cst.Arg, call: cst.Call) -> Use:
    names = module.qualified_names(call.func)
    if names and names <= _PARTIAL and call.args[0] is argument and not argument.star:
        return CalledLater()
    if resolves_to(module, call.func, _LOOKS):
        return Named()
    return _handed_on(f"given to {module.source(call.func).strip()}(…)")


def _held(module: Module, project: Project, name: cst.Name) -> Use:
    """The class is the value of a variable or parameter."""
    scope = module.scopes.scope_of(name)
    if isinstance(scope.node, cst.ClassDef):
        return _held_by_attribute(module, project, name.value)
    elsewhere = _handed_on(f"kept in {name.value}")
    if scope is module.scopes.module and project.imported_elsewhere(module, name.value):
        return elsewhere
    return CalledLater() if _only_called(module, scope, name.value) else elsewhere


def _held_by_attribute(module: Module, project: Project, attribute: str) -> Use:
    elsewhere = _handed_on(f"kept in the attribute {attribute}")
    mentions = [one for one in module.find(cst.Attribute) if one.attr.value == attribute]
    reads = [one for one in mentions if not isinstance(module.parents[one], cst.AssignTarget)]
    if not reads or project.mentions(attribute, besides=module.path):
        return elsewhere
    return CalledLater() if all(isinstance(module.parents[one], cst.Call) for one in reads) else elsewhere


def _only_called(module: Module, scope: Scope, name: str) -> bool:
    reads = []
    for one in module.named(name):
        found = module.scopes.lookup(name, one) if mention(module, one) not in _NO_USE else None
        if found is not None and found[0] is scope:
            reads.append(one)
    return bool(reads) and all(isinstance(module.parents[one], cst.Call) for one in reads)


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
            return child is not ancestor.func and is_call_of(module, ancestor, _LOOKS)
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
