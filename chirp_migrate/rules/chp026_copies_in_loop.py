"""CHP026: report predictions that a loop copies to the CPU batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.value_flow import (
    CallArgument,
    ContainerElement,
    ValueAssignment,
    next_use_of_value,
)
from chirp_migrate.analysis.devices.device_moves import may_move_to_device
from chirp_migrate.analysis.loaders.loader_outline import PossibleLoaders
from chirp_migrate.analysis.loaders.loader_values import may_use_loader
from chirp_migrate.analysis.loops.loop_names import innermost_statement
from chirp_migrate.analysis.loops.sync_points import find_device_loops
from chirp_migrate.rules.api import (
    CALL,
    GAP,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    called_method_name,
    contains_node,
    find_nodes_in_scope,
    is_read,
    quote_sources,
    resolves_to,
)

_COPY = re.compile(rf"\.{GAP}(cpu|numpy|tolist){CALL}")
_JOINS = re.compile(r"(torch|numpy)\.(cat|concat|concatenate|vstack|hstack|stack|append)")


class CopiesInLoop(Rule):
    code = "CHP026"
    name = "copies-in-loop"
    reason = (
        "`.cpu()`, `.numpy()` and `.tolist()` of a result wait for the device in every step, although the "
        "code needs the values only after the loop. If the loop collects the tensors, one copy after "
        "the loop moves all values. The rule "
        "does not rewrite the code for two reasons. The collected tensors may not fit into the memory of the device. "
        "A model that runs as a CUDA graph overwrites its previous output."
    )
    safety = Safety.ADVICE
    verbose_only = True
    trigger = (".cpu", ".numpy", ".tolist")
    beside = (may_use_loader, may_move_to_device, _COPY)
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop may iterate over a loader."""
        return bool(outline.once(PossibleLoaders, project).loops)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report copies to the CPU that can move below the loop."""
        for there in find_device_loops(module, project):
            copies = [
                wait.node
                for wait in there.waits()
                if not wait.is_number and _can_copy_after_loop(module, there.loop, wait.node)
            ]
            if copies:
                message = (
                    f"every step waits for the GPU in {quote_sources(module, *copies)}; collect detached tensors, and "
                    "call `torch.cat(…).cpu()` after the loop, if GPU memory allows"
                )
                yield RuleMatch(module.span(copies[0])[0], message)


def _can_copy_after_loop(module: Module, loop: cst.For, copy: cst.CSTNode) -> bool:
    """Return whether the copy can move below the loop.

    The result is True if each step only appends the copy to a list, or only iterates over the copied values, as in
    ``for x in y.tolist()``.
    """
    if _is_collected(module, copy):
        return True
    match next_use_of_value(module, copy):
        case ValueAssignment((cst.Name(value=name),), cst.Assign() as statement):
            names = (node for node in find_nodes_in_scope(loop.body, cst.Name) if node.value == name)
            reads = [one for one in names if is_read(module, one) and not contains_node(module, statement, one)]
            return bool(reads) and all(_is_collected(module, read) for read in reads)
    around = innermost_statement(module, copy)
    return isinstance(around, cst.For) and contains_node(module, around.iter, copy)


def _is_collected(module: Module, node: cst.CSTNode) -> bool:
    """Return whether the code only appends a value to a list, or concatenates the value with earlier values."""
    match next_use_of_value(module, node):
        case ContainerElement(cst.Element(), display):
            return _is_collected(module, display)
        case CallArgument(_, call) if called_method_name(call) in ("append", "extend"):
            return True
        case CallArgument(_, call) if module.qualified_names(call.func) == {"builtins.list"}:
            return _is_collected(module, call)
        case CallArgument(_, call):
            return resolves_to(module, call.func, _JOINS) and _is_joined_to_itself(module, call)
    match module.parents[node]:
        case cst.AugAssign(operator=cst.AddAssign()):
            return _is_list(module, node)
    return False


def _is_joined_to_itself(module: Module, call: cst.Call) -> bool:
    """Return whether a call assigns its result to one of its arguments, as in ``all = torch.cat([all, new])``."""
    match next_use_of_value(module, call):
        case ValueAssignment(targets, cst.Assign()):
            given = [argument.value for argument in call.args]
            given += [part.value for one in given if isinstance(one, cst.Tuple | cst.List) for part in one.elements]
            return any(target.deep_equals(one) for target in targets for one in given)
    return False


def _is_list(module: Module, node: cst.CSTNode) -> bool:
    """Return whether an expression is a list, so that ``+=`` appends to a list and does not add numbers."""
    made = isinstance(node, cst.Call) and module.qualified_names(node.func) == {"builtins.list"}
    return made or isinstance(node, cst.List) or called_method_name(node) == "tolist"
