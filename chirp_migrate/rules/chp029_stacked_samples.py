"""CHP029: samples stacked one by one are gathered at once (R-000-1.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.collecting import scope_of
from chirp_migrate.dataset_names import binds, dataset_test
from chirp_migrate.imports import runtime
from chirp_migrate.module import Module
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.scans import Scan, stacked_samples, why_too_early

_RUNTIME = "stack_samples"
_FOUND = "samples are read one by one to be stacked"
_STACKS = re.compile(r"\bstack\s*\(\s*\[")


class StackedSamples(Rule):
    code: ClassVar[str] = "CHP029"
    name: ClassVar[str] = "stacked-samples"
    reason: ClassVar[str] = (
        "`torch.stack([dataset[i][0] for i in indices])`, usually made for a mean and a deviation, reads every sample "
        "by itself before it copies them all. The runtime gathers rows that are in memory at once into the same "
        "tensor, so that what is computed from it stays the same to the last bit; other datasets are read sample by "
        "sample, as before. `streaming_standardization_stats` needs no second copy of the data, but its last digits "
        "differ."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("stack",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules that stack a list they write down."""
        return _STACKS.search(text) is not None

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite stacks of a dataset's samples."""
        if any(binds(function, _RUNTIME) for function in module.find(cst.FunctionDef, cst.Lambda)):
            return  # a variable of that name would be called instead of the runtime's function
        stands_for_dataset = dataset_test(module, project)
        for call in module.find(cst.Call):
            assert isinstance(call, cst.Call)
            scan = stacked_samples(module, stands_for_dataset, call)
            if scan is not None and not isinstance(scope_of(module, call), cst.ClassDef):
                yield _proposal(module, call, scan)


def _proposal(module: Module, call: cst.Call, scan: Scan) -> Proposal:
    offset = module.span(call)[0]
    dataset, iterable = module.source(scan.dataset).strip(), module.source(scan.iterable).strip()
    if isinstance(scan.iterable, cst.Tuple) and not scan.iterable.lpar:
        iterable = f"({iterable})"
    problem = why_too_early(module, scan)
    if problem is None and "#" in module.source(call):
        problem = "a comment stands in between"
    if problem is not None:
        return Proposal(offset, f"{_FOUND}, but {problem}; {_RUNTIME}({dataset}, indices) gathers them at once")
    if scan.index is None:
        indices = ""
    elif m.matches(scan.index, m.Name()):
        indices = f", {iterable}"
    else:
        indices = f", [{module.source(scan.index).strip()} for {module.source(scan.target).strip()} in {iterable}]"
    message = f"{_FOUND}: {_RUNTIME} gathers those in memory at once, and gives the same tensor"
    edit = Edit(*module.span(call), f"{_RUNTIME}({dataset}{indices})")
    return Proposal(offset, message, (edit,), frozenset({runtime(_RUNTIME)}))
