"""What a dataset's ``__getitem__`` means that masks an 8-bit image of each sample.

The value of the code is compared with one shape, for samples (1, F, T): an image of them, stretched to its own range,
through one augmenter, and back. What holds for other samples does not matter: their own code reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import isfinite

from chirp_migrate.analysis.dataflow.symbolic import Value, const, item, name, render
from chirp_migrate.analysis.datasets.dataset_meaning import (
    INDEX,
    MAX_CONDITIONS,
    SELF,
    conditions_of,
    flat_trace,
    is_part,
    none_tested,
    pair_of,
    stripped,
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
    samples = {one.parts[0] for one in conditions if _is_isinstance(one)}
    if len(conditions) > MAX_CONDITIONS or len(samples) > 1:
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


def _does_nothing_besides(path: Value, value: Value, tests: list[Value]) -> bool:
    """Whether all that is kept or called on a path is part of its value or of a test, and the augmenter called once."""
    trace = flat_trace(path)
    parts = [stripped(one) for one in tests]
    calls = [one for what, one in trace if what == "made" and _is_own(one.parts[0])]  # type: ignore[arg-type]
    return len(calls) == len(set(calls)) and all(
        any(is_part(one, whole) for whole in (value, *parts)) for _, one in trace
    )


def _is_own(value: Value) -> bool:
    return value.kind == "attr" and value.parts[0] == SELF


def _is_plain(value: Value, dataset: Value) -> bool:
    sample = item(dataset, INDEX)
    return value in (sample, Value("tuple", ((item(sample, const("0")), item(sample, const("1"))),)))


def _is_x(value: Value) -> bool:
    """Whether ``value`` is the x of the sample at the index."""
    if value.kind != "item" or value.parts[1] != const("0"):
        return False
    sample = value.parts[0]
    return isinstance(sample, Value) and sample.kind == "item" and sample.parts[1] == INDEX


def _is_isinstance(value: Value) -> bool:
    function, arguments = _call(value)
    if function != name("isinstance") or len(arguments) != 2:
        return False
    x, kind = arguments
    return _is_x(x) and str(kind) == "torch.Tensor"


def _of_three_axes(value: Value) -> bool | None:
    """Whether a test of how many axes x has holds for (1, F, T); ``None`` for other tests."""
    if value.kind != "compare" or str(value.parts[0]) not in _COMPARED or not str(value.parts[2]).isdigit():
        return None
    asked, number = value.parts[1], int(str(value.parts[2]))
    assert isinstance(asked, Value)
    mentioned = [one for one in _inside(asked) if _is_x(one)]
    if not mentioned:
        return None
    x = render(mentioned[0])
    holds = _COMPARED[str(value.parts[0])]
    if render(asked) in (f"{x}.dim()", f"{x}.ndim", f"len({x}.shape)"):
        return bool(holds(3, number))
    return bool(holds(1, number)) if render(asked) in (f"{x}.shape[0]", f"{x}.size(0)") else None


def _inside(value: Value) -> list[Value]:
    parts = [one for part in value.parts for one in (part if isinstance(part, tuple) else (part,))]
    return [value, *(inner for one in parts if isinstance(one, Value) for inner in _inside(one))]


def _imaged(value: Value) -> Imaging | None:
    """Read the whole of it from the outside to the inside."""
    pair = pair_of(value)
    if pair is None or pair[1].kind != "item" or pair[1].parts[1] != const("1"):
        return None
    sample = pair[1].parts[0]
    assert isinstance(sample, Value)
    x = item(sample, const("0"))
    back = _taken_back(pair[0])
    if back is None or not _is_x(x) or sample.kind != "item":
        return None
    image, divisor = back
    augmenter, arguments = _call(image)
    made, arrays = _call(arguments[0]) if augmenter is not None and len(arguments) == 1 else (None, ())
    if made is None or str(made) != "Image.fromarray" or not arrays or arrays[1:] not in ((), (const("'L'"),)):
        return None
    eps = _stretched(arrays[0], x)
    dataset = sample.parts[0]
    assert isinstance(dataset, Value) and augmenter is not None
    return None if eps is None else Imaging(dataset, augmenter, None, eps, divisor)


def _call(value: Value) -> tuple[Value | None, tuple[Value, ...]]:
    """Function and arguments of a call, those by the keywords ``dtype`` and ``mode`` the last."""
    if value.kind != "call":
        return None, ()
    function, arguments, keywords = value.parts
    assert isinstance(function, Value) and isinstance(arguments, tuple) and isinstance(keywords, tuple)
    if any(keyword not in ("dtype", "mode") for keyword, _ in keywords) or len(keywords) > 1:
        return None, ()
    return function, (*arguments, *(one for _, one in keywords))


def _method(value: Value, *names: str) -> tuple[Value, tuple[Value, ...]] | None:
    """Object and arguments of a call of one of its methods."""
    function, arguments = _call(value)
    if function is None or function.kind != "attr" or function.parts[1] not in names:
        return None
    base = function.parts[0]
    assert isinstance(base, Value)
    return base, arguments


def _taken_back(value: Value) -> tuple[Value, float] | None:
    """The image that becomes a float32 tensor (1, F, T), and what its values are divided by."""
    axes, divisor, is_float = 0, 1.0, False
    while True:
        below, by = _divided(value)
        found = _method(value, "unsqueeze", "float", "to")
        if by != 1.0 and not is_float and divisor == 1.0:
            value, divisor = below, by
        elif found is not None:
            value, step = found[0], render(value)[len(render(found[0])) :]
            axes += step == ".unsqueeze(0)"
            is_float = is_float or step in (".float()", ".to(torch.float32)", ".to(dtype=torch.float32)")
            if step not in (".unsqueeze(0)", ".float()", ".to(torch.float32)", ".to(dtype=torch.float32)"):
                return None
        else:
            break
    function, arguments = _call(value)
    made, *said = map(str, (function, *arguments[1:]))
    if made not in ("torch.from_numpy", "torch.tensor", "torch.as_tensor") or said not in ([], ["torch.float32"]):
        return None
    is_float = is_float or bool(said)
    array, by = _divided(arguments[0])
    if by != 1.0 and (is_float or divisor != 1.0):
        return None  # divided before it became float32
    if (converted := _method(array, "astype")) is not None and [str(one) for one in converted[1]] == ["np.float32"]:
        array, is_float = converted[0], True
    function, arguments = _call(array)
    made, *said = map(str, (function, *arguments[1:]))
    if axes != 1 or made not in ("np.array", "np.asarray") or said not in ([], ["np.float32"]):
        return None
    return (arguments[0], divisor * by) if is_float or said else None


def _divided(value: Value) -> tuple[Value, float]:
    if value.kind == "op" and value.parts[0] == "/" and str(value.parts[2]) in ("255", "255.0"):
        base = value.parts[1]
        assert isinstance(base, Value)
        return base, 255.0
    return value, 1.0


def _stretched(value: Value, x: Value) -> float | None:
    """What is added to the range in ``((a - a.min()) / (a.max() - a.min() + eps) * 255).astype(np.uint8)``."""
    cast = _method(value, "astype")
    if cast is None or [str(one) for one in cast[1]] != ["np.uint8"] or cast[0].parts[0] != "*":
        return None
    sides: Mapping[bool, object] = {str(one) in ("255", "255.0"): one for one in cast[0].parts[1:]}
    quotient = sides.get(False)
    if True not in sides or not isinstance(quotient, Value) or quotient.parts[0] != "/":
        return None
    above, below = quotient.parts[1:]
    assert isinstance(above, Value) and isinstance(below, Value)
    if above.parts[0] != "-" or not isinstance(above.parts[1], Value) or not _is_array_of(above.parts[1], x):
        return None
    array = render(above.parts[1])
    if render(above.parts[2]) not in _ends("min", array):  # type: ignore[arg-type]
        return None
    eps = 0.0
    if below.parts[0] == "+" and isinstance(below.parts[1], Value):
        try:
            eps = float(str(below.parts[2]))
        except ValueError:
            return None
        if not eps > 0 or not isfinite(eps):
            return None
        below = below.parts[1]
    spans = {f"{high} - {low}" for high in _ends("max", array) for low in _ends("min", array)}
    return eps if render(below) in spans else None


def _ends(which: str, array: str) -> tuple[str, str]:
    return f"{array}.{which}()", f"np.{which}({array})"


def _is_array_of(value: Value, x: Value) -> bool:
    """Whether ``value`` is x without its first axis, as an array."""
    squeezed = arrays = 0
    while value != x:
        if value.kind == "item" and value.parts[1] == const("0") and isinstance(value.parts[0], Value):
            squeezed += 1
            value = value.parts[0]
            continue
        found = _method(value, "squeeze", "numpy", "cpu", "detach")
        if found is None:
            return False
        value, step = found[0], render(value)[len(render(found[0])) :]
        if step not in (".squeeze()", ".squeeze(0)", ".numpy()", ".cpu()", ".detach()"):
            return False
        squeezed += step.startswith(".squeeze")
        arrays += step == ".numpy()"
    return squeezed == arrays == 1
