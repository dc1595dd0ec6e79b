"""Find hand-written loading: classes and functions that load batches with worker pools, threads or CUDA streams.

An iterator or generator loads batches by hand if its class, function or script fulfils three conditions:

* The code reads data from a dataset or loader.
* The code creates a pool, thread or CUDA stream.
* The code calls a method that shows the purpose of the pool, thread or stream, such as ``imap``.

Code that creates a pool also loads batches by hand if the code passes to the pool a function that reads a sample of a
dataset.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_expressions import is_dataset
from chirp_migrate.analysis.known_names import resolves_to
from chirp_migrate.analysis.loaders.loader_loops import iterated_loaders
from chirp_migrate.analysis.loaders.loader_values import LoaderExpressions
from chirp_migrate.syntax.module import Module, walk_code
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import called_method_name, nodes_in_scope

WORKERS, THREADS, STREAMS = "workers", "threads", "streams"

_MADE_WITH = {
    WORKERS: re.compile(
        r"concurrent\.futures\.((thread|process)\.)?(Thread|Process)PoolExecutor"
        r"|(torch\.)?multiprocessing\.(pool\.|dummy\.)?(Pool|ThreadPool)"
    ),
    THREADS: re.compile(r"threading\.Thread|(torch\.)?multiprocessing\.((process|context)\.)?Process"),
    STREAMS: re.compile(r"torch\.((cuda|npu|xpu)\.(streams\.)?)?Stream"),
}
#: Methods that code calls if it uses a pool, thread or stream for loading.
_USED_BY = {
    WORKERS: frozenset(
        {"submit", "apply", "apply_async", "map", "imap", "imap_unordered", "map_async", "starmap", "starmap_async"}
    ),
    THREADS: frozenset({"put", "put_nowait"}),
    STREAMS: frozenset({"to", "cuda"}),
}
_ITERATOR_METHODS = frozenset({"__iter__", "__next__", "next"})
_READING_FUNCTIONS = frozenset({"builtins.iter", "builtins.next"})

_Unit = cst.ClassDef | cst.FunctionDef | cst.Module


@dataclass(frozen=True)
class CustomLoading:
    """A class, a function, or a script that contains hand-written loading.

    Attributes:
        node: the class or function; the module for code at the top level.
        machinery: for each kind (``workers``, ``threads``, ``streams``), the first call that creates a pool, thread or
            stream.
        around_loader: whether the code reads batches from a loader, instead of samples from a dataset.
    """

    node: _Unit
    machinery: Mapping[str, cst.Call]
    around_loader: bool


def find_custom_loading(module: Module, project: Project) -> Iterator[CustomLoading]:
    """Yield the hand-written loading of a module, in order of the text."""
    made: dict[_Unit, dict[str, cst.Call]] = defaultdict(dict)
    for call in module.find(cst.Call):
        for kind, pattern in _MADE_WITH.items():
            if resolves_to(module, call.func, pattern, project):
                made[_enclosing_unit(module, call)].setdefault(kind, call)
    for unit in sorted(made, key=lambda unit: module.span(unit)[0]):
        code = _UnitCode(module, project, unit)
        machinery = {kind: call for kind, call in made[unit].items() if code.loads_data_with(kind)}
        if machinery:
            yield CustomLoading(unit, machinery, code.reads_loader)


def _enclosing_unit(module: Module, node: cst.CSTNode) -> _Unit:
    """Return the innermost class around a node, else the outermost function around it, else the module."""
    definitions = [around for around in module.ancestors(node) if isinstance(around, cst.ClassDef | cst.FunctionDef)]
    classes = (definition for definition in definitions if isinstance(definition, cst.ClassDef))
    return next(classes, definitions[-1] if definitions else module.tree)


class _UnitCode:
    """The code of a class, function or script.

    Attributes:
        reads_loader: whether the code iterates over a loader.
    """

    def __init__(self, module: Module, project: Project, unit: _Unit) -> None:
        self._module, self._project = module, project
        self._nodes = list(nodes_in_scope(unit) if isinstance(unit, cst.Module) else walk_code(unit))
        self._methods = set(map(called_method_name, self._nodes))
        self._is_iterator = any(
            isinstance(node, cst.Yield) or (isinstance(node, cst.FunctionDef) and node.name.value in _ITERATOR_METHODS)
            for node in self._nodes
        )
        self.reads_loader = any(map(self._iterates_over_loader, self._nodes))

    def loads_data_with(self, kind: str) -> bool:
        """Return whether a pool, thread or stream that the code creates loads samples or batches."""
        if kind == WORKERS and any(map(self._passes_sample_to_pool, self._nodes)):
            return True
        reads = self.reads_loader or any(map(self._reads_dataset, self._nodes))
        return self._is_iterator and reads and not self._methods.isdisjoint(_USED_BY[kind])

    def _passes_sample_to_pool(self, node: cst.CSTNode) -> bool:
        """Return whether a call passes code to a pool, and this code reads a sample of a dataset.

        An example is ``pool.map(dataset.__getitem__, …)``.
        """
        match node:
            case cst.Call(func=cst.Attribute(value=pool, attr=cst.Name(value=method)), args=arguments):
                read = (part for argument in arguments for part in walk_code(argument.value))
                return method in _USED_BY[WORKERS] and not self._is_dataset(pool) and any(map(self._reads_sample, read))
        return False

    def _reads_dataset(self, node: cst.CSTNode) -> bool:
        """Return whether code reads a sample, or iterates over a dataset."""
        iterable = node.iter if isinstance(node, cst.For | cst.CompFor) else None
        return self._reads_sample(node) or (iterable is not None and self._is_dataset(iterable))

    def _reads_sample(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString())), *_]):
                return False
            case cst.Subscript(value=owner) | cst.Attribute(value=owner, attr=cst.Name(value="__getitem__")):
                return self._is_dataset(owner)
        return False

    def _is_dataset(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.Name | cst.Attribute) and is_dataset(self._module, self._project, node)

    def _iterates_over_loader(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.For(target=target, iter=iterable) | cst.CompFor(target=target, iter=iterable):
                return bool(iterated_loaders(self._module, self._project, target, iterable))
            case cst.Call(func=function, args=[cst.Arg(value=source), *_]):
                reads = not _READING_FUNCTIONS.isdisjoint(self._module.qualified_names(function))
                return reads and self._module.once(LoaderExpressions, self._project).loader(source) is not None
        return False
