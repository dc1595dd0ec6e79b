"""CHP024: batches that every loop moves to one device come from there (R-000-2.1). Changes training: opt-in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from chirp_migrate.analysis.loaders.loader_calls import LoaderCall, loader_calls
from chirp_migrate.analysis.loops.batch_uses import BatchUses
from chirp_migrate.analysis.loops.loader_device import device_at
from chirp_migrate.analysis.loops.loader_flow import LoaderFlow
from chirp_migrate.rules.api import CALL, FACTORY, CallEdit, Module, Project, Proposal, Rule, Safety

_CALL = re.compile(rf"\bcreate_(training_|validation_|test_)?loader{CALL}")


class DeviceResident(Rule):
    """Requires, of a loader:

    - `factory-loader`: the factory builds it, and is given no device.
    - `known-arguments`: nothing of the call comes from ``*`` or ``**``.
    - `moved-first`: everything else that the loops do with a batch before is to take it apart, to ask for what is the
      same everywhere (size, type, keys), or to reshape or convert what is then moved; nothing uses it after the loop.
    - `moved-always`: the moves are done for each batch, under no condition but whether it is a tensor.
    - `every-loop`: each loop over it moves a part of its batches to a device, and binds them to a target of their own.
    - `followed-loader`: all that is done with it is seen: it is bound to variables or an attribute of ``self``,
      returned to or given to functions of the project without decorators, asked for its length, dataset and settings.
    - `one-device`: the loops move to one device.
    - `device-known-there`: where the loader is built, the same source already stands for the device, and nothing binds
      it anew.
    """

    code = "CHP024"
    name = "device-resident"
    reason = (
        "A loop that moves each batch to the device copies the same samples there in every epoch. With `device=` the "
        "factory's loader uploads a dataset that fits once, and gathers, standardises and augments its batches on the "
        "device; others it brings there through pinned memory, ahead of the computation. The `.to(device)` of the loop "
        "then finds nothing to move, and stays. Noise drawn on the device has the same distribution, but may have "
        "other values, and the samples take memory of the device, so it is opt-in. It is proposed where every loop "
        "over the loader is seen, and all of them move what they use of a batch to one device before anything else."
    )
    safety = Safety.BEHAVIOUR
    for_the_curious = True
    trigger = (FACTORY,)
    beside = (_CALL,)
    follows = frozenset({"CHP001"})

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Only where a loop moves the batches of a loader that is built by hand so far."""
        return super().may_follow(module, project, rewriters) and any(
            _propose(module, project, loader) is not None for loader in loader_calls(module, project)
        )

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Give the factory the device that all loops over its loader move their batches to."""
        for loader in loader_calls(module, project):
            if loader.role == "DataLoader" or "device" in loader.arguments:
                continue
            proposal = _propose(module, project, loader)
            if proposal is not None:
                yield proposal


def _propose(module: Module, project: Project, loader: LoaderCall) -> Proposal | None:
    """What to say of a loader; nothing where no loop over it that is found moves its batches."""
    call = loader.call
    flow = LoaderFlow(module, project, call)
    devices: set[str | None] = set()
    problems = []
    moving = 0
    for loop in flow.loops:
        if loop.target is None:
            problems.append("a loop over it does not unpack the batch")
            continue
        uses = loop.module.once(BatchUses, loop.loop, loop.target)
        moving += bool(uses.devices)
        if uses.problem:
            problems.append(uses.problem)
        elif not uses.devices:
            problems.append("another loop does not move its batches")
        devices |= {device_at(module, project, call, loop, device) for device in uses.devices}
    if not moving:
        return None
    problems += flow.ends
    if None in devices:
        problems.append("the device of its loops is not known where the loader is built")
    elif len(devices) > 1:
        problems.append("its loops move to several devices")
    if loader.open:
        problems.append("the call has `*args` or `**kwargs`")
    offset = module.span(call)[0]
    if problems:
        return Proposal(offset, f"loops move the batches to a device; `device=` not added: {problems[0]}")
    device = devices.pop()
    change = CallEdit(module, call, project.code_style)
    # Where this very run wrote the callee, the argument belongs to that rewrite and to no other: naming it says so.
    change.rename(module.source(call.func).strip())
    change.add(f"device={device}")
    return Proposal(
        offset,
        f"every loop moves its batches to `{device}` first: with `device=` the loader yields them there, from GPU "
        "memory if the dataset fits",
        change.edits(),
    )
