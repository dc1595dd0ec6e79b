"""Find calls in a ``worker_init_fn`` that seed a global generator with the same seed in every epoch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import value_assigned_to
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.queries import bound_target, function_parameters, is_name, nodes_in_scope

_SEEDING = frozenset({"random.seed", "numpy.random.seed", "torch.manual_seed", "torch.random.manual_seed"})
#: The function that returns the state of NumPy's generator. PyTorch seeds this generator with an array, so the first
#: word of the state is the same in every worker.
_STATE = "numpy.random.get_state"
#: Calls that do not change the state of NumPy's generator.
_LEAVES_STATE = re.compile(r"(random|torch|builtins|os|time|logging|warnings)\.|numpy\.random\.get_state$")
_ARITHMETIC = frozenset({"builtins.int", "builtins.abs", "builtins.hash", "builtins.str"})
_DEPTH = 4


@dataclass(frozen=True)
class RepeatedSeed:
    """A call that seeds a global generator with the same seed in every epoch.

    Attributes:
        call: the call.
        by_worker: whether the seed differs between workers.
        state: an expression in the function, such as ``numpy.random.get_state()[1][0]``, that reads the first word of
            NumPy's random state. The word looks random, but is the same in every worker and epoch. None without such an
            expression.
    """

    call: cst.Call
    by_worker: bool
    state: cst.Subscript | None = None


def repeated_seeds(module: Module, worker_init_fn: cst.BaseExpression | cst.FunctionDef) -> Iterator[RepeatedSeed]:
    """Yield the calls of a ``worker_init_fn`` that seed a global generator with the same seed in every epoch.

    Calls with unknown seeds are omitted.
    """
    bound: Sequence[cst.Arg] = ()
    match worker_init_fn:
        case cst.FunctionDef() | cst.Lambda():
            function: cst.FunctionDef | cst.Lambda | None = worker_init_fn
        case cst.Call(args=[named, *bound]) if module.qualified_names(worker_init_fn.func) == {"functools.partial"}:
            function = _unique_function(module, named.value)
        case _:
            function = _unique_function(module, worker_init_fn)
    if function is None or any(one.star or _names_in_seed(module, function, one.value) is None for one in bound):
        return
    by_keyword = {one.keyword.value for one in bound if one.keyword is not None}
    by_position = sum(one.keyword is None for one in bound)
    free = [name for name in function_parameters(function) if name not in by_keyword]
    yield from _repeated_seeds_in(module, function, set(free[by_position : by_position + 1]), 0)


def _repeated_seeds_in(
    module: Module, function: cst.FunctionDef | cst.Lambda, given: set[str], depth: int
) -> Iterator[RepeatedSeed]:
    """Yield the :func:`repeated_seeds` of a function.

    ``given`` contains those parameters of the function that depend on the worker. The result is empty if the function
    uses ``get_worker_info``, or declares a name ``global`` or ``nonlocal``, because the seed may then change in every
    epoch.
    """
    nodes = [*walk_code(function)]
    asks = any(isinstance(node, cst.Name) and "worker_info" in node.value for node in nodes)
    if asks or any(isinstance(node, cst.Global | cst.Nonlocal) for node in nodes):
        return
    state = next((one for one in nodes if isinstance(one, cst.Subscript) and _is_constant(module, function, one)), None)
    for call in nodes:
        if isinstance(call, cst.Call) and call.args and module.qualified_names(call.func) & _SEEDING:
            used = _names_in_seed(module, function, call.args[0].value)
            if used is not None:
                yield RepeatedSeed(call, bool(used & given), state)
        elif isinstance(call, cst.Call) and depth < _DEPTH:
            helper = _called_helper(module, function, call, given)
            if helper is not None:
                yield from _repeated_seeds_in(module, *helper, depth + 1)


def _is_constant(module: Module, function: cst.CSTNode, node: cst.Subscript) -> bool:
    """Return whether an expression reads the first word of the state that PyTorch sets in NumPy's generator.

    The expression is ``numpy.random.get_state()[1][0]``, possibly in several steps with local variables. PyTorch seeds
    the generator with an array, so this word is the same in every worker and epoch. The result is False if earlier code
    may use the generator.
    """
    words = _indexed_object(module, function, node, "0")
    state = _indexed_object(module, function, words, "1") if words is not None else None
    if not isinstance(state, cst.Call) or module.qualified_names(state.func) != {_STATE}:
        return False
    before = (one for one in find_nodes(function, cst.Call) if module.span(one)[1] <= module.span(state)[0])
    names = (module.qualified_names(one.func) for one in before)
    return all(found and all(map(_LEAVES_STATE.match, found)) for found in names)


def _indexed_object(
    module: Module, function: cst.CSTNode, node: cst.BaseExpression, key: str
) -> cst.BaseExpression | None:
    """Return ``x`` for the expression ``x[key]``; None for any other expression.

    If ``x`` is a local variable that the function assigns once, the result is the assigned value.
    """
    match node:
        case cst.Subscript(value=owner, slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Integer(value=index)))]):
            return _value_of(module, function, owner) if index == key else None
    return None


def _value_of(module: Module, function: cst.CSTNode, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return the value of a local variable that a function assigns once; any other expression unchanged."""
    if not isinstance(node, cst.Name):
        return node
    match [one for one in nodes_in_scope(function) if is_name(bound_target(one), node.value)]:
        case [cst.AssignTarget(target=target) | cst.AnnAssign(target=target)]:
            return value_assigned_to(module, target) or node
    return node


