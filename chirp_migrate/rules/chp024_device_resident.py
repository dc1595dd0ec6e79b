"""CHP024: loaders whose batches every loop moves to one device (R-000-2.1). Advice."""

from __future__ import annotations

import re
from collections.abc import Iterable

from chirp_migrate.analysis.loaders.loader_calls import LoaderCall, loader_calls
from chirp_migrate.analysis.loops.batch_uses import BatchUses
from chirp_migrate.analysis.loops.loader_device import device_at
from chirp_migrate.analysis.loops.loader_flow import LoaderFlow
from chirp_migrate.rules.api import CALL, FACTORY, Module, Project, Proposal, Rule, Safety

_CALL = re.compile(rf"\bcreate_(training_|validation_|test_)?loader{CALL}")


class DeviceResident(Rule):
    code = "CHP024"
    name = "device-resident"
    reason = (
        "A loop that moves each batch to the device copies the same samples there in every epoch. With `device=` the "
        "factory's loader uploads a dataset that fits once, and gathers, standardises and augments its batches on the "
        "device; others it brings there through pinned memory, ahead of the computation. The `.to(device)` of the loop "
        "then finds nothing to move. It is not rewritten: the samples take memory of the device, and noise drawn there "
        "has the same distribution, but may have other values. The loader is named where every loop over it is seen, "
        "and all of them move what they use of a batch to one device before anything else."
    )
    safety = Safety.ADVICE
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
        """Name the loaders of the factory whose batches all loops move to one device."""
        for loader in loader_calls(module, project):
            if loader.role == "DataLoader" or "device" in loader.arguments:
                continue
            proposal = _propose(module, project, loader)
            if proposal is not None:
                yield proposal


def _propose(module: Module, project: Project, loader: LoaderCall) -> Proposal | None:
    """What to say of a loader; nothing where a loop over it may need its batches as they come."""
    flow = LoaderFlow(module, project, loader.call)
    devices: set[str | None] = set()
    for loop in flow.loops:
        uses = None if loop.target is None else loop.module.once(BatchUses, loop.loop, loop.target)
        if uses is None or uses.problem or not uses.devices:
            return None
        devices |= {device_at(module, project, loader.call, loop, device) for device in uses.devices}
    if flow.ends or loader.open or len(devices) != 1 or None in devices:
        return None
    return Proposal(
        module.span(loader.call)[0],
        f"every loop moves its batches to `{devices.pop()}` first; give the factory that as `device=`, and the loader "
        "yields them there, from GPU memory if the dataset fits",
    )
