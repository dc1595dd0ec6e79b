"""CHP026: predictions that are copied to the CPU batch by batch, to be collected (R-000-2.1). Advice."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import may_move
from chirp_migrate.analysis.loaders.loader_values import may_use_loader
from chirp_migrate.analysis.loops.loop_outline import called_in_loops
from chirp_migrate.analysis.loops.sync_points import DeviceLoop, Wait, batch_loops
from chirp_migrate.rules.api import (
    Mention,
    Module,
    Outline,
    Project,
    Proposal,
    Rule,
    Safety,
    mention,
    method_called,
    own_nodes,
    resolves_to,
)

_COPY = re.compile(r"\.\s*(cpu|numpy|tolist)\s*\(")
_JOINS = re.compile(r"(torch|numpy)\.(cat|concat|concatenate|vstack|hstack|stack|append)")


class CopiesInLoop(Rule):
    code = "CHP026"
    name = "copies-in-loop"
    reason = (
        "`.cpu()`, `.numpy()` and `.tolist()` of what the device computed wait for it, in every step, although nothing "
        "needs the values before the loop is over. Tensors that are collected as they are can be copied at once behind "
        "the loop. It is not rewritten, because the collected tensors take memory of the device meanwhile, which the "
        "code does not tell, and because a model that runs as a CUDA graph writes its next output over the last one."
    )
    safety = Safety.ADVICE
    for_the_curious = True
    trigger = (".cpu", ".numpy", ".tolist")
    beside = (may_use_loader, may_move, _COPY)
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a loop that may go through a loader both moves something to a device and copies something."""
        return any(names & {"cpu", "numpy", "tolist"} for names in called_in_loops(outline, moving=True))

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """List copies in loops over loaders that are only collected, or gone through one by one."""
        for loop, targets in batch_loops(module, project):
            there = DeviceLoop(module, loop, targets)
            copies = [one for one in there.waits() if not one.is_number] if there.moves else []
            by_advice: dict[str, list[Wait]] = {}
            for one in copies:
                instead = _instead(module, loop, one)
                if instead is not None:
                    by_advice.setdefault(instead, []).append(one)
            for instead, waits in by_advice.items():
                shown = " and ".join(f"`{' '.join(module.source(one.node).split())}`" for one in waits)
                verb = "forces" if len(waits) == 1 else "force"
                message = f"{shown} {verb} a GPU sync in every step; {instead}"
                yield Proposal(module.span(waits[0].node)[0], message)


def _instead(module: Module, loop: cst.For, wait: Wait) -> str | None:
    """What to do about a copy; ``None`` where its values are needed in the step."""
    later = "collect detached tensors, and call `torch.cat(…).cpu()` after the loop, if GPU memory allows"
    if _is_collected(module, wait.node):
        return later
    parent = module.parents[wait.node]
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0].target, cst.Name):
        name = parent.targets[0].target.value
        start, end = module.span(parent)
        reads = [
            one
            for one in own_nodes(loop.body)
            if isinstance(one, cst.Name) and one.value == name and mention(module, one) is Mention.READ
            if not start <= module.span(one)[0] < end
        ]
        return later if reads and all(_is_collected(module, one) for one in reads) else None
    for ancestor in module.ancestors(wait.node):
        if isinstance(ancestor, cst.For) and ancestor is not loop:
            start, end = module.span(ancestor.iter)
            if start <= module.span(wait.node)[0] < end:
                return (
                    "Python then goes through the values one by one: count on the device (`torch.bincount`), or copy "
                    "once after the loop"
                )
        if isinstance(ancestor, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return None
    return None


def _is_collected(module: Module, node: cst.CSTNode) -> bool:
    """Whether a value only goes into a list, or is joined to what was collected before."""
    parent = module.parents[node]
    if isinstance(parent, cst.AugAssign):
        return isinstance(parent.operator, cst.AddAssign) and _is_list(module, node)
    if isinstance(parent, cst.Element):
        return _is_collected(module, module.parents[parent])
    if not isinstance(parent, cst.Arg):
        return False
    call = module.parents[parent]
    if not isinstance(call, cst.Call):
        return False
    if method_called(call) in ("append", "extend"):
        return True
    names = module.qualified_names(call.func)
    if names == {"builtins.list"}:
        return _is_collected(module, call)
    if not resolves_to(module, call.func, _JOINS):
        return False
    statement = module.parents[call]
    return isinstance(statement, cst.Assign) and _is_joined_to_itself(module, statement, call)


def _is_joined_to_itself(module: Module, statement: cst.Assign, call: cst.Call) -> bool:
    """``all = torch.cat([all, new])``."""
    targets = [one.target for one in statement.targets]
    given = [one.value for one in call.args]
    given += [part.value for one in given if isinstance(one, cst.Tuple | cst.List) for part in one.elements]
    return any(target.deep_equals(one) for target in targets for one in given)


def _is_list(module: Module, node: cst.CSTNode) -> bool:
    """Whether what is added with ``+=`` is a list, and not a number or an array."""
    made = isinstance(node, cst.Call) and module.qualified_names(node.func) == {"builtins.list"}
    return made or isinstance(node, cst.List) or method_called(node) == "tolist"
