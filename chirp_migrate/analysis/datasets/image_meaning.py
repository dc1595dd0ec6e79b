"""What a dataset's ``__getitem__`` means that masks an 8-bit image of each sample.

The value of the code is compared with one shape, for samples (1, F, T): an image of them, stretched to its own range,
through one augmenter, and back. What holds for other samples does not matter: their own code reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from chirp_migrate.analysis.dataflow.symbolic import Attr, Call, Const, Item, Made, Op, Tuple, Value, item
from chirp_migrate.analysis.datasets.dataset_meaning import (
    INDEX,
    MAX_CONDITIONS,
    SELF,
    conditions_of,
    finite,
    flat_trace,
    is_part,
    none_tested,
    stripped,
    subvalues,
    tests_of,
    under,
)

#: What names from outside may stand for, besides those of any dataset.
CLEAR = frozenset({"numpy", "PIL.Image", "builtins.isinstance", "builtins.len"})
_COMPARED = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Imaging:
    """``augmenter`` applied to an 8-bit image of each sample of ``dataset``, stretched to its own range.

    Attributes:
        dataset: where samples come from.
        augmenter: what is called with the image; nothing happens where it is None.
        training: the flag that switches it, if there is one.
        eps: what is added to the range.
        divisor: what the values of the image are divided by in the end.
    """

    dataset: Value
    augmenter: Value
    training: Value | None
    eps: float
    divisor: float


def imaging(getitem: Value) -> Imaging | None:
    """The meaning of a traced ``__getitem__``, if it is that and does nothing besides."""
    conditions = sorted(conditions_of(getitem), key=str)
    if len(conditions) > MAX_CONDITIONS:
        return None
    known = {one: True for one in conditions if _is_isinstance(one)}
    known |= {one: holds for one in conditions if (holds := _of_three_axes(one)) is not None}
    free = [one for one in conditions if one not in known]
    found: Imaging | None = None
    for truths in sorted(product((True, False), repeat=len(free)), reverse=True):
        path = under(getitem, {**known, **dict(zip(free, truths, strict=True))})
        value = stripped(path)
        if not _does_nothing_besides(path, value, [*conditions, *tests_of(getitem)]):
            return None
        if all(truths):
            found = _imaged(value)
            if found is None:
                return None
        elif found is None or not _is_plain(value, found.dataset):
            return None
    switches = [one for one in free if found is not None and one != found.augmenter]
    if found is None or len(switches) > 1 or not none_tested(getitem).isdisjoint(switches):
        return None
    if not all(map(_is_own, (*free, found.augmenter, found.dataset))):
        return None
    return Imaging(found.dataset, found.augmenter, switches[0] if switches else None, found.eps, found.divisor)


def _does_nothing_besides(path: Value, value: Value, tests: Sequence[Value]) -> bool:
    """Whether all that is kept or called on a path is part of its value or of a test, and the augmenter called once."""
    trace = flat_trace(path)
    wholes = [value, *map(stripped, tests)]
    own = [one.value for one in trace if isinstance(one, Made) and _is_own(one.value.parts[0])]
    return len(own) == len(set(own)) and all(any(is_part(one.value, whole) for whole in wholes) for one in trace)


def _is_own(value: Value) -> bool:
    return isinstance(value, Attr) and value.base == SELF


def _is_plain(value: Value, dataset: Value) -> bool:
    sample = item(dataset, INDEX)
    return value in (sample, Tuple((item(sample, Const("0")), item(sample, Const("1")))))


def _is_x(value: Value) -> bool:
    """Whether ``value`` is the x of the sample at the index."""
    match value:
        case Item(Item(_, index), Const("0")):
            return index == INDEX
    return False


def _is_isinstance(value: Value) -> bool:
    match _call(value):
        case "isinstance", [x, kind]:
            return _is_x(x) and str(kind) == "torch.Tensor"
    return False


def _of_three_axes(value: Value) -> bool | None:
    """Whether a test of how many axes x has holds for (1, F, T); ``None`` for other tests."""
    match value:
        case Op(symbol, asked, number) if symbol in _COMPARED and str(number).isdigit():
            x = next((str(one) for one in subvalues(asked) if _is_x(one)), None)
            if x is not None and str(asked) in (f"{x}.dim()", f"{x}.ndim", f"len({x}.shape)"):
                return bool(_COMPARED[symbol](3, int(str(number))))
            if x is not None and str(asked) in (f"{x}.shape[0]", f"{x}.size(0)"):
                return bool(_COMPARED[symbol](1, int(str(number))))
    return None


def _imaged(value: Value) -> Imaging | None:
    """Read the whole of it from the outside to the inside."""
    match value:
        case Tuple((first, Item(Item(dataset) as sample, Const("1")))):
            back = _taken_back(first)
            x = item(sample, Const("0"))
        case _:
            return None
    if back is None or not _is_x(x):
        return None
    match back[0]:
        case Call(augmenter, (image,), ()):
            match _call(image):
                case "Image.fromarray", [array] | [array, Const("'L'")]:
                    eps = _stretched(array, x)
                    return None if eps is None else Imaging(dataset, augmenter, None, eps, back[1])
    return None


def _call(value: Value) -> tuple[str, Sequence[Value]]:
    """Function and arguments of a call, those by the keywords ``dtype`` and ``mode`` the last; "" of what is none."""
    match value:
        case Call(function, args, ()):
            return str(function), args
        case Call(function, args, (("dtype" | "mode", last),)):
            return str(function), (*args, last)
    return "", ()


def _taken_back(value: Value) -> tuple[Value, float] | None:
    """The image that becomes a float32 tensor (1, F, T), and what its values are divided by."""
    axes, divisor, is_float = 0, 1.0, False
    while True:
        below, by = _divided(value)
        if by != 1.0 and not is_float and divisor == 1.0:
            value, divisor = below, by
            continue
        match value:
            case Call(Attr(base, "unsqueeze" | "float" | "to")):
                step = str(value).removeprefix(str(base))
            case _:
                break
        axes += step == ".unsqueeze(0)"
        is_float = is_float or step in (".float()", ".to(torch.float32)", ".to(dtype=torch.float32)")
        if step not in (".unsqueeze(0)", ".float()", ".to(torch.float32)", ".to(dtype=torch.float32)"):
            return None
        value = base
    made, arguments = _call(value)
    said = [str(one) for one in arguments[1:]]
    if made not in ("torch.from_numpy", "torch.tensor", "torch.as_tensor") or said not in ([], ["torch.float32"]):
        return None
    is_float = is_float or bool(said)
    array, by = _divided(arguments[0])
    if by != 1.0 and (is_float or divisor != 1.0):
        return None  # divided before it became float32
    match array:
        case Call(Attr(base, "astype")) if [str(one) for one in _call(array)[1]] == ["np.float32"]:
            array, is_float = base, True
    made, arguments = _call(array)
    said = [str(one) for one in arguments[1:]]
    if axes != 1 or made not in ("np.array", "np.asarray") or said not in ([], ["np.float32"]):
        return None
    return (arguments[0], divisor * by) if is_float or said else None


def _divided(value: Value) -> tuple[Value, float]:
    match value:
        case Op("/", base, Const("255" | "255.0")):
            return base, 255.0
    return value, 1.0


def _stretched(value: Value, x: Value) -> float | None:
    """What is added to the range in ``((a - a.min()) / (a.max() - a.min() + eps) * 255).astype(np.uint8)``."""
    match value:
        case Call(
            Attr(Op("*", quotient, Const("255" | "255.0")) | Op("*", Const("255" | "255.0"), quotient), "astype")
        ):
            cast = _call(value)[1]
        case _:
            return None
    match quotient:
        case Op("/", Op("-", array, low), span) if _is_array_of(array, x) and str(low) in _ends("min", str(array)):
            eps = 0.0
        case _:
            return None
    match span:
        case Op("+", span, added):
            eps = finite(str(added))
            if not eps > 0:
                return None
    ends = {f"{high} - {low}" for high in _ends("max", str(array)) for low in _ends("min", str(array))}
    return eps if [str(one) for one in cast] == ["np.uint8"] and str(span) in ends else None


def _ends(which: str, array: str) -> tuple[str, str]:
    return f"{array}.{which}()", f"np.{which}({array})"


def _is_array_of(value: Value, x: Value) -> bool:
    """Whether ``value`` is x without its first axis, as an array."""
    squeezed = arrays = 0
    while value != x:
        match value:
            case Item(base, Const("0")):
                step = ".squeeze(0)"
            case Call(Attr(base, "squeeze" | "numpy" | "cpu" | "detach")):
                step = str(value).removeprefix(str(base))
            case _:
                return False
        if step not in (".squeeze()", ".squeeze(0)", ".numpy()", ".cpu()", ".detach()"):
            return False
        squeezed += step.startswith(".squeeze")
        arrays += step == ".numpy()"
        value = base
    return squeezed == arrays == 1
