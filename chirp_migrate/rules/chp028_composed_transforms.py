"""CHP028: classes that chain transforms let a batch through at once (R-000-1.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import libcst as cst

from chirp_migrate.dataset_class import is_super_init
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.statements import block_deletion, line_deletion
from chirp_migrate.transform_shapes import HandsOn, handing_on

#: What augmentation that the runtime can do for whole batches is written with.
_AUGMENTS = ("time_mask_param", "randn_like")


class ComposedTransforms(Rule):
    code: ClassVar[str] = "CHP028"
    name: ClassVar[str] = "composed-transforms"
    reason: ClassVar[str] = (
        "A dataset cannot see into a class of the backend's own that only calls other transforms, so masks and noise "
        "inside are drawn sample by sample. The shipped Compose and Lambda do the same, and are taken apart: what "
        "they hold is applied to a whole batch where it can be. The class keeps its name and constructor."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("__call__",)

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with callable classes, in a backend that has masks or noise of its own."""
        return super().concerns(text, project) and any(project.search(rf"\b{word}\b", word) for word in _AUGMENTS)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite top-level classes that hand their argument on, to one callable or to several in turn."""
        for statement in module.tree.body:
            hands_on = handing_on(statement) if isinstance(statement, cst.ClassDef) else None
            if hands_on is not None:
                assert isinstance(statement, cst.ClassDef)
                yield _examine(module, project, statement, hands_on)


def _examine(module: Module, project: Project, node: cst.ClassDef, hands_on: HandsOn) -> Proposal:
    shipped, attribute = ("Compose", "transforms") if hands_on.composes else ("Lambda", "lambd")
    title, offset = node.name.value, module.span(node.name)[0]
    if hands_on.attribute != attribute and _is_read(module, project, node, hands_on.attribute):
        message = f"{title} is left alone: other code reads its `{hands_on.attribute}`, the shipped {shipped} has none"
        return Proposal(offset, message)
    base = f"WorkerSafe{shipped}"
    if node.bases:
        heading = Edit(*module.span(node.bases[0].value), base)
    elif isinstance(node.lpar, cst.LeftParen):
        heading = Edit(module.span(node.name)[1], module.text.index(")", module.span(node.name)[1]) + 1, f"({base})")
    else:
        heading = Edit(module.span(node.name)[1], module.span(node.name)[1], f"({base})")
    edits = (
        heading,
        Edit(*module.span(hands_on.store.body[0]), f"super().__init__({hands_on.parameter})"),
        *(line_deletion(module, one) for one in hands_on.init.body.body if is_super_init(one)),
        block_deletion(module, hands_on.call),
    )
    does = "only chains transforms" if hands_on.composes else "only calls a function"
    message = f"{title} {does}: it now inherits the shipped {shipped}, which a batch can go through at once"
    return Proposal(offset, message, edits, frozenset({runtime(f"{shipped} as {base}")}))


def _is_read(module: Module, project: Project, node: cst.ClassDef, attribute: str) -> bool:
    """Whether any code but ``__init__`` and ``__call__`` of the class may read an attribute of that name."""
    reads = module.text.count(f".{attribute}")
    return reads != 2 or project.mentions(attribute, besides=module.path)
