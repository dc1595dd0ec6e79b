"""The device that loops move batches to, as the call that builds their loader can name it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import libcst as cst

from chirp_migrate.analysis.dataflow.uses_elsewhere import set_from_outside
from chirp_migrate.analysis.loops.loader_flow import ByAttribute, ByCall, LoaderLoop, Step, argument_for
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, is_on_self, parameters, target_of
from chirp_migrate.syntax.scopes import Kind

#: Names of what holds settings; what other objects call their device may be another one later.
_SETTINGS = re.compile(r"_*(\w+_)?(args?|arguments|opts?|options|config|cfg|conf|hparams|params|flags|settings)", re.I)


@dataclass(frozen=True)
class _Device:
    """A device by what stands for it: a constant, a variable, or an attribute of ``self``.

    Attributes:
        text: the source of it; for ``args.device`` that of what holds the settings.
        home: the function, module or class that the variable or attribute belongs to; ``None`` of a constant.
        setting: for ``args.device`` the rest.
    """

    text: str
    home: cst.CSTNode | None = None
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
    parts = ((dotted(node) if node is not None else None) or "").split(".")
    held = 2 if parts[0] == "self" else 1
    if not parts[0] or len(parts) < held or (len(parts) > held and not _SETTINGS.fullmatch(parts[held - 1])):
        return None
    home = module.enclosing_class(place) if held > 1 else _home(module, parts[0], place)
    setting = "".join(f".{part}" for part in parts[held:])
    return None if home is None else _Device(".".join(parts[:held]), home, setting)


def _home(module: Module, name: str, place: cst.CSTNode) -> cst.CSTNode | None:
    """What a variable belongs to that is a parameter there, or has been given its value by plain assignments."""
    found = module.scopes.lookup(name, place)
    if found is None:
        return None
    home = found[0].node
    in_order = home in (module.enclosing_function(place), module.tree)
    for binding in found[1]:
        plain = binding.kind is Kind.VALUE and isinstance(binding.node, cst.AssignTarget)
        above = not in_order or module.span(binding.node)[0] <= module.span(place)[0]
        if binding.kind is not Kind.PARAMETER and not (plain and above):
            return None
    return home


def _before(device: _Device, step: Step) -> _Device | None:
    """What stands for a device one step nearer to where the loader is built."""
    is_kept, is_global = isinstance(device.home, cst.ClassDef), device.home is step.module.tree
    if device.home is None or (isinstance(step, ByAttribute) and (is_kept or is_global)):
        return device
    if isinstance(step, ByAttribute):
        return None
    same_class = is_on_self(step.call.func) and step.owner is step.module
    if same_class and step.module.enclosing_class(step.call) is device.home:
        return device
    if not step.returns and device.home is step.function:
        return _argument(device, step)
    if is_global and (step.returns or step.owner is step.module):
        return device
    return _as_parameter(device, step) if step.returns and not is_global else None


def _argument(device: _Device, step: ByCall) -> _Device | None:
    """What a call gives for the parameter that stands for the device in the function called."""
    found = step.owner.scopes.lookup(device.text, step.function.body)
    if found is None or any(one.kind is not Kind.PARAMETER for one in found[1]):
        return None
    return _with(_read(step.module, argument_for(step.call, step.function, device.text), step.call), device.setting)


def _as_parameter(device: _Device, step: ByCall) -> _Device | None:
    """The parameter that a function was given the device for which it is called with, by the same name."""
    for name in parameters(step.function):
        same = _read(step.module, argument_for(step.call, step.function, name), step.call)
        if same is None or same.home is None or same.setting not in ("", device.setting):
            continue
        if replace(same, setting=device.setting) == device:
            found = _read(step.owner, cst.Name(name), step.function.body.body[0])
            return _with(found, "" if same.setting else device.setting)
    return None


def _with(device: _Device | None, setting: str) -> _Device | None:
    """A setting of what holds settings."""
    if device is None or not setting:
        return device
    return None if device.home is None else replace(device, setting=device.setting + setting)


def _is_known(module: Module, project: Project, call: cst.Call, device: _Device) -> bool:
    """Whether what stands for a device has its value when the loader is built, and keeps it."""
    if device.setting and any(
        dotted(one.target) == f"{device.text}{device.setting}" and module.span(one)[0] > module.span(call)[0]
        for one in module.find(cst.AssignTarget)
    ):
        return False
    if isinstance(device.home, cst.ClassDef):
        return module.enclosing_class(call) is device.home and _is_set_once(module, project, call, device)
    return device.home is None or _read(module, cst.Name(device.text), call) == replace(device, setting="")


def _is_set_once(module: Module, project: Project, call: cst.Call, device: _Device) -> bool:
    """Whether an attribute gets its value in ``__init__`` only, and before the loader is built."""
    assert isinstance(device.home, cst.ClassDef)
    name = device.text.removeprefix("self.")
    if project.holds(set_from_outside(name), name):
        return False
    targets = (target for node in walk(device.home) if (target := target_of(node)) is not None)
    set_at = [part for target in targets for part in walk(target) if dotted(part) == device.text]
    start, around = module.span(call)[0], module.enclosing_function(call)
    functions = [(module.span(one)[0], module.enclosing_function(one)) for one in set_at]
    return bool(functions) and all(
        function is not None and function.name.value == "__init__" and (function is not around or place <= start)
        for place, function in functions
    )
