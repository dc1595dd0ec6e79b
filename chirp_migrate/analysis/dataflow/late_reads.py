"""Find late reads of captured names: reads that happen after the function that contains the read has returned.

Inner generators and inner functions may read a name late, because their code may run after the return.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import CapturedName, variable_reads
from chirp_migrate.analysis.known_names import DATASET, is_call_of, qualified_base_names
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import is_project_class
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import find_nodes_in_scope, is_name, methods_of

_LAZY = (cst.FunctionDef, cst.Lambda, cst.GeneratorExp)
#: Calls that evaluate all their arguments, and call the function passed as ``key``.
_CONSUMERS = re.compile(r"builtins\.(all|any|dict|frozenset|list|max|min|set|sorted|sum|tuple)")
#: Calls that return an iterator. The iterator calls a passed function, and reads all other arguments, only later.
_LAZY_CALLS = re.compile(r"builtins\.(enumerate|filter|map|reversed|zip)")
#: Calls whose result does not refer to an argument.
_LOOKS = re.compile(r"builtins\.(bool|hasattr|id|isinstance|len|repr|str|super)")


def may_read_captured_name_later(module: Module, project: Project, node: cst.CSTNode, captured: CapturedName) -> bool:
    """Return whether a function, lambda or class may create an object that reads a captured name later.

    A read is late if the function, the lambda or the method of the class has already returned.
    """
    if not isinstance(node, cst.ClassDef):
        return _may_read_late(module, project, [node], captured.reads)
    methods = list(methods_of(node).values())
    return _may_read_late(module, project, methods, captured.reads) or _may_pass_on_self(module, project, node)


def _may_read_late(
    module: Module, project: Project, functions: Sequence[cst.CSTNode], reads: Sequence[cst.CSTNode]
) -> bool:
    """Return whether one of the reads may happen after the function that contains the read has returned."""
    for read in reads:
        inside = takewhile(lambda one: one not in functions, module.ancestors(read))
        if any(isinstance(one, _LAZY) and not _is_consumed_at_once(module, project, one) for one in inside):
            return True
    return any(_delays_body(one) for one in functions)


def _delays_body(function: cst.CSTNode) -> bool:
    """Return whether a call of a function only creates a generator or coroutine, and does not yet run the body.

    A generator method ``__iter__`` does not count.
    """
    is_iter = isinstance(function, cst.FunctionDef) and function.name.value == "__iter__"
    is_async = isinstance(function, cst.FunctionDef) and function.asynchronous is not None
    return is_async or (bool(find_nodes_in_scope(function, cst.Yield)) and not is_iter)


def _is_consumed_at_once(module: Module, project: Project, node: cst.CSTNode) -> bool:
    """Return whether only the surrounding call uses a generator or lambda, as in ``sorted(x, key=lambda y: y[0])``."""
    argument = module.parents[node]
    call = module.parents[argument]
    if not isinstance(argument, cst.Arg) or not isinstance(call, cst.Call):
        return False
    if is_call_of(module, call, _CONSUMERS, project):
        return not isinstance(node, cst.Lambda) or is_name(argument.keyword, "key")
    return is_call_of(module, call, _LAZY_CALLS, project) and _is_consumed_at_once(module, project, call)


def _may_pass_on_self(module: Module, project: Project, node: cst.ClassDef) -> bool:
    """Return whether a method of a class may store ``self``, or pass on ``self`` or one of its methods.

    The result is also True for a class with a base in the project, because the base may do the same.
    """
    if any(is_project_class(project, base) for base in qualified_base_names(module, project, node)):
        return True
    methods = methods_of(node)
    for method in methods.values():
        own = next((one.name for one in (*method.params.posonly_params, *method.params.params)), None)
        reads = [] if own is None else variable_reads(module, own.value, module.scopes.scope_of(own))
        if _may_read_late(module, project, [method], reads) or not all(
            _only_reads_attributes(module, project, one, methods) for one in reads
        ):
            return True
    return False


def _only_reads_attributes(
    module: Module, project: Project, read: cst.Name, methods: dict[str, cst.FunctionDef]
) -> bool:
    """Return whether code only reads an attribute or item of the object ``read``, or calls a method of the object.

    Code may also pass the object to a function such as ``len``, or to ``__init__`` of a dataset class.
    """
    parent = module.parents[read]
    around = module.parents[parent]
    match parent:
        case cst.Attribute(attr=cst.Name(value=attribute)):
            called = isinstance(around, cst.Call) and around.func is parent
            return called or attribute not in methods
        case cst.Subscript(value=value):
            return value is read
        case cst.Arg() if isinstance(around, cst.Call):
            is_base = isinstance(around.func, cst.Attribute) and is_name(around.func.attr, "__init__")
            names = module.qualified_names(around.func.value) if is_base else set()  # type: ignore[attr-defined]
            return is_call_of(module, around, _LOOKS, project) or any(map(DATASET.fullmatch, names))
    return False
