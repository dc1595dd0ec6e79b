"""The device that loops move batches to, as the call that builds their loader can name it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import libcst as cst

from chirp_migrate.analysis.dataflow.onlookers import set_from_outside
from chirp_migrate.analysis.loops.loader_flow import ByAttribute, ByCall, LoaderLoop, Step, argument_for
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, parameters
from chirp_migrate.syntax.scopes import Kind, Scope

#: Names of what holds settings; what other objects call their device may be another one later.
_SETTINGS = re.compile(r"_*(\w+_)?(args?|arguments|opts?|options|config|cfg|conf|hparams|params|flags|settings)", re.I)


@dataclass(frozen=True)
class _Device:
    """A device by what stands for it: a constant, a variable of a scope, or an attribute of ``self`` in a class.

    For ``args.device``, ``text`` is what holds the settings, and ``setting`` the rest.
    """

    text: str
    scope: Scope | None = None
    owner: cst.ClassDef | None = None
    setting: str = ""


def device_at(
    module: Module, project: Project, call: cst.Call, loop: LoaderLoop, device: cst.BaseExpression
) -> str | None:
    """The source that stands for ``device``, an expression in ``loop``, at ``call``; ``None`` where none surely does.

    Args:
        call: what builds the loader, in ``module``.
    """
    found = _read(loop.module, device, loop.loop)
    for step in reversed(loop.steps):
        if found is None:
            return None
        found = _before(found, step)
    return f"{found.text}{found.setting}" if found is not None and _is_known(module, project, call, found) else None


def _read(module: Module, node: cst.BaseExpression | None, place: cst.CSTNode) -> _Device | None:
    """What an expression stands for; names are read at ``place``."""
    if isinstance(node, cst.SimpleString):
        return _Device(node.value)
    name = dotted(node) if node is not None else None
    if name is None:
        return None
    parts = name.split(".")
    held = 2 if parts[0] == "self" else 1
    if len(parts) < held or (len(parts) > held and not _SETTINGS.fullmatch(parts[held - 1])):
        return None
    name, setting = ".".join(parts[:held]), "".join(f".{one}" for one in parts[held:])
    if held > 1:
        owner = module.enclosing_class(place)
        return _Device(name, owner=owner, setting=setting) if owner is not None else None
    found = module.scopes.lookup(name, place)
    if found is None:
        return None
    scope, bindings = found
    start = module.span(place)[0]
    for binding in bindings:
        if binding.kind is Kind.PARAMETER:
            continue
        plain = binding.kind is Kind.VALUE and isinstance(binding.node, cst.AssignTarget)
        same = scope.node in (module.enclosing_function(place), module.tree)
        if not plain or (same and module.span(binding.node)[0] > start):
            return None
    return _Device(name, scope=scope, setting=setting)


def _before(device: _Device, step: Step) -> _Device | None:
    """What stands for a device one step nearer to where the loader is built."""
    if device.scope is None and device.owner is None:
        return device
    if isinstance(step, ByAttribute):
        return device if device.owner is not None or _is_global(step.module, device) else None
    if device.owner is not None:
        on_self = (dotted(step.call.func) or "").startswith("self.")
        if on_self and step.owner is step.module and step.module.enclosing_class(step.call) is device.owner:
            return device
        return _as_parameter(device, step) if step.returns else None
    if not step.returns and device.scope is not None and device.scope.node is step.function:
        if any(one.kind is not Kind.PARAMETER for one in device.scope.bindings[device.text]):
            return None
        given = _read(step.module, argument_for(step.call, step.function, device.text), step.call)
        return _with(given, device.setting)
    if _is_global(step.module, device):
        return device if step.returns or step.owner is step.module else None
    return _as_parameter(device, step) if step.returns else None


def _as_parameter(device: _Device, step: ByCall) -> _Device | None:
    """The parameter that a function was given the device for which it is called with, by the same name."""
    for name in parameters(step.function):
        given = argument_for(step.call, step.function, name)
        same = _read(step.module, given, step.call) if given is not None and dotted(given) is not None else None
        if (
            same is not None
            and replace(same, setting=device.setting) == device
            and same.setting in ("", device.setting)
        ):
            found = _read(step.owner, cst.Name(name), step.function.body.body[0])
            return _with(found, "" if same.setting else device.setting)
    return None


def _with(device: _Device | None, setting: str) -> _Device | None:
    """A setting of what holds settings."""
    if device is None or not setting:
        return device
    return replace(device, setting=device.setting + setting) if device.scope or device.owner else None


def _is_global(module: Module, device: _Device) -> bool:
    return device.scope is module.scopes.module


def _is_known(module: Module, project: Project, call: cst.Call, device: _Device) -> bool:
    """Whether what stands for a device has its value when the loader is built, and keeps it."""
    if device.setting and any(
        dotted(one.target) == f"{device.text}{device.setting}" and module.span(one)[0] > module.span(call)[0]
        for one in module.find(cst.AssignTarget)
    ):
        return False
    if device.owner is not None:
        return module.enclosing_class(call) is device.owner and _is_set_once(module, project, call, device)
    if device.scope is None:
        return True
    return _read(module, cst.Name(device.text), call) == replace(device, setting="")


def _is_set_once(module: Module, project: Project, call: cst.Call, device: _Device) -> bool:
    """Whether an attribute gets its value in ``__init__`` only, and before the loader is built."""
    assert device.owner is not None
    name = device.text.removeprefix("self.")
    if project.holds(set_from_outside(name), name.rpartition(".")[2]):
        return False
    targets = [
        one.target
        for node in walk(device.owner)
        if isinstance(node, cst.Assign | cst.AnnAssign | cst.AugAssign | cst.For | cst.NamedExpr)
        for one in (node.targets if isinstance(node, cst.Assign) else [node])
    ]
    set_at = [part for target in targets for part in walk(target) if dotted(part) == device.text]
    if not set_at:
        return False
    for one in set_at:
        function = module.enclosing_function(one)
        if function is None or function.name.value != "__init__":
            return False
        if function is module.enclosing_function(call) and module.span(one)[0] > module.span(call)[0]:
            return False
    return True
