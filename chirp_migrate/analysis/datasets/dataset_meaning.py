"""Infer whether a dataset's ``__getitem__`` standardises or augments samples, or returns the items of a sequence.

The functions compare symbolic values (``dataflow.symbolic``). So the functions recognise the same steps in different
spellings, in classes, in local classes, and in classes that ``type(name, bases, {…})`` creates from lambdas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite

from chirp_migrate.analysis.dataflow.symbolic import (
    MAX_CONDITIONS,
    Attr,
    Call,
    CodePath,
    Const,
    Name,
    Not,
    Operation,
    Subscript,
    Tuple,
    Value,
    make_subscript,
)

SELF = Name("self")
INDEX = Name("<index>")


@dataclass(frozen=True)
class StandardizedSamples:
    """The samples (x, y) of ``dataset`` at ``indices``, with x replaced by ``(x - mean) / (std + eps)``."""

    dataset: Value
    indices: Value
    mean: Value
    std: Value
    eps: float = 0.0


@dataclass(frozen=True)
class ConditionalTransform:
    """A transform that a dataset applies to the x of each sample (x, y).

    The dataset applies ``function`` to x if the value ``gate`` is true at run time, or always if ``gate`` is None.
    """

    function: Value
    gate: Value | None


@dataclass(frozen=True)
class AugmentedSamples:
    """The samples (x, y) of ``dataset``, with ``transforms`` applied to x.

    If ``training`` is not None, the transforms are applied only while this flag is true.
    """

    dataset: Value
    transforms: tuple[ConditionalTransform, ...]
    training: Value | None


@dataclass(frozen=True)
class SequenceSamples:
    """The elements of the sequence ``samples``, unchanged."""

    samples: Value


Meaning = StandardizedSamples | AugmentedSamples | SequenceSamples


@dataclass(frozen=True)
class GetitemResult:
    """The inferred results of a ``__getitem__``.

    Attributes:
        conditions: the values that decide which result is returned. An ``if`` checks whether one of these values is
            true, or whether the value is None.
        outcomes: the result for each combination of True and False, with one truth value for each of ``conditions``.
        complete: whether the method does nothing besides computing its result. Every assigned value must be part of the
            result, every call must occur once, and every condition must change a result. The method also must not test
            the same value both for None and for its truth.
        reads_once: whether no path subscripts an object twice with the same index, so that each sample is read once.
        none_tested: the values that are compared with None.
    """

    conditions: Sequence[Value]
    outcomes: Mapping[tuple[bool, ...], Value]
    complete: bool
    reads_once: bool
    none_tested: set[Value]


def infer_getitem_result(paths: Sequence[CodePath]) -> GetitemResult | None:
    """Return the result of each path of execution through a ``__getitem__``.

    The result is ``None`` if the paths have more than ``MAX_CONDITIONS`` conditions.
    """
    conditions = sorted({condition for path in paths for condition in path.truths}, key=str)
    if len(conditions) > MAX_CONDITIONS:
        return None
    outcomes: dict[tuple[bool, ...], Value] = {}
    for truths in product((True, False), repeat=len(conditions)):
        holds = dict(zip(conditions, truths, strict=True))
        outcomes[truths] = next(path.value for path in paths if path.truths.items() <= holds.items())
    tested = values_compared_with_none(paths)
    atoms = {atom for path in paths for test in path.tests for atom in _elementary_conditions(test)}
    complete = (
        all(map(_does_nothing_besides, paths))
        and tested.isdisjoint(atoms)
        and all(_makes_difference(outcomes, position) for position in range(len(conditions)))
    )
    reads_once = all(len(set(path.items)) == len(path.items) for path in paths)
    return GetitemResult(conditions, outcomes, complete, reads_once, tested)


def values_compared_with_none(paths: Sequence[CodePath]) -> set[Value]:
    """Return the values that the code on one of ``paths`` compares with None."""
    found: set[Value] = set()
    for part in (part for path in paths for test in path.tests for part in walk_values(test)):
        match part:
            case Operation("is" | "is not", tested, Const("None")):
                found.add(tested)
    return found


def _elementary_conditions(condition: Value) -> set[Value]:
    match condition:
        case Not(operand):
            return _elementary_conditions(operand)
        case Operation("and" | "or", left, right):
            return _elementary_conditions(left) | _elementary_conditions(right)
    return {condition}


def _does_nothing_besides(path: CodePath) -> bool:
    """Return whether every value on a path is part of the path's result, and every call occurs once."""
    calls = dict.fromkeys(one for one in reversed(list(walk_values(path.value))) if isinstance(one, Call))
    return path.calls == list(calls) and all(is_part_of_value(one, path.value) for one in path.evaluated)


