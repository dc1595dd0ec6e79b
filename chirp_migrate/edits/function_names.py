"""Find names for functions that replace lambdas.

A name describes the expression or the purpose of the lambda. A name is a verb, mostly followed by a noun
(``_add_noise``), or the role of the function (``_collate_fn``).
"""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.edits.movability import enclosing_function_name, snake_case
from chirp_migrate.syntax.module import Module, walk_code
from chirp_migrate.syntax.queries import function_parameters, is_integer, is_name

#: Verbs for lambdas that are passed to an argument or variable with a vague name. The verb describes the usual purpose
#: of such an argument or variable.
_VAGUE_VERBS: dict[re.Pattern[str], str] = {
    re.compile(rf"(?P<of>\w+_)?({names})(_?(fns?|funcs?|list))?"): verb
    for names, verb in (
        (r"tfms?|trans|tforms?|transform(s|er|ers|ation|ations)?", "transform"),
        (r"augs?|augment\w*", "augment"),
        (r"pipelines?|steps?|ops?|preprocess(or|ors|ing)?|process(or|ors|ing)?", "process"),
    )
} | {
    re.compile(
        r"\w{1,2}|fn|func|function|callable|default|lambda|apply|call|forward|run|get|map|train|test|val|valid"
    ): "process"
}
#: Names for lambdas that only call one conversion function, by name of the conversion function.
_MADE = {
    **dict.fromkeys(("Tensor", "tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor"), "to_tensor"),
    **dict.fromkeys(("array", "asarray", "numpy"), "to_array"),
    **{name: f"to_{name}" for name in ("float", "int", "str", "bool", "tuple", "list", "dict", "set")},
    **{name: f"to_{name}" for name in ("half", "double", "long", "byte", "cpu", "cuda")},
}
#: Keyword arguments that select how a function works, such as `mode="reflect"`. The values of such arguments become
#: part of the new name.
_MANNERS = frozenset({"mode", "padding_mode", "reduction", "interpolation"})
#: Part of the name of a function that returns a function. The parameters of the outer function follow this part.
_FOR = "_for_"
#: Methods and attributes that change only the shape, type or memory of a value. Names for lambdas ignore these methods
#: and attributes.
_HOLDS = frozenset(
    {"squeeze", "unsqueeze", "view", "reshape", "contiguous", "detach", "clone", "flatten", "copy", "data", "numpy"}
)
_MULTIPLIES = (cst.Multiply, cst.Divide, cst.FloorDivide)
_OPERATIONS: tuple[tuple[type[cst.BaseBinaryOp], str], ...] = (
    (cst.Multiply, "scale"),
    (cst.Divide, "scale"),
    (cst.FloorDivide, "scale"),
    (cst.Modulo, "take_remainder"),
    (cst.MatrixMultiply, "multiply"),
)
#: Names of called objects that are nouns, such as `model` and `tokenizer`.
_TOOL = re.compile(r"(?!to_)\w*(er|ctor|ator|model|net|module)")
#: Verbs that match the pattern ``_TOOL`` by accident.
_VERBS = frozenset(
    {"filter", "lower", "upper", "floor", "scatter", "order", "center", "render", "register", "xor", "transfer"}
)


def function_names_for_lambda(module: Module, node: cst.Lambda, receiver_name: str) -> list[str]:
    """Return names for the function that replaces a lambda, the best name first.

    Args:
        module: the module that contains the lambda.
        node: the lambda.
        receiver_name: name of the parameter or variable that gets the lambda.
    """
    wish, outer = receiver_name.strip("_").partition(_FOR)[0], enclosing_function_name(module, node).partition(_FOR)[0]
    does, vague = _name_for_expression(node.body, node), _vague_verb(wish)
    wish = wish if vague is None else vague
    if isinstance(node.body, cst.Lambda):  # the outer lambda returns the inner lambda
        wish += _FOR + "_".join(function_parameters(node))
    # A lambda that returns its argument is called `_identity`, even if its variable is called `to_tensor`.
    is_identity = does == "identity" and not wish.endswith("_fn")
    first, second = (does, None) if does is not None and (vague is not None or is_identity) else (wish, does)
    names = [one for one in (first, second) if one is not None]
    if not {*first.split("_")} <= {*outer.split("_")}:
        names.append(f"{outer}_{first}")
    names += [f"{first}_{parameter}" for parameter in function_parameters(node) if len(parameter) > 2]
    return list(dict.fromkeys(f"_{name.strip('_')}" for name in names))


