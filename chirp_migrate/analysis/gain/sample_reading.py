"""Infer how ``chirpid_patch`` reads a dataset: in whole batches, or sample by sample.

The result is *unknown* if the answer depends on values that are known only when the program runs. At run time,
``chirpid_patch.datasets.gather.gather_node`` makes the same decision.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import captured_names
from chirp_migrate.analysis.datasets.dataset_expressions import only_base_is_torch_dataset
from chirp_migrate.analysis.datasets.declared_class import (
    DECORATORS,
    DeclaringDecorator,
    find_declaring_decorator,
    may_be_declarable,
)
from chirp_migrate.analysis.known_names import HUGGING_FACE_DATASET, ITERABLE_DATASET
from chirp_migrate.analysis.objects.abstract_objects import (
    AbstractObject,
    ClassObject,
    Container,
    CreationPlace,
    FunctionObject,
    Instance,
    LibraryName,
)
from chirp_migrate.analysis.objects.libraries import MAKES_ROWS, is_numeric_array
from chirp_migrate.plans.plan import INDEXED_ONE_BY_ONE
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.outline import last_part_of_name
from chirp_migrate.syntax.project import Project, cached_until_text_changes

_DEPTH = 8
_TORCH = "torch.utils.data."
_SHIPPED = "chirpid_patch."
#: Libraries whose datasets read each sample with the library's own code.
_LIBRARIES = ("torchvision.", "torchaudio.")
#: Functions and methods that only convert or rearrange values in memory, and do not read files.
_COMPUTES = re.compile(
    r"tuple|list|dict|int|float|bool|len|range|zip|enumerate|isinstance|slice|max|min|sum|super"
    r"|(torch|np|numpy)\.(\w+Tensor|tensor|as_tensor|from_numpy|is_tensor|stack|concatenate|cat|array|asarray|\w*float\d*"
    r"|\w*int\d*|zeros|ones|log|log1p|exp|clip|clamp|squeeze|unsqueeze|expand_dims|ascontiguousarray)"
)
_METHODS = re.compile(
    r"items|keys|values|tolist|item|numpy|float|double|long|int|half|bool|type|astype|clone|copy|to|view|reshape"
    r"|(un)?squeeze|flatten|ravel|permute|transpose|contiguous|detach|toarray|todense|append"
)
#: Libraries and functions whose objects read a file when code indexes the object.
_INDEXES_FILES = re.compile(
    r"\b(h5py|zarr|lmdb|tables|netCDF4|xarray|dask|mmap\w*|memmap|open_memmap|tensorstore|pyarrow)\b"
)


class SampleReadingMode(Enum):
    """The way in which ``chirpid_patch`` reads the samples of a dataset."""

    AT_ONCE = "at once"
    ONE_BY_ONE = "one by one"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DatasetReading:
    """How the samples of one dataset are read.

    Attributes:
        mode: whether samples are read in whole batches (*at once*), one by one, or in an unknown way.
        why: the reason for the mode, for messages; "" without a reason.
        place: the code to which ``why`` refers; None without such code.
        creating_calls: the calls that create the dataset and the datasets inside it.
        in_memory: whether all samples are provably in tensors or arrays in memory.
    """

    mode: SampleReadingMode
    why: str = ""
    place: CreationPlace | None = None
    creating_calls: tuple[CreationPlace, ...] = ()
    in_memory: bool = False


_UNKNOWN = DatasetReading(SampleReadingMode.UNKNOWN)


def possible_dataset_readings(
    project: Project, value: Iterable[AbstractObject], depth: int = 0
) -> list[DatasetReading]:
    """Return how each possible dataset in ``value`` is read; None in ``value`` does not count as a dataset."""
    things = [one for one in value if getattr(one, "value", one) is not None]
    return [_reading(project, thing, depth) for thing in things] or [_UNKNOWN]


def _reading(project: Project, thing: AbstractObject, depth: int) -> DatasetReading:
    match thing:
        case Instance(cls=ClassObject() as cls) if depth < _DEPTH:
            return _reading_of_class(project, thing, cls, depth)
        case Instance(cls=str() as name) if depth < _DEPTH:
            return _reading_of_library_object(project, thing, name, depth)
    return _UNKNOWN


def _reading_of_library_object(project: Project, instance: Instance, name: str, depth: int) -> DatasetReading:
    """Return how the samples of a library's dataset are read."""
    short = name.rpartition(".")[2]
    if name == f"{_TORCH}TensorDataset" or MAKES_ROWS.fullmatch(name):
        return DatasetReading(
            SampleReadingMode.AT_ONCE,
            "the samples are in memory",
            instance.place,
            (instance.place,),
            in_memory=True,
        )
    if name.startswith(_SHIPPED):
        return DatasetReading(
            SampleReadingMode.AT_ONCE, f"`{short}` reads whole batches", instance.place, (instance.place,)
        )
    if name.startswith(_LIBRARIES):
        return DatasetReading(
            SampleReadingMode.ONE_BY_ONE, f"`{short}` reads samples one by one", instance.place, (instance.place,)
        )
    if HUGGING_FACE_DATASET.fullmatch(name) and not project.module_paths.has_package("datasets"):
        return DatasetReading(
            SampleReadingMode.ONE_BY_ONE,
            "Hugging Face's `datasets` reads the samples",
            instance.place,
            (instance.place,),
        )
    if not name.startswith(_TORCH):
        return _UNKNOWN
    if ITERABLE_DATASET.fullmatch(name):
        return DatasetReading(
            SampleReadingMode.ONE_BY_ONE, "the dataset is an `IterableDataset`", instance.place, (instance.place,)
        )
    cells = instance.cells
    match short:
        case "Subset" | "random_split":
            return _combine_readings(
                possible_dataset_readings(project, cells.get(0) or cells.get("dataset") or (), depth + 1),
                instance,
            )
        case "ConcatDataset":
            held = [one for one in cells.get(0) or cells.get("datasets") or () if isinstance(one, Container)]
            parts = [part for one in held for value in one.cells.values() for part in value]
            return _combine_readings(possible_dataset_readings(project, parts, depth + 1), instance)
    return _UNKNOWN


