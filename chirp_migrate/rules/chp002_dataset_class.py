"""CHP002: dataset classes that standardise, augment or list samples become subclasses of the shipped ones.

R-000-1.1, R-000-1.2, R-000-1.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

import libcst as cst

from chirp_migrate.dataset_class import (
    DatasetClass,
    Store,
    obsolete_methods,
    read_dataset_class,
    superclass_edits,
)
from chirp_migrate.dataset_meaning import Augmenting
from chirp_migrate.handover import PROVIDED, hand_over
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module
from chirp_migrate.plan import Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.symbolic import Value


class WorkerSafeDatasetClass(Rule):
    code: ClassVar[str] = "CHP002"
    name: ClassVar[str] = "worker-safe-dataset-class"
    reason: ClassVar[str] = (
        "Standardising and augmenting one sample at a time costs more than reading it, and an augmentation object made "
        "once is shared by everything that copies the dataset. The shipped classes do the same arithmetic for a whole "
        "batch, keep primitive state that goes to worker processes, and key augmentation by sample. The class keeps "
        "its name, its constructor and its other methods."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules that may define a dataset of their own."""
        return "__getitem__" in text and super().concerns(text, project)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite top-level dataset classes whose samples are understood."""
        for statement in module.tree.body:
            if not isinstance(statement, cst.ClassDef):
                continue
            read = read_dataset_class(module, project, statement)
            if read is not None and read.meaning is not None:
                yield _rewrite(read, project)


def _rewrite(read: DatasetClass, project: Project) -> Proposal:
    assert read.meaning is not None
    module, title = read.module, read.node.name.value
    offset = module.span(read.node.name)[0]
    consumed: list[Store] = []

    def lookup(state: Value) -> Value | None:
        store = read.stored(state)
        if store is None:
            return None
        consumed.append(store)
        return store.value

    handover = hand_over(read.meaning, lookup)
    if handover is None:
        return Proposal(offset, f"{title} is left alone: not all of its state comes from its `__init__`")
    aliases: list[tuple[str, str]] = []
    provided = PROVIDED[handover.shipped]
    if isinstance(read.meaning, Augmenting):
        for position, stage in enumerate(read.meaning.stages):
            attribute = str(stage.function.parts[1])
            provided |= {attribute}
            if _mentioned_outside(read, project, attribute) or _used_by_methods(read, attribute):
                aliases.append((attribute, f"self.transforms[{position}]"))
            if read.assigned_outside_init(attribute) or project.search(rf"(?<!self)\.{attribute}\s*=[^=]"):
                return Proposal(offset, f"{title} is left alone: its augmentation `{attribute}` is replaced later")
    dropped: list[Store] = []
    for store in read.stores:
        used = _mentioned_outside(read, project, store.attribute) or _used_by_methods(read, store.attribute)
        if store.function is not None and not used:
            # A lambda that only its own `__getitem__` called; what it did is part of the meaning.
            dropped.append(store)
            provided |= {store.attribute}
    edits = superclass_edits(read, handover.shipped, handover.arguments, consumed, provided, aliases, dropped)
    if isinstance(edits, str):
        return Proposal(offset, f"{title} is left alone: {edits}")
    message = f"{title} does its work sample by sample: it now inherits {handover.shipped}"
    return Proposal(offset, message, edits, frozenset({runtime(handover.shipped)}))


def _mentioned_outside(read: DatasetClass, project: Project, attribute: str) -> bool:
    """Whether code outside the class, in this file or another, names an attribute of that spelling."""
    word = re.compile(rf"\.\s*{attribute}\b")
    start, end = read.module.span(read.node)
    elsewhere = read.module.text[:start] + read.module.text[end:]
    return bool(word.search(elsewhere)) or project.mentions(attribute, besides=read.module.path)


def _used_by_methods(read: DatasetClass, attribute: str) -> bool:
    gone = {"__init__", *obsolete_methods(read)}
    others = (method for key, method in read.methods.items() if key not in gone)
    return any(f"self.{attribute}" in read.module.source(method) for method in others)
