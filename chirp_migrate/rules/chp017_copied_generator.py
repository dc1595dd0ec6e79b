"""CHP017: report random generators that start in the same state in every worker."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Set

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_expressions import possible_dataset_classes
from chirp_migrate.analysis.datasets.dataset_generators import find_random_generators
from chirp_migrate.analysis.datasets.dataset_state import dataset_classes
from chirp_migrate.analysis.loaders.loader_calls import may_pass_loader_argument_by_position
from chirp_migrate.analysis.loaders.worker_seeding import RepeatedSeed, repeated_seeds
from chirp_migrate.rules.api import (
    DATASET_WORDS,
    SEE_IT,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dataset_class_names,
    is_name,
    keyword_arguments,
    quote_sources,
)

_HELD = re.compile(
    r"default_rng|RandomState|check_random_state|\bRandom\b|(random|torch)\.Generator|\bGenerator\s*(\(|as\b)"
)
#: Every match of the pattern contains one of these words. A search for words is much faster than a search for the
#: pattern.
_HELD_WORDS = ("default_rng", "check_random_state", "Random", "Generator")
#: Names of functions that probably seed workers, although their module passes them to no loader.
_SEEDS_WORKERS = re.compile(r"worker_init|init_worker|worker_seed|seed_worker", re.IGNORECASE)
_REMEDY = "Use global generators, or seed this generator with `torch.utils.data.get_worker_info().seed`"


def _may_create_generators(text: str) -> bool:
    """Return whether a text may seed workers, or create random generators with code such as ``default_rng(0)``."""
    if "seed" in text and ("worker_init_fn" in text or "get_state" in text):
        return True
    return any(word in text for word in _HELD_WORDS) and _HELD.search(text) is not None


class CopiedGenerator(Rule):
    code = "CHP017"
    name = "copied-generator"
    reason = (
        "PyTorch (1.9 and later) seeds the global generators of random, torch and NumPy in each worker and epoch. "
        "PyTorch does not seed other generator objects: all workers get copies in the same state and draw the same "
        "numbers. The same happens if a worker_init_fn seeds the global generators with a constant. "
        "`np.random.get_state()[1][0]` is also a constant: after PyTorch has seeded NumPy, this value is always "
        "2147483648."
    )
    safety = Safety.ADVICE
    finds_bugs = True
    trigger = ("__getitem__", "__iter__", "worker_init_fn", "get_state", *DATASET_WORDS)
    beside = (_may_create_generators,)
    follows = frozenset({"CHP001"})

    def names(self, project: Project) -> Set[str]:
        """Return the names of the project's dataset classes."""
        return dataset_class_names(project)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether the module may seed workers, or creates random generators and may define a dataset class."""
        if any(one.arg == "worker_init_fn" for one in outline.find(ast.keyword)):
            return True
        if "get_state" in outline.text and any(_SEEDS_WORKERS.search(one.name) for one in outline.functions):
            return True
        return _HELD.search(outline.text) is not None and bool(outline.once(possible_dataset_classes, project))

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Return whether a rewrite may turn a positional ``worker_init_fn`` into a keyword argument.

        The rule only looks at keyword arguments. So after such a rewrite, the rule may report a call that the rule did
        not report before.
        """
        return super().may_follow(module, project, rewriters) and may_pass_loader_argument_by_position(
            module, "worker_init_fn"
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report random generators in datasets, and code that sets the same seed in every worker or every epoch."""
        if _HELD.search(module.text):
            for one in (one for state in dataset_classes(module, project) for one in find_random_generators(state)):
                yield RuleMatch(
                    module.span(one.value)[0],
                    f"`{one.name}` starts in the same state in every {one.workers}, so all workers draw the same "
                    f"numbers in `{one.using_method.function.name.value}`. {_REMEDY}. {SEE_IT}",
                )
        found: dict[cst.Call, RuleMatch] = {}
        for argument in module.find(cst.Arg):
            if is_name(argument.keyword, "worker_init_fn"):
                for seed in repeated_seeds(module, argument.value):
                    if seed.call not in found and not (seed.by_worker and _may_keep_workers(module, argument)):
                        found[seed.call] = _report_repeated_seed(module, seed)
        for function in module.find(cst.FunctionDef) if "get_state" in module.text else ():
            if _SEEDS_WORKERS.search(function.name.value):
                for seed in repeated_seeds(module, function):
                    if seed.state is not None:
                        found.setdefault(seed.call, _report_repeated_seed(module, seed))
        yield from found.values()


def _may_keep_workers(module: Module, argument: cst.Arg) -> bool:
    """Return whether the call that contains ``argument`` may build a loader whose workers live for several epochs."""
    call = module.parents[argument]
    others = call.args if isinstance(call, cst.Call) else ()
    persistent = keyword_arguments(call).get("persistent_workers") if isinstance(call, cst.Call) else None
    kept_on = persistent is not None and not is_name(persistent, "False")
    return kept_on or any(one.star == "**" for one in others)


def _report_repeated_seed(module: Module, seed: RepeatedSeed) -> RuleMatch:
    names, called = module.qualified_names(seed.call.func), module.source(seed.call.func).strip()
    bound = " % 2**32" if any(name.startswith("numpy.") for name in names) else ""
    remedy = f"`{called}(torch.initial_seed(){bound})`"
    who, happens = ("epoch", "all epochs draw") if seed.by_worker else ("worker", "all workers draw")
    message = f"{quote_sources(module, seed.call)} sets the same seed in every {who}"
    if seed.state is not None:
        state = quote_sources(module, seed.state)
        message += f": {state} is always 2147483648 in workers. Write {remedy} (see `doctor`)"
    else:
        message += f": {happens} the same numbers. Remove the call (PyTorch seeds workers), or write {remedy}. {SEE_IT}"
    return RuleMatch(module.span(seed.call)[0], message)