def _vague_verb(name: str) -> str | None:
    """Return the verb that replaces a vague function name; ``None`` if the name is descriptive."""
    for names, verb in _VAGUE_VERBS.items():
        if (found := names.fullmatch(name)) is not None:
            return (found.groupdict().get("of") or "") + verb
    return None


def _name_for_expression(body: cst.BaseExpression, function: cst.Lambda) -> str | None:
    """Return a function name that describes an expression of the parameters of ``function``.

    The result is ``None`` if no short name describes the expression.
    """
    match body:
        case cst.Name(value=name):
            return "identity" if name in function_parameters(function) else None
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value=name))) if name in _HOLDS:
            inner = _name_for_expression(value, function)
            return _name_from_call(body, function) if inner in (None, "identity") else inner
        case cst.Attribute(value=value, attr=cst.Name(value=name)) if name in _HOLDS:
            return _name_for_expression(value, function)
        case cst.Call():
            return _name_from_call(body, function)
        case cst.Attribute(attr=cst.Name(value=name)):
            return f"get_{snake_case(name)}"
        case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
            text = key.raw_value if isinstance(key, cst.SimpleString) else ""
            return f"get_{text}" if text.isidentifier() else "select"
        case cst.Subscript():
            return "select"
        case cst.BinaryOperation():
            return _name_from_arithmetic(body, function)
        case cst.Comparison():
            return "threshold" if len(body.comparisons) == 1 else None
        case cst.UnaryOperation(operator=operator):
            return "negate" if isinstance(operator, cst.Minus) else "invert"
        case cst.IfExp(body=one, orelse=other):
            named = [_name_for_expression(part, function) for part in (one, other)]
            return next((name for name in named if name not in (None, "identity")), None)
        case cst.ListComp(elt=element):
            each = _name_for_expression(element, function)
            return None if each is None or each == "select" else f"{each}_each"
    return None


def _name_from_call(call: cst.Call, function: cst.Lambda) -> str | None:
    match call.func:
        case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)):
            pass
        case cst.Call():  # Resize(32)(x)
            return _name_from_call(call.func, function)
        case _:
            return None
    if name == "to":
        target = call.args[0].value if call.args else None
        last = target.attr if isinstance(target, cst.Attribute) else target
        return f"to_{last.value}" if isinstance(last, cst.Name) else "move"
    if name in _MADE:
        return _MADE[name]
    named = snake_case(name).strip("_")
    if name in function_parameters(function) or _vague_verb(named) is not None:
        return None
    if _TOOL.fullmatch(named) is not None and named not in _VERBS:
        return f"apply_{named}"
    manners = [one.value for one in call.args if is_name(one.keyword, *_MANNERS)]
    texts = [one.raw_value for one in manners if isinstance(one, cst.SimpleString)]
    return "_".join([named, *(text for text in texts if text.isidentifier())])


def _name_from_arithmetic(body: cst.BinaryOperation, function: cst.Lambda) -> str | None:
    inner = body.left.operator if isinstance(body.left, cst.BinaryOperation) else None
    if isinstance(body.operator, _MULTIPLIES) and isinstance(inner, cst.Add | cst.Subtract):
        is_standard = isinstance(inner, cst.Subtract) and isinstance(body.operator, cst.Divide)
        return "standardize" if is_standard else "rescale"
    if isinstance(body.operator, cst.Add | cst.Subtract) and isinstance(inner, _MULTIPLIES):
        return "rescale"
    if isinstance(body.operator, cst.Power):
        return "square" if is_integer(body.right, "2") else "raise_to_power"
    left, right = (_reads_parameter(side, function) for side in (body.left, body.right))
    if isinstance(body.operator, cst.Add):
        return "add" if left and right else _verb_with_object("add", body.right if left else body.left)
    if isinstance(body.operator, cst.Subtract):
        if right:
            return "subtract" if left else "invert"
        return _verb_with_object("subtract", body.right)
    return next((name for kind, name in _OPERATIONS if isinstance(body.operator, kind)), None)


def _reads_parameter(node: cst.BaseExpression, function: cst.Lambda) -> bool:
    return any(is_name(one, *function_parameters(function)) for one in walk_code(node))


def _verb_with_object(verb: str, node: cst.BaseExpression) -> str:
    """Return a verb with the name of an operand, such as ``add_noise``.

    An integer counts as a name, as in ``add_5``. If the operand has no suitable name, as ``(a + b)`` in ``x + (a +
    b)``, the result is always ``shift``.
    """
    match node:
        case cst.Integer(value=value) if value.isdigit():
            return f"{verb}_{value}"
        case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)) if len(name) > 2:
            return f"{verb}_{snake_case(name).strip('_')}"
    return "shift"
