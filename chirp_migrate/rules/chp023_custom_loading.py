"""CHP023: report hand-written worker pools, prefetch threads and CUDA streams."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.loaders.custom_loading import STREAMS, THREADS, WORKERS, CustomLoading, find_custom_loading
from chirp_migrate.rules.api import Module, Project, Rule, RuleMatch, Safety, join_texts

_WHAT = {WORKERS: "a worker pool", THREADS: "a prefetch thread", STREAMS: "CUDA streams"}
#: The arguments of a loader that replace each kind of hand-written code.
_INSTEAD = {WORKERS: ("num_workers",), THREADS: ("prefetch_factor",), STREAMS: ("pin_memory", "device")}
_DATA = re.compile(r"oader|ataset|(\b|_)d[sl]\b")


class CustomLoadingCode(Rule):
    code = "CHP023"
    name = "custom-loading"
    reason = (
        "Hand-written loading code must solve problems that PyTorch's DataLoader has already solved. The workers of a "
        "DataLoader seed themselves, use shared memory and end with the loader. A DataLoader loads batches ahead, in "
        "the right order. PyTorch also has pinned memory, and copies to the device that do not block. "
        "docs/migration-notes.md lists replacements for hand-written patterns, and for the attributes of such loaders."
    )
    safety = Safety.ADVICE
    trigger = (
        *("PoolExecutor", "Pool(", "Pool as", "Thread(", "Thread as"),
        *("Process(", "Process as", "Stream(", "Stream as"),
    )
    beside = ("torch", _DATA)
    follows = frozenset()

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report classes, functions and scripts that load batches by hand."""
        for found in find_custom_loading(module, project):
            place: cst.CSTNode = next(iter(found.machinery.values()))
            subject = "this script"
            if not isinstance(found.node, cst.Module):
                place, subject = found.node.name, f"`{found.node.name.value}`"
            machinery = join_texts(
                [_describe_machinery(module, kind, first) for kind, first in found.machinery.items()]
            )
            message = f"{subject} implements loading with {machinery}: {_advice(found)} (docs/migration-notes.md)"
            yield RuleMatch(module.span(place)[0], message, why="+".join(found.machinery))


def _describe_machinery(module: Module, kind: str, first: cst.Call) -> str:
    """Return a description of hand-written loading code for a message, with the line of its first use."""
    what = "a prefetch process" if module.source(first.func).endswith("Process") else _WHAT[kind]
    return f"{what} (line {module.position(module.span(first)[0])[0]})"


def _advice(found: CustomLoading) -> str:
    settings = join_texts([f"`{name}`" for kind in found.machinery for name in _INSTEAD[kind]])
    if found.around_loader:
        moving = ", or `chirpid_patch.DevicePrefetcher` around the loader" if STREAMS in found.machinery else ""
        return f"the `DataLoader` inside this code can do the same, with {settings}{moving}"
    if isinstance(found.node, cst.ClassDef):
        return f"derive the class from `chirpid_patch.WrappedDataLoader`, which has {settings}"
    return f"use a `DataLoader` or `chirpid_patch.WrappedDataLoader`, with {settings}"
