"""CHP005: datasets made by ``type(...)`` from lambdas that augment (R-000-1.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.closures import Capture
from chirp_migrate.dataset_class import evaluator, is_torch_dataset
from chirp_migrate.dataset_meaning import INDEX, SELF, Augmenting, meaning_of, none_tested, settled
from chirp_migrate.early_binding import early_binding_problem
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module, matching
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.statements import line_deletion
from chirp_migrate.symbolic import NotStraightLine, Value

_SHIPPED = "WorkerSafeAugmentedDataset"


class DatasetWrapper(Rule):
    """Requires, in a function, ``type(name, (Dataset,), {...})`` called without arguments:

    - no members but ``__getitem__``, ``__len__`` and an ``__init__`` that does nothing, all lambdas;
    - a ``__getitem__`` that reads one sample of a dataset once and applies transforms to x, each always or unless it
      is None, all together perhaps only while a flag named like ``training`` is true, and does nothing else;
    - names from the function around that surely mean the same whenever a sample is read.

    What is made then has another class than it had, by name, too, and samples that are no pairs are refused with the
    ValueError of unpacking them.
    """

    code: ClassVar[str] = "CHP005"
    name: ClassVar[str] = "dataset-wrapper"
    reason: ClassVar[str] = (
        "A dataset class made by type() from lambdas cannot be sent to worker processes, and the augmentation object "
        "it closes over is shared. What it does is what a shipped class does for whole batches."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules with a class made by ``type`` that may be a dataset."""
        return "__getitem__" in text and "type(" in text and super().concerns(text, project)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Replace understood datasets where they are constructed."""
        for call in module.find(cst.Call):
            if m.matches(call, m.Call(m.Name("type"), args=[m.Arg(), m.Arg(m.Tuple()), m.Arg(m.Dict())])):
                proposal = _made_by_type(module, project, call)
                if proposal is not None:
                    yield proposal


def constructor_calls(module: Module, node: cst.ClassDef) -> list[cst.Call] | None:
    """Calls that construct a local class; ``None`` when the class is used for anything else as well."""
    return _calls_of(module, node, node.name.value)


def _calls_of(module: Module, node: cst.ClassDef | cst.Assign, title: str) -> list[cst.Call] | None:
    function = module.enclosing_function(node)
    assert function is not None
    calls: list[cst.Call] = []
    start, end = module.span(node)
    for mention in matching(function, m.Name(title)):
        if start <= module.span(mention)[0] < end:
            continue
        parent = module.parents[mention]
        if isinstance(parent, cst.Attribute | cst.Arg) and parent.value is not mention:
            continue
        if not isinstance(parent, cst.Call) or parent.func is not mention or any(a.star for a in parent.args):
            return None
        calls.append(parent)
    return calls or None


def _made_by_type(module: Module, project: Project, node: cst.Call) -> Proposal | None:
    parent = module.parents[node]
    removal: list[Edit] = []
    if isinstance(parent, cst.Call) and parent.func is node:
        constructions = [parent]
    elif isinstance(parent, cst.Assign) and m.matches(parent, m.Assign([m.AssignTarget(m.Name())])):
        constructions = _calls_of(module, parent, module.source(parent.targets[0].target)) or []
        removal.append(line_deletion(module, module.parents[parent]))
    else:
        return None
    bases, entries = node.args[1].value, node.args[2].value
    assert isinstance(bases, cst.Tuple) and isinstance(entries, cst.Dict)
    is_dataset = is_torch_dataset(module, project, [one.value for one in bases.elements])
    if not constructions or module.enclosing_function(node) is None or not is_dataset:
        return None
    offset = module.span(node)[0]
    meaning = _meaning_of(module, node, entries)
    captured = None if meaning is None else _captured(module, node, meaning)
    if meaning is None or captured is None or any(construction.args for construction in constructions):
        message = "this dataset is made by type() from functions in a way this rule does not know; make it a class"
        return Proposal(offset, message)
    problem = next((one for place in constructions if (one := early_binding_problem(module, place, captured))), None)
    if problem is not None:
        return Proposal(offset, f"this dataset is made by type() from lambdas, but {problem}; make it a class")
    training = "" if meaning.training is None else f"training={meaning.training}, "
    arguments = f"{meaning.dataset}, {training}transforms=[{', '.join(str(one.function) for one in meaning.stages)}]"
    built = f"{_SHIPPED}({arguments})"
    edits = (*removal, *(Edit(*module.span(one), built) for one in constructions))
    message = f"a dataset made by type() from lambdas cannot go to worker processes: {_SHIPPED} does the same"
    return Proposal(offset, message, edits, frozenset({runtime(_SHIPPED)}))


def _captured(module: Module, node: cst.Call, meaning: Augmenting) -> list[Capture] | None:
    """The names of functions around that ``meaning`` is made of; ``None`` where it is made of anything else."""
    found = []
    for one in (meaning.dataset, *(stage.function for stage in meaning.stages), meaning.training):
        owner = module.scopes.lookup(str(one), node) if one is not None and one.kind == "name" else None
        if owner is not None and not isinstance(owner[0].node, cst.Module):
            found.append(Capture(str(one), *owner))
        elif one is not None:
            return None
    return found


def _meaning_of(module: Module, node: cst.Call, entries: cst.Dict) -> Augmenting | None:
    """What the members do; ``None`` where the shipped class would not do the same."""
    members: dict[str, cst.Lambda] = {}
    for entry in entries.elements:
        if not isinstance(entry, cst.DictElement) or not isinstance(entry.key, cst.SimpleString):
            return None
        if not isinstance(entry.value, cst.Lambda):
            return None
        members[str(entry.key.evaluated_value)] = entry.value
    init = members.pop("__init__", None)
    if init is not None and not m.matches(init, m.Lambda(body=m.Name("None"))):
        return None
    if set(members) != {"__getitem__", "__len__"}:
        return None
    try:
        traced = _value_of(module, node, members["__getitem__"], (SELF, INDEX), traced=True)
        length = _value_of(module, node, members["__len__"], (SELF,))
    except NotStraightLine:
        return None
    read = settled(traced)
    meaning = meaning_of(read.value, length) if read is not None else None
    if read is None or not read.complete or not read.reads_once or not isinstance(meaning, Augmenting):
        return None
    tested = none_tested(traced)
    if any(one.gate is not None and (one.gate != one.function or one.gate not in tested) for one in meaning.stages):
        return None
    return None if meaning.training in tested else meaning


def _value_of(
    module: Module, node: cst.Call, function: cst.Lambda, arguments: tuple[Value, ...], *, traced: bool = False
) -> Value:
    names = [one.name.value for one in function.params.params]
    if len(names) != len(arguments) or not m.matches(
        function.params, m.Parameters(params=[m.ZeroOrMore(m.Param(default=None))])
    ):
        raise NotStraightLine("something unusual in the parameters of a lambda")
    return evaluator(module, node, {}, traced=traced).function(function, dict(zip(names, arguments, strict=True)))
