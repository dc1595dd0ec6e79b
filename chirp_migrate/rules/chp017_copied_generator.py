"""CHP017: random generators of which every worker gets a copy in the same state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import (
    DatasetState,
    Method,
    Use,
    assigned_value,
    contents,
    dataset_states,
)
from chirp_migrate.analysis.loaders.worker_seeding import repeated_seeds
from chirp_migrate.plans.plan import Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import binds, own_nodes

_GENERATORS = frozenset(
    {
        "numpy.random.default_rng",
        "numpy.random.Generator",
        "numpy.random.RandomState",
        "numpy.random.mtrand.RandomState",
        "sklearn.utils.check_random_state",
        "random.Random",
        "torch.Generator",
    }
)
#: Methods that put a generator into another state, and attributes through which that is done.
_RESEEDING = frozenset(
    {"seed", "manual_seed", "set_state", "setstate", "graphsafe_set_state", "__setstate__", "bit_generator"}
)
_COPIES = frozenset({"copy.copy", "copy.deepcopy", "builtins.isinstance", "builtins.id", "builtins.repr"})
#: Workers that each take a part of a stream may want the same order of it.
_ORDERING = frozenset({"shuffle", "permutation", "permuted", "randperm"})
_HELD = re.compile(
    r"default_rng|RandomState|check_random_state|\bRandom\b|(random|torch)\.Generator|\bGenerator\s*(\(|as\b)"
)
_REMEDY = "Use the global generators, or make one in the worker from `torch.utils.data.get_worker_info().seed`"


class CopiedGenerator(Rule):
    code: ClassVar[str] = "CHP017"
    name: ClassVar[str] = "copied-generator"
    reason: ClassVar[str] = (
        "PyTorch (1.9 and later) seeds the global generators of random, torch and NumPy anew in each worker and epoch. "
        "A generator object it does not know: all workers get copies in the same state and draw the same numbers, as "
        "they do when a worker_init_fn seeds the global ones with a constant."
    )
    safety: ClassVar[Safety] = Safety.ADVICE
    finds_bugs: ClassVar[bool] = True
    trigger: ClassVar[tuple[str, ...]] = ("__getitem__", "__iter__", "worker_init_fn")

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules that make generator objects beside a dataset, or that seed workers."""
        if "worker_init_fn" in text and "seed" in text:
            return True
        return super().concerns(text, project) and _HELD.search(text) is not None

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Report generators that datasets draw from, and ``worker_init_fn`` that seed all workers or epochs alike."""
        if _HELD.search(module.text):
            for state in dataset_states(module, project):
                if not state.knows_workers:
                    yield from _kept_on_self(state)
                    yield from _shared_variables(state)
        for argument in module.find(cst.Arg):
            if argument.keyword is not None and argument.keyword.value == "worker_init_fn":
                yield from _seeded_alike(module, argument)


def _kept_on_self(state: DatasetState) -> Iterator[Proposal]:
    module, project = state.module, state.project

    def kind(value: cst.BaseExpression) -> bool | None:
        return _makes_generator(module, project, value) or None

    for attribute, value, _ in state.held(kind):
        drawn = next((use for use in state.uses(attribute) if _draws(state, use)), None)
        if drawn is not None and not _reseeded(state, attribute):
            yield _proposal(module, value, f"self.{attribute}", drawn.method, "worker")


def _shared_variables(state: DatasetState) -> Iterator[Proposal]:
    """Generators in variables of the class or the module."""
    module = state.module
    for scope in (state.node, module.tree):
        for statement in own_nodes(scope):
            if not isinstance(statement, cst.Assign | cst.AnnAssign) or statement.value is None:
                continue
            made = _maker(module, state.project, statement.value)
            if made is None:
                continue
            targets = statement.targets if isinstance(statement, cst.Assign) else (statement,)
            # What is made anew where the module is imported starts alike only if it is seeded.
            workers = "worker" if _always_alike(module, made) else "forked worker"
            for name in (t.target.value for t in targets if isinstance(t.target, cst.Name)):
                if scope is state.node:
                    method = next((use.method for use in state.uses(name) if _draws(state, use)), None)
                    quiet = _reseeded(state, name) or any(assigned_value(module, u.node) for u in state.uses(name))
                else:
                    method = next((one for one in state.sampling if _reads_global(module, one, name)), None)
                    quiet = _reassigned(module, name)
                if method is not None and not quiet:
                    yield _proposal(module, made, name, method, workers)


def _proposal(module: Module, value: cst.BaseExpression, what: str, drawn: Method, workers: str) -> Proposal:
    return Proposal(
        module.span(value)[0],
        f"`{what}`: every {workers} starts with the same state, so `{drawn.function.name.value}` draws the same "
        f"numbers in each. {_REMEDY}",
    )


def _makes_generator(module: Module, project: Project, value: cst.BaseExpression) -> bool:
    """Whether a value is a new generator, or a parameter whose annotation says it is one."""
    if isinstance(value, cst.Name):
        function = module.enclosing_function(value)
        every = (*function.params.params, *function.params.kwonly_params) if function is not None else ()
        annotations = [p.annotation for p in every if p.name.value == value.value and p.annotation is not None]
        named = [n for one in annotations for n in walk(one) if isinstance(n, cst.Name | cst.Attribute)]
        return any(project.resolved_names(module, one) & _GENERATORS for one in named)
    return isinstance(value, cst.Call) and _maker(module, project, value) is value


def _maker(module: Module, project: Project, value: cst.BaseExpression) -> cst.Call | None:
    """The call that makes the generator, also behind ``.manual_seed(…)``."""
    for one in contents(module.tree, value):
        seeded = isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute) and one.func.attr.value in _RESEEDING
        made = one.func.value if seeded else one  # type: ignore[attr-defined]
        names = project.resolved_names(module, made.func) if isinstance(made, cst.Call) else set()
        if names and names <= _GENERATORS:
            return one  # type: ignore[return-value]
    return None


def _always_alike(module: Module, made: cst.Call) -> bool:
    """Whether a generator made anew is in the same state as before: it is seeded, or PyTorch's, with its fixed seed."""
    calls = [one for one in walk(made) if isinstance(one, cst.Call)]
    return "torch.Generator" in module.qualified_names(calls[-1].func) or all(one.args for one in calls)


