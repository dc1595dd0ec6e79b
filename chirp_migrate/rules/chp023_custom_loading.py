"""CHP023: worker pools, prefetch threads and CUDA streams written by hand around a dataset or loader (R-002)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

import libcst as cst

from chirp_migrate.custom_loading import STREAMS, THREADS, WORKERS, CustomLoading, custom_loading
from chirp_migrate.custom_members import KEPT, MEMORY
from chirp_migrate.module import Module
from chirp_migrate.plan import Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule

_WHAT = {WORKERS: "a worker pool", THREADS: "a prefetch thread", STREAMS: "CUDA streams"}
#: What a loader of chirpid_patch has for each.
_INSTEAD = {
    WORKERS: "`num_workers`, `persistent_workers` and `shutdown()`",
    THREADS: "`prefetch_factor` (with workers) or `thread_safe=True` (without)",
    STREAMS: "`pin_memory` and `device`",
    MEMORY: "`DataLoaderPerformanceMonitor`",
}
_POOL = re.compile(r"PoolExecutor\b|\b(Thread)?Pool\b")
_HANDED = re.compile(r"\.\s*(submit|i?map(_unordered|_async)?|starmap(_async)?|apply(_async)?)\s*\(")
_STARTED = re.compile(r"\b(Thread|Process)\b")
_PUT = re.compile(r"\.\s*(put(_nowait)?|append(left)?)\s*\(")
_STREAM = re.compile(r"\b(Stream|stream|StreamContext)\b")
_MOVED = re.compile(r"\.\s*(to|cuda)\s*\(")
_DATA = re.compile(r"oader|ataset|(\b|_)d[sl]\b")


class CustomLoadingCode(Rule):
    code: ClassVar[str] = "CHP023"
    name: ClassVar[str] = "custom-loading"
    reason: ClassVar[str] = (
        "Worker pools, prefetch threads and CUDA streams around a dataset or loader are what PyTorch's DataLoader has "
        "already: workers that seed themselves, hand batches over in shared memory and end with the loader, batches "
        "loaded ahead in their order, pinned memory and copies that do not wait. Code of one's own has to get all of "
        "that right again. docs/migration-notes.md says what replaces each attribute and habit."
    )
    safety: ClassVar[Safety] = Safety.ADVICE
    trigger: ClassVar[tuple[str, ...]] = (
        "PoolExecutor",
        "Pool(",
        "Thread(",
        "Thread)",
        "Thread,",
        "Process(",
        "Process)",
        "Stream(",
    )

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules with such machinery, something that it could be there for, and PyTorch."""
        if not super().concerns(text, project) or "torch" not in text or _DATA.search(text) is None:
            return False
        return (
            (_POOL.search(text) is not None and _HANDED.search(text) is not None)
            or (_STARTED.search(text) is not None and _PUT.search(text) is not None)
            or ("cuda" in text and _STREAM.search(text) is not None and _MOVED.search(text) is not None)
        )

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """List classes, functions and scripts that load batches by hand."""
        for found in custom_loading(module, project):
            node = found.node
            place = found.signs[0].node if isinstance(node, cst.Module) else node.name
            kinds = dict.fromkeys(sign.kind for sign in found.signs)
            message = f"{_subject(found)} loads by hand, with {_machinery(module, found)}: {_advice(found, [*kinds])}"
            yield Proposal(module.span(place)[0], f"{message} (docs/migration-notes.md)", why="+".join(kinds))


def _subject(found: CustomLoading) -> str:
    return "this script" if isinstance(found.node, cst.Module) else f"`{found.node.name.value}`"


def _machinery(module: Module, found: CustomLoading) -> str:
    """The kinds of machinery, each with what it is made with first and where."""
    first = {sign.kind: sign for sign in reversed(found.signs)}
    parts = []
    for kind in dict.fromkeys(sign.kind for sign in found.signs):
        line = module.position(module.span(first[kind].node)[0])[0]
        what = "a prefetch process" if first[kind].name.endswith("Process") else _WHAT[kind]
        parts.append(f"{what} (`{first[kind].name}`, line {line})")
    return _listed(parts)


def _advice(found: CustomLoading, kinds: Sequence[str]) -> str:
    if found.around_loader:
        device = ", and DevicePrefetcher(loader, device) moves the batches of any loader" if STREAMS in kinds else ""
        start = f"the loader underneath can do that itself{device}; a WrappedDataLoader of chirpid_patch does all of it"
    elif isinstance(found.node, cst.ClassDef):
        start = "derive it from WrappedDataLoader of chirpid_patch, or use that or a DataLoader in its place"
    else:
        start = "go through a DataLoader, or a WrappedDataLoader of chirpid_patch"
    parts = []
    for kind in (*kinds, MEMORY):
        names = [f"`{name}`" for name in found.members.get(kind, ())]
        if names:
            parts.append(f"{_listed(names)} {'becomes' if len(names) == 1 else 'become'} {_INSTEAD[kind]}")
        elif kind != MEMORY:
            parts.append(f"there are {_INSTEAD[kind]}")
    kept = [f"`{name}`" for name in found.members.get(KEPT, ())]
    if kept:
        parts.append(f"{_listed(kept)} {'is' if len(kept) == 1 else 'are'} there under the same name")
    return f"{start}: {'; '.join(parts)}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
