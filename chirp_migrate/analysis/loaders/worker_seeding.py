"""What a ``worker_init_fn`` does to the generators that PyTorch has seeded for the worker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import assigned_value
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.queries import is_name, own_nodes, parameters, target_of

_SEEDING = frozenset({"random.seed", "numpy.random.seed", "torch.manual_seed", "torch.random.manual_seed"})
_ARITHMETIC = frozenset({"builtins.int", "builtins.abs", "builtins.hash", "builtins.str"})
_DEPTH = 4


def repeated_seeds(module: Module, value: cst.BaseExpression) -> Iterator[tuple[cst.Call, bool]]:
    """Calls of a ``worker_init_fn`` that seed a global generator alike in every epoch.

    Yields:
        The call, and whether it gives each worker another seed. Seeds that cannot be told are left out.
    """
    bound: Sequence[cst.Arg] = ()
    match value:
        case cst.Lambda():
            function: cst.FunctionDef | cst.Lambda | None = value
        case cst.Call(args=[named, *bound]) if module.qualified_names(value.func) == {"functools.partial"}:
            function = _only_function(module, named.value)
        case _:
            function = _only_function(module, value)
    if function is None or any(one.star or _used(module, function, one.value) is None for one in bound):
        return
    by_keyword = {one.keyword.value for one in bound if one.keyword is not None}
    by_position = sum(one.keyword is None for one in bound)
    free = [name for name in parameters(function) if name not in by_keyword]
    yield from _seeding(module, function, set(free[by_position : by_position + 1]), 0)


def _seeding(
    module: Module, function: cst.FunctionDef | cst.Lambda, given: set[str], depth: int
) -> Iterator[tuple[cst.Call, bool]]:
    """What :func:`repeated_seeds` yields of a function whose parameters ``given`` are the number of the worker."""
    nodes = [*walk(function)]
    asks = any(isinstance(node, cst.Name) and "worker_info" in node.value for node in nodes)
    if asks or any(isinstance(node, cst.Global | cst.Nonlocal) for node in nodes):
        return
    for call in nodes:
        if isinstance(call, cst.Call) and call.args and module.qualified_names(call.func) & _SEEDING:
            used = _used(module, function, call.args[0].value)
            if used is not None:
                yield call, bool(used & given)
        elif isinstance(call, cst.Call) and depth < _DEPTH:
            helper = _helper(module, function, call, given)
            if helper is not None:
                yield from _seeding(module, *helper, depth + 1)


def _helper(
    module: Module, function: cst.CSTNode, call: cst.Call, given: set[str]
) -> tuple[cst.FunctionDef, set[str]] | None:
    """A function of the module that is called, and which of its parameters come from the number of the worker.

    ``None`` also where what it is given may be another in the next epoch.
    """
    called = _only_function(module, call.func)
    if called is None or any(argument.star for argument in call.args):
        return None
    names = list(parameters(called))
    seeds: set[str] = set()
    for position, argument in enumerate(call.args):
        used = _used(module, function, argument.value)
        if used is None or (argument.keyword is None and position >= len(names)):
            return None
        if used & given:
            seeds.add(names[position] if argument.keyword is None else argument.keyword.value)
    return called, seeds


def _only_function(module: Module, name: cst.BaseExpression) -> cst.FunctionDef | None:
    """The function of a name, if no other one of the module has it."""
    named = [function for function in module.find(cst.FunctionDef) if is_name(name, function.name.value)]
    return named[0] if len(named) == 1 else None


def _used(module: Module, function: cst.CSTNode, seed: cst.BaseExpression, depth: int = 0) -> set[str] | None:
    """Names that a seed is computed from; ``None`` when it may be another in the next epoch."""
    if depth > _DEPTH or isinstance(seed, cst.Tuple) or (isinstance(seed, cst.Name) and seed.value == "None"):
        return None
    names: set[str] = set()
    for node in walk(seed):
        if isinstance(node, cst.Call):
            called = module.qualified_names(node.func)
            if not called or not called <= _ARITHMETIC:
                return None
        elif isinstance(node, cst.Subscript | cst.Await | cst.NamedExpr | cst.Yield):
            return None
        elif isinstance(node, cst.Name):
            found = _behind(module, function, node, depth)
            if found is None:
                return None
            names |= found
    return names


def _behind(module: Module, function: cst.CSTNode, name: cst.Name, depth: int) -> set[str] | None:
    """Names behind a name: itself, or those that its only local value is computed from."""
    if re.search(r"epoch|step|time", name.value, re.IGNORECASE):
        return None
    parent = module.parents.get(name)
    if isinstance(parent, cst.Attribute) and parent.attr is name:
        return set()
    match [node for node in own_nodes(function) if is_name(target_of(node), name.value)]:
        case []:
            return {name.value}
        case [cst.AssignTarget(target=target) | cst.AnnAssign(target=target)]:
            value = assigned_value(module, target)
            return None if value is None else _used(module, function, value, depth + 1)
    return None
