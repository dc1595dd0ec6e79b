"""What a dataset's ``__getitem__`` means: standardise, augment, or hand out the samples of a sequence.

Works on symbolic values (:mod:`chirp_migrate.symbolic`), so that it does not matter whether the code is a class,
a function-local class or a dictionary of lambdas, nor how its steps are spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from chirp_migrate.symbolic import Value, const, item, name

SELF = name("self")
INDEX = name("<index>")
_MAX_CONDITIONS = 6


@dataclass(frozen=True)
class Standardizing:
    """``(x - mean) / (std + eps)`` of the samples of ``dataset`` at ``indices``."""

    dataset: Value
    indices: Value
    mean: Value
    std: Value
    eps: float


@dataclass(frozen=True)
class Stage:
    """One augmentation: ``function`` applied to x when ``gate`` holds (``None``: always)."""

    function: Value
    gate: Value | None


@dataclass(frozen=True)
class Augmenting:
    """Samples of ``dataset`` with ``stages`` applied to x; only while ``training`` holds, if there is such a flag."""

    dataset: Value
    stages: tuple[Stage, ...]
    training: Value | None


@dataclass(frozen=True)
class Listing:
    """The samples of ``samples``, as they are."""

    samples: Value


Meaning = Standardizing | Augmenting | Listing


def meaning_of(getitem: Value, length: Value | None) -> Meaning | None:
    """Meaning of a dataset from the values of its ``__getitem__`` (at :data:`INDEX`) and ``__len__``."""
    listing = _listing(getitem, length)
    if listing is not None:
        return listing
    standardizing = standardized_sample(getitem)
    if standardizing is not None:
        return standardizing if length is None or length == _len(standardizing.indices) else None
    augmenting = _augmenting(getitem)
    if augmenting is not None and (length is None or length == _len(augmenting.dataset)):
        return augmenting
    return None


@dataclass(frozen=True)
class Settled:
    """The value of a traced ``__getitem__``, without its traces.

    Attributes:
        value: what it returns.
        complete: whether that is all it does: every value that is kept is part of it, every call is one of state and
            made once, and every condition decides about something.
        reads_once: whether nothing is subscripted twice alike.
    """

    value: Value
    complete: bool
    reads_once: bool


def settled(getitem: Value) -> Settled | None:
    """The value of a traced ``__getitem__``; ``None`` where there are too many conditions."""
    conditions = sorted(_conditions(getitem), key=str)
    if len(conditions) > _MAX_CONDITIONS:
        return None
    complete = reads_once = True

    def settle(truths: dict[Value, bool]) -> Value:
        nonlocal complete, reads_once
        if len(truths) < len(conditions):
            condition = conditions[len(truths)]
            return Value("if", (condition, *(settle({**truths, condition: holds}) for holds in (True, False))))
        path = _under(getitem, truths)
        value, trace = _stripped(path), _flat(path)
        made = [one for what, one in trace if what == "made"]
        known = made == _calls_in(value) and all(_is_own_call(one) for one in made)
        complete = complete and known and all(is_part(one, value) for _, one in trace)
        read = [one for what, one in trace if what == "read"]
        reads_once = reads_once and len(set(read)) == len(read)
        return value

    tree = settle({})
    return Settled(tree, complete and all(_decides(tree, one) for one in conditions), reads_once)


def none_tested(value: Value) -> set[Value]:
    """What ``value`` compares with None."""
    return {tested for one in _subvalues(value) if (tested := _none_test(one)) is not None}


def _decides(tree: Value, condition: Value) -> bool:
    """Whether ``condition`` makes a difference somewhere in a tree of all conditions."""
    if tree.kind != "if" or tree.parts[0] == condition:
        return tree.kind == "if" and tree.parts[1] != tree.parts[2]
    return any(_decides(side, condition) for side in tree.parts[1:])  # type: ignore[arg-type]


def _stripped(value: Value) -> Value:
    """``value`` without traces."""
    if value.kind == "path":
        return _stripped(value.parts[0])  # type: ignore[arg-type]
    return _rebuilt(value, _stripped)


def _flat(path: Value) -> list[tuple[str, Value]]:
    """What was kept and which calls were made on a path, and on the paths that it ran."""
    found: list[tuple[str, Value]] = []
    assert isinstance(path.parts[1], tuple)
    for one in path.parts[1]:
        found += _flat(one.parts[0]) if one.kind == "ran" else [(one.kind, _stripped(one.parts[0]))]
    return found


def _subvalues(value: Value) -> Iterator[Value]:
    yield value
    for part in value.parts:
        for one in part if isinstance(part, tuple) else (part,):
            if isinstance(one, Value):
                yield from _subvalues(one)


def is_part(one: Value, value: Value) -> bool:
    """Whether ``one`` is a part of ``value``, or a tuple of such, or nothing that had to be computed."""
    if one.kind == "tuple" and isinstance(one.parts[0], tuple):
        return all(is_part(item, value) for item in one.parts[0])
    return one.kind in ("name", "const") or one in _subvalues(value)


def _is_own_call(value: Value) -> bool:
    return isinstance(value.parts[0], Value) and _is_state(value.parts[0])


def _calls_in(value: Value) -> list[Value]:
    """The calls that ``value`` consists of, in the order in which they are made."""
    found: list[Value] = []
    for one in reversed(list(_subvalues(value))):
        if one.kind == "call" and one not in found:
            found.append(one)
    return found


def standardized_sample(value: Value, index: Value = INDEX) -> Standardizing | None:
    """Read ``((x - mean) / (std + eps), y)`` with ``x, y = dataset[indices[index]]``."""
    pair = _pair(value)
    if pair is None:
        return None
    parts = standardized_pair(pair)
    if parts is None:
        return None
    sample, mean, std, eps = parts
    if sample.kind != "item":
        return None
    dataset, position = _two(sample)
    position = _bare_index(position)
    if position.kind != "item":
        return None
    indices, inner = _two(position)
    if _bare_index(inner) != index:
        return None
    return Standardizing(dataset, indices, mean, std, eps)


def standardized_pair(pair: tuple[Value, Value]) -> tuple[Value, Value, Value, float] | None:
    """Sample, mean, std and eps of ``((sample[0] - mean) / (std + eps), sample[1])``, or ``None``."""
    quotient, label = pair
    if label.kind != "item" or quotient.kind != "op" or quotient.parts[0] != "/":
        return None
    sample, which = _two(label)
    if which != const("1"):
        return None
    difference, divisor = quotient.parts[1], quotient.parts[2]
    assert isinstance(difference, Value) and isinstance(divisor, Value)
    if difference.kind != "op" or difference.parts[0] != "-" or difference.parts[1] != item(sample, const("0")):
        return None
    mean = difference.parts[2]
    assert isinstance(mean, Value)
    std, eps = divisor, 0.0
    if divisor.kind == "op" and divisor.parts[0] == "+":
        left, right = divisor.parts[1], divisor.parts[2]
        assert isinstance(left, Value) and isinstance(right, Value)
        if right.kind != "const":
            left, right = right, left
        if right.kind != "const":
            return None
        try:
            std, eps = left, float(str(right.parts[0]))
        except ValueError:
            return None
        if not eps:  # which is what nothing added is read as
            return None
    return sample, mean, std, eps


def _listing(getitem: Value, length: Value | None) -> Listing | None:
    if getitem.kind == "item":
        samples, index = _two(getitem)
        if index == INDEX and _is_state(samples) and length in (None, _len(samples)):
            return Listing(samples)
    pair = _pair(getitem)
    if pair is not None and all(part.kind == "item" for part in pair):
        (first, zero), (second, one) = _two(pair[0]), _two(pair[1])
        if first == second and (zero, one) == (const("0"), const("1")):
            return _listing(first, length)
    return None


def _augmenting(getitem: Value) -> Augmenting | None:
    conditions = sorted(_conditions(getitem), key=str)
    if len(conditions) > _MAX_CONDITIONS:
        return None
    outcomes: dict[tuple[bool, ...], tuple[Value, tuple[Value, ...]]] = {}
    for truths in product((True, False), repeat=len(conditions)):
        outcome = _chain(_under(getitem, dict(zip(conditions, truths, strict=True))))
        if outcome is None:
            return None
        outcomes[truths] = outcome
    base, full = max(outcomes.values(), key=lambda outcome: len(outcome[1]))
    if not full or len(set(full)) != len(full) or any(outcome[0] != base for outcome in outcomes.values()):
        return None
    if not _is_state(base):
        return None
    training = next((c for c in conditions if _flag_name(c) in ("training", "train", "is_training")), None)
    stages = []
    for function in full:
        gates = [
            c
            for position, c in enumerate(conditions)
            if c != training and all(function not in o[1] for t, o in outcomes.items() if not t[position])
        ]
        if len(gates) > 1:
            return None
        stages.append(Stage(function, gates[0] if gates else None))
    for truths, (_, chain) in outcomes.items():
        holds = dict(zip(conditions, truths, strict=True))
        expected = tuple(
            stage.function
            for stage in stages
            if (training is None or holds[training]) and (stage.gate is None or holds[stage.gate])
        )
        if chain != expected:
            return None
    return Augmenting(base, tuple(stages), training)


def _chain(value: Value) -> tuple[Value, tuple[Value, ...]] | None:
    """Base dataset and the functions applied to x, innermost first, of a sample without conditions."""
    if value.kind == "item" and _two(value)[1] == INDEX:
        return _two(value)[0], ()
    pair = _pair(value)
    if pair is None or pair[1].kind != "item":
        return None
    sample, which = _two(pair[1])
    if which != const("1") or sample.kind != "item" or _two(sample)[1] != INDEX:
        return None
    functions: list[Value] = []
    x = pair[0]
    while x != item(sample, const("0")):
        if x.kind != "call" or x.parts[2] or len(x.parts[1]) != 1:  # type: ignore[arg-type]
            return None
        function, args = x.parts[0], x.parts[1]
        assert isinstance(function, Value) and isinstance(args, tuple)
        if not _is_state(function):
            return None
        functions.insert(0, function)
        x = args[0]
    return _two(sample)[0], tuple(functions)


def _is_state(value: Value) -> bool:
    """``self.x`` or a name from the surrounding function."""
    return value.kind == "name" or (value.kind == "attr" and value.parts[0] == SELF)


def _flag_name(condition: Value) -> str:
    return str(condition.parts[1] if condition.kind == "attr" else condition.parts[0])


def _conditions(value: Value) -> set[Value]:
    if value.kind != "if":
        found: set[Value] = set()
        for part in value.parts:
            for inner in part if isinstance(part, tuple) else (part,):
                if isinstance(inner, Value):
                    found |= _conditions(inner)
        return found
    condition, then, otherwise = value.parts
    assert isinstance(condition, Value) and isinstance(then, Value) and isinstance(otherwise, Value)
    return _atoms(condition) | _conditions(then) | _conditions(otherwise)


def _atoms(condition: Value) -> set[Value]:
    if condition.kind == "not":
        return _atoms(condition.parts[0])  # type: ignore[arg-type]
    if condition.kind == "bool":
        return _atoms(condition.parts[1]) | _atoms(condition.parts[2])  # type: ignore[arg-type]
    return {_none_test(condition) or condition}


def _none_test(condition: Value) -> Value | None:
    """``x`` for ``x is not None`` and ``x is None``: whether x is there."""
    if condition.kind == "compare" and condition.parts[0] in ("is", "is not") and condition.parts[2] == const("None"):
        tested = condition.parts[1]
        assert isinstance(tested, Value)
        return tested
    return None


def _holds(condition: Value, truths: Mapping[Value, bool]) -> bool:
    if condition.kind == "not":
        return not _holds(condition.parts[0], truths)  # type: ignore[arg-type]
    if condition.kind == "bool":
        left, right = (_holds(part, truths) for part in condition.parts[1:])  # type: ignore[arg-type]
        return (left and right) if condition.parts[0] == "and" else (left or right)
    tested = _none_test(condition)
    if tested is not None:
        return truths[tested] if condition.parts[0] == "is not" else not truths[tested]
    return truths[condition]


def _under(value: Value, truths: Mapping[Value, bool]) -> Value:
    if value.kind == "if":
        condition, then, otherwise = value.parts
        assert isinstance(condition, Value) and isinstance(then, Value) and isinstance(otherwise, Value)
        return _under(then if _holds(condition, truths) else otherwise, truths)
    return _rebuilt(value, lambda part: _under(part, truths))


def _rebuilt(value: Value, change: Callable[[Value], Value]) -> Value:
    """``value`` of changed parts."""
    parts = tuple(
        change(part)
        if isinstance(part, Value)
        else tuple(change(p) if isinstance(p, Value) else p for p in part)
        if isinstance(part, tuple)
        else part
        for part in value.parts
    )
    if value.kind == "item":
        return item(parts[0], parts[1])  # type: ignore[arg-type]
    return Value(value.kind, parts)


def _pair(value: Value) -> tuple[Value, Value] | None:
    if value.kind == "tuple" and isinstance(value.parts[0], tuple) and len(value.parts[0]) == 2:
        return value.parts[0]
    return None


def _two(value: Value) -> tuple[Value, Value]:
    first, second = value.parts
    assert isinstance(first, Value) and isinstance(second, Value)
    return first, second


def _bare_index(value: Value) -> Value:
    """``i`` for ``int(i)`` and ``i.item()``."""
    if value.kind == "call":
        function, args = value.parts[0], value.parts[1]
        assert isinstance(function, Value) and isinstance(args, tuple)
        if function == name("int") and len(args) == 1:
            return _bare_index(args[0])
        if function.kind == "attr" and function.parts[1] == "item" and not args:
            return _bare_index(function.parts[0])  # type: ignore[arg-type]
    return value


def _len(value: Value) -> Value:
    return Value("call", (name("len"), (value,), ()))
