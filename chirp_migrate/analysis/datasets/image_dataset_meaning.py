"""Infer the semantics of a ``__getitem__`` that converts each sample to an 8-bit image and augments the image.

The module compares the symbolic result of ``__getitem__`` for a sample of shape (1, F, T), with F frequencies and T
times, with one pattern. In this pattern, the code scales the sample to 0..255 by its smallest and largest value, and
builds an image. Then the code calls the augmenter once with the image, and converts the result back to a tensor.
Samples of other shapes do not matter, because the class's own code reads these samples also after the migration.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chirp_migrate.analysis.dataflow.symbolic import (
    Attr,
    Call,
    CodePath,
    Const,
    Name,
    Operation,
    Subscript,
    Tuple,
    Value,
    make_subscript,
)
from chirp_migrate.analysis.datasets.dataset_meaning import (
    INDEX,
    SELF,
    finite_number,
    is_part_of_value,
    values_compared_with_none,
    walk_values,
)

#: Objects that a non-local name may refer to, in addition to the objects that are permitted for all datasets.
CLEAR = frozenset({"numpy", "PIL.Image", "builtins.isinstance", "builtins.len"})
_COMPARED = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
#: Names of steps by their code, in which ``_`` is the operand. The steps lead from x to an array, to bytes, to an image
#: and to a tensor.
_TO_ARRAY = {
    **dict.fromkeys(("_[0]", "_.squeeze()", "_.squeeze(0)"), "squeeze"),
    **{"_.numpy()": "array", "_.cpu()": "", "_.detach()": ""},
}
_TO_BYTES = dict.fromkeys(("_.astype(np.uint8)", "_.astype(dtype=np.uint8)"), "cast")
_TO_IMAGE = dict.fromkeys(("Image.fromarray(_)", "Image.fromarray(_, 'L')", "Image.fromarray(_, mode='L')"), "image")
_TO_TENSOR = {
    **dict.fromkeys(("np.array(_)", "np.asarray(_)"), "array"),
    **{f"np.{made}(_, {dtype}np.float32)": "array float" for made in ("array", "asarray") for dtype in ("", "dtype=")},
    **dict.fromkeys(("_ / 255", "_ / 255.0"), "divide"),
    **dict.fromkeys(("torch.from_numpy(_)", "torch.tensor(_)", "torch.as_tensor(_)"), "tensor"),
    **{f"torch.{made}(_, dtype=torch.float32)": "tensor float" for made in ("tensor", "as_tensor")},
    **dict.fromkeys(("_.float()", "_.to(torch.float32)", "_.to(dtype=torch.float32)"), "float"),
    **dict.fromkeys(("_.astype(np.float32)", "_.astype(dtype=np.float32)"), "float"),
    "_.unsqueeze(0)": "axis",
}
#: Permitted orders of the steps from an image to a tensor (1, F, T) with float32 values.
_BACK = re.compile(r"array( float)+ divide tensor( axis)*|array( float)* tensor( float| axis)*( divide)?( axis)*")


@dataclass(frozen=True)
class AugmentedImages:
    """The samples of ``dataset``, each converted to an 8-bit image to which ``augmenter`` is applied.

    Attributes:
        dataset: the dataset of the samples.
        augmenter: the attribute with the callable that receives the image. If the attribute is None at run time,
            samples stay unchanged.
        training: the flag that switches the augmenter on; None if there is no flag.
        eps: number that the class adds to the range (maximum - minimum) of the sample's values. The class divides the
            values by this sum. The default 0 means that the class adds nothing.
        divisor: number by which the class divides the values of the augmented image. The default 1 means that the class
            does not divide the values.
    """

    dataset: Value
    augmenter: Value
    training: Value | None
    eps: float = 0.0
    divisor: float = 1.0


def match_image_pattern(paths: Sequence[CodePath]) -> AugmentedImages | None:
    """Return the semantics of a ``__getitem__`` whose paths match the pattern; None for any other method."""
    conditions = {condition for path in paths for condition in path.truths}
    known = {condition: holds for condition in conditions if (holds := _holds_for_tensor(condition)) is not None}
    taken = [path for path in paths if all(known.get(one, holds) == holds for one, holds in path.truths.items())]
    masked = next(path for path in taken if all(holds or one in known for one, holds in path.truths.items()))
    found = _match_imaging(masked.value)
    tests = [*conditions, *(test for path in paths for test in path.tests)]
    if found is None or not all(_does_nothing_besides(path, tests) for path in taken):
        return None
    if not all(path is masked or _is_plain(path.value, found.dataset) for path in taken):
        return None
    free = conditions - known.keys()
    switches = free - {found.augmenter}
    if len(switches) > 1 or not values_compared_with_none(paths).isdisjoint(switches):
        return None
    if not all(map(_is_self_attribute, (*free, found.augmenter, found.dataset))):
        return None
    return replace(found, training=next(iter(switches), None))


def _does_nothing_besides(path: CodePath, tests: Sequence[Value]) -> bool:
    """Return whether all values and calls of a path are part of the path's result or of a test.

    The result is False for a path that contains the same call of an attribute of ``self`` twice. Such calls are equal
    values, so the result of the path cannot show whether both calls are used.
    """
    own = [call for call in path.calls if _is_self_attribute(call.parts[0])]
    return len(own) == len(set(own)) and all(
        any(is_part_of_value(one, whole) for whole in (path.value, *tests)) for one in path.evaluated
    )


def _is_self_attribute(value: Value) -> bool:
    return isinstance(value, Attr) and value.base == SELF


def _is_plain(value: Value, dataset: Value) -> bool:
    sample = make_subscript(dataset, INDEX)
    return value in (sample, Tuple((make_subscript(sample, Const("0")), make_subscript(sample, Const("1")))))


def _is_x(value: Value) -> bool:
    """Return whether ``value`` is x, which is the first item of the requested sample."""
    match value:
        case Subscript(Subscript(_, index), Const("0")):
            return index == INDEX
    return False


def _holds_for_tensor(test: Value) -> bool | None:
    """Return whether a test of x is true for a tensor of shape (1, F, T); ``None`` if the test is not about x."""
    x = next((str(one) for one in walk_values(test) if _is_x(one)), "")
    if x and str(test) == f"isinstance({x}, torch.Tensor)":
        return True
    match test:
        case Operation(symbol, asked, number) if x and symbol in _COMPARED and str(number).isdigit():
            if str(asked) in (f"{x}.dim()", f"{x}.ndim", f"len({x}.shape)"):
                return bool(_COMPARED[symbol](3, int(str(number))))
            if str(asked) in (f"{x}.shape[0]", f"{x}.size(0)"):
                return bool(_COMPARED[symbol](1, int(str(number))))
    return None


def _match_imaging(value: Value) -> AugmentedImages | None:
    """Return the semantics of a value that matches the pattern for augmented images; None for any other value."""
    match value:
        case Tuple((first, Subscript(Subscript(dataset) as sample, Const("1")))) if _is_x(
            x := make_subscript(sample, Const("0"))
        ):
            masked, back = _value_before_steps(first, _TO_TENSOR)
        case _:
            return None
    if not _BACK.fullmatch(" ".join(back)) or back.count("axis") != 1 or "float" not in back:
        return None
    match masked:
        case Call(augmenter, (image,), ()):
            array, made = _value_before_steps(image, _TO_IMAGE)
            eps = _range_epsilon(array, x) if made == ["image"] else None
            return (
                None
                if eps is None
                else AugmentedImages(dataset, augmenter, None, eps, 255.0 if "divide" in back else 1.0)
            )
    return None


def _value_before_steps(value: Value, steps: Mapping[str, str], first: Value | None = None) -> tuple[Value, list[str]]:
    """Return the value from which a chain of steps computes ``value``, and the names of the steps in order.

    For example, the steps of ``x.float().unsqueeze(0)`` are ``float`` and ``axis`` (a new axis), and the value before
    them is ``x``.

    Args:
        value: the result of the last step.
        steps: the known steps. A key is the code of a step with ``_`` as the operand, such as ``_.unsqueeze(0)``. Its
            value is the name of the step. The chain ends at unknown code.
        first: a value at which the chain ends, even if a known step computes this value. With None, only unknown code
            ends the chain.
    """
    taken: list[str] = []
    gap = Name("_")
    while value != first:
        before: Value
        step: Value
        match value:
            case Call(Attr(Name("torch" | "np" | "Image")) as function, (before, *rest), keywords):
                step = Call(function, (gap, *rest), keywords)
            case Call(Attr(before, method), args, keywords):
                step = Call(Attr(gap, method), args, keywords)
            case Operation(symbol, before, right):
                step = Operation(symbol, gap, right)
            case Subscript(before, index):
                step = Subscript(gap, index)
            case _:
                break
        if str(step) not in steps:
            break
        taken = steps[str(step)].split() + taken
        value = before
    return value, taken


def _range_epsilon(value: Value, x: Value) -> float | None:
    """Return eps of ``((a - a.min()) / (a.max() - a.min() + eps) * 255).astype(np.uint8)``; None for other values.

    In this formula, ``a`` is x as an array without the first axis.
    """
    scaled, cast = _value_before_steps(value, _TO_BYTES)
    match scaled:
        case Operation("*", Operation("/", Operation("-", array, low), span), Const("255" | "255.0")):
            pass
        case Operation("*", Const("255" | "255.0"), Operation("/", Operation("-", array, low), span)):
            pass
        case _:
            return None
    eps = 0.0
    match span:
        case Operation("+", span, added):
            eps = finite_number(str(added))
            if not eps > 0:
                return None
    lows, highs = _forms_of_extremum("min", array), _forms_of_extremum("max", array)
    is_range = str(low) in lows and str(span) in [f"{high} - {low}" for high in highs for low in lows]
    return eps if cast and is_range and _is_array_of(array, x) else None


def _forms_of_extremum(which: str, array: Value) -> tuple[str, str]:
    return f"{array}.{which}()", f"np.{which}({array})"


def _is_array_of(value: Value, x: Value) -> bool:
    """Return whether ``value`` is x as an array without the first axis."""
    before, steps = _value_before_steps(value, _TO_ARRAY, x)
    return before == x and sorted(steps) == ["array", "squeeze"]
