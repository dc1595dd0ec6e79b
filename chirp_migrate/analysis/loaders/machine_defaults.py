"""Whether ``pin_memory`` only follows the machine, and may be taken over, or is the user's own setting."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.known_names import resolves_to
from chirp_migrate.syntax.module import Module, code_children
from chirp_migrate.syntax.queries import is_integer, is_name

#: What a machine can be asked.
_MACHINE_QUESTIONS = re.compile(
    r"os\.((process_)?cpu_count|sched_getaffinity)|multiprocessing\.cpu_count|builtins\.(min|max|int|bool|len|str)"
    r"|torch\.(cuda\.(is_available|device_count)|(backends\.mps|accelerator)\.is_available)"
)
_DEPTH = 6


def follows_machine(module: Module, expression: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether pinning is asked for wherever it is of use: it is True, or computed from the machine.

    False is somebody's decision. Names must be local, and every value of theirs such a one; a parameter, an attribute
    of parsed arguments or a configuration entry is a setting, and stays under the user's control.
    """
    is_off = is_name(expression, "False", "None") or is_integer(expression, "0")
    return not is_off and _from_machine(module, expression, depth)


def _from_machine(module: Module, node: cst.CSTNode, depth: int) -> bool:
    if depth > _DEPTH:
        return False
    match node:
        case cst.Integer() | cst.Float() | cst.SimpleString() | cst.Name(value="True" | "False" | "None"):
            return True
        case cst.BaseUnaryOp() | cst.BaseBinaryOp() | cst.BaseBooleanOp() | cst.BaseCompOp():
            return True
        case cst.Name():
            return _local_from_machine(module, node, depth)
        case cst.Attribute(value=cst.Attribute(attr=cst.Name(value=owner)) | cst.Name(value=owner), attr=attribute):
            return attribute.value == "type" and "device" in owner  # what kind of device the run is on
        case cst.Call(func=function, args=arguments) if resolves_to(module, function, _MACHINE_QUESTIONS):
            return all(_from_machine(module, argument.value, depth + 1) for argument in arguments)
        case cst.IfExp() | cst.UnaryOperation() | cst.BinaryOperation() | cst.BooleanOperation():
            pass
        case cst.Comparison() | cst.ComparisonTarget():
            pass
        case _:
            return False
    return all(_from_machine(module, part, depth + 1) for part in code_children(node))


def _local_from_machine(module: Module, node: cst.Name, depth: int) -> bool:
    found = module.scopes.lookup(node.value, node)
    return found is not None and all(
        isinstance(statement := module.parents[one.node], cst.Assign)
        and all(isinstance(target.target, cst.Name) for target in statement.targets)
        and follows_machine(module, statement.value, depth + 1)
        for one in found[1]
    )