def _combine_readings(parts: list[DatasetReading], instance: Instance) -> DatasetReading:
    """Return how a dataset with inner datasets is read.

    Samples are read in batches only if the samples of all inner datasets are read in batches.
    """
    ways = {one.mode for one in parts}
    mode = next(
        one
        for one in (SampleReadingMode.UNKNOWN, SampleReadingMode.ONE_BY_ONE, SampleReadingMode.AT_ONCE)
        if one in ways
    )
    first = next(one for one in parts if one.mode is mode)
    places = (instance.place, *(place for one in parts for place in one.creating_calls))
    return DatasetReading(mode, first.why, first.place, places, all(one.in_memory for one in parts))


def _reading_of_class(project: Project, instance: Instance, cls: ClassObject, depth: int) -> DatasetReading:
    """Return how the samples of an object of the project's class ``cls`` are read.

    The result depends on the first class, in the method resolution order, that defines a method for reading samples.
    """
    order = cls.order
    libraries = [one.name for one in order if isinstance(one, LibraryName)]
    if any(map(ITERABLE_DATASET.fullmatch, libraries)):
        return DatasetReading(
            SampleReadingMode.ONE_BY_ONE, "the dataset is an `IterableDataset`", cls.place, (instance.place,)
        )
    for one in order:
        match one:
            case ClassObject(body=body) if "__getitem__" in body.cells or "__getitems__" in body.cells:
                reading = dataset_reading_of_instance(project, instance, one)
                return DatasetReading(reading.mode, reading.why, reading.place, (instance.place,))
            case ClassObject():
                continue
            case LibraryName(name=name):
                return _reading_of_library_object(project, instance, name, depth + 1)
            case _:
                return _UNKNOWN
    return _UNKNOWN


def dataset_reading_of_instance(project: Project, instance: Instance, cls: ClassObject) -> DatasetReading:
    """Return how the samples of a dataset are read.

    Samples of a declared dataset (a class with a decorator of ``chirpid_patch``) are read in whole batches.

    Args:
        project: the user's project.
        instance: the dataset, an object of a class of the project.
        cls: the class that defines ``__getitem__`` or ``__getitems__`` of the dataset. It is the class of the dataset,
            or one of its bases.
    """
    node = cls.place.node
    if not isinstance(node, ast.ClassDef):
        return _UNKNOWN  # rule CHP005 (`type()` with lambdas) may turn the class into a declared dataset
    for one in node.decorator_list:
        if isinstance(one, ast.Call) and last_part_of_name(one.func) in DECORATORS:
            return _declared_reading(
                instance, cls, last_part_of_name(one.func), [ast.unparse(argument) for argument in one.args]
            )
    if cls.may_be_replaced:
        return _UNKNOWN
    found = _declaration(project, cls.place, cls.scope.is_local)
    if isinstance(found, DeclaringDecorator):
        return _declared_reading(instance, cls, found.decorator, found.arguments)
    if found is _MayBecomeDeclared:
        return _UNKNOWN
    cells = cls.body.cells
    reader = next((one for name in ("__getitem__", "__getitems__") for one in cells.get(name, ())), None)
    place = reader.place if isinstance(reader, FunctionObject) else cls.place
    is_indexing = _only_indexes(place.node) and not _INDEXES_FILES.search(project.text(cls.place.path))
    why = INDEXED_ONE_BY_ONE if is_indexing else "samples are read one by one"
    return DatasetReading(SampleReadingMode.ONE_BY_ONE, why, place)


