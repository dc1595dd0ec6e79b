"""Which performance knobs of a loader call may be taken over, and which are the user's own settings."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from chirp_migrate.module import Module, matching

#: What a machine can be asked; a knob computed from these alone was a guess about the machine.
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


def is_taken_over(module: Module, expression: cst.BaseExpression) -> bool:
    """Whether a knob is a constant or computed on the spot from the machine, not a setting of the user's.

    Names must be locals that were themselves assigned in the same function; a parameter, an attribute of parsed
    arguments or a configuration entry is a setting, and stays under the user's control.
    """
    return _from_machine(module, expression, depth=0, in_definition=False)


def _from_machine(module: Module, node: cst.BaseExpression, depth: int, in_definition: bool) -> bool:
    if depth > 6:
        return False
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.Name):
        return node.value in ("True", "False", "None") or _local_from_machine(module, node, depth)
    if isinstance(node, cst.Attribute):
        return _is_device(node)
    if isinstance(node, cst.Call):
        asked = module.qualified_names(node.func)
        if asked and asked <= _MACHINE_QUESTIONS:
            return all(_from_machine(module, a.value, depth + 1, in_definition) for a in node.args)
        # Inside the definition of a worker count the configuration may be consulted: that count stays, as a bound.
        return in_definition
    if isinstance(node, cst.IfExp):
        parts: list[cst.BaseExpression] = [node.test, node.body, node.orelse]
    elif isinstance(node, cst.BinaryOperation | cst.BooleanOperation):
        parts = [node.left, node.right]
    elif isinstance(node, cst.UnaryOperation):
        parts = [node.expression]
    elif isinstance(node, cst.Comparison):
        parts = [node.left, *(target.comparator for target in node.comparisons)]
    else:
        return False
    return all(_from_machine(module, part, depth + 1, in_definition) for part in parts)


def _is_device(node: cst.Attribute) -> bool:
    """``device.type`` and ``self.device.type``: what kind of device the run is on."""
    owner = node.value
    last = owner.attr.value if isinstance(owner, cst.Attribute) else owner.value if isinstance(owner, cst.Name) else ""
    return node.attr.value == "type" and "device" in last


def _local_from_machine(module: Module, node: cst.Name, depth: int) -> bool:
    function = module.enclosing_function(node)
    scope: cst.CSTNode = function if function is not None else module.tree
    if function is not None:
        every = (*function.params.params, *function.params.kwonly_params, *function.params.posonly_params)
        if any(parameter.name.value == node.value for parameter in every):
            return False
    values = [
        assign.value
        for assign in matching(scope, m.Assign())
        if isinstance(assign, cst.Assign)
        and any(m.matches(target.target, m.Name(node.value)) for target in assign.targets)
    ]
    return bool(values) and all(_from_machine(module, value, depth + 1, in_definition=True) for value in values)
