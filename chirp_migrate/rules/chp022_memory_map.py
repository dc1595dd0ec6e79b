"""CHP022: report memory maps in datasets, because pickling a memory map copies the whole file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import pickled_attribute_values
from chirp_migrate.rules.api import (
    Module,
    Project,
    Rule,
    RuleMatch,
    Safety,
    find_aliases,
    is_call_of,
    is_name,
    keyword_arguments,
    resolve_node,
)

_MAPS = re.compile(r"numpy\.(memmap|lib\.format\.open_memmap)")
_NONE = cst.Name("None")


class PickledMemoryMap(Rule):
    code = "CHP022"
    name = "pickled-memory-map"
    reason = (
        "NumPy pickles a memory map with its contents. A worker that is not forked (macOS, Windows, and Linux with "
        "Python 3.14 or later) loads the whole file into its memory, which defeats the memory map. In a run with "
        "such workers, `doctor` reports how many bytes the loader pickles for each worker."
    )
    safety = Safety.ADVICE
    trigger = ("memmap", "mmap_mode")
    beside = ("__init__",)
    follows = frozenset()

    def names(self, project: Project) -> Set[str]:
        """Return the other names under which modules of the project import ``memmap``."""
        return find_aliases(project, "memmap")

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report dataset attributes that are memory maps, unless the dataset defines its own pickling."""
        for attribute, value, _ in pickled_attribute_values(
            module, project, lambda one: _is_memory_map(module, project, one) or None
        ):
            yield RuleMatch(
                module.span(value)[0],
                f"`self.{attribute}`: pickling a memory map copies the whole file to each worker that is not "
                "forked. Store the path and map the file on first use, or use `WorkerSafeArrayDataset`",
            )


def _is_memory_map(module: Module, project: Project, value: cst.BaseExpression) -> bool:
    match value:
        case cst.Call() if resolve_node(project, module, value.func) == {"numpy.load"}:
            return not is_name(keyword_arguments(value).get("mmap_mode", _NONE), "None")
    return is_call_of(module, value, _MAPS, project)
