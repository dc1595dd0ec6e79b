"""Infer the semantics of a dataset class that a call ``type(name, bases, members)`` creates.

The methods of the class are lambdas in the dictionary ``members``.
"""

from __future__ import annotations

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import (
    Call,
    CodePath,
    Const,
    Evaluator,
    Name,
    UnmodelledCode,
    Value,
    takes_plain_arguments,
)
from chirp_migrate.analysis.datasets.dataset_meaning import (
    INDEX,
    SELF,
    AugmentedSamples,
    infer_getitem_result,
    match_augmentation_pattern,
)
from chirp_migrate.syntax.module import Module


def match_dataset_type_call(module: Module, type_call: cst.Call, member_dict: cst.Dict) -> AugmentedSamples | None:
    """Return the semantics of a class that augments samples; None if no class of ``chirpid_patch`` is equivalent.

    Args:
        module: the module that contains the call.
        type_call: the call of ``type``.
        member_dict: the third argument of the call, which contains the members of the class.
    """
    members: dict[str, cst.Lambda] = {}
    for entry in member_dict.elements:
        if not isinstance(entry, cst.DictElement) or not isinstance(entry.key, cst.SimpleString):
            return None
        if not isinstance(entry.value, cst.Lambda):
            return None
        members[str(entry.key.evaluated_value)] = entry.value
    init = members.pop("__init__", None)
    if set(members) != {"__getitem__", "__len__"}:
        return None
    try:
        paths = _paths_of(module, type_call, members["__getitem__"], SELF, INDEX)
        lengths = {path.value for path in _paths_of(module, type_call, members["__len__"], SELF)}
        if init is not None and any(path.value != Const("None") for path in _paths_of(module, type_call, init, SELF)):
            return None
    except UnmodelledCode:
        return None
    if any(module.scopes.lookup(one, type_call) is not None for one in ("type", "len")):
        return None
    samples = infer_getitem_result(paths)
    if samples is None or not samples.complete or not samples.reads_once:
        return None
    meaning = match_augmentation_pattern(samples)
    if meaning is None or lengths != {Call(Name("len"), (meaning.dataset,))}:
        return None
    tested = samples.none_tested
    if any(one.gate is not None and (one.gate != one.function or one.gate not in tested) for one in meaning.transforms):
        return None
    return None if meaning.training in tested else meaning


def _paths_of(module: Module, node: cst.Call, function: cst.Lambda, *arguments: Value) -> list[CodePath]:
    names = [parameter.name.value for parameter in function.params.params]
    if len(names) != len(arguments) or not takes_plain_arguments(function):
        raise UnmodelledCode("a lambda has a default value, `*`, `/` or `**`, or an unexpected number of parameters")
    return _evaluator(module, node).paths((), dict(zip(names, arguments, strict=True)), function.body)


def _evaluator(module: Module, node: cst.CSTNode) -> Evaluator:
    """Return an evaluator that also evaluates the bodies of called functions that the scope of ``node`` defines."""
    around = module.scopes.scope_of(node)

    def inline(function: Value) -> cst.FunctionDef | None:
        owner = module.scopes.lookup(function.text, node) if isinstance(function, Name) else None
        if owner is None or owner[0] is not around or len(owner[1]) != 1:
            return None
        definition = owner[1][0].node
        if not isinstance(definition, cst.FunctionDef):
            return None
        own = module.scopes.names_bound(definition, nested=True) - {one.name.value for one in definition.params.params}
        # The evaluator would confuse a local variable of the function, before its first assignment, with a variable of
        # the same name outside the function.
        return None if any(module.scopes.lookup(one, node) is not None for one in own) else definition

    return Evaluator(module.source, inline)
