"""Find side effects of code.

For example, a rewrite may read all samples of a dataset before a loop only if the body of the loop has no side effects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import libcst as cst

from chirp_migrate.syntax.module import Module, code_children, walk_code
from chirp_migrate.syntax.queries import called_method_name

#: Functions without side effects.
_FUNCTIONS = re.compile(
    r"builtins\.(abs|bool|complex|dict|divmod|enumerate|float|frozenset|int|isinstance|len|list|max|min|pow|range|repr"
    r"|reversed|round|set|sorted|str|sum|tuple|type|zip)|operator\.index"
    r"|numpy\.(argmax|array|asarray|eye|float32|float64|int32|int64)"
    r"|torch\.(argmax|as_tensor|tensor|nn\.functional\.one_hot)"
)
#: Methods without side effects, for the usual types of labels: tensors, arrays, numbers and strings.
_METHODS = re.compile(
    r"argmax|astype|bool|cpu|detach|double|flatten|float|index_select|int|item|lower|long|max|mean|min|nonzero|numpy"
    r"|reshape|squeeze|startswith|strip|sum|title|to|tolist|type|unsqueeze|upper|view"
)
_LOOKUP = frozenset({"get", "keys", "values", "items", "count", "index"})
#: Packages without access to the names of the user's code. Their functions cannot rebind these names.
_LIBRARIES = ("numpy.", "torch.", "random.", "itertools.", "math.", "tqdm.", "sklearn.")
_ARITHMETIC = (
    *(cst.Name, cst.Integer, cst.Float, cst.Ellipsis, cst.SimpleString, cst.ConcatenatedString),
    *(cst.FormattedString, cst.FormattedStringText, cst.FormattedStringExpression),
    *(cst.Attribute, cst.Dot, cst.Subscript, cst.SubscriptElement, cst.Index, cst.Slice, cst.Colon),
    *(cst.BinaryOperation, cst.BaseBinaryOp, cst.BooleanOperation, cst.BaseBooleanOp, cst.UnaryOperation),
    *(cst.BaseUnaryOp, cst.Comparison, cst.ComparisonTarget, cst.BaseCompOp, cst.IfExp, cst.Arg),
    *(cst.Tuple, cst.List, cst.Dict, cst.Set, cst.Element, cst.DictElement),
)


def first_side_effect(
    module: Module,
    node: cst.CSTNode,
    *,
    allow_libraries: bool = False,
    is_container: Callable[[cst.CSTNode], bool] = lambda node: False,
) -> str | None:
    """Return the source of the first part of an expression that may have side effects, such as ``print(…)``.

    The result is ``None`` if no part has side effects.

    Args:
        module: the module that contains the expression.
        node: the expression.
        allow_libraries: whether calls into packages such as ``torch`` and ``numpy`` count as calls without side
            effects. These calls cannot rebind the user's names. But they may change the state of a random generator, so
            True requires that such a change is harmless.
        is_container: function that returns whether an expression provably is a container of Python, such as a list.
            Look-ups in such containers are permitted. By default, no expression counts as a container.
    """
    if isinstance(node, cst.Call):
        owner = node.func.value if isinstance(node.func, cst.Attribute) else None
        looked_up = owner is not None and called_method_name(node) in _LOOKUP and is_container(owner)
        if not looked_up and not _only_computes(module, node, allow_libraries):
            return f"{module.source(node.func).strip()}(…)"
    elif not isinstance(node, _ARITHMETIC):
        return module.source(node).strip().splitlines()[0]
    for child in code_children(node):
        if isinstance(node, cst.Call) and child is node.func and isinstance(child, cst.Name):
            continue
        found = first_side_effect(module, child, allow_libraries=allow_libraries, is_container=is_container)
        if found is not None:
            return found
    return None


def side_effect_message(
    module: Module,
    code: Iterable[cst.CSTNode],
    is_container: Callable[[cst.CSTNode], bool] = lambda node: False,
) -> str | None:
    """Return a message about the first side effect in ``code``; ``None`` if the code has no side effects."""
    effects = (first_side_effect(module, one, is_container=is_container) for one in code)
    found = next((one for one in effects if one is not None), None)
    return None if found is None else f"`{found}` may have side effects"


def has_await_yield_walrus(node: cst.CSTNode) -> bool:
    """Return whether an expression contains ``await``, ``yield`` or ``:=``."""
    return any(isinstance(one, cst.Await | cst.Yield | cst.NamedExpr) for one in walk_code(node))


def _only_computes(module: Module, call: cst.Call, allow_libraries: bool) -> bool:
    names = module.qualified_names(call.func)
    known = (_FUNCTIONS.fullmatch(name) or (allow_libraries and name.startswith(_LIBRARIES)) for name in names)
    if names and all(known):
        return True
    if not isinstance(call.func, cst.Attribute) or not _METHODS.fullmatch(call.func.attr.value):
        return False
    # The call must call a method of a value, not a function with the same name in an imported module.
    return all(name.startswith(f"{module.name}.") for name in names)