def _called_helper(
    module: Module, function: cst.CSTNode, call: cst.Call, given: set[str]
) -> tuple[cst.FunctionDef, set[str]] | None:
    """Return the called function of the module, and its parameters that depend on the worker's number.

    The result is ``None`` if the module has no such function, or if an argument may differ in the next epoch.
    """
    called = _unique_function(module, call.func)
    if called is None or any(argument.star for argument in call.args):
        return None
    names = list(function_parameters(called))
    seeds: set[str] = set()
    for position, argument in enumerate(call.args):
        used = _names_in_seed(module, function, argument.value)
        if used is None or (argument.keyword is None and position >= len(names)):
            return None
        if used & given:
            seeds.add(names[position] if argument.keyword is None else argument.keyword.value)
    return called, seeds


def _unique_function(module: Module, name: cst.BaseExpression) -> cst.FunctionDef | None:
    """Return the function called ``name`` if exactly one function of the module has this name; else None."""
    named = [function for function in module.find(cst.FunctionDef) if is_name(name, function.name.value)]
    return named[0] if len(named) == 1 else None


def _names_in_seed(module: Module, function: cst.CSTNode, seed: cst.BaseExpression, depth: int = 0) -> set[str] | None:
    """Return the names from which a seed is computed; ``None`` if the seed may be different in the next epoch."""
    if depth > _DEPTH or isinstance(seed, cst.Tuple) or (isinstance(seed, cst.Name) and seed.value == "None"):
        return None
    names: set[str] = set()
    same = [one for one in find_nodes(seed, cst.Subscript) if _is_constant(module, function, one)]
    constant = {node for one in same for node in walk_code(one)}
    for node in walk_code(seed):
        if node in constant:
            continue
        if isinstance(node, cst.Call):
            called = module.qualified_names(node.func)
            if not called or not called <= _ARITHMETIC:
                return None
        elif isinstance(node, cst.Subscript | cst.Await | cst.NamedExpr | cst.Yield):
            return None
        elif isinstance(node, cst.Name):
            found = _resolve_name(module, function, node, depth)
            if found is None:
                return None
            names |= found
    return names


def _resolve_name(module: Module, function: cst.CSTNode, name: cst.Name, depth: int) -> set[str] | None:
    """Return the names from which the value of ``name`` is computed; ``None`` if the value may change between epochs.

    If the function does not assign ``name``, as for a parameter, the result is ``name`` itself.
    """
    if re.search(r"epoch|step|time", name.value, re.IGNORECASE):
        return None
    parent = module.parents.get(name)
    if isinstance(parent, cst.Attribute) and parent.attr is name:
        return set()
    match [node for node in nodes_in_scope(function) if is_name(bound_target(node), name.value)]:
        case []:
            return {name.value}
        case [cst.AssignTarget(target=target) | cst.AnnAssign(target=target)]:
            value = value_assigned_to(module, target)
            return None if value is None else _names_in_seed(module, function, value, depth + 1)
    return None
