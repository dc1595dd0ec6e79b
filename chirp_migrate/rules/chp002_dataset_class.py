"""CHP002: dataset classes that standardise, augment or list samples declare what they do.

R-000-1.1, R-000-1.2, R-000-1.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import libcst as cst

from chirp_migrate.dataset_class import Declared, read_declared
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule

#: Longer generated lines are broken, one argument a line.
_LINE_LENGTH = 100
_DOES = {
    "standardizes": "standardises one sample at a time",
    "augments": "augments one sample at a time",
    "lists": "hands out the samples of a list",
}


class WorkerSafeDatasetClass(Rule):
    """Requires, besides a class whose only base is PyTorch's ``Dataset``:

    - nothing in the class body but methods and a docstring, and no decorator;
    - no ``__getitems__``, ``__iter__``, ``__getattr__`` or ``__getattribute__``;
    - a ``__getitem__(self, index)`` of assignments, ``if`` and ``return``, calling methods of the class and the
      transforms only, in which everything that is evaluated becomes part of the sample, and no names but those of
      imported modules come from outside;
    - samples ``((x - mean) / (std + number), y)``, ``(transform(x), y)`` or those of a sequence, all state of which is
      read from attributes of the object.
    """

    code: ClassVar[str] = "CHP002"
    name: ClassVar[str] = "worker-safe-dataset-class"
    reason: ClassVar[str] = (
        "Standardising and augmenting one sample at a time costs more than reading it. A class that declares which of "
        "its attributes hold dataset, indices, statistics and transforms is read a whole batch at a time, where that "
        "gives the same; it stays what it was, and everything else is read by its own code."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules that may define a dataset of their own."""
        return "__getitem__" in text and super().concerns(text, project)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Decorate top-level dataset classes whose samples are understood."""
        for statement in module.tree.body:
            if isinstance(statement, cst.ClassDef):
                declared = read_declared(module, project, statement)
                if isinstance(declared, Declared):
                    yield _decorated(module, statement, declared)
                elif declared is not None:
                    title, place = statement.name.value, module.span(statement.name)[0]
                    yield Proposal(place, f"{title} is left alone: {declared}")


def _decorated(module: Module, node: cst.ClassDef, declared: Declared) -> Proposal:
    name = declared.decorator
    line = f"@{name}({', '.join(declared.arguments)})"
    if len(line) > _LINE_LENGTH:
        inner = "".join(f"    {argument},{module.newline}" for argument in declared.arguments)
        line = f"@{name}({module.newline}{inner})"
    place = module.span(node)[0]
    message = f"{node.name.value} {_DOES[name]}: it now says so, and is read a batch at a time where that is the same"
    # With the keyword: what others insert above the class stays above the decorator, too.
    keyword = module.text[place : place + len("class")]
    edit = Edit(place, place + len(keyword), f"{line}{module.newline}{keyword}")
    return Proposal(module.span(node.name)[0], message, (edit,), frozenset({runtime(name)}))
