"""CHP018: report open files, connections, locks and CUDA tensors in datasets with workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import replace

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_expressions import possible_dataset_classes
from chirp_migrate.analysis.datasets.dataset_state import pickled_attribute_values
from chirp_migrate.analysis.devices.device_moves import is_move_to_cuda
from chirp_migrate.analysis.objects.pickled import ReportedUnpicklableKind, find_unpicklable_objects
from chirp_migrate.rules.api import (
    CALL,
    DATASET_WORDS,
    GAP,
    SEE_IT,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dataset_class_names,
)
from chirp_migrate.rules.unpicklable import (
    creates_unpicklable,
    may_create_unpicklable,
    unpicklable_matches,
    words_in_unpicklable_code,
)

#: Code that may create an open file, a connection, a lock or a CUDA tensor, outside of a ``with`` statement.
_WORDS = re.compile(
    r"(?<![\w.])(?<!with )(\w+\s*\.\s*){0,8}(\w*open|open_file|\w*File|scandir|walk|iglob|reader|DictReader|Environment"
    rf"|connect|socket|create_connection|VideoCapture)(\s+as\b|{CALL})|threading|ThreadPool|\.{GAP}cuda{CALL}|[\"']cuda"
    r"|\.\w+\s*(:[^=\r\n]{0,200})?=[\s\\]*\("
)


class UnpicklableState(Rule):
    code = "CHP018"
    name = "unpicklable-state"
    reason = (
        "A worker process gets the dataset pickled, or as a forked copy. Open files, connections and locks cannot "
        "be pickled, and a forked worker must not share them with other processes."
    )
    safety = Safety.ADVICE
    finds_bugs = True
    stops_workers = True
    trigger = ("__getitem__", "__iter__", *DATASET_WORDS)
    beside = ("__init__", _WORDS)
    follows = frozenset()

    def names(self, project: Project) -> Set[str]:
        """Return the names of dataset classes, and search words for code that creates objects such as open files."""
        return dataset_class_names(project) | words_in_unpicklable_code(project, ReportedUnpicklableKind.STATE)

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the code may define a dataset, or create an object such as an open file for a dataset."""
        return super().concerns(text, project) or may_create_unpicklable(text, project, ReportedUnpicklableKind.STATE)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a class may be a dataset, or code creates an object such as an open file for a dataset."""
        return bool(outline.once(possible_dataset_classes, project)) or creates_unpicklable(
            outline, project, ReportedUnpicklableKind.STATE
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report dataset attributes that cannot be pickled or fail in workers, such as open files and CUDA tensors."""

        def is_on_cuda(value: cst.BaseExpression) -> bool | None:
            return (isinstance(value, cst.Call) and is_move_to_cuda(module, value)) or None

        for attribute, value, _ in pickled_attribute_values(module, project, is_on_cuda):
            owner = module.enclosing_class(value)
            if owner is not None and find_unpicklable_objects(project).has_no_workers(module.path, owner.name.value):
                continue
            what = f"`self.{attribute}` (CUDA tensors made in `__init__`)"
            yield RuleMatch(
                module.span(value)[0],
                f"{what} cannot be used by forked workers, and every other worker opens its own CUDA context. "
                "With workers, keep the tensors on the CPU and move batches in the training loop",
            )
        for one in unpicklable_matches(module, project, ReportedUnpicklableKind.STATE):
            yield replace(one, message=f"{one.message}. {SEE_IT}")
