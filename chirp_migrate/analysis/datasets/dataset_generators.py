"""Find datasets with a random generator that has the same state in every worker process.

Each worker process gets a copy of the dataset, and with the dataset a copy of the generator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import (
    AttributeUse,
    DatasetClass,
    DatasetMethod,
    possible_value_expressions,
    value_assigned_to,
)
from chirp_migrate.analysis.known_names import is_call_of
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.name_resolution import resolve_node
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import NameRole, called_method_name, is_name, name_role, nodes_in_scope

_GENERATORS = re.compile(
    r"numpy\.random\.(default_rng|Generator|(mtrand\.)?RandomState)|sklearn\.utils\.check_random_state|random\.Random"
    r"|torch\.Generator"
)
#: Methods that set the state of a generator, and attributes through which code can set the state.
_RESEEDING = frozenset(
    {"seed", "manual_seed", "set_state", "setstate", "graphsafe_set_state", "__setstate__", "bit_generator"}
)
_COPIES = frozenset({"copy.copy", "copy.deepcopy", "builtins.isinstance", "builtins.id", "builtins.repr"})
#: Methods that shuffle. The workers of an iterable dataset may share its samples, and then need the same shuffled
#: order.
_ORDERING = frozenset({"shuffle", "permutation", "permuted", "randperm"})


@dataclass(frozen=True)
class StoredRandomGenerator:
    """A random generator that is stored in a variable or attribute.

    Attributes:
        name: name of the variable or attribute.
        value: the expression that creates the generator.
        using_method: the method that uses the generator.
        workers: ``worker`` if the copies have the same state in all worker processes, ``forked worker`` if only in
            forked worker processes.
    """

    name: str
    value: cst.BaseExpression
    using_method: DatasetMethod
    workers: str


def find_random_generators(dataset_class: DatasetClass) -> Iterator[StoredRandomGenerator]:
    """Yield the random generators of a dataset that have the same state in all workers.

    The result is empty if the dataset uses ``get_worker_info``, for example to add the number of the worker to a seed.
    """
    if not dataset_class.uses_worker_number:
        yield from _generators_in_attributes(dataset_class)
        yield from _generators_in_variables(dataset_class)


def _generators_in_attributes(state: DatasetClass) -> Iterator[StoredRandomGenerator]:
    for attribute, value, _ in state.stored_values(
        lambda one: _makes_generator(state.module, state.project, one) or None
    ):
        using_method = next((use for use in state.uses(attribute) if _uses_generator(state, use)), None)
        if using_method is not None and not _is_reseeded(state, attribute):
            yield StoredRandomGenerator(f"self.{attribute}", value, using_method.method, "worker")


def _generators_in_variables(state: DatasetClass) -> Iterator[StoredRandomGenerator]:
    """Yield the generators in class variables and module variables."""
    module = state.module
    for scope in (state.node, module.tree):
        for statement in nodes_in_scope(scope):
            if not isinstance(statement, cst.Assign | cst.AnnAssign) or statement.value is None:
                continue
            made = _creating_call(module, state.project, statement.value)
            if made is None:
                continue
            targets = statement.targets if isinstance(statement, cst.Assign) else (statement,)
            # A spawned worker imports the module again, so only a generator with a fixed seed has the same state in
            # each worker.
            workers = "worker" if _always_has_same_state(module, made) else "forked worker"
            for name in (t.target.value for t in targets if isinstance(t.target, cst.Name)):
                if scope is state.node:
                    method = next((use.method for use in state.uses(name) if _uses_generator(state, use)), None)
                    quiet = _is_reseeded(state, name) or any(
                        value_assigned_to(module, u.node) for u in state.uses(name)
                    )
                else:
                    method = next((one for one in state.sampling_methods if _reads_global(module, one, name)), None)
                    quiet = _is_reassigned(module, name)
                if method is not None and not quiet:
                    yield StoredRandomGenerator(name, made, method, workers)


def _makes_generator(module: Module, project: Project, value: cst.BaseExpression) -> bool:
    """Return whether a value is a new generator, or a parameter whose annotation names a class of generators."""
    if isinstance(value, cst.Name):
        function = module.enclosing_function(value)
        every = (*function.params.params, *function.params.kwonly_params) if function is not None else ()
        annotations = [p.annotation for p in every if p.name.value == value.value and p.annotation is not None]
        named = [n for annotation in annotations for n in find_nodes(annotation, cst.Name, cst.Attribute)]
        return any(map(_GENERATORS.fullmatch, (name for one in named for name in resolve_node(project, module, one))))
    return isinstance(value, cst.Call) and _creating_call(module, project, value) is value


def _creating_call(module: Module, project: Project, value: cst.BaseExpression) -> cst.Call | None:
    """Return the call that creates a generator, including a following ``.manual_seed(…)``; None without such a call."""
    for one in possible_value_expressions(module, module.tree, value):
        match one:
            case cst.Call(func=cst.Attribute(value=made, attr=cst.Name(value=method))) if method in _RESEEDING:
                pass
            case made:
                pass
        if isinstance(one, cst.Call) and is_call_of(module, made, _GENERATORS, project):
            return one
    return None


def _always_has_same_state(module: Module, made: cst.Call) -> bool:
    """Return whether a new generator always has the same state, because of a seed or because of its class.

    A ``torch.Generator`` has the same state even without a seed.
    """
    calls = find_nodes(made, cst.Call)
    return "torch.Generator" in module.qualified_names(calls[-1].func) or all(call.args for call in calls)


def _uses_generator(state: DatasetClass, use: AttributeUse) -> bool:
    """Return whether the dataset uses the generator in an attribute at the place ``use`` when a sample is read.

    The code must call a method of the generator, or pass the generator to a function. In an iterable dataset, calls
    that shuffle do not count, because all workers may need the same order.
    """
    if use.method not in state.sampling_methods:
        return False
    module = use.method.module
    parent = module.parents[use.node]
    call = module.parents[parent]
    if not isinstance(parent, cst.Arg | cst.Attribute) or not isinstance(call, cst.Call):
        return False
    called = called_method_name(call) or module.source(call.func)
    if state.is_iterable and called in _ORDERING:
        return False
    return not module.qualified_names(call.func) & _COPIES


def _is_reseeded(state: DatasetClass, attribute: str) -> bool:
    """Return whether code reseeds or replaces the generator after the dataset was constructed."""
    for use in state.uses(attribute):
        module = use.method.module
        parent = module.parents[use.node]
        changed = isinstance(parent, cst.Attribute) and parent.attr.value in _RESEEDING
        replaced = isinstance(parent, cst.AssignTarget | cst.AnnAssign) and parent.target is use.node
        if (changed or replaced) and (
            use.method not in state.constructor_methods or use.method in state.sampling_methods
        ):
            return True
    changes = "|".join(sorted(_RESEEDING))
    return state.project.search(rf"(?<!\bself)\.{re.escape(attribute)}\s*\.\s*({changes})\b", attribute)


def _reads_global(module: Module, method: DatasetMethod, name: str) -> bool:
    if method.module is not module or name in module.scopes.names_bound(method.function):
        return False
    return any(
        is_name(node, name) and name_role(module, node) is not NameRole.LABEL
        for node in walk_code(method.function.body)
    )


def _is_reassigned(module: Module, name: str) -> bool:
    """Return whether a function of the module replaces or reseeds the generator in the module variable ``name``."""
    if any(item.name.value == name for node in module.find(cst.Global) for item in node.names):
        return True
    return any(
        isinstance(node.value, cst.Name)
        and node.value.value == name
        and node.attr.value in _RESEEDING
        and module.enclosing_function(node) is not None
        for node in module.find(cst.Attribute)
    )
