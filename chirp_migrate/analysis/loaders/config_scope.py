"""Find a training configuration that the code at a given place can read."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_writes import is_assigned_later, may_be_assigned_outside_class
from chirp_migrate.analysis.dataflow.related_classes import has_bases_or_subclasses
from chirp_migrate.syntax.gap_patterns import TO_STRING_OF_SETATTR
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.name_uses import find_aliases, find_subclasses
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    bound_target,
    called_method_name,
    dotted_source,
    function_parameters,
    is_name,
    methods_of,
)
from chirp_migrate.syntax.scopes import BindingKind, Variable

_CONFIG_NAMES = ("config", "cfg")
#: Nodes that evaluate all their parts, except blocks.
_EVALUATES_ALL = (
    *(cst.Arg, cst.Attribute, cst.Await, cst.BinaryOperation, cst.Call, cst.ComparisonTarget, cst.ConcatenatedString),
    *(cst.Dict, cst.DictElement, cst.Element, cst.FormattedString, cst.FormattedStringExpression, cst.List, cst.Set),
    *(cst.NamedExpr, cst.StarredDictElement, cst.StarredElement, cst.Tuple, cst.UnaryOperation),
    *(cst.Index, cst.Slice, cst.Subscript, cst.SubscriptElement),
    *(cst.Assign, cst.AugAssign, cst.Expr, cst.Return, cst.SimpleStatementLine),
    *(cst.For, cst.WithItem),
)
#: Mapping classes whose `get` may call the `__getitem__` of a subclass.
_MAPPINGS = frozenset(
    ["ChainMap", "DefaultDict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "UserDict", "defaultdict", "dict"]
)
#: Methods that do not end the use of a mapping, unlike ``close``.
_MAPPING_METHODS = frozenset(["copy", "get", "items", "keys", "pop", "setdefault", "update", "values"])
#: Methods with which a class may compute its attributes.
_ATTRIBUTE_ACCESS = ("__getattr__", "__getattribute__", "__setattr__", "__delattr__")
#: Code that may replace or delete attributes of an object: calls ``__init__`` again, or uses the object's dictionary.
_CHANGES_ATTRIBUTES = (
    r"delattr|vars(?<!\wvars)\s*\(\s*self\b|self(?<!\wself)\s*\.\s*__dict__"
    r"|\.__init__(?<!\)\.__init__)\b|[\"']__init__[\"'](?!\s*:)"
)
_GETS = ("get", "__getattr__", "__getattribute__")
#: Code that defines a method `get` or `__getattr__` of a class, or assigns an attribute `get`.
# Each alternative begins with a different character, so that `re` skips most of a text quickly.
_OWN_GET = (
    r"def\s+(get\b|__getattr(ibute)?__\s*\(\s*\w(?:(?!def\b)[^,)])*,)"
    r"|get(?<!\wget)['\"]?[ \t]*(:[ \t]*[\w'\"]|\]?[ \t]*=(?!=))"
    r"|get(?<!\wget)\s*\.\s*(?:return_value|side_effect|assert_\w+|call\w*|mock_calls)\b"
    r"|\.get[ \t]*,|class\s+get\b|import\b(?:(?!import\b)[^\n;])*\bget\b|as\s+get\b"
    r"|(?:namedtuple|make_dataclass)\s*\((?:(?!namedtuple|make_dataclass)[^)])*\bget\b"
    rf"|{TO_STRING_OF_SETATTR}['\"]get['\"]|__getattr(?<!\w__getattr)(ibute)?__\s*=(?!=)"
)


def config_expression(module: Module, project: Project, node: cst.CSTNode) -> str | None:
    """Return the source of a configuration that code at ``node`` can read, such as ``self.config``.

    The result is None if the analysis finds no such configuration.

    The configuration must provably be a mapping that exists at ``node``. The proof is a call ``config.get('key', 3)``,
    which always runs before ``node`` in the same function. The default value must be a number, None, True or False.

    Such a call excludes namespaces of parsed arguments, which have no ``get``, ConfigParsers, whose ``get`` takes two
    names, and context variables, whose ``get`` takes one value. The result is also None if a class of the project may
    define its own ``get``.
    """
    function = module.enclosing_function(node)
    if function is None:
        return None
    for name in _CONFIG_NAMES:
        for source in (f"self.{name}", name):
            if (
                _get_is_always_called(module, function, source, node)
                and (source == name or _keeps_attribute(module, project, function, name))
                and not _has_own_get(project)
            ):
                return source
    return None


def _has_own_get(project: Project) -> bool:
    """Return whether the project may define its own method ``get``, which may raise an error for a missing key.

    Code may define a method ``get``, assign a function to the attribute ``get``, inherit ``get`` from a mapping class,
    or return ``get`` from ``__getattr__``.
    """
    mappings = _MAPPINGS.union(*(find_aliases(project, name) for name in _MAPPINGS))
    made = rf"\btype\s*\((?:(?!\btype\b)[^()])*,\s*\([^()]*\b(?:{'|'.join(map(re.escape, sorted(mappings)))})\b"
    return (
        bool(find_subclasses(project, *mappings))
        or project.search(_OWN_GET, *_GETS)
        or project.search(made, *sorted(mappings))
    )


def _keeps_attribute(module: Module, project: Project, function: cst.FunctionDef, attribute: str) -> bool:
    """Return whether only ``__init__`` assigns ``self.attribute``, and no property or base class provides its value."""
    owner = module.enclosing_class(function)
    return (
        owner is not None
        and module.parents[module.parents[function]] is owner
        and not owner.bases
        and not owner.keywords
        and not owner.decorators
        and attribute not in module.scopes.names_bound(owner)
        and methods_of(owner).keys().isdisjoint(_ATTRIBUTE_ACCESS)
        and not has_bases_or_subclasses(module, project, owner)
        and not is_assigned_later(project, attribute)
        and not may_be_assigned_outside_class(project, attribute)
        and not project.search(_CHANGES_ATTRIBUTES, "delattr", "__delattr__", "vars", "__dict__", "__init__")
    )


def _get_is_always_called(module: Module, function: cst.FunctionDef, mapping: str, node: cst.CSTNode) -> bool:
    """Return whether ``function`` has always called ``get`` on ``mapping`` when the program reaches ``node``.

    The mapping must be a variable of the function, or an attribute of ``self``. The call must be above the end of
    ``node``. No code below the call may rebind or delete the mapping, because such code may run before ``node``, for
    example in a loop. No inner function may rebind the mapping. A lambda or generator expression must not contain
    ``node``, because it may run ``node`` later. The function may only call methods of the mapping that every mapping
    has, so not ``close``.
    """
    reads = [one for one in module.once(_get_calls, function) if _is_get_call(one, mapping)]
    name = mapping.partition(".")[0]
    variable = module.scopes.lookup(name, node) if reads else None
    if variable is None or variable.scope.node is not function:
        return False
    around = [node, *module.ancestors(node)]
    inside = around[: around.index(function)]
    bindings = [one.node for one in variable.bindings]
    bindings += (one for one in module.find(cst.Del) if _deletes(module, one, name, variable))
    if (
        any(isinstance(one, cst.Lambda | cst.GeneratorExp) for one in inside)
        or any(one.kind in (BindingKind.IMPORT, BindingKind.DEFINITION) for one in variable.bindings)
        or any(module.enclosing_function(one) is not function for one in bindings if not isinstance(one, cst.Param))
        or not all(_is_method_of_mappings(one, mapping) for one in find_nodes(function.body, cst.Call))
    ):
        return False
    if name != mapping:
        if next(iter(function_parameters(function)), "") != name:
            return False
        bindings += _bindings_of_attribute(function, mapping)
    last = max((_end_of_binding(module, one) for one in bindings), default=0)
    end = module.span(node)[1]
    return any(
        last <= module.span(read)[0] < module.span(read)[1] <= end
        and _is_same_variable(module.scopes.lookup(name, read), variable)
        and _always_runs_with(module, read, set(inside))
        for read in reads
    )


def _deletes(module: Module, statement: cst.Del, name: str, variable: Variable) -> bool:
    """Return whether a ``del`` statement may delete a variable."""
    mentions = any(one.value == name for one in find_nodes(statement.target, cst.Name))
    return mentions and _is_same_variable(module.scopes.lookup(name, statement), variable)


def _is_method_of_mappings(call: cst.Call, mapping: str) -> bool:
    """Return whether a call is no call of a method of ``mapping``, or calls a method that every mapping has."""
    owner, _, method = (dotted_source(call.func) or "").rpartition(".")
    return owner != mapping or method in _MAPPING_METHODS


def _end_of_binding(module: Module, node: cst.CSTNode) -> int:
    """Return the offset from which a binding applies.

    For example, ``config.get`` in ``config = config.get('data')`` still reads the old value.
    """
    for one in () if isinstance(node, cst.Param) else (node, *module.ancestors(node)):
        if isinstance(one, cst.BaseSmallStatement):
            return module.span(one)[1]
        body = getattr(one, "body", None)
        if isinstance(body, cst.BaseSuite):
            return module.span(body)[0]
    return module.span(node)[0]


def _is_same_variable(one: Variable | None, other: Variable) -> bool:
    return one is not None and one.scope is other.scope


def _bindings_of_attribute(definition: cst.FunctionDef | cst.ClassDef, attribute: str) -> list[cst.CSTNode]:
    """Return the code in a function or class that binds or deletes an attribute, such as ``self.config``."""
    targets = (
        (one, one.target if isinstance(one, cst.Del) else bound_target(one)) for one in walk_code(definition.body)
    )
    return [
        one
        for one, target in targets
        if target is not None and any(dotted_source(part) == attribute for part in find_nodes(target, cst.Attribute))
    ]


def _get_calls(module: Module, function: cst.FunctionDef) -> list[cst.Call]:
    """Return the calls in a function whose method is named ``get``."""
    return [node for node in find_nodes(function.body, cst.Call) if called_method_name(node) == "get"]


def _is_get_call(call: cst.Call, mapping: str) -> bool:
    """Return whether a call is ``mapping.get('key', default)``. The default must be a number, None, True or False."""
    if dotted_source(call.func) != f"{mapping}.get" or any(argument.keyword is not None for argument in call.args):
        return False
    match [argument.value for argument in call.args]:
        case [cst.SimpleString(), cst.Integer() | cst.Float()]:
            return True
        case [cst.SimpleString(), default]:
            return is_name(default, "None", "True", "False")
    return False


def _always_runs_with(module: Module, node: cst.CSTNode, around: set[cst.CSTNode]) -> bool:
    """Return whether an expression always runs before the code that all nodes of ``around`` contain.

    The innermost node of ``around`` that contains the expression must be a block, or evaluate the expression before
    its other parts. The result is False, for example, if the expression is in an ``if`` inside this node. The result is
    also False for the condition of an ``assert``, which does not run with ``python -O``.
    """
    for ancestor in module.ancestors(node):
        is_last = ancestor in around
        match ancestor:
            case cst.IfExp(test=first) | cst.If(test=first) | cst.While(test=first) | cst.AnnAssign(value=first):
                is_evaluated = first is node
            case cst.BooleanOperation(left=first):
                is_evaluated = first is node
            case cst.Comparison(left=first, comparisons=[second, *_]):
                is_evaluated = first is node or second is node
            case cst.With(items=[first, *_]):  # the first context manager may suppress errors in the other items
                is_evaluated = is_last or first is node
            case _:
                is_evaluated = isinstance(ancestor, _EVALUATES_ALL) or (is_last and isinstance(ancestor, cst.BaseSuite))
        if not is_evaluated:
            return False
        if is_last:
            return True
        node = ancestor
    return False
