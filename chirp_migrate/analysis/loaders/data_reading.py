"""Recognise code in a class, function or script that reads samples from a dataset, or batches from a loader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values
from chirp_migrate.analysis.datasets.dataset_names import is_dataset
from chirp_migrate.analysis.known_names import resolves_to
from chirp_migrate.analysis.loaders.loader_loops import iterated_loaders
from chirp_migrate.analysis.loaders.loader_values import LoaderExpressions
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted_source, function_parameters, is_self_attribute

Unit = cst.ClassDef | cst.FunctionDef | cst.Module
Function = cst.FunctionDef | cst.Lambda

_POSITIONS = re.compile(r"builtins\.(range|len|enumerate)")
_ITERATORS = frozenset({"builtins.iter", "builtins.enumerate"})
_ITEMS = frozenset({"__getitem__", "__getitems__"})
_DEPTH = 4


class DataReadingFinder:
    """Finds code that reads data in one unit (class, function or module)."""

    def __init__(self, module: Module, project: Project, unit: Unit) -> None:
        self._module, self._project, self._enclosing_unit = module, project, unit
        self._loaders = module.once(LoaderExpressions, project)
        #: Whether the data that was found so far includes a loader.
        self.from_loader = False

    def is_data(self, node: cst.CSTNode) -> bool:
        """Return whether an expression is a loader, a dataset, or an iterator over one of them."""
        return self._stands_for(self._is_loader, node) or self._stands_for(self._is_dataset, node)

    def _stands_for(self, is_kind: Callable[[cst.CSTNode], bool], node: cst.CSTNode, depth: int = 0) -> bool:
        """Return whether ``is_kind`` is true for an expression, or for a value that code assigns to the expression.

        For ``iter(x)`` and ``enumerate(x)``, the value is ``x``.
        """
        if is_kind(node):
            return True
        return depth < _DEPTH and any(self._stands_for(is_kind, source, depth + 1) for source in self._sources(node))

    def _is_loader(self, node: cst.CSTNode) -> bool:
        known = isinstance(node, cst.Name | cst.Attribute | cst.Call) and self._loaders.loader(node) is not None
        self.from_loader |= known
        return known

    def _is_dataset(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.Name | cst.Attribute) and is_dataset(self._module, self._project, node)

    def _sources(self, node: cst.CSTNode) -> list[cst.BaseExpression]:
        """Return the values that code assigns to a variable. For ``iter(x)`` and ``enumerate(x)``, return ``x``."""
        match node:
            case cst.Call(func=function, args=[first, *_]):
                return [first.value] if self._module.qualified_names(function) & _ITERATORS else []
        return [origin.value for origin in assigned_values(self._module, node) if origin.part is None]

    def iterates_over(self, node: cst.BaseExpression) -> bool:
        """Return whether an iterable is a loader, a dataset, or the indices of a dataset (``range(len(dataset))``)."""
        if self.is_data(node):
            return True
        match node:
            case cst.Call() if resolves_to(self._module, node, _POSITIONS):
                return any(self.iterates_over(argument.value) for argument in node.args)
        return False

    def is_getitem_of_data(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is the ``__getitem__`` of a dataset, or ``self.__getitem__`` in its class."""
        if not isinstance(node, cst.Attribute) or node.attr.value not in _ITEMS:
            return False
        return any(map(self.methods, _ITEMS)) if is_self_attribute(node) else self.is_data(node.value)

    def reads_single_samples(self, nodes: Iterable[cst.CSTNode]) -> bool:
        """Return whether code reads single samples from a dataset: ``dataset[i]``, ``next(samples)``."""
        return any(map(self._reads_single_sample, nodes))

    def _reads_single_sample(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString())), *_]):
                return False
            case cst.Subscript(value=owner):
                return self._stands_for(self._is_dataset, owner)
            case cst.Attribute():
                return self.is_getitem_of_data(node)
        return self._builtin_reads_data(node, {"builtins.next"})

    def reads(self, nodes: Iterable[cst.CSTNode]) -> bool:
        """Return whether code reads samples from a dataset or batches from a loader, in any way."""
        nodes = list(nodes)
        return any(map(self._iterates_over_data, nodes)) or self.reads_single_samples(nodes)

    def _iterates_over_data(self, node: cst.CSTNode) -> bool:
        """Return whether a loop iterates over data, or a call returns an iterator of data."""
        if not isinstance(node, cst.For | cst.CompFor):
            return self._builtin_reads_data(node, _ITERATORS)
        if self.is_data(node.iter):
            return True
        known = bool(iterated_loaders(self._module, self._project, node.target, node.iter))
        self.from_loader |= known
        return known

    def _builtin_reads_data(self, node: cst.CSTNode, functions: Set[str]) -> bool:
        """Return whether ``node`` calls one of ``functions`` with data as its first argument."""
        match node:
            case cst.Call(func=function, args=[first, *_]):
                return bool(self._module.qualified_names(function) & functions) and self.is_data(first.value)
        return False

    def names_of_read_data(self, functions: Sequence[Function], *, every_loop: bool) -> set[str]:
        """Return the variables to which ``functions`` assign samples or batches that they read.

        Parameters to which one of the functions passes such data also count. With ``every_loop``, every loop counts as
        a loop over data.
        """
        nodes = [node for function in functions for node in walk_code(function)]
        known = {id(function): function for function in functions}
        found: set[str] = set()
        while True:
            before = len(found)
            for node in nodes:
                if isinstance(node, cst.For | cst.CompFor):
                    if every_loop or self.reads([node]) or self.has_samples(node.iter, found):
                        found |= _bound_names(node.target)
                elif isinstance(node, cst.Assign) and self.has_samples(node.value, found):
                    found = found.union(*(_bound_names(target.target) for target in node.targets))
                elif isinstance(node, cst.Call):
                    for function in self._definitions(node.func):
                        if id(function) in known:
                            names = [name for name in function_parameters(function) if name != "self"]
                            given = zip(names, node.args, strict=False)
                            found |= {name for name, one in given if self.has_samples(one.value, found)}
            if len(found) == before:
                return found

    def has_samples(self, node: cst.CSTNode, names_of_read_data: Set[str]) -> bool:
        """Return whether an expression reads samples or batches, or contains one of ``names_of_read_data``."""
        parts = list(walk_code(node))
        return any(
            isinstance(part, cst.Name) and part.value in names_of_read_data for part in parts
        ) or self.reads_single_samples(parts)

    def functions_in(self, node: cst.BaseExpression) -> list[Function]:
        """Return the functions that an expression names or defines, and the functions of the module that they call."""
        found: list[Function] = []
        for part in walk_code(node):
            if isinstance(part, cst.Lambda):
                found += self.with_called_functions(part)
            elif isinstance(part, cst.Name | cst.Attribute):
                found += [one for function in self._definitions(part) for one in self.with_called_functions(function)]
        return found

    def with_called_functions(self, function: Function) -> list[Function]:
        """Return a function, and the module's functions and the unit's methods that it calls, maybe indirectly."""
        found = [function]
        for one in found:
            for call in find_nodes(one, cst.Call):
                found += [new for new in self._definitions(call.func) if all(new is not old for old in found)]
        return found

    def methods(self, name: str) -> list[Function]:
        """Return the definitions of a method of the unit."""
        body = self._enclosing_unit.body.body if isinstance(self._enclosing_unit, cst.ClassDef) else ()
        return [one for one in body if isinstance(one, cst.FunctionDef) and one.name.value == name]

    def _definitions(self, node: cst.CSTNode) -> list[Function]:
        if isinstance(node, cst.Attribute) and is_self_attribute(node):
            return self.methods(node.attr.value)
        found = self._module.scopes.lookup(node.value, node) if isinstance(node, cst.Name) else None
        return [] if found is None else [one.node for one in found[1] if isinstance(one.node, cst.FunctionDef)]


def _bound_names(target: cst.CSTNode) -> set[str]:
    """Return the names of the variables and attributes in the target of an assignment or loop."""
    if isinstance(target, cst.Tuple | cst.List):
        return set[str]().union(*(_bound_names(element.value) for element in target.elements))
    name = dotted_source(target)
    return set() if name is None else {name.rpartition(".")[2]}
