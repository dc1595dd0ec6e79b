"""Find a training configuration that the code at a given place can read."""

from __future__ import annotations

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_writes import may_be_assigned_outside_class
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
from chirp_migrate.syntax.scopes import Variable

_CONFIG_NAMES = ("config", "cfg")
#: Nodes that evaluate all their parts, except blocks.
_EVALUATES_ALL = (
    *(cst.Arg, cst.Attribute, cst.Await, cst.BinaryOperation, cst.Call, cst.ComparisonTarget, cst.ConcatenatedString),
    *(cst.Dict, cst.DictElement, cst.Element, cst.FormattedString, cst.FormattedStringExpression, cst.List, cst.Set),
    *(cst.NamedExpr, cst.StarredDictElement, cst.StarredElement, cst.Tuple, cst.UnaryOperation),
    *(cst.Index, cst.Slice, cst.Subscript, cst.SubscriptElement),
    *(cst.AnnAssign, cst.Assign, cst.AugAssign, cst.Expr, cst.Return, cst.SimpleStatementLine),
    *(cst.For, cst.With, cst.WithItem),
)
#: Mapping classes whose `get` may call the `__getitem__` of a subclass.
_MAPPINGS = frozenset(
    ["ChainMap", "DefaultDict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "UserDict", "defaultdict", "dict"]
)
_GETS = ("get", "__getattr__", "__getattribute__")
#: Code that defines a method `get` or `__getattr__` of a class, or assigns an attribute `get`.
# Each alternative begins with a different character, so that `re` skips most of a text quickly.
_OWN_GET = (
    r"def\s+(get\b|__getattr(ibute)?__\s*\(\s*\w(?:(?!def\b)[^,)])*,)|get(?<!\wget)['\"]?[ \t]*(:[ \t]*\w|=(?!=))"
    r"|\.get\s*\.\s*(?:return_value|side_effect|assert_\w+|call\w*|mock_calls)\b"
    rf"|{TO_STRING_OF_SETATTR}['\"]get['\"]|__getattr(?<!\w__getattr)(ibute)?__\s*=(?!=)"
)


def config_expression(module: Module, project: Project, node: cst.CSTNode) -> str | None:
    """Return the source of a configuration that code at ``node`` can read, such as ``self.config``.

    The result is None if the analysis finds no such configuration.

    The configuration must provably be a mapping that exists at ``node``. The proof is a call ``config.get('key')``,
    which always runs before ``node`` in the same function or in ``__init__``. The call may pass a number, None, True or
    False as default value.

    Such a call excludes namespaces of parsed arguments, which have no ``get``, and ConfigParsers, whose ``get`` takes
    two names. The result is also None if a class of the project may define its own ``get``.
    """
    function = module.enclosing_function(node)
    if function is None or _has_own_get(project):
        return None
    end = module.span(node)[1]
    owner = module.enclosing_class(node) if next(iter(function_parameters(function)), "") == "self" else None
    for name in _CONFIG_NAMES:
        attribute = f"self.{name}"
        if (
            owner is not None
            and name not in methods_of(owner)
            and (
                _get_is_always_called(module, function, attribute, node, end)
                or (
                    not has_bases_or_subclasses(module, project, owner)
                    and not may_be_assigned_outside_class(project, name)
                    and _is_read_in_init(module, function, owner, attribute)
                )
            )
        ):
            return attribute
        if _get_is_always_called(module, function, name, node, end):
            return name
    return None


def _has_own_get(project: Project) -> bool:
    """Return whether the project may define its own method ``get``, which may raise an error for a missing key.

    Code may define a method ``get``, assign a function to the attribute ``get``, inherit ``get`` from a mapping class,
    or return ``get`` from ``__getattr__``.
    """
    mappings = _MAPPINGS.union(*(find_aliases(project, name) for name in _MAPPINGS))
    return bool(find_subclasses(project, *mappings)) or project.search(_OWN_GET, *_GETS)


def _is_read_in_init(module: Module, function: cst.FunctionDef, owner: cst.ClassDef, attribute: str) -> bool:
    """Return whether ``__init__`` always calls ``get`` on an attribute, and no other method assigns the attribute.

    The class must have no base and no subclass in the project, because their methods may assign the attribute.
    """
    init = methods_of(owner).get("__init__")
    if init is None or init is function:
        return False
    is_only = all(module.enclosing_function(one) is init for one in _bindings_of_attribute(owner, attribute))
    return is_only and _get_is_always_called(module, init, attribute, init.body, module.span(init)[1])


def _get_is_always_called(module: Module, function: cst.FunctionDef, mapping: str, node: cst.CSTNode, end: int) -> bool:
    """Return whether ``function`` has always called ``get`` on ``mapping`` when the program reaches ``node``.

    The call must be above the offset ``end``. No code below the call may rebind the mapping, because such code may run
    before ``node``, for example in a loop. No inner function may rebind the mapping. At ``node``, the mapping must be
    the same variable as in the call, and not a variable of a comprehension or a parameter of a lambda.
    """
    reads = [one for one in module.once(_get_calls, function) if _is_get_call(one, mapping)]
    name = mapping.partition(".")[0]
    variable = module.scopes.lookup(name, node) if reads else None
    bindings = [] if variable is None else [one.node for one in variable.bindings]
    if variable is None or any(module.enclosing_function(one) not in (None, variable.scope.node) for one in bindings):
        return False
    if name != mapping:
        bindings += _bindings_of_attribute(function, mapping)
    last = max((_end_of_binding(module, one) for one in bindings), default=0)
    around = {node, *module.ancestors(node)}
    return any(
        last <= module.span(read)[0] < module.span(read)[1] <= end
        and _is_same_variable(module.scopes.lookup(name, read), variable)
        and _always_runs_with(module, read, around)
        for read in reads
    )


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
    """Return whether a call is ``mapping.get('key')`` or ``mapping.get('key', default)``.

    The default must be a number, None, True or False.
    """
    if dotted_source(call.func) != f"{mapping}.get" or any(argument.keyword is not None for argument in call.args):
        return False
    match [argument.value for argument in call.args]:
        case [cst.SimpleString()] | [cst.SimpleString(), cst.Integer() | cst.Float()]:
            return True
        case [cst.SimpleString(), default]:
            return is_name(default, "None", "True", "False")
    return False


def _always_runs_with(module: Module, node: cst.CSTNode, around: set[cst.CSTNode]) -> bool:
    """Return whether an expression always runs if the innermost node of ``around`` that contains the expression runs.

    The result is False, for example, if the expression is in an ``if`` inside this node.
    """
    for ancestor in module.ancestors(node):
        if ancestor in around:
            return True
        match ancestor:
            case cst.IfExp(test=first) | cst.If(test=first) | cst.While(test=first) | cst.Assert(test=first):
                is_evaluated = first is node
            case cst.BooleanOperation(left=first):
                is_evaluated = first is node
            case cst.Comparison(left=first, comparisons=[second, *_]):
                is_evaluated = first is node or second is node
            case _:
                is_evaluated = isinstance(ancestor, _EVALUATES_ALL)
        if not is_evaluated:
            return False
        node = ancestor
    return False
