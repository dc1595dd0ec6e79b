"""CHP025: sums of losses and hits stay on the device until the loop is over (R-000-2.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import may_move
from chirp_migrate.analysis.loaders.loader_values import may_use_loader
from chirp_migrate.analysis.loops.loop_accumulators import summed_on_device
from chirp_migrate.analysis.loops.loop_losses import NotProven
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
_SUM = "sum detached tensors, and call `.item()` once after the loop"


class ItemInLoop(Rule):
    """Requires:

    - `known-loader`: the loop iterates over what was made, annotated or named as a loader, and moves its batches to a
      device.
    - `only-added-up`: everything that waits for the device in each iteration is a number added to a variable (``+=``):
      ``x.item()``, ``float(x)`` or ``int(x)``, by itself or times a number.
    - `loss-or-count`: the number is a loss, bound once in an iteration before it is read: a function or class of
      PyTorch makes it, reduced, or the loop went ``backward()`` from it, no call of a class of the project makes it,
      and no object of the project has an ``item``, ``__float__`` or ``__int__`` of its own. Or it is the sum of a
      comparison with ``==`` or ``!=``.
    - `size-of-batch`: what a loss is multiplied with is an integer, ``len(…)``, ``….size(n)`` or ``….shape[n]``.
    - `local-variable`: the sum is a plain variable of the function around the loop, and no function inside uses it.
    - `starts-as-number`: before the loop it is given 0 for counts, a float for losses, written out.
    - `only-read-after`: nothing else in the loop uses it, nothing adds to it under another condition, and elsewhere
      it is only given such numbers or added to alike.
    - `float64-device`: for losses, the batches surely go to CUDA or the CPU.
    - `one-number-loss`: for losses, the project names no ``reduction=`` but ``"mean"`` and ``"sum"``, no DTensor, and
      neither ``__torch_function__`` nor opacus, whose loss is an object of its own.
    - `one-device`: the batches of all iterations go to one device, and ``torch.inference_mode`` is on for all or none.
    - `no-way-out`: nothing sees the sum before the loop is over: no ``try``, and no ``with`` but PyTorch's (other than
      streams), tqdm's and ``open`` around it, no ``yield``, ``await`` or look at local variables, no notebook's cell.
    - `not-compiled`: the function has no decorator but PyTorch's gradient modes and those for methods.
    - `not-timed`: no clock is read in the loop.
    """

    code = "CHP025"
    name = "item-in-loop"
    reason = (
        "`loss.item()` makes Python wait until the device has computed everything that was queued, so that the next "
        "step is queued only when the device is idle. Sums that nothing looks at before the loop is over are kept on "
        "the device and read once, where the result is the same to the bit: counts of a comparison are exact, and a "
        "PyTorch loss added up as float64 on CUDA or the CPU is rounded where Python rounds. It is only listed where "
        "that is not proven (the device is an argument and may have no float64; the loss may be something else; the "
        "sum is divided, shown or compared in the loop), or where the loop would wait for something else anyway."
    )
    safety = Safety.SAFE
    for_the_curious = True
    trigger = (".item", "float(", "int(")
    beside = (may_use_loader, may_move, _READ)
    in_place = True
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a loop that may iterate over a loader both moves something and reads a number."""
        return any(names & {"item", "float", "int"} for names in called_in_loops(outline, moving=True))

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Keep the sums of a loop on the device; list what else reads a number in every step."""
        for there in reversed(list(device_loops(module, project))):  # after two loops: what the inner one leaves first
            waits = there.waits()
            numbers = [wait for wait in waits if wait.is_number]
            if not numbers:
                continue
            try:
                edits = summed_on_device(module, project, there, waits)
            except NotProven as unproven:
                for instead, alike in by_advice(numbers, partial(_instead, module)).items():
                    why = f"; not rewritten: {unproven}" if instead is _SUM else ""
                    message = f"{_shown(module, alike)} in every step; {instead}{why}"
                    yield Proposal(module.span(alike[0].node)[0], message)
            else:
                message = f"{_shown(module, numbers)} in every step: now summed on the device, and read after the loop"
                yield Proposal(module.span(numbers[0].node)[0], message, tuple(edits))


def _shown(module: Module, waits: list[Wait]) -> str:
    texts = [quoted(module, wait.node) for wait in waits]
    return f"{listed(texts)} {'forces' if len(texts) == 1 else 'force'} a GPU sync"


def _instead(module: Module, wait: Wait) -> str:
    """What to do about it."""
    statement = statement_of(module, wait.node)
    if isinstance(statement, cst.AugAssign):
        return _SUM
    if any(method_called(ancestor) in ("append", "extend") for ancestor in module.ancestors(wait.node)):
        return "collect detached tensors, and call `torch.stack(…).tolist()` after the loop"
    if isinstance(statement, cst.If | cst.While | cst.Assert):
        return "decide on the device (`torch.where`), or every N steps"
    return "keep the detached tensor, and read it every N steps or after the loop"
