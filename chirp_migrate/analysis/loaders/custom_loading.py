"""Find hand-written loading: classes and functions that load batches with worker pools, threads or CUDA streams.

A pool counts if one of its functions reads samples of a dataset. A thread counts if it puts data from a dataset or
loader into a queue. A stream counts if an iterator moves data of a dataset or loader to a device while the stream is
current. Pools, threads and streams for other purposes do not count. Code that trains does not count either.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values
from chirp_migrate.analysis.datasets.dataset_state import possible_value_expressions
from chirp_migrate.analysis.known_names import LOADER, inherits_from, qualified_base_names, resolves_to
from chirp_migrate.analysis.loaders.data_reading import DataReadingFinder, Function, Unit
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    called_method_name,
    dotted_source,
    function_parameters,
    keyword_arguments,
    nodes_in_scope,
)

WORKERS, THREADS, STREAMS = "workers", "threads", "streams"

_MADE_WITH = {
    WORKERS: re.compile(
        r"concurrent\.futures\.((thread|process)\.)?(Thread|Process)PoolExecutor"
        r"|(torch\.)?multiprocessing\.(pool\.|dummy\.)?(Pool|ThreadPool)"
    ),
    THREADS: re.compile(r"threading\.Thread|(torch\.)?multiprocessing\.((process|context)\.)?Process"),
    STREAMS: re.compile(r"torch\.((cuda|npu|xpu)\.(streams\.)?)?Stream"),
}
_CURRENT = re.compile(r"torch\.(cuda|npu|xpu)\.(stream|StreamContext)|" + _MADE_WITH[STREAMS].pattern)
_LAST = re.compile(r"\w*Pool(Executor)?|Thread|Process|[sS]tream|StreamContext")
_SUBMITS = frozenset({"submit", "apply", "apply_async"})
_MAPS = frozenset({"map", "imap", "imap_unordered", "map_async", "starmap", "starmap_async"})
_PUTS = frozenset({"put", "put_nowait"})
_APPENDS = frozenset({"append", "appendleft"})
_GIVES = frozenset({"__iter__", "__next__", "next"})
_TRAINS = frozenset({"backward", "zero_grad"})
_DEPTH = 4


@dataclass(frozen=True)
class CustomLoading:
    """A class, a function, or a script that contains hand-written loading.

    Attributes:
        node: the class or function; the module for code at the top level.
        machinery: for each kind (``workers``, ``threads``, ``streams``), the first place in the text that creates a
            pool, thread or stream. A place is a call, or a base class in the header of a class.
        around_loader: whether the code reads from a loader instead of a dataset.
    """

    node: Unit
    machinery: Mapping[str, cst.Call | cst.Arg]
    around_loader: bool


def find_custom_loading(module: Module, project: Project) -> Iterator[CustomLoading]:
    """Yield the hand-written loading of a module, in order of the text."""
    made: dict[Unit, list[tuple[str, cst.Call | cst.Arg]]] = defaultdict(list)
    for definition in module.find(cst.ClassDef):
        for base in definition.bases:
            if _refers_to(module, project, base.value, _MADE_WITH[THREADS]):
                made[definition].append((THREADS, base))
    for call in module.find(cst.Call):
        for kind, pattern in _MADE_WITH.items():
            if _refers_to(module, project, call.func, pattern):
                made[_enclosing_unit(module, call)].append((kind, call))
    for unit in sorted(made, key=lambda unit: module.span(unit)[0]):
        loading = _LoadingUnit(module, project, unit)
        machinery: dict[str, cst.Call | cst.Arg] = {}
        for kind, place in made[unit]:
            if loading.loads_data(kind, place):
                machinery.setdefault(kind, place)
        if machinery:
            yield CustomLoading(unit, machinery, loading.from_loader)


def _refers_to(module: Module, project: Project, node: cst.CSTNode, pattern: re.Pattern[str]) -> bool:
    """Return whether a name or attribute refers to an object whose qualified name matches ``pattern``."""
    if not isinstance(node, cst.Name | cst.Attribute):
        return False
    if resolves_to(module, node, pattern, project):
        return True
    if not isinstance(node, cst.Attribute) or not _LAST.fullmatch(node.attr.value):
        return False
    return any(
        pattern.fullmatch(f"{owner}.{node.attr.value}") for owner in _possible_modules_of(module, project, node.value)
    )


def _possible_modules_of(module: Module, project: Project, node: cst.BaseExpression) -> set[str]:
    """Return the modules that an expression may refer to. A multiprocessing context counts as ``multiprocessing``."""
    values = [origin.value for origin in assigned_values(module, node)]
    modules: set[str] = set()
    for value in (part for whole in (node, *values) for part in possible_value_expressions(module, module.tree, whole)):
        names = project.resolved_names(module, value.func if isinstance(value, cst.Call) else value)
        if isinstance(value, cst.Call):
            names = {name.rpartition(".")[0] for name in names if name.endswith("multiprocessing.get_context")}
        modules |= names
    return modules


def _enclosing_unit(module: Module, node: cst.CSTNode) -> Unit:
    """Return the innermost class around a node; without a class, the outermost function; else the module."""
    definitions = [around for around in module.ancestors(node) if isinstance(around, cst.ClassDef | cst.FunctionDef)]
    classes = (definition for definition in definitions if isinstance(definition, cst.ClassDef))
    return next(classes, definitions[-1] if definitions else module.tree)


class _LoadingUnit(DataReadingFinder):
    """Finds out which pools, threads and streams of one unit (class, function or module) load data."""

    def __init__(self, module: Module, project: Project, unit: Unit) -> None:
        super().__init__(module, project, unit)
        self._nodes = list(nodes_in_scope(unit) if isinstance(unit, cst.Module) else walk_code(unit))

    def loads_data(self, kind: str, place: cst.Call | cst.Arg) -> bool:
        """Return whether a pool, thread or stream loads samples or batches."""
        if kind == WORKERS:
            return any(self._gives_work_to_pool(node) for node in self._nodes if isinstance(node, cst.Call))
        if kind == THREADS:
            return self._fills_queue(place)
        moving = any(isinstance(node, cst.With) and self._moves_on_stream(node) for node in self._nodes)
        return moving and self._is_iterator and (self.reads(self._nodes) or self._gets_data)

    # Pools

    def _gives_work_to_pool(self, call: cst.Call) -> bool:
        """Return whether a call makes a pool iterate over a dataset or loader, or read samples that other code uses."""
        if not isinstance(call.func, cst.Attribute) or not call.args or not self._is_pool(call.func.value):
            return False
        method = call.func.attr.value
        function, *data = (argument.value for argument in call.args)
        # Code that only stores samples elsewhere, or computes one value from a whole dataset, does not load batches.
        if self._is_iterator and method in _MAPS and any(map(self.iterates_over, data)):
            return True
        is_used = self._is_iterator or not self._ignores_result(call)
        return is_used and method in _MAPS | _SUBMITS and self._reads_samples(function, data)

    def _ignores_result(self, call: cst.Call) -> bool:
        """Return whether code ignores the result of a call, or only passes it to a function such as ``list``."""
        node: cst.CSTNode = call
        while isinstance(parent := self._module.parents[node], cst.Arg | cst.Call):
            if isinstance(parent, cst.Call) and not isinstance(parent.func, cst.Name):
                return False
            node = parent
        return isinstance(parent, cst.Expr)

    def _is_pool(self, node: cst.BaseExpression) -> bool:
        pattern = _MADE_WITH[WORKERS]
        if isinstance(node, cst.Call):
            return _refers_to(self._module, self._project, node.func, pattern)
        name = dotted_source(node)
        if name is None:
            return False
        values = assigned_values(self._module, node)
        calls = (call for value in values for call in find_nodes(value.value, cst.Call))
        if any(_refers_to(self._module, self._project, call.func, pattern) for call in calls):
            return True
        # The expression may be a property or a parameter, for which only the name counts.
        return not values and re.search(r"pool|executor", name.rpartition(".")[2], re.IGNORECASE) is not None

    def _reads_samples(self, function: cst.BaseExpression, data: list[cst.BaseExpression]) -> bool:
        if self._module.qualified_names(function) == {"builtins.next"}:
            return any(map(self.is_data, data))
        if self.is_getitem_of_data(function):
            return True
        called = [definition for definition in self.functions_in(function) if not _trains(definition)]
        return any(self.reads_single_samples(walk_code(definition)) for definition in called)

    # Threads

    def _fills_queue(self, started: cst.Call | cst.Arg) -> bool:
        """Return whether a thread reads data from a dataset or loader, and puts the data into a queue."""
        arguments = started.args if isinstance(started, cst.Call) else ()
        target = keyword_arguments(started).get("target") if isinstance(started, cst.Call) else None
        run = self.methods("run") if not arguments else [] if target is None else self.functions_in(target)
        reached = [followed for function in run for followed in self.with_called_functions(function)]
        calls = [call for function in reached for call in find_nodes(function, cst.Call)]
        puts = [call for call in calls if isinstance(call.func, cst.Attribute) and self._is_queue_put(call.func)]
        if not puts or any(map(_trains, reached)):
            return False
        of_data = (
            any(self.is_data(part) for argument in arguments for part in walk_code(argument.value)) or self._gets_data
        )
        taken = self.names_of_read_data(reached, every_loop=of_data)
        return any(self.has_samples(argument.value, taken) for call in puts for argument in call.args)

    def _is_queue_put(self, method: cst.Attribute) -> bool:
        """Return whether a method puts an object into a queue."""
        if method.attr.value not in _APPENDS:
            return method.attr.value in _PUTS
        values = assigned_values(self._module, method.value)
        classes = (origin.value.func for origin in values if isinstance(origin.value, cst.Call))
        return any(self._project.resolved_names(self._module, kind) == {"collections.deque"} for kind in classes)

    @cached_property
    def _is_iterator(self) -> bool:
        """Return whether the unit is an iterator or a generator."""
        if isinstance(self._enclosing_unit, cst.ClassDef):
            return any(self.methods(name) for name in _GIVES)
        return any(isinstance(node, cst.Yield) for node in self._nodes)

    @cached_property
    def _gets_data(self) -> bool:
        """Return whether the module passes a loader, a dataset, or an iterator over data to the class or function."""
        return not isinstance(self._enclosing_unit, cst.Module) and self._is_given_data(self._enclosing_unit, 0)

    def _is_given_data(self, called: cst.ClassDef | cst.FunctionDef, depth: int) -> bool:
        """Return whether the module calls ``called`` with a loader or dataset, maybe through another function."""
        own = f"{self._module.name}.{called.name.value}"
        for call in self._module.find(cst.Call):
            if not call.args or own not in self._module.qualified_names(call.func):
                continue
            if any(self.is_data(argument.value) or self._is_own_iterator(argument.value) for argument in call.args):
                return True
            if depth < _DEPTH and any(
                self._is_given_data(by, depth + 1) for by in self._definitions_that_pass_on(call)
            ):
                return True
        return False

    def _definitions_that_pass_on(self, call: cst.Call) -> Iterator[cst.ClassDef | cst.FunctionDef]:
        """Yield the function that passes its parameter to a call, and the class that passes its attribute to a call."""
        function, owner = self._module.enclosing_function(call), self._module.enclosing_class(call)
        given = {dotted_source(argument.value) or "" for argument in call.args}
        if function is not None and given & function_parameters(function).keys():
            yield function
        if owner is not None and any(name.startswith("self.") for name in given):
            yield owner

    def _is_own_iterator(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is ``super().__iter__()`` in a subclass of a loader."""
        owner = self._module.enclosing_class(node)
        if owner is None or called_method_name(node) != "__iter__":
            return False
        bases = qualified_base_names(self._module, self._project, owner)
        of_loader = any(inherits_from(self._project, name, LOADER) for name in bases)
        self.from_loader |= of_loader
        return of_loader

    # Streams

    def _moves_on_stream(self, block: cst.With) -> bool:
        """Return whether a ``with`` block makes a stream current and moves an object to a device."""
        if not any(self._is_stream(item.item, 0) for item in block.items):
            return False
        calls = find_nodes(block.body, cst.Call)
        functions = (function for call in calls for function in self.functions_in(call.func))
        followed = (node for function in functions for node in walk_code(function))
        return any(called_method_name(node) in ("to", "cuda") for node in (*calls, *followed))

    def _is_stream(self, context: cst.BaseExpression, depth: int) -> bool:
        """Return whether a context manager makes a stream current, maybe through a variable or ``partial``."""
        for part in walk_code(context):
            if _refers_to(self._module, self._project, part, _CURRENT):
                return True
            values = assigned_values(self._module, part) if depth < _DEPTH else []
            if any(self._is_stream(origin.value, depth + 1) for origin in values if origin.value is not context):
                return True
        return False


def _trains(function: Function) -> bool:
    """Return whether a function contains a training step."""
    return any(isinstance(node, cst.Attribute) and node.attr.value in _TRAINS for node in walk_code(function))