def _only_indexes(reader: ast.AST) -> bool:
    """Return whether a ``__getitem__`` only indexes data and computes with tensors or arrays."""
    nodes = list(ast.walk(reader))
    called = [one.func for one in nodes if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Subscript) for one in nodes) and all(
        _COMPUTES.fullmatch(ast.unparse(one)) or (isinstance(one, ast.Attribute) and _METHODS.fullmatch(one.attr))
        for one in called
    )


class _MayBecomeDeclared:
    """The result of ``_declaration`` for a class that a rewrite, or its author, may turn into a declared dataset.

    A declared dataset has a decorator of ``chirpid_patch``. The class itself is the result, not an object of it.
    """


@cached_until_text_changes
def _declaration(
    project: Project, place: CreationPlace, is_local: bool
) -> DeclaringDecorator | type[_MayBecomeDeclared] | None:
    """Return the decorator that a rule would add to a dataset class; None if no decorator fits.

    The result is ``_MayBecomeDeclared`` if a decorator may fit after other changes of the class.
    """
    module = project.module(place.path)
    definition = _definition(module, place.node) if isinstance(place.node, ast.ClassDef) else None
    if definition is None:
        return _MayBecomeDeclared
    if is_local and (captured := _captured_if_changed(module, project, definition)) is not None:
        return _MayBecomeDeclared if may_be_declarable(module, project, definition, captured) else None
    found = find_declaring_decorator(module, project, definition)
    if isinstance(found, DeclaringDecorator):
        return found
    return _MayBecomeDeclared if may_be_declarable(module, project, definition) else None


def _captured_if_changed(
    module: Module, project: Project, definition: cst.ClassDef
) -> dict[str, Sequence[cst.Name]] | None:
    """Return the captured variables of a local class if rule CHP006 (local dataset classes) has to change the class.

    The result is None if the rule can move the class to the top level of the module without any change.
    """
    bases = [base.value for base in definition.bases]
    captured: dict[str, Sequence[cst.Name]] = {
        name: one.reads for name, one in captured_names(module, definition.body).items() if not one.is_import
    }
    return captured if captured or not only_base_is_torch_dataset(module, project, bases) else None


def _declared_reading(instance: Instance, cls: ClassObject, decorator: str, arguments: Sequence[str]) -> DatasetReading:
    """Return how samples of an object of the declared class ``cls`` are read; unknown for an object of a subclass.

    ``decorator`` is the decorator that declares the samples, and ``arguments`` are the sources of its arguments.
    """
    if instance.cls is not cls:
        return _UNKNOWN
    if decorator == "lists_samples":
        # The attribute may contain another dataset, which reads samples with its own code.
        held = instance.cells.get(arguments[0].strip("\"'") if arguments else "", ())
        if not any(
            is_numeric_array(one) or (isinstance(one, Container) and one.kind in ("list", "tuple")) for one in held
        ):
            return _UNKNOWN
    return DatasetReading(SampleReadingMode.AT_ONCE, f"`{cls.name}` declares its samples", cls.place)


def _definition(module: Module, node: ast.ClassDef) -> cst.ClassDef | None:
    """Return LibCST's node for the class definition ``node``.

    The result is None if the definition cannot be found, because a rewrite has changed the module.
    """
    named = [one for one in module.find(cst.ClassDef) if one.name.value == node.name]
    at = [one for one in named if module.position(module.span(one)[0])[0] in _header_lines(node)]
    return at[0] if at else (named[0] if len(named) == 1 else None)


def _header_lines(node: ast.ClassDef) -> range:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return range(first, node.lineno + 1)
