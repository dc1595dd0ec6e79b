"""CHP025: report numbers that a training loop reads from the device in every step. Advice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import may_move_to_device
from chirp_migrate.analysis.loaders.loader_values import may_use_loader
from chirp_migrate.analysis.loops.loop_names import innermost_statement
from chirp_migrate.analysis.loops.loop_outline import names_called_in_loops
from chirp_migrate.analysis.loops.sync_points import DeviceWait, device_loops, group_by_advice
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
    find_nodes,
    is_read,
    join_texts,
    quote_sources,
)

_READ = re.compile(rf"\.{GAP}item{CALL}|\b(float|int){CALL}")
#: Names of calls that show a number, such as calls of loggers, progress bars and TensorBoard.
_SHOWS = re.compile(
    r"print|log|writ|add_scalar|set_postfix|set_description|postfix|bar\b|info|debug|wandb|display", re.I
)
#: Advice for each form of code. The key is whether the loop itself uses the collected values.
_SUMMED = {
    False: "sum detached tensors, and call `.item()` once after the loop",
    True: "sum detached tensors, and call `.item()` where the sum is used, every N steps",
}
_COLLECTED = {
    False: "collect detached tensors, and call `torch.stack(…).tolist()` after the loop",
    True: "collect detached tensors, and call `torch.stack(…).tolist()` where the list is used, every N steps",
}
_KEPT = {
    False: "keep the detached tensor, and call `.item()` after the loop",
    True: "keep the detached tensor, and call `.item()` where the number is used, every N steps",
}


class ItemInLoop(Rule):
    code = "CHP025"
    name = "item-in-loop"
    reason = (
        "`loss.item()` makes Python wait until the device has computed everything in its queue, and the next step "
        "enters the queue only when the device is idle. If the code adds up detached tensors and reads the sum once, "
        "after the loop, it waits only once. If the loop prints the sum, each print waits. The rule does not rewrite "
        "the code: "
        "the rounding of the sum depends on the device and on the loss, and tensors change what a debugger or a "
        "progress bar shows."
    )
    safety = Safety.ADVICE
    verbose_only = True
    trigger = (".item", "float(", "int(")
    beside = (may_use_loader, may_move_to_device, _READ)
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop that may iterate over a loader moves objects to a device and also reads numbers."""
        return any(names & {"item", "float", "int"} for names in names_called_in_loops(outline, only_moving=True))

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report the numbers that a loop over a loader reads in every step; one finding for each kind of advice."""
        for there in device_loops(module, project):
            numbers = [wait for wait in there.waits() if wait.is_number]
            for instead, waits in group_by_advice(numbers, partial(_advice_for, module, there.loop)).items():
                message = f"{_describe_waits(module, waits)} in every step; {instead}"
                yield RuleMatch(module.span(waits[0].node)[0], message)


def _describe_waits(module: Module, waits: list[DeviceWait]) -> str:
    texts = [quote_sources(module, wait.node) for wait in waits]
    return f"{join_texts(texts)} {'forces' if len(texts) == 1 else 'force'} a GPU sync"


def _advice_for(module: Module, loop: cst.For, wait: DeviceWait) -> str | None:
    """Return the advice for one read of a number; ``None`` if the loop returns the number and so ends."""
    statement = innermost_statement(module, wait.node)
    collects = (one for one in module.ancestors(wait.node) if called_method_name(one) in ("append", "extend"))
    match next(collects, statement):
        case cst.AugAssign(target=target) as adding:
            return _SUMMED[_is_used(module, loop, adding, target)]
        case cst.Call(func=cst.Attribute(value=holder)):
            return _COLLECTED[_is_used(module, loop, statement, holder)]
        case cst.If() | cst.While() | cst.Assert():
            return "decide on the device (`torch.where`), or every N steps"
        case cst.Assign(targets=[cst.AssignTarget(target=target)]) | cst.AnnAssign(target=target):
            return _KEPT[_is_used(module, loop, statement, target)]
        case cst.Return():
            return None
    calls = (one for one in module.ancestors(wait.node) if isinstance(one, cst.Call) and one is not wait.node)
    called = next((module.source(one.func) for one in calls if not contains_node(module, one.func, wait.node)), "")
    if _SHOWS.search(called) or not called:
        return "show it every N steps"
    return "pass the detached tensor, and call `.item()` where the number is shown"


def _is_used(module: Module, loop: cst.For, statement: cst.CSTNode, target: cst.BaseExpression) -> bool:
    """Return whether the loop may use a target outside of one statement; always True if the target is not a name."""
    if not isinstance(target, cst.Name):
        return True
    names = (one for one in find_nodes(loop.body, cst.Name) if one.value == target.value)
    return any(is_read(module, one) and not contains_node(module, statement, one) for one in names)
