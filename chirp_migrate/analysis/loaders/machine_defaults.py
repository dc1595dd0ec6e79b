"""Whether ``pin_memory`` only follows the machine, and may be taken over, or is the user's own setting."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.scopes import Kind

#: What a machine can be asked.
_MACHINE_QUESTIONS = frozenset(
    {
        "os.cpu_count",
        "os.process_cpu_count",
        "os.sched_getaffinity",
        "multiprocessing.cpu_count",
        "torch.cuda.is_available",
        "torch.cuda.device_count",
        "torch.backends.mps.is_available",
        "torch.accelerator.is_available",
        "builtins.min",
        "builtins.max",
        "builtins.int",
        "builtins.bool",
        "builtins.len",
        "builtins.str",
    }
)
_OFF = m.Name("False") | m.Name("None") | m.Integer("0")
_DEPTH = 6


def follows_machine(module: Module, expression: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether pinning is asked for wherever it is of use: it is True, or computed from the machine.

    False is somebody's decision. Names must be local, and every value of theirs such a one; a parameter, an attribute
    of parsed arguments or a configuration entry is a setting, and stays under the user's control.
    """
    return not m.matches(expression, _OFF) and _from_machine(module, expression, depth)


def _from_machine(module: Module, node: cst.BaseExpression, depth: int) -> bool:
    if depth > _DEPTH:
        return False
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.Name):
        return node.value in ("True", "False", "None") or _local_from_machine(module, node, depth)
    if isinstance(node, cst.Attribute):
        return _is_device(node)
    if isinstance(node, cst.Call):
        asked = module.qualified_names(node.func)
        parts = [argument.value for argument in node.args]
        if not asked or not asked <= _MACHINE_QUESTIONS:
            return False
    elif isinstance(node, cst.IfExp):
        parts = [node.test, node.body, node.orelse]
    elif isinstance(node, cst.BinaryOperation | cst.BooleanOperation):
        parts = [node.left, node.right]
    elif isinstance(node, cst.UnaryOperation):
        parts = [node.expression]
    elif isinstance(node, cst.Comparison):
        parts = [node.left, *(target.comparator for target in node.comparisons)]
    else:
        return False
    return all(_from_machine(module, part, depth + 1) for part in parts)


def _is_device(node: cst.Attribute) -> bool:
    """``device.type`` and ``self.device.type``: what kind of device the run is on."""
    owner = node.value
    last = owner.attr.value if isinstance(owner, cst.Attribute) else owner.value if isinstance(owner, cst.Name) else ""
    return node.attr.value == "type" and "device" in last


def _local_from_machine(module: Module, node: cst.Name, depth: int) -> bool:
    found = module.scopes.lookup(node.value, node)
    if found is None:
        return False
    assigns = [module.parents[one.node] for one in found[1] if one.kind is Kind.VALUE]
    return len(assigns) == len(found[1]) and all(
        isinstance(one, cst.Assign)
        and all(isinstance(target.target, cst.Name) for target in one.targets)
        and follows_machine(module, one.value, depth + 1)
        for one in assigns
    )
