"""CHP025: report numbers that a training loop reads from the device in every step."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

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
    quote_sources,
)

_READ = re.compile(rf"\.{GAP}item{CALL}|\b(float|int){CALL}")


class ItemInLoop(Rule):
    code = "CHP025"
    name = "item-in-loop"
    reason = (
        "`loss.item()` makes Python wait until the device has computed everything in its queue. The device is then "
        "idle until Python has queued the next step. If the code adds up detached tensors and reads the sum once, "
        "after the loop, Python waits only once. If the loop prints the sum, each print waits. The rule does not "
        "rewrite the code for two reasons. The rounding of the sum depends on the device and on the loss. Tensors "
        "change what a debugger or a progress bar shows."
    )
    safety = Safety.ADVICE
    verbose_only = True
    trigger = (".item", "float(", "int(")
    beside = (may_use_loader, may_move_to_device, _READ)
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop may iterate over a loader."""
        return bool(outline.once(PossibleLoaders, project).loops)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report the numbers that a loop over a loader reads in every step; one finding for each loop."""
        for there in find_device_loops(module, project):
            numbers = [wait.node for wait in there.waits() if wait.is_number and not _is_returned(module, wait.node)]
            if numbers:
                message = (
                    f"every step waits for the GPU in {quote_sources(module, *numbers)}; keep detached tensors, and "
                    "call `.item()` after the loop, or every N steps"
                )
                yield RuleMatch(module.span(numbers[0])[0], message)


def _is_returned(module: Module, number: cst.Call) -> bool:
    """Return whether a ``return`` statement contains the number.

    The statement ends the loop, so Python waits for the device only once.
    """
    return isinstance(innermost_statement(module, number), cst.Return)
