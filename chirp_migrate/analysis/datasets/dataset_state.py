"""Find the attributes that constructors of dataset classes set on ``self``, and the uses of these attributes.

Each worker process gets a copy of the dataset, by pickling or by a fork. Rules report attributes whose values must not
be copied, such as open files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_writes import may_be_assigned_outside_class
from chirp_migrate.analysis.datasets.dataset_expressions import is_dataset_class
from chirp_migrate.analysis.known_names import ITERABLE_DATASET, qualified_base_names
from chirp_migrate.syntax.module import Module, walk_code
from chirp_migrate.syntax.name_resolution import find_class
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import function_parameters, is_name, is_super_call, nodes_in_scope

_PICKLING = ("__getstate__", "__reduce__", "__reduce_ex__")
_ACCESS = ("__getitem__", "__getitems__", "__iter__", "__next__")
_RELEASES = frozenset({"close", "shutdown", "release", "terminate"})
_DEPTH = 4

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class DatasetMethod:
    """A method or function that a dataset runs. ``owner`` is the class of the method, or the module of the function."""

    module: Module
    owner: cst.ClassDef | cst.Module
    function: cst.FunctionDef


@dataclass(frozen=True)
class AttributeUse:
    """One place in a method that names an attribute of ``self``."""

    method: DatasetMethod
    node: cst.Attribute


class DatasetClass:
    """The attributes and methods of a dataset class, and of its bases that the project defines."""

    def __init__(self, module: Module, project: Project, node: cst.ClassDef) -> None:
        self.module, self.project, self.node = module, project, node
        self.lineage: list[tuple[Module, cst.ClassDef]] = []
        self.outside: set[str] = set()
        self._follow(module, node)

    def _follow(self, module: Module, node: cst.ClassDef) -> None:
        self.lineage.append((module, node))
        for name in qualified_base_names(module, self.project, node):
            found = find_class(self.project, name)
            if found is None:
                self.outside.add(name)
            elif all(found[1] is not known for _, known in self.lineage):
                self._follow(*found)

    @property
    def is_dataset(self) -> bool:
        """Return whether the class inherits from a dataset class of PyTorch, torchvision or ``chirpid_patch``."""
        return self.is_iterable or any(is_dataset_class(self.project, name) for name in self.outside)

    @property
    def is_iterable(self) -> bool:
        """Return whether the class inherits from ``IterableDataset``."""
        return any(ITERABLE_DATASET.fullmatch(name) for name in self.outside)

    @cached_property
    def methods(self) -> dict[str, list[DatasetMethod]]:
        """Return the methods by name. Methods of the class itself come before the methods of its bases."""
        found: dict[str, list[DatasetMethod]] = {}
        for module, node in self.lineage:
            for statement in node.body.body:
                if isinstance(statement, cst.FunctionDef):
                    found.setdefault(statement.name.value, []).append(DatasetMethod(module, node, statement))
        return found

    @property
    def defines_pickling(self) -> bool:
        """Return whether the class defines its own pickling."""
        return any(name in self.methods for name in _PICKLING)

    @property
    def uses_worker_number(self) -> bool:
        """Return whether the class uses the number of the worker process in which it runs, from ``get_worker_info``."""
        return any("get_worker_info" in module.source(node) for module, node in self.lineage)

    def _reachable_methods(self, *names: str) -> list[DatasetMethod]:
        """Return the methods with these names, and all methods and functions that run in a call of these methods.

        The result omits called functions of other modules.
        """
        pending = [method for name in names for method in self.methods.get(name, ())[:1]]
        found: list[DatasetMethod] = []
        while pending:
            method = pending.pop()
            if method in found:
                continue
            found.append(method)
            me = self_parameter_name(method)
            functions = {s.name.value: s for s in method.module.tree.body if isinstance(s, cst.FunctionDef)}
            for node in walk_code(method.function):
                if isinstance(node, cst.Attribute) and is_name(node.value, me):
                    pending += self.methods.get(node.attr.value, ())[:1]
                elif isinstance(node, cst.Attribute) and is_super_call(node.value):
                    above = self.methods.get(node.attr.value, ())
                    pending += [one for one in above if one.owner is not method.owner][:1]
                elif isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in functions:
                    pending.append(DatasetMethod(method.module, method.module.tree, functions[node.func.value]))
        return found

    @cached_property
    def constructor_methods(self) -> list[DatasetMethod]:
        """Return the methods and functions that run when the dataset is constructed."""
        return self._reachable_methods("__init__")

    @cached_property
    def sampling_methods(self) -> list[DatasetMethod]:
        """Return the methods and functions that run when a sample is read."""
        return self._reachable_methods(*_ACCESS)

    def uses(self, attribute: str) -> list[AttributeUse]:
        """Return every use of one attribute of ``self`` in the methods of the class and its bases."""
        return self._uses.get(attribute, [])

    @cached_property
    def _uses(self) -> dict[str, list[AttributeUse]]:
        found: dict[str, list[AttributeUse]] = {}
        for method in (one for same in self.methods.values() for one in same):
            me = self_parameter_name(method)
            for node in walk_code(method.function):
                if isinstance(node, cst.Attribute) and is_name(node.value, me):
                    found.setdefault(node.attr.value, []).append(AttributeUse(method, node))
        return found

    def stored_values(
        self, kind: Callable[[cst.BaseExpression], Kind | None]
    ) -> Iterator[tuple[str, cst.BaseExpression, Kind]]:
        """Yield the attributes in which the constructor stores a value of certain kinds.

        Each result contains the name of the attribute, the first such value, and its kind. Constructors of base classes
        do not count. A value in a container that the attribute stores also counts. The result omits attributes that the
        constructor also deletes, closes or sets to None. The result also omits attributes that code outside the class
        sets, for example in a ``worker_init_fn``.

        Args:
            kind: function that returns the kind of an expression, such as an open file; None for expressions to omit.
        """
        constructing = [one for one in self.constructor_methods if one.owner is self.node]
        for attribute, uses in self._uses.items():
            found: list[tuple[cst.BaseExpression, Kind]] = []
            for use in uses:
                method = use.method
                value = value_assigned_to(method.module, use.node)
                if value is not None and method in constructing:
                    kinds = (
                        (one, kind(one)) for one in possible_value_expressions(method.module, method.function, value)
                    )
                    found += [(one, what) for one, what in kinds if what is not None]
            if found and not self._is_reset(uses) and not may_be_assigned_outside_class(self.project, attribute):
                yield (attribute, *found[0])

    def _is_reset(self, uses: list[AttributeUse]) -> bool:
        for use in uses:
            if use.method not in self.constructor_methods:
                continue
            parents = use.method.module.parents
            parent = parents[use.node]
            value = value_assigned_to(use.method.module, use.node)
            if isinstance(parent, cst.Del) or is_name(value, "None"):
                return True
            if isinstance(parent, cst.Attribute) and parent.attr.value in _RELEASES:
                return True
        return False


def dataset_classes(module: Module, project: Project) -> Iterator[DatasetClass]:
    """Yield each dataset class that the module defines, also inside functions and classes."""
    for node in module.find(cst.ClassDef):
        state = DatasetClass(module, project, node)
        if state.is_dataset:
            yield state


def pickled_attribute_values(
    module: Module, project: Project, classify: Callable[[cst.BaseExpression], Kind | None]
) -> Iterator[tuple[str, cst.BaseExpression, Kind]]:
    """Yield the :meth:`DatasetClass.stored_values` of the dataset classes in a module.

    Dataset classes that define their own pickling, for example with ``__getstate__``, are omitted.

    Args:
        module: the module.
        project: the project that contains the module.
        classify: function that returns the kind of an expression, such as an open file; None for expressions to omit.
    """
    for state in dataset_classes(module, project):
        if not state.defines_pickling:
            yield from state.stored_values(classify)


def self_parameter_name(method: DatasetMethod) -> str:
    """Return the name of a method's first parameter; "" for functions, and for methods without parameters."""
    return "" if isinstance(method.owner, cst.Module) else next(iter(function_parameters(method.function)), "")


