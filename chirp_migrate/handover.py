"""How the meaning of a dataset is handed to the shipped class that has it: class name and constructor arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chirp_migrate.dataset_meaning import Augmenting, Listing, Meaning, Standardizing
from chirp_migrate.symbolic import Value

#: Attributes that the shipped classes keep from the classes they replace.
PROVIDED = {
    "WorkerSafeStandardizedDataset": frozenset(
        {"dataset", "base_dataset", "original_dataset", "indices", "mean", "std"}
    ),
    "WorkerSafeAugmentedDataset": frozenset({"dataset", "base_dataset", "augment_params", "training"}),
    "WorkerSafeSequenceDataset": frozenset({"data_list", "data"}),
}

#: Gives the value that ``self.x`` (or a free name) has where the dataset is built, or ``None`` when it is not known.
Lookup = Callable[[Value], "Value | None"]


@dataclass(frozen=True)
class Handover:
    """Constructor call of a shipped class: its name, the source of its arguments, and the state they took over."""

    shipped: str
    arguments: tuple[str, ...]
    state: tuple[Value, ...]


def hand_over(meaning: Meaning, lookup: Lookup) -> Handover | None:
    """The shipped class and arguments for ``meaning``; ``None`` when a part of its state cannot be expressed."""
    if isinstance(meaning, Standardizing):
        return _standardizing(meaning, lookup)
    if isinstance(meaning, Augmenting):
        return _augmenting(meaning, lookup)
    return _listing(meaning, lookup)


def _standardizing(meaning: Standardizing, lookup: Lookup) -> Handover | None:
    state = (meaning.dataset, meaning.indices, meaning.mean, meaning.std)
    values = [lookup(part) for part in state]
    if None in values:
        return None
    arguments = [str(value) for value in values]
    if meaning.eps != 1e-8:
        arguments.append(f"eps={meaning.eps!r}")
    return Handover("WorkerSafeStandardizedDataset", tuple(arguments), state)


def _listing(meaning: Listing, lookup: Lookup) -> Handover | None:
    value = lookup(meaning.samples)
    return Handover("WorkerSafeSequenceDataset", (str(value),), (meaning.samples,)) if value is not None else None


def _augmenting(meaning: Augmenting, lookup: Lookup) -> Handover | None:
    base = lookup(meaning.dataset)
    stages: list[str] = []
    state = [meaning.dataset]
    for stage in meaning.stages:
        function = lookup(stage.function)
        if function is None:
            return None
        state.append(stage.function)
        if stage.gate is None or stage.gate == stage.function:
            stages.append(str(function))
            continue
        gate = lookup(stage.gate)
        if gate is None:
            return None
        state.append(stage.gate)
        stages.append(str(Value("if", (gate, function, Value("const", ("None",))))))
    arguments = [str(base)]
    if meaning.training is not None:
        training = lookup(meaning.training)
        if training is None:
            return None
        state.append(meaning.training)
        arguments.append(f"training={training}")
    if base is None:
        return None
    arguments.append(f"transforms=[{', '.join(stages)}]")
    return Handover("WorkerSafeAugmentedDataset", tuple(arguments), tuple(state))