def _makes_difference(outcomes: Mapping[tuple[bool, ...], Value], position: int) -> bool:
    """Return whether the result depends on the condition at ``position``."""
    otherwise = {truths: (*truths[:position], False, *truths[position + 1 :]) for truths in outcomes}
    return any(value != outcomes[otherwise[truths]] for truths, value in outcomes.items())


def walk_values(value: Value) -> Iterator[Value]:
    """Yield ``value`` and all values inside it."""
    yield value
    for part in value.parts:
        yield from walk_values(part)


def is_part_of_value(part: Value, value: Value) -> bool:
    """Return whether ``part`` is a part of ``value``, a tuple of parts of ``value``, or a literal."""
    if isinstance(part, Tuple):
        return all(is_part_of_value(item, value) for item in part.items)
    return isinstance(part, Const) or part in walk_values(value)


def match_dataset_pattern(getitem_result: GetitemResult) -> Meaning | None:
    """Return the semantics of a dataset, inferred from the results of ``__getitem__``; None if no pattern matches."""
    for value in getitem_result.outcomes.values() if not getitem_result.conditions else ():
        match value:
            case Subscript(held, at) if at == INDEX:
                return SequenceSamples(held)
        match match_standardized_pair(value):
            case Subscript(dataset, Subscript(indices, at)), mean, std, eps if at == INDEX:
                return StandardizedSamples(dataset, indices, mean, std, eps)
    return match_augmentation_pattern(getitem_result)


def match_standardized_pair(pair: Value) -> tuple[Value, Value, Value, float] | None:
    """Return sample, mean, std and eps if ``pair`` is ``((sample[0] - mean) / (std + eps), sample[1])``; else None.

    If the code divides by ``std`` alone, eps is 0.
    """
    match pair:
        case Tuple(
            (Operation("/", Operation("-", Subscript(x, Const("0")), mean), divisor), Subscript(sample, Const("1")))
        ) if x == sample:
            std, eps = divisor, 0.0
        case _:
            return None
    match divisor:
        case Operation("+", std, Const(number)) | Operation("+", Const(number), std):
            eps = finite_number(number)
            if not eps:  # ``finite_number`` returns 0 for a number that is 0 or not finite
                return None
        case Operation("+"):
            return None
    return sample, mean, std, eps


def finite_number(number: str) -> float:
    """Return the value of a literal; 0 if the literal is not a finite number."""
    try:
        value = float(number)
    except ValueError:
        return 0.0
    return value if isfinite(value) else 0.0


def match_augmentation_pattern(getitem_result: GetitemResult) -> AugmentedSamples | None:
    """Return the semantics of a ``__getitem__`` that applies transforms to the x of a sample; else None."""
    chains: dict[tuple[bool, ...], tuple[Value, ...]] = {}
    datasets: set[Value] = set()
    for truths, value in getitem_result.outcomes.items():
        outcome = _applied_functions(value)
        if outcome is None:
            return None
        dataset, chains[truths] = outcome
        datasets.add(dataset)
    full = max(chains.values(), key=len)
    in_order = all(chain == tuple(one for one in full if one in chain) for chain in chains.values())
    if not full or len(set(full)) != len(full) or len(datasets) > 1 or not in_order:
        return None

    def truths_with(*conditions: Value | None) -> list[tuple[bool, ...]]:
        places = [getitem_result.conditions.index(condition) for condition in conditions if condition is not None]
        return [truths for truths in chains if all(truths[place] for place in places)]

    training = next(
        (c for c in getitem_result.conditions if _flag_name(c) in ("training", "train", "is_training")), None
    )
    transforms: list[ConditionalTransform] = []
    for function in full:
        applied = [truths for truths, chain in chains.items() if function in chain]
        gates = [None, *(condition for condition in getitem_result.conditions if condition != training)]
        transforms += [
            ConditionalTransform(function, gate) for gate in gates if truths_with(training, gate) == applied
        ][:1]
    return AugmentedSamples(datasets.pop(), tuple(transforms), training) if len(transforms) == len(full) else None


def _applied_functions(value: Value) -> tuple[Value, tuple[Value, ...]] | None:
    """Return the dataset of a sample (x, y), and the functions that were applied to x, in the order of the calls.

    The result is None for a value of any other form.
    """
    match value:
        case Subscript(dataset, at) if at == INDEX:
            return dataset, ()
        case Tuple((x, Subscript(Subscript(dataset, at) as sample, Const("1")))) if at == INDEX:
            functions: list[Value] = []
            while x != make_subscript(sample, Const("0")):
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
