"""CHP021: report evaluation loaders that omit the last samples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import DatasetClass, possible_value_expressions, value_assigned_to
from chirp_migrate.analysis.loaders.loader_calls import LoaderCall, loader_calls
from chirp_migrate.rules.api import (
    SEE_IT,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dotted_source,
    find_class,
    is_name,
    resolve_node,
)

_EVALUATION = re.compile(r"(?<![a-z])(val|valid|validation|test|eval|evaluation|dev|holdout)(?![a-z])", re.IGNORECASE)
_TRAINING = re.compile(r"train|fit", re.IGNORECASE)


class ValidationDropsSamples(Rule):
    code = "CHP021"
    name = "validation-drops-samples"
    reason = (
        "With drop_last=True the loader omits the last, smaller batch. Shuffled training omits different samples in "
        "each epoch. Evaluation in order always omits the same samples, so no metric ever includes these samples, and "
        "each metric depends on the batch size."
    )
    safety = Safety.ADVICE
    finds_bugs = True
    trigger = ("drop_last",)
    follows = frozenset({"CHP001"})

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a call has the argument ``drop_last=True``."""
        given = (one.value for one in outline.find(ast.keyword) if one.arg == "drop_last")
        return any(isinstance(one, ast.Constant) and one.value is True for one in given)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report the loaders with ``drop_last=True`` that neither shuffle nor have a sampler."""
        for loader in loader_calls(module, project, "drop_last"):
            if not is_name(loader.arguments["drop_last"], "True") or loader.given("batch_sampler"):
                continue
            offset = module.span(loader.call)[0]
            if loader.role in ("validation", "test"):
                yield RuleMatch(
                    offset,
                    f"`create_{loader.role}_loader` ignores `drop_last=True`, and warns: remove the argument",
                )
            elif _reads_in_order(module, project, loader) and (lost := _describe_loss(loader)):
                yield RuleMatch(
                    offset,
                    f"`drop_last=True` in evaluation always omits {lost} at the end of the dataset. "
                    f"Remove the argument, unless this loader is for training. {SEE_IT}",
                )


def _reads_in_order(module: Module, project: Project, loader: LoaderCall) -> bool:
    """Return whether a loader reads its dataset in order, and no name shows that the loader is for training."""
    shuffle = loader.arguments.get("shuffle")
    if loader.given("sampler") or not (shuffle is None or is_name(shuffle, "False", "None")):
        return False
    if shuffle is None and loader.role == "training":  # `create_training_loader` shuffles by default
        return False
    for words in _names_around(module, loader):
        if _TRAINING.search(words):
            return False
        if _EVALUATION.search(words):
            return True
    return shuffle is not None and not loader.open and not _may_be_iterable_dataset(module, project, loader)


def _names_around(module: Module, loader: LoaderCall) -> list[str]:
    """Return two texts with the words in the names around the call that builds a loader.

    The first text contains the names of the dataset and the loader. The second text is the name of the function that
    contains the call.
    """
    dataset = loader.arguments.get("dataset")
    names = [module.source(dataset)] if dataset is not None else []
    function = ""
    for ancestor in module.ancestors(loader.call):
        match ancestor:
            case cst.Assign(targets=targets):
                names += [module.source(one.target) for one in targets]
            case cst.AnnAssign(target=target):
                names.append(module.source(target))
            case cst.FunctionDef(name=name):
                # `test_` at the start of a name means a test of the code, not an evaluation of a model.
                function = re.sub(r"^test_(?!.*load)", "", name.value)
                break
    return [re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", one) for one in (" ".join(names), function)]


def _may_be_iterable_dataset(module: Module, project: Project, loader: LoaderCall) -> bool:
    """Return whether the dataset is an ``IterableDataset``, which cannot be shuffled, or the call names no dataset."""
    dataset = loader.arguments.get("dataset")
    if dataset is None:
        return True
    scope = module.enclosing_function(loader.call) or module.tree
    values = [*possible_value_expressions(module, scope, dataset)]
    if isinstance(dataset, cst.Attribute):
        same = [n for n in module.find(cst.Attribute) if dotted_source(n) == dotted_source(dataset)]
        values += [v for n in same if (v := value_assigned_to(module, n)) is not None]
    for value in values:
        names = resolve_node(project, module, value.func) if isinstance(value, cst.Call) else set()
        for name in names:
            found = find_class(project, name)
            if "Iterable" in name or (found is not None and DatasetClass(found[0], project, found[1]).is_iterable):
                return True
    return False


def _describe_loss(loader: LoaderCall) -> str:
    """Return how many samples ``drop_last`` omits, in words; "" if no sample is omitted or the number is not known."""
    size = loader.arguments.get("batch_size")
    if is_name(size, "None") or (size is None and not loader.open):
        return ""
    if isinstance(size, cst.Integer):
        most = size.evaluated_value - 1
        return "" if most < 1 else "up to 1 sample" if most == 1 else f"up to {most} samples"
    return "up to batch_size - 1 samples"
