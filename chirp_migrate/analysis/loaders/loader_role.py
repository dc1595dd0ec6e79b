"""Whether a call that builds a loader makes clear what the loader is for: training, or validation."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import assigned_pairs, holds, is_name

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TRAINING = re.compile(r"(?<![a-z])(?:re|pre)?train")
_VALIDATION = re.compile(r"(?<![a-z])(?:val(?!u)|eval|test|dev(?![a-z])|infer|predict|holdout)")


def loader_role(module: Module, call: cst.Call, arguments: Mapping[str, cst.BaseExpression]) -> tuple[str, bool]:
    """What the loader is for that ``call`` builds with ``arguments`` (by name of the parameter).

    Names decide: of the loader and its dataset, or of the function that returns it; where they say nothing, a literal
    ``shuffle`` does.

    Returns:
        ``training`` or ``validation``, as in the names of the factory's methods; "" where that is not clear, or where
        the method would mean something else than the call. And whether ``shuffle=False`` has to be said, since a
        training loader shuffles by default.
    """
    role = _by_names(module, call, arguments["dataset"])
    given = {name for name, value in arguments.items() if not is_name(value, "False", "None")}
    samplers = [arguments[name] for name in ("sampler", "batch_sampler") if name in given]
    shuffle = arguments.get("shuffle")
    if role == "" and shuffle is not None:
        role = "training" if is_name(shuffle, "True") else role
        role = "validation" if is_name(shuffle, "False") and not samplers else role
    if role == "validation":
        return "" if "drop_last" in given else role, False  # the method for it keeps every sample
    if role == "training" and (shuffle is not None or any(map(_constructs, samplers))):
        return role, False
    if role == "training" and not samplers:
        return role, True
    return "", False  # not clear, or a sampler may be None when the call runs: then nothing shuffles


def _by_names(module: Module, call: cst.Call, dataset: cst.BaseExpression) -> str | None:
    """``training`` or ``validation``; "" where names say nothing, ``None`` where they contradict each other."""
    names = _given_name(module, call), _last_name(module, dataset)
    said = set(map(_said_by, names)) - {""} or {_said_by(_returned_by(module, call))}
    return said.pop() if len(said) == 1 else None


def _said_by(name: str) -> str | None:
    words = _CAMEL.sub("_", name).lower()
    trains, validates = _TRAINING.search(words), _VALIDATION.search(words)
    if trains and validates:
        return None
    return "training" if trains else "validation" if validates else ""


def _given_name(module: Module, call: cst.Call) -> str:
    """The name that a loader gets where it is built: of a variable, a parameter or a key."""
    for ancestor in module.ancestors(call):
        if isinstance(ancestor, cst.Assign | cst.AnnAssign):
            target = ancestor.targets[0].target if isinstance(ancestor, cst.Assign) else ancestor.target
            pairs = assigned_pairs(target, ancestor.value) if ancestor.value is not None else ()
            plain = ((one, value) for one, value in pairs if not isinstance(value, cst.Tuple))
            return next((_last_name(module, one) for one, value in plain if holds(module, value, call)), "")
        if isinstance(ancestor, cst.Arg) and ancestor.keyword is not None:
            return ancestor.keyword.value
        if isinstance(ancestor, cst.DictElement):
            return module.source(ancestor.key)
        if isinstance(ancestor, cst.BaseStatement | cst.BaseSmallStatement):
            return ""
    return ""


def _last_name(module: Module, node: cst.BaseExpression) -> str:
    """``val_set`` of ``self.val_set``, ``'val'`` of ``sets['val']``, "" of what has no name."""
    match node:
        case cst.Attribute(attr=cst.Name(value=name)) | cst.Name(value=name):
            return name
        case cst.Subscript(value=owner, slice=[first, *_]):
            key = module.source(first)
            return _last_name(module, owner) if key.isdigit() else key
    return ""


def _returned_by(module: Module, call: cst.Call) -> str:
    """The name of the function that returns the loader."""
    returned = False
    for ancestor in module.ancestors(call):
        if isinstance(ancestor, cst.Tuple | cst.Lambda):
            return ""
        if isinstance(ancestor, cst.FunctionDef):
            return ancestor.name.value if returned else ""
        returned = returned or isinstance(ancestor, cst.Return | cst.Yield)
    return ""


def _constructs(node: cst.BaseExpression) -> bool:
    """Whether an expression makes an object of a class, by the way classes are named."""
    called = node.func if isinstance(node, cst.Call) else None
    last = called.attr if isinstance(called, cst.Attribute) else called
    return isinstance(last, cst.Name) and last.value.lstrip("_")[:1].isupper()
