"""CHP025: numbers that a training loop reads from the device in every step (R-000-2.1). Advice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import may_move
from chirp_migrate.analysis.loaders.loader_values import may_use_loader
from chirp_migrate.analysis.loops.loop_names import statement_of
from chirp_migrate.analysis.loops.loop_outline import called_in_loops
from chirp_migrate.analysis.loops.sync_points import Wait, by_advice, device_loops
from chirp_migrate.rules.api import (
    CALL,
    GAP,
    Module,
    Outline,
    Project,
    Proposal,
    Rule,
    Safety,
    listed,
    method_called,
    quoted,
)

_READ = re.compile(rf"\.{GAP}item{CALL}|\b(float|int){CALL}")


class ItemInLoop(Rule):
    code = "CHP025"
    name = "item-in-loop"
    reason = (
        "`loss.item()` makes Python wait until the device has computed everything that was queued, so that the next "
        "step is queued only when the device is idle. A sum of detached tensors that is read once, after the loop, "
        "waits once. It is not rewritten: whether the sum is rounded alike depends on the device and on the loss, "
        "and the tensors change what a debugger or a progress bar shows meanwhile."
    )
    safety = Safety.ADVICE
    for_the_curious = True
    trigger = (".item", "float(", "int(")
    beside = (may_use_loader, may_move, _READ)
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a loop that may iterate over a loader both moves something and reads a number."""
        return any(names & {"item", "float", "int"} for names in called_in_loops(outline, moving=True))

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """List the numbers that each loop over a loader reads in every step, by what to do about them."""
        for there in device_loops(module, project):
            numbers = [wait for wait in there.waits() if wait.is_number]
            for instead, waits in by_advice(numbers, partial(_instead, module)).items():
                message = f"{_shown(module, waits)} in every step; {instead}"
                yield Proposal(module.span(waits[0].node)[0], message)


def _shown(module: Module, waits: list[Wait]) -> str:
    texts = [quoted(module, wait.node) for wait in waits]
    return f"{listed(texts)} {'forces' if len(texts) == 1 else 'force'} a GPU sync"


def _instead(module: Module, wait: Wait) -> str:
    """What to do about it."""
    statement = statement_of(module, wait.node)
    if isinstance(statement, cst.AugAssign):
        return "sum detached tensors, and call `.item()` once after the loop"
    if any(method_called(ancestor) in ("append", "extend") for ancestor in module.ancestors(wait.node)):
        return "collect detached tensors, and call `torch.stack(…).tolist()` after the loop"
    if isinstance(statement, cst.If | cst.While | cst.Assert):
        return "decide on the device (`torch.where`), or every N steps"
    return "keep the detached tensor, and read it every N steps or after the loop"
