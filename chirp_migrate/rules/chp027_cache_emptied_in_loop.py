"""CHP027: report code that empties the GPU's memory cache or synchronises the GPU after each batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Set

import libcst as cst

from chirp_migrate.analysis.loaders.loader_loops import loader_loops
from chirp_migrate.analysis.loaders.loader_outline import PossibleLoaders
from chirp_migrate.analysis.loaders.loader_values import LoaderValue, may_use_loader
from chirp_migrate.analysis.loops.sync_points import runs_in_every_iteration
from chirp_migrate.rules.api import (
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    call_argument,
    find_aliases,
    find_nodes_in_scope,
    is_integer,
    is_name,
    quote_sources,
    resolve_ast_node,
    resolve_node,
    resolves_to,
)

_EMPTIES = re.compile(r"torch\.(cuda|xpu|mps|accelerator)\.(memory\.)?(empty_cache|ipc_collect)")
_WAITS = re.compile(r"torch\.(cuda|xpu|mps|accelerator)\.synchronize")
_COLLECTS = frozenset({"gc.collect"})
_CLOCKS = re.compile(r"(time|timeit|datetime)\..+|torch\.(cuda|xpu|mps)\.Event|torch\.profiler\..+")


class CacheEmptiedInLoop(Rule):
    code = "CHP027"
    name = "cache-emptied-in-loop"
    reason = (
        "`torch.cuda.empty_cache()` waits for the device and returns memory to the driver. The next step must request "
        "the same memory from the driver, and waits again. The call frees no memory that is in use, and PyTorch "
        "reuses free memory automatically. `gc.collect()` visits all objects of the program. "
        "`torch.cuda.synchronize()` waits for the device, which helps only where steps are timed. The rule does not "
        "remove these calls for two reasons. Other programs may wait for the memory. A model that nearly fills the "
        "memory of the device may fail without the calls."
    )
    safety = Safety.ADVICE
    trigger = ("empty_cache", "synchronize")
    beside = (may_use_loader,)
    follows = frozenset()

    def names(self, project: Project) -> Set[str]:
        """Return the other names under which modules of the project import ``empty_cache`` and ``synchronize``."""
        return set().union(*(find_aliases(project, name) for name in self.trigger))

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop empties the memory cache or synchronises the GPU."""
        return any(
            _EMPTIES.fullmatch(name) or _WAITS.fullmatch(name)
            for loop in outline.once(PossibleLoaders, project).loops
            for call in outline.inside(loop)
            if isinstance(call, ast.Call)
            for name in resolve_ast_node(project, outline, call.func)
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report calls that empty the cache or synchronise in each step of a loop over loaders.

        Each loop has at most one finding for emptying, and one finding for synchronising. Calls in ``except`` blocks
        are omitted.
        """
        for loop, loaders in loader_loops(module, project):
            if all(_yields_single_samples(loader) for _, loader in loaders):
                continue
            calls = [
                node for node in find_nodes_in_scope(loop.body, cst.Call) if runs_in_every_iteration(module, loop, node)
            ]
            calls.sort(key=lambda one: module.span(one)[0])
            emptying = [call for call in calls if resolves_to(module, call, _EMPTIES, project)]
            collecting = [call for call in calls if resolve_node(project, module, call.func) & _COLLECTS]
            waiting = [call for call in calls if resolves_to(module, call, _WAITS, project)]
            if emptying:
                yield RuleMatch(
                    module.span(emptying[0])[0],
                    f"calling {quote_sources(module, *emptying, *collecting)} after each batch forces a GPU sync, "
                    "and the next step allocates the memory again. Do this once below the loop, or never; if memory is "
                    "short, use smaller batches",
                )
            if waiting and not _reads_clock(module, project, loop):
                yield RuleMatch(
                    module.span(waiting[0])[0],
                    f"calling {quote_sources(module, *waiting)} after each batch forces a GPU sync that this loop "
                    "does not need. Remove the synchronisation",
                )


def _reads_clock(module: Module, project: Project, loop: cst.For) -> bool:
    """Return whether the function around a loop reads a clock, so that a synchronisation may serve a measurement."""
    calls = find_nodes_in_scope(module.enclosing_function(loop) or module.tree, cst.Call)
    return any(_CLOCKS.fullmatch(name) for call in calls for name in resolve_node(project, module, call.func))


def _yields_single_samples(loader: LoaderValue) -> bool:
    """Return whether a loader yields one sample at a time.

    The result is True if no call that builds the loader sets a batch size other than 1.
    """
    calls = [call for _, call in loader.calls]
    if any(one.star or is_name(one.keyword, "batch_sampler") for call in calls for one in call.args):
        return False
    sizes = (call_argument(call, 1, "batch_size") for call in calls)
    literal = (size for size in sizes if size is not None and not is_name(size, "None"))
    return loader.complete and all(is_integer(size, "1") for size in literal)
