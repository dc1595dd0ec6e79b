"""Classify the mentions of PyTorch's ``DataLoader``.

Code may call the class, only name the class, or use the class as a value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_reads import has_dynamic_attribute_read
from chirp_migrate.analysis.dataflow.closures import variable_mentions
from chirp_migrate.analysis.dataflow.value_flow import (
    BaseClass,
    CallArgument,
    CalledValue,
    ConditionalOperand,
    ParameterDefault,
    Step,
    ValueAssignment,
    next_use_of_value,
)
from chirp_migrate.analysis.known_names import is_call_of
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_uses import is_imported_elsewhere
from chirp_migrate.syntax.outline import Outline, last_part_of_name
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import NameRole, name_role

#: Functions that inspect a class without creating objects.
_LOOKS = re.compile(
    r"builtins\.(isinstance|issubclass|hasattr|getattr|repr|str|id|type|super|dir|vars|print|hash)"
    r"|inspect\.\w+|typing\.(cast|TypeVar|NewType|get_type_hints)"
    r"|unittest\.mock\.(create_autospec|patch\.object)|functools\.(wraps|update_wrapper)"
)
_PARTIAL = re.compile(r"functools\.partial")
#: Code that may read the attribute `func` of a `partial`. A method call `x.func()`, an assignment and `self.func` do
#: not match.
_FUNC = r"(?<!\bself)\.\s*func\b(?!\s*(?:\(|=(?!=)))"


def uses_names_beyond_imports(outline: Outline, names: Set[str]) -> bool:
    """Return whether a module uses one of the names for more than imports, annotations and checks of classes.

    A check of a class is a call such as ``isinstance(x, DataLoader)``. An import with an alias counts as a use.
    """
    if any(alias.asname and alias.name in names for alias in outline.find(ast.alias)):
        return True
    named = (node for node in outline.find(ast.Name, ast.Attribute) if last_part_of_name(node) in names)
    return any(not (_is_annotation(outline, one) or _is_checked_class(outline, one)) for one in named)


def _is_annotation(outline: Outline, node: ast.AST) -> bool:
    """Return whether an expression is an annotation, or a part of an annotation outside of calls."""
    for parent in outline.ancestors(node):
        if isinstance(parent, ast.Call):
            return False
        if node in (getattr(parent, "annotation", None), getattr(parent, "returns", None)):
            return True
        node = parent
    return False


def _is_checked_class(outline: Outline, node: ast.AST) -> bool:
    """Return whether an expression is the second argument of ``isinstance`` or ``issubclass``, or is in this tuple."""
    parent = outline.parents[node]
    if isinstance(parent, ast.Tuple):
        node, parent = parent, outline.parents[parent]
    match parent:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass" as name), args=[_, checked]):
            return checked is node and name not in outline.bound and "*" not in outline.imports
    return False


@dataclass(frozen=True)
class LoaderClassUse:
    """How code uses one mention of ``DataLoader``.

    Attributes:
        why: the kind of use. ``called``: the code calls the class. ``named``: the code only names the class, as in an
            annotation. ``called-later``: the code stores the class, and only calls the stored class. ``subclass``: a
            class inherits from ``DataLoader``. ``used-as-value``: any other use.
        what: the name of the subclass, or a description of the code that receives the class as a value.
        call: the call of the class, which builds a loader; None for other uses.
    """

    why: str
    what: str = ""
    call: cst.Call | None = None


_NAMED, _CALLED_LATER = LoaderClassUse("named"), LoaderClassUse("called-later")


def use_of_loader_class(module: Module, project: Project, node: cst.Name | cst.Attribute) -> LoaderClassUse:
    """Return how code uses the mention ``node`` of ``DataLoader``."""
    top: cst.CSTNode = node
    if isinstance(generic := module.parents[node], cst.Subscript) and generic.value is node:
        top = generic  # DataLoader[Batch](…)
    step = next_use_of_value(module, top)
    while isinstance(step, ConditionalOperand):
        step = next_use_of_value(module, step.whole)
    if isinstance(step, CalledValue) and step.call.func is top:
        return LoaderClassUse("called", call=step.call)
    use = _use_by_step(module, project, node, step)
    if use is _CALLED_LATER and top is not node:  # `DataLoader[Batch]` is valid, but a method has no subscripts
        return LoaderClassUse("used-as-value", f"stored as `{module.source(top).strip()}`")
    return use


def _use_by_step(module: Module, project: Project, node: cst.Name | cst.Attribute, step: Step | None) -> LoaderClassUse:
    """Return the use of ``DataLoader`` at a mention that is not a call.

    ``step`` describes how the code around the mention uses the class, such as ``CallArgument``; None if the module
    ``value_flow`` has no such description.
    """
    match step:
        case BaseClass(definition):
            return LoaderClassUse("subclass", definition.name.value)
        case CallArgument(cst.Arg(star="") as argument, call) if call.args[0] is argument and is_call_of(
            module, call, _PARTIAL
        ):
            is_read = project.search(_FUNC, "func") or has_dynamic_attribute_read(project, "func")
            return (
                LoaderClassUse("used-as-value", "passed to a `partial`, whose attribute `func` the project reads")
                if is_read
                else _CALLED_LATER
            )
        case ValueAssignment((cst.Name() as name,), cst.Assign()) | ParameterDefault(cst.Param(name=name)):
            return _use_of_variable(module, project, name)
        case ValueAssignment((cst.Attribute(value=cst.Name(value="self"), attr=attribute),), cst.Assign()):
            return _use_of_attribute(module, project, attribute.value)
        case ValueAssignment((target,), cst.Assign()):
            return LoaderClassUse("used-as-value", f"stored in `{module.source(target).strip()}`")
    return _use_in_expression(module, node)


def _use_of_variable(module: Module, project: Project, name: cst.Name) -> LoaderClassUse:
    """Return how code uses ``DataLoader`` if ``name`` is a variable or parameter that contains the class."""
    scope = module.scopes.scope_of(name)
    if isinstance(scope.node, cst.ClassDef):  # in the body of a class, a function would become a method
        return LoaderClassUse("used-as-value", f"stored in the class attribute `{name.value}`")
    mentions = variable_mentions(module, name.value, scope)
    reads = [one for one in mentions if name_role(module, one) not in (NameRole.BOUND, NameRole.DECLARED)]
    shared = scope is module.scopes.module and is_imported_elsewhere(project, module, name.value)
    return _use_of_stored_class(module, reads, f"stored in `{name.value}`", shared)


def _use_of_attribute(module: Module, project: Project, attribute: str) -> LoaderClassUse:
    mentions = [one for one in module.find(cst.Attribute) if one.attr.value == attribute]
    reads = [one for one in mentions if not isinstance(module.parents[one], cst.AssignTarget)]
    shared = project.is_named_elsewhere(rf"\.\s*{attribute}\b", attribute, module.path)
    return _use_of_stored_class(module, reads, f"stored in the attribute `{attribute}`", shared)


def _use_of_stored_class(module: Module, reads: Sequence[cst.CSTNode], where: str, shared: bool) -> LoaderClassUse:
    """Return how code uses ``DataLoader`` if a variable or attribute contains the class.

    ``reads`` contains the places that read the variable or attribute. ``where`` describes the variable or attribute for
    messages. ``shared`` is True if files other than this module may read the name.
    """
    is_called = bool(reads) and all(isinstance(module.parents[read], cst.Call) for read in reads)
    return _CALLED_LATER if is_called and not shared else LoaderClassUse("used-as-value", where)


def _use_in_expression(module: Module, node: cst.CSTNode) -> LoaderClassUse:
    """Return the use of ``DataLoader`` at a mention that is not a call, judged by the surrounding code."""
    child, where = node, ""
    for ancestor in module.ancestors(node):
        match ancestor:
            case cst.ImportFrom() | cst.Import() | cst.Annotation() | cst.Comparison() | cst.Del():
                return _NAMED
            case cst.SubscriptElement() | cst.Attribute() | cst.BinaryOperation(operator=cst.BitOr()):
                return _NAMED  # a part of a generic type, or a read of an attribute of the class
            case cst.Dict() | cst.List() | cst.Tuple() | cst.Set():
                where = where or "stored in a collection"
            case cst.Call():
                if child is not ancestor.func and is_call_of(module, ancestor, _LOOKS):
                    return _NAMED
                where = where or f"passed to `{module.source(ancestor.func).strip()}(…)`"
                break
            case cst.Expr() if child is node:
                return _NAMED
            case cst.Return():
                where = where or "returned"
                break
            case cst.BaseSmallStatement() | cst.BaseCompoundStatement():
                break
        child = ancestor
    return LoaderClassUse("used-as-value", where or "used as a value")
