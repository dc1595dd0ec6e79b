"""CHP024: report loops that copy each batch of a loader to the device."""

from __future__ import annotations

from collections.abc import Iterable

from chirp_migrate.analysis.devices.device_moves import may_move_to_device
from chirp_migrate.analysis.loaders.device_data import has_device_dataset
from chirp_migrate.analysis.loaders.loader_outline import PossibleLoaders
from chirp_migrate.analysis.loaders.loader_values import LoaderValue, may_use_loader
from chirp_migrate.analysis.loops.sync_points import find_device_loops
from chirp_migrate.rules.api import (
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    join_texts,
    keyword_arguments,
    quote_sources,
)


class DeviceResident(Rule):
    code = "CHP024"
    name = "device-resident"
    reason = (
        "A loop that moves each batch to the device copies the same samples in every epoch. With `device=`, the "
        "factory's loader uploads a dataset once if it fits into the memory of the device, and gathers, standardises "
        "and augments its batches there. The loader copies batches of any other dataset from pinned memory, ahead of "
        "the computation. The `.to(device)` of the loop then has nothing to move. The rule does not rewrite the code "
        "for three reasons. Other loops over the same loader may need its batches on the CPU. The samples take memory "
        "of the device. Noise on the device has the same distribution, but may have other values."
    )
    safety = Safety.ADVICE
    verbose_only = True
    trigger = (".to", ".cuda", "to_")
    beside = (may_use_loader, may_move_to_device)
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop may iterate over a loader."""
        return bool(outline.once(PossibleLoaders, project).loops)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report loops that copy parts of each batch to one device, unless the data is on a device already."""
        for device_loop in find_device_loops(module, project):
            devices = list(dict.fromkeys(quote_sources(module, device) for device in device_loop.moves.values()))
            if len(devices) == 1 and not all(
                _has_device(one) or has_device_dataset(one) for one in device_loop.loaders
            ):
                first, *others = sorted(device_loop.moves, key=lambda move: module.span(move)[0])
                copies = "copies" if not others else "copy"
                sources = join_texts([quote_sources(module, one) for one in (first, *others)])
                yield RuleMatch(
                    module.span(first)[0],
                    f"{sources} {copies} every batch in the loop; if every loop over this loader copies its batches, "
                    f"build the loader with the factory and `device=`, so that batches arrive on {devices[0]}",
                )


def _has_device(loader: LoaderValue) -> bool:
    """Return whether every call that may build a loader has the argument ``device``."""
    return bool(loader.calls) and all("device" in keyword_arguments(call) for _, call in loader.calls)
