"""What a dataset's ``__getitem__`` means: standardise, augment, or hand out the samples of a sequence.

Works on symbolic values (``dataflow.symbolic``), so that it does not matter whether the code is a class,
a function-local class or a dictionary of lambdas, nor how its steps are spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import isfinite

from chirp_migrate.analysis.dataflow.symbolic import Value, const, item, name

SELF = name("self")
INDEX = name("<index>")
MAX_CONDITIONS = 6


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
class SequenceSamples:
    """The samples of ``samples``, as they are."""

    samples: Value


Meaning = Standardizing | Augmenting | SequenceSamples


def meaning_of(getitem: Value) -> Meaning | None:
    """Meaning of a dataset from the value of its ``__getitem__`` at :data:`INDEX`."""
    return _listing(getitem) or _standardizing(getitem) or augmenting(getitem)


@dataclass(frozen=True)
class Settled:
    """The value of a traced ``__getitem__``, without its traces.

    Attributes:
        value: what it returns.
        complete: whether that is all it does: every value that is kept is part of it, every call is made once, every
            condition decides about something, and nothing is tested both for being None and for being true.
        reads_once: whether nothing is subscripted twice alike.
    """

    value: Value
    complete: bool
    reads_once: bool


def settled(getitem: Value) -> Settled | None:
    """The value of a traced ``__getitem__``; ``None`` where there are too many conditions."""
    conditions = sorted(conditions_of(getitem), key=str)
    if len(conditions) > MAX_CONDITIONS:
        return None
    complete = reads_once = True

    def settle(truths: dict[Value, bool]) -> Value:
        nonlocal complete, reads_once
        if len(truths) < len(conditions):
            condition = conditions[len(truths)]
            return Value("if", (condition, *(settle({**truths, condition: holds}) for holds in (True, False))))
        path = under(getitem, truths)
        value, trace = stripped(path), flat_trace(path)
        made = [one for what, one in trace if what == "made"]
        complete = complete and made == _calls_in(value) and all(is_part(one, value) for _, one in trace)
        read = [one for what, one in trace if what == "read"]
        reads_once = reads_once and len(set(read)) == len(read)
        return value

    tree = settle({})
    clear = none_tested(getitem).isdisjoint(_truth_tested(getitem))
    return Settled(tree, complete and clear and all(_decides(tree, one) for one in conditions), reads_once)


def none_tested(value: Value) -> set[Value]:
    """What ``value`` compares with None."""
    return {tested for one in _subvalues(value) if (tested := _none_test(one)) is not None}


def _decides(tree: Value, condition: Value) -> bool:
    """Whether ``condition`` makes a difference somewhere in a tree of all conditions."""
    if tree.parts[0] == condition:
        return tree.parts[1] != tree.parts[2]
    return any(_decides(side, condition) for side in tree.parts[1:])  # type: ignore[arg-type]


def stripped(value: Value) -> Value:
    """``value`` without traces."""
    if value.kind == "path":
        return stripped(value.parts[0])  # type: ignore[arg-type]
    return _rebuilt(value, stripped)


def flat_trace(path: Value) -> list[tuple[str, Value]]:
    """What was kept and which calls were made on a path, and on the paths that it ran."""
    found: list[tuple[str, Value]] = []
    assert isinstance(path.parts[1], tuple)
    for one in path.parts[1]:
        found += flat_trace(one.parts[0]) if one.kind == "ran" else [(one.kind, stripped(one.parts[0]))]
    return found


def _subvalues(value: Value) -> Iterator[Value]:
    yield value
    for part in value.parts:
        for one in part if isinstance(part, tuple) else (part,):
            if isinstance(one, Value):
                yield from _subvalues(one)


def is_part(one: Value, value: Value) -> bool:
    """Whether ``one`` is a part of ``value``, or a tuple of such, or a literal."""
    if one.kind == "tuple" and isinstance(one.parts[0], tuple):
        return all(is_part(item, value) for item in one.parts[0])
    return one.kind == "const" or one in _subvalues(value)


def _calls_in(value: Value) -> list[Value]:
    """The calls that ``value`` consists of, in the order in which they are made."""
    found: list[Value] = []
    for one in reversed(list(_subvalues(value))):
        if one.kind == "call" and one not in found:
            found.append(one)
    return found


def _standardizing(value: Value) -> Standardizing | None:
    """Read ``((x - mean) / (std + eps), y)`` with ``x, y = dataset[indices[index]]``."""
    pair = pair_of(value)
    if pair is None:
        return None
    parts = standardized_pair(pair)
    if parts is None:
        return None
    sample, mean, std, eps = parts
    if sample.kind != "item":
        return None
    dataset, position = _two(sample)
    if position.kind != "item":
        return None
    indices, inner = _two(position)
    return Standardizing(dataset, indices, mean, std, eps) if inner == INDEX else None


def standardized_pair(pair: tuple[Value, Value]) -> tuple[Value, Value, Value, float] | None:
    """Sample, mean, std and eps of ``((sample[0] - mean) / (std + eps), sample[1])``, or ``None``."""
    quotient, label = pair
    if label.kind != "item" or quotient.parts[0] != "/":
        return None
    sample, which = _two(label)
    if which != const("1"):
        return None
    difference, divisor = quotient.parts[1], quotient.parts[2]
    assert isinstance(difference, Value) and isinstance(divisor, Value)
    if difference.parts[0] != "-" or difference.parts[1] != item(sample, const("0")):
        return None
    mean = difference.parts[2]
    assert isinstance(mean, Value)
    std, eps = divisor, 0.0
    if divisor.kind == "op" and divisor.parts[0] == "+":
        left, right = divisor.parts[1], divisor.parts[2]
        assert isinstance(left, Value) and isinstance(right, Value)
        if right.kind != "const":
            left, right = right, left
        try:
            std, eps = left, float(str(right.parts[0]))
        except ValueError:
            return None
        if not eps or not isfinite(eps):  # 0 is what nothing added is read as
            return None
    return sample, mean, std, eps


def _listing(getitem: Value) -> SequenceSamples | None:
    return SequenceSamples(_two(getitem)[0]) if getitem.kind == "item" and _two(getitem)[1] == INDEX else None


def augmenting(getitem: Value) -> Augmenting | None:
    """Read ``(transform(x), y)`` with ``x, y = dataset[index]``, one transform or several, each perhaps switched."""
    conditions = sorted(conditions_of(getitem), key=str)
    outcomes: dict[tuple[bool, ...], tuple[Value, tuple[Value, ...]]] = {}
    for truths in product((True, False), repeat=len(conditions)):
        outcome = _chain(under(getitem, dict(zip(conditions, truths, strict=True))))
        if outcome is None:
            return None
        outcomes[truths] = outcome
    base, full = max(outcomes.values(), key=lambda outcome: len(outcome[1]))
    if not full or len(set(full)) != len(full) or any(outcome[0] != base for outcome in outcomes.values()):
        return None
    training = next((c for c in conditions if _flag_name(c) in ("training", "train", "is_training")), None)
    stages = []
    for function in full:
        gates = [
            c
            for position, c in enumerate(conditions)
            if c != training and all(function not in o[1] for t, o in outcomes.items() if not t[position])
        ]
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
    pair = pair_of(value)
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
        functions.insert(0, function)
        x = args[0]
    return _two(sample)[0], tuple(functions)


def _flag_name(condition: Value) -> str:
    return str(condition.parts[1] if condition.kind == "attr" else condition.parts[0])


def conditions_of(value: Value) -> set[Value]:
    """What ``value`` depends on being true, or not None."""
    if value.kind != "if":
        found: set[Value] = set()
        for part in value.parts:
            for inner in part if isinstance(part, tuple) else (part,):
                if isinstance(inner, Value):
                    found |= conditions_of(inner)
        return found
    condition, then, otherwise = value.parts
    assert isinstance(condition, Value) and isinstance(then, Value) and isinstance(otherwise, Value)
    atoms = {_none_test(one) or one for one in _atoms(condition)}
    return atoms | conditions_of(then) | conditions_of(otherwise)


def tests_of(value: Value) -> list[Value]:
    """The tests in ``value``."""
    return [one.parts[0] for one in _subvalues(value) if one.kind == "if"]  # type: ignore[misc]


def _truth_tested(value: Value) -> set[Value]:
    """What ``value`` depends on being true."""
    return {atom for test in tests_of(value) for atom in _atoms(test)}


def _atoms(condition: Value) -> set[Value]:
    if condition.kind == "not":
        return _atoms(condition.parts[0])  # type: ignore[arg-type]
    if condition.kind == "bool":
        return _atoms(condition.parts[1]) | _atoms(condition.parts[2])  # type: ignore[arg-type]
    return {condition}


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


def under(value: Value, truths: Mapping[Value, bool]) -> Value:
    """What is left of ``value`` where these conditions hold or do not."""
    if value.kind == "if":
        condition, then, otherwise = value.parts
        assert isinstance(condition, Value) and isinstance(then, Value) and isinstance(otherwise, Value)
        return under(then if _holds(condition, truths) else otherwise, truths)
    return _rebuilt(value, lambda part: under(part, truths))


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


def pair_of(value: Value) -> tuple[Value, Value] | None:
    """The two parts of a pair that ``value`` makes."""
    if value.kind == "tuple" and isinstance(value.parts[0], tuple) and len(value.parts[0]) == 2:
        return value.parts[0]
    return None


def _two(value: Value) -> tuple[Value, Value]:
    first, second = value.parts
    assert isinstance(first, Value) and isinstance(second, Value)
    return first, second


def length_of(value: Value) -> Value:
    """``len(value)``."""
    return Value("call", (name("len"), (value,), ()))