def value_assigned_to(module: Module, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the value that a statement assigns to ``node``.

    The result is ``None`` if ``node`` is not a target, or is only a part of a target such as ``a, b``.
    """
    parent = module.parents[node]
    if isinstance(parent, cst.AnnAssign):
        return parent.value if parent.target is node else None
    if isinstance(parent, cst.AssignTarget):
        statement = module.parents[parent]
        return statement.value if isinstance(statement, cst.Assign) else None
    return None


def possible_value_expressions(
    module: Module, scope: cst.CSTNode, value: cst.BaseExpression, depth: int = 0
) -> Iterator[cst.BaseExpression]:
    """Yield the expression ``value``, and the expressions whose results ``value`` may return or contain.

    The function yields ``value`` itself, both results of a conditional expression, both operands of ``and`` and ``or``,
    the elements of a literal container or comprehension, and the values that ``scope`` assigns to a local variable.
    """
    if depth > _DEPTH:
        return
    parts: list[cst.BaseExpression] = []
    match value:
        case cst.IfExp(body=one, orelse=other) | cst.BooleanOperation(left=one, right=other):
            parts = [one, other]
        case cst.List() | cst.Tuple() | cst.Set() | cst.Dict():
            parts = [element.value for element in value.elements]
        case cst.ListComp(elt=part) | cst.SetComp(elt=part) | cst.DictComp(value=part) | cst.NamedExpr(value=part):
            parts = [part]
        case cst.Name(value=name):
            parts = module.once(_assignments, scope).get(name, [])
    for part in parts:
        yield from possible_value_expressions(module, scope, part, depth + 1)
    yield value


def _assignments(module: Module, scope: cst.CSTNode) -> dict[str, list[cst.BaseExpression]]:
    """Return the values that a scope assigns to each of its variables."""
    found: dict[str, list[cst.BaseExpression]] = {}
    for node in nodes_in_scope(scope):
        if isinstance(node, cst.Assign):
            for target in (one.target for one in node.targets if isinstance(one.target, cst.Name)):
                found.setdefault(target.value, []).append(node.value)
        elif isinstance(node, cst.AnnAssign) and isinstance(node.target, cst.Name) and node.value is not None:
            found.setdefault(node.target.value, []).append(node.value)
    return found
