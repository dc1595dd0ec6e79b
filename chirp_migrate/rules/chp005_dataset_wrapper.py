"""CHP005: local classes and ``type(...)`` calls that standardise or augment (R-000-1.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.closures import bindings
from chirp_migrate.dataset_class import evaluator, is_torch_dataset, read_dataset_class
from chirp_migrate.dataset_meaning import INDEX, SELF, Meaning, meaning_of, substitute
from chirp_migrate.handover import Handover, hand_over
from chirp_migrate.imports import runtime
from chirp_migrate.lifting import nests
from chirp_migrate.module import Module, matching
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.statements import block_deletion, line_deletion
from chirp_migrate.symbolic import Evaluator, NotStraightLine, Value, name, names_in


class DatasetWrapper(Rule):
    code: ClassVar[str] = "CHP005"
    name: ClassVar[str] = "dataset-wrapper"
    reason: ClassVar[str] = (
        "A dataset class made inside a function, or by type() from lambdas, cannot be sent to worker processes, and "
        "the augmentation object it closes over is shared. What it does is what a shipped class does for whole batches."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules with a class in a function, or one made by ``type``, that may be a dataset."""
        if "__getitem__" not in text or not super().concerns(text, project):
            return False
        return "type(" in text or nests(text, "class")

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Replace understood local dataset classes where they are constructed."""
        for node in module.find(cst.ClassDef):
            if module.enclosing_function(node) is not None:
                proposal = _local_class(module, project, node)
                if proposal is not None:
                    yield proposal
        for call in module.find(cst.Call):
            if not m.matches(call, m.Call(m.Name("type"), args=[m.Arg(), m.Arg(m.Tuple()), m.Arg(m.Dict())])):
                continue
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


def _local_class(module: Module, project: Project, node: cst.ClassDef) -> Proposal | None:
    read = read_dataset_class(module, project, node)
    if read is None or read.meaning is None or set(read.methods) - {"__init__", "__len__", "__getitem__"}:
        return None
    calls = constructor_calls(module, node)
    if calls is None:
        return None
    edits = [block_deletion(module, node)]
    shipped = ""
    for call in calls:
        arguments = _arguments(module, call, read.methods.get("__init__"))
        if arguments is None:
            return None

        def lookup(state: Value, arguments: Mapping[Value, Value] = arguments) -> Value | None:
            if state.kind == "name":
                return arguments.get(state, state)
            store = read.stored(state)
            if store is None or "self" in names_in(store.value):
                return None
            return substitute(store.value, arguments)

        handover = hand_over(read.meaning, lookup)
        if handover is None or _rebound_after(module, call, handover):
            return None
        shipped = handover.shipped
        edits.append(Edit(*module.span(call), f"{shipped}({', '.join(handover.arguments)})"))
    message = f"{node.name.value} is local to a function and cannot go to worker processes: {shipped} does the same"
    return Proposal(module.span(node.name)[0], message, tuple(edits), frozenset({runtime(shipped)}))


def _arguments(module: Module, call: cst.Call, init: cst.FunctionDef | None) -> dict[Value, Value] | None:
    """What each parameter of ``__init__`` is in a constructor call."""
    if init is None:
        return {} if not call.args else None
    parameters = init.params.params[1:]
    values: dict[Value, Value] = {
        name(p.name.value): Value("opaque", (module.source(p.default),)) for p in parameters if p.default is not None
    }
    for position, argument in enumerate(call.args):
        if argument.keyword is None and position >= len(parameters):
            return None
        key = argument.keyword.value if argument.keyword is not None else parameters[position].name.value
        source = module.source(argument.value)
        values[name(key)] = name(source) if isinstance(argument.value, cst.Name) else Value("opaque", (source,))
    return values if all(name(p.name.value) in values for p in parameters) else None


def _rebound_after(module: Module, call: cst.Call, handover: Handover) -> bool:
    """Whether a name the wrapper closed over is bound again after it was made: it would have seen the new value."""
    function = module.enclosing_function(call)
    assert function is not None
    closed_over = {str(part.parts[0]) for part in handover.state if part.kind == "name"}
    made = module.span(call)[0]
    return any(bound in closed_over and offset > made for bound, offset in bindings(module, function))


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
    if not constructions or any(construction.args for construction in constructions):
        return None
    bases, entries = node.args[1].value, node.args[2].value
    assert isinstance(bases, cst.Tuple) and isinstance(entries, cst.Dict)
    if module.enclosing_function(node) is None or not is_torch_dataset(
        module, project, [e.value for e in bases.elements]
    ):
        return None
    members: dict[str, cst.BaseExpression] = {}
    for entry in entries.elements:
        if not isinstance(entry, cst.DictElement) or not isinstance(entry.key, cst.SimpleString):
            return None
        members[str(entry.key.evaluated_value)] = entry.value
    offset = module.span(node)[0]
    meaning = _meaning_of_members(module, node, members)
    if meaning is None:
        message = "this dataset is made by type() from functions in a way this rule does not know; make it a class"
        return Proposal(offset, message)

    def lookup(state: Value) -> Value | None:
        if state.kind == "name":
            return state
        stored = members.get(str(state.parts[1]))
        return None if stored is None else Value("opaque", (module.source(stored),))

    handover = hand_over(meaning, lookup)
    if handover is None or any(_rebound_after(module, one, handover) for one in constructions):
        return None
    built = f"{handover.shipped}({', '.join(handover.arguments)})"
    edits = (*removal, *(Edit(*module.span(one), built) for one in constructions))
    message = f"a dataset made by type() from lambdas cannot go to worker processes: {handover.shipped} does the same"
    return Proposal(offset, message, edits, frozenset({runtime(handover.shipped)}))


def _meaning_of_members(module: Module, node: cst.Call, members: Mapping[str, cst.BaseExpression]) -> Meaning | None:
    getitem, length, init = (members.get(key) for key in ("__getitem__", "__len__", "__init__"))
    if init is not None and not m.matches(init, m.Lambda(body=m.Name("None"))):
        return None
    reader = evaluator(module, node, {k: v for k, v in members.items() if isinstance(v, cst.Lambda)})
    try:
        sample = _value_of(reader, getitem, (SELF, INDEX))
        size = _value_of(reader, length, (SELF,)) if length is not None else None
    except NotStraightLine:
        return None
    return None if sample is None else meaning_of(sample, size)


def _value_of(reader: Evaluator, function: cst.BaseExpression | None, arguments: tuple[Value, ...]) -> Value | None:
    if not isinstance(function, cst.Lambda) or len(function.params.params) != len(arguments):
        return None
    names = [parameter.name.value for parameter in function.params.params]
    return reader.expression(function.body, dict(zip(names, arguments, strict=True)))
