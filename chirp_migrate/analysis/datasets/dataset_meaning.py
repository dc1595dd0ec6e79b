"""What a dataset's ``__getitem__`` means: standardise, augment, or hand out the samples of a sequence.

Works on symbolic values (``dataflow.symbolic``), so that it does not matter whether the code is a class,
a function-local class or a dictionary of lambdas, nor how its steps are spelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import isfinite

from chirp_migrate.analysis.dataflow.symbolic import (
    Attr,
    Call,
    Const,
    If,
    Item,
    Made,
    Name,
    Not,
    Op,
    Path,
    Ran,
    Read,
    Step,
    Tuple,
    Value,
    item,
)

SELF = Name("self")
INDEX = Name("<index>")
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
    match getitem:
        case Item(samples, at) if at == INDEX:
            return SequenceSamples(samples)
    match standardized_pair(getitem):
        case Item(dataset, Item(indices, at)), mean, std, eps if at == INDEX:
            return Standardizing(dataset, indices, mean, std, eps)
    return augmenting(getitem)


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
            return If(condition, *(settle({**truths, condition: holds}) for holds in (True, False)))
        path = under(getitem, truths)
        value, trace = stripped(path), flat_trace(path)
        made = [one.value for one in trace if isinstance(one, Made)]
        complete = complete and made == _calls_in(value) and all(is_part(one.value, value) for one in trace)
        read = [one.value for one in trace if isinstance(one, Read)]
        reads_once = reads_once and len(set(read)) == len(read)
        return value

    tree = settle({})
    clear = none_tested(getitem).isdisjoint(_truth_tested(getitem))
    return Settled(tree, complete and clear and all(_decides(tree, one) for one in conditions), reads_once)


def none_tested(value: Value) -> set[Value]:
    """What ``value`` compares with None."""
    return {tested for one in subvalues(value) if (tested := _none_test(one)) is not None}


def _decides(tree: Value, condition: Value) -> bool:
    """Whether ``condition`` makes a difference somewhere in a tree of all conditions."""
    match tree:
        case If(asked, then, otherwise) if asked == condition:
            return then != otherwise
        case If(_, then, otherwise):
            return _decides(then, condition) or _decides(otherwise, condition)
    return False


def stripped(value: Value) -> Value:
    """``value`` without traces."""
    return stripped(value.value) if isinstance(value, Path) else value.rebuilt(stripped)


def flat_trace(path: Value) -> list[Step]:
    """What was kept and which calls were made on a path, and on the paths that it ran; the values without traces."""
    found: list[Step] = []
    for one in path.trace if isinstance(path, Path) else ():
        found += flat_trace(one.value) if isinstance(one, Ran) else [type(one)(stripped(one.value))]
    return found


def subvalues(value: Value) -> Iterator[Value]:
    """``value`` and all that it is made of."""
    yield value
    for part in value.parts:
        yield from subvalues(part)


def is_part(one: Value, value: Value) -> bool:
    """Whether ``one`` is a part of ``value``, or a tuple of such, or a literal."""
    if isinstance(one, Tuple):
        return all(is_part(item, value) for item in one.items)
    return isinstance(one, Const) or one in subvalues(value)


def _calls_in(value: Value) -> list[Value]:
    """The calls that ``value`` consists of, in the order in which they are made."""
    return list(dict.fromkeys(one for one in reversed(list(subvalues(value))) if isinstance(one, Call)))


def standardized_pair(pair: Value) -> tuple[Value, Value, Value, float] | None:
    """Sample, mean, std and eps of ``((sample[0] - mean) / (std + eps), sample[1])``, or ``None``."""
    match pair:
        case Tuple((Op("/", Op("-", Item(x, Const("0")), mean), divisor), Item(sample, Const("1")))) if x == sample:
            std, eps = divisor, 0.0
        case _:
            return None
    match divisor:
        case Op("+", std, Const(number)) | Op("+", Const(number), std):
            eps = finite(number)
            if not eps:  # 0 is what nothing added is read as
                return None
        case Op("+"):
            return None
    return sample, mean, std, eps


def finite(number: str) -> float:
    """The value of a literal; 0 where it is no finite number."""
    try:
        value = float(number)
    except ValueError:
        return 0.0
    return value if isfinite(value) else 0.0


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
    match value:
        case Item(dataset, at) if at == INDEX:
            return dataset, ()
        case Tuple((x, Item(Item(dataset, at) as sample, Const("1")))) if at == INDEX:
            functions: list[Value] = []
            while x != item(sample, Const("0")):
                match x:
                    case Call(function, (inner,), ()):
                        functions.insert(0, function)
                        x = inner
                    case _:
                        return None
            return dataset, tuple(functions)
    return None


def _flag_name(condition: Value) -> str:
    return condition.name if isinstance(condition, Attr) else str(condition)


def conditions_of(value: Value) -> set[Value]:
    """What ``value`` depends on being true, or not None."""
    if not isinstance(value, If):
        return set[Value]().union(*map(conditions_of, value.parts))
    atoms = {_none_test(one) or one for one in _atoms(value.condition)}
    return atoms | conditions_of(value.then) | conditions_of(value.otherwise)


def tests_of(value: Value) -> list[Value]:
    """The tests in ``value``."""
    return [one.condition for one in subvalues(value) if isinstance(one, If)]


def _truth_tested(value: Value) -> set[Value]:
    """What ``value`` depends on being true."""
    return {atom for test in tests_of(value) for atom in _atoms(test)}


def _atoms(condition: Value) -> set[Value]:
    match condition:
        case Not(operand):
            return _atoms(operand)
        case Op("and" | "or", left, right):
            return _atoms(left) | _atoms(right)
    return {condition}


def _none_test(condition: Value) -> Value | None:
    """``x`` for ``x is not None`` and ``x is None``: whether x is there."""
    match condition:
        case Op("is" | "is not", tested, Const("None")):
            return tested
    return None


def _holds(condition: Value, truths: Mapping[Value, bool]) -> bool:
    match condition:
        case Not(operand):
            return not _holds(operand, truths)
        case Op("and", left, right):
            return _holds(left, truths) and _holds(right, truths)
        case Op("or", left, right):
            return _holds(left, truths) or _holds(right, truths)
        case Op("is not", tested, Const("None")):
            return truths[tested]
        case Op("is", tested, Const("None")):
            return not truths[tested]
    return truths[condition]


def under(value: Value, truths: Mapping[Value, bool]) -> Value:
    """What is left of ``value`` where these conditions hold or do not."""
    if isinstance(value, If):
        return under(value.then if _holds(value.condition, truths) else value.otherwise, truths)
    return value.rebuilt(lambda part: under(part, truths))


def length_of(value: Value) -> Value:
    """``len(value)``."""
    return Call(Name("len"), (value,))