def _draws(state: DatasetState, use: Use) -> bool:
    """Whether ``self.generator`` is drawn from, or given to what draws, where samples are made."""
    if use.method not in state.sampling:
        return False
    module = use.method.module
    parent = module.parents[use.node]
    call = module.parents[parent]
    if not isinstance(parent, cst.Arg | cst.Attribute) or not isinstance(call, cst.Call):
        return False
    called = call.func.attr.value if isinstance(call.func, cst.Attribute) else module.source(call.func)
    if state.is_iterable and called in _ORDERING:
        return False
    return not module.qualified_names(call.func) & _COPIES


def _reseeded(state: DatasetState, attribute: str) -> bool:
    """Whether the generator gets another state, or another generator its place, after the dataset was made."""
    for use in state.uses(attribute):
        module = use.method.module
        parent = module.parents[use.node]
        changed = isinstance(parent, cst.Attribute) and parent.attr.value in _RESEEDING
        replaced = isinstance(parent, cst.AssignTarget | cst.AnnAssign) and parent.target is use.node
        if (changed or replaced) and (use.method not in state.constructing or use.method in state.sampling):
            return True
    changes = "|".join(sorted(_RESEEDING))
    return state.project.search(rf"(?<!\bself)\.{re.escape(attribute)}\s*\.\s*({changes})\b")


def _reads_global(module: Module, method: Method, name: str) -> bool:
    if method.module is not module or binds(method.function, name):
        return False
    for node in walk(method.function.body):
        parent = module.parents[node]
        only_named = isinstance(parent, cst.Attribute) and parent.attr is node
        only_named |= isinstance(parent, cst.Arg) and parent.keyword is node
        if isinstance(node, cst.Name) and node.value == name and not only_named:
            return True
    return False


def _reassigned(module: Module, name: str) -> bool:
    """Whether functions of the module replace or reseed the generator in a module variable."""
    if any(item.name.value == name for node in module.find(cst.Global) for item in node.names):
        return True
    return any(
        isinstance(node.value, cst.Name)
        and node.value.value == name
        and node.attr.value in _RESEEDING
        and module.enclosing_function(node) is not None
        for node in module.find(cst.Attribute)
    )


def _seeded_alike(module: Module, argument: cst.Arg) -> Iterator[Proposal]:
    call = module.parents[argument]
    others = call.args if isinstance(call, cst.Call) else ()
    keywords = {one.keyword.value: one.value for one in others if one.keyword is not None}
    persistent = keywords.get("persistent_workers")
    may_persist = any(one.star == "**" for one in others) or (
        persistent is not None and not (isinstance(persistent, cst.Name) and persistent.value == "False")
    )
    for seeding, by_worker in repeated_seeds(module, argument.value):
        source = module.source(seeding)
        if not by_worker:
            happens = "the same seed in every worker: all draw the same numbers"
        elif not may_persist:
            happens = "the same seed in every epoch: each draws the same numbers"
        else:
            continue
        yield Proposal(
            module.span(argument.value)[0],
            f"`{source}` sets {happens}. Remove it (PyTorch seeds workers itself), or seed from "
            "`torch.initial_seed() % 2**32`",
        )
