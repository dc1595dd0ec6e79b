"""Find the gain, such as batched reading, of migrating each loader and of rewriting each object in a loader.

The analysis runs the program on abstract values (``analysis/objects``). So the analysis also finds a dataset that a
called function creates, or that an attribute or list contains.

The gain is *nothing* if batched reading provably has no effect, and no object becomes picklable. For example, batched
reading has no effect if a ``collate_fn`` of the project builds the batches, or if no possible dataset of the loader can
be read in batches. If a dataset is unknown, and no argument of the loader excludes batched reading, the gain is *at run
time*: in the running program, ``chirpid_patch`` decides whether to read batches.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import libcst as cst

from chirp_migrate.analysis.gain.sample_reading import (
    DatasetReading,
    SampleReadingMode,
    dataset_reading_of_instance,
    possible_dataset_readings,
)
from chirp_migrate.analysis.known_names import FACTORY_FUNCTIONS
from chirp_migrate.analysis.objects.abstract_objects import (
    AbstractObject,
    BoundMethod,
    ClassObject,
    Constant,
    Container,
    CreationPlace,
    FunctionObject,
    Instance,
    LibraryName,
    LoaderObject,
    ModuleObject,
    Value,
)
from chirp_migrate.analysis.objects.importers import files_with_importers
from chirp_migrate.analysis.objects.libraries import is_numeric_array
from chirp_migrate.analysis.objects.pickled import ReportedUnpicklableKind, UnpicklableObjects, find_unpicklable_objects
from chirp_migrate.analysis.objects.values import NONE
from chirp_migrate.plans.plan import (
    ALL_INDEXED_ONE_BY_ONE,
    INDEXED_ONE_BY_ONE,
    NO_SAMPLES,
    ONE_SAMPLE,
    ONE_SAMPLE_IN_MEMORY,
    Gain,
    GainKind,
)
from chirp_migrate.syntax.module import Module, walk_tree
from chirp_migrate.syntax.name_resolution import import_table, locate_import
from chirp_migrate.syntax.name_uses import find_aliases
from chirp_migrate.syntax.project import Project, is_test_file

#: Kinds of objects that a rewrite can make picklable, by moving the definition of the object to the top level of a
#: module.
_MOVABLE_KINDS = frozenset(
    {ReportedUnpicklableKind.LAMBDA, ReportedUnpicklableKind.FUNCTION, ReportedUnpicklableKind.CLASS}
)
#: Functions that collate a batch exactly as ``chirpid_patch`` does.
_STACKING_COLLATION = re.compile(
    r"torch\.utils\.data\.([\w.]+\.)?default_collate|chirpid_patch\.([\w.]+\.)?collate_pairs"
)
#: Names of library functions that may refer to a collate function of PyTorch.
_POSSIBLY_STACKING_COLLATION = re.compile(r"(builtins|torch)\..*|(.*\.)?(default_)?(collate|convert)(_fn)?")
_TORCH_DATASET = re.compile(r"torch\.utils\.data\.(dataset\.)?Dataset")
#: Number of positional arguments of ``DataLoader`` before ``sampler``.
_ARGUMENTS_BEFORE_SAMPLER = 3
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WORKERS = re.compile(r"\b(?:num|max)_workers\b(?![\"']?\s*[=:]\s*(?:0|None)\b)")
_GUARD = re.compile(r"(?m)^if\b.*\b__name__\b")
_IMPORT = re.compile(r"[ \t]*(?:from|import)\b")
#: Code that may call a function of the module by a computed name.
_CALLS_BY_NAME = re.compile(
    r"\b(globals|locals|vars|eval|exec|getattr|Fire|__import__|modules|argh|typer|defopt|plac)\b"
)
_NO_BATCHES = Gain(GainKind.NOTHING, "no dataset of this project can be read a batch at a time")
_NO_GAIN_AS_VALUE = Gain(
    GainKind.NOTHING,
    "the code calls `DataLoader` through a variable, and no known dataset of such a call can be read a batch at a time",
)
_AT_RUN_TIME = Gain(GainKind.AT_RUN_TIME, "the dataset is known only when the program runs")


@lru_cache(maxsize=4)
def loader_gains(project: Project) -> LoaderGains:
    """Return the gains of a project's loaders. The first call computes the gains, and later calls reuse them."""
    return LoaderGains(project, find_unpicklable_objects(project))


@dataclass(frozen=True)
class _Collation:
    """A ``collate_fn`` that is not PyTorch's.

    Attributes:
        name: the name of the function or class; for a function in an attribute, the name of the attribute.
        place: the definition of the function or class; None if a library defines it.
        is_declared: whether the class is known only from an annotation, such as ``self.collate: Collate``.
    """

    name: str
    place: CreationPlace | None = None
    is_declared: bool = False


class LoaderGains:
    """The gains of migrating the loaders of a project, and of rewriting the objects in these loaders.

    Args:
        project: the user's project before any rewrite.
        objects: the unpicklable objects in the loaders. To find the loaders and the objects, the analysis evaluated the
            program with abstract values. ``objects.run`` is this evaluation.
    """

    def __init__(self, project: Project, objects: UnpicklableObjects) -> None:
        self._project, self._objects, self._run = project, objects, objects.run
        self._loaders: dict[str, dict[ast.AST, list[LoaderObject]]] = {}
        self._holders: dict[str, dict[ast.AST, list[LoaderObject]]] = {}
        self._known: dict[tuple[CreationPlace, bool], Gain] = {}
        self._definitions: dict[str, list[_Definition]] = {}
        self._mentions: dict[str, int] = {}
        self._known_alone: dict[CreationPlace, bool] = {}
        # Later, the analysis itself calls functions (see ``_is_known_for_any_caller``). These calls must not count.
        self._callers = {place: len(calls) for place, calls in self._run.callers.items()}
        for loader in self._run.loaders:
            self._loaders.setdefault(loader.place.path, {}).setdefault(loader.place.node, []).append(loader)
        for loader, held in objects.held.items():
            for one in held:
                self._holders.setdefault(one.place.path, {}).setdefault(one.place.node, []).append(loader)
        self._readers: dict[tuple[str, str], list[LoaderObject]] = {}
        for loader, classes in objects.classes.items():
            for place in classes:
                self._readers.setdefault((place.path, getattr(place.node, "name", "")), []).append(loader)

    def gain_of_call(self, module: Module, call: cst.Call, is_moved: Callable[[CreationPlace], bool]) -> Gain:
        """Return the gain of rewriting a call that builds a loader.

        Args:
            module: the module of the call.
            call: the call.
            is_moved: function that returns whether the migration makes an object in the loader picklable.
        """
        unused = _function_without_calls(module, self._project, call)
        if unused is not None:
            line = module.position(module.span(unused.name)[0])[0]
            return Gain(GainKind.NOTHING, f"nothing calls `{unused.name.value}`", module.path, line)
        nodes = module.once(self._calls_by_offset).get(module.span(call)[0], ())
        gains = [self._gain_of_rewrite(CreationPlace(module.path, node), is_moved) for node in nodes]
        if not gains:
            gains = [self._nothing_for_library(_AT_RUN_TIME)]
        # Several calls of the original file may match ``call``. Rules rewrite calls with a gain first. So if one of the
        # matching calls has the gain *nothing*, ``call`` is this matching call.
        return next((one for one in gains if one.kind is GainKind.NOTHING), gains[0])

    def _gain_of_rewrite(self, place: CreationPlace, is_moved: Callable[[CreationPlace], bool]) -> Gain:
        """Return the gain of rewriting the loader call at a place. Pinned transfers do not count as a gain here."""
        gain = self._gain_of_place(place)
        if gain.kind is GainKind.PICKLABLE:
            sending = (one for one in self._loaders[place.path][place.node] if one.sends_to_workers)
            held = [one for loader in sending for one in self._objects.held.get(loader, ())]
            # The factory sends functions and classes of a notebook by value (docs/loader.md), even local ones.
            moves = all(one.place.path.endswith(".ipynb") or is_moved(one.place) for one in held)
            gain = self._gain_of_place(place, moves=moves)
        return self._nothing_for_library(gain)

    def _nothing_for_library(self, gain: Gain) -> Gain:
        """Replace the gain *at run time* by *nothing* in a library without datasets that can be read in batches.

        Any other gain is returned unchanged. A library is a project that can be installed.
        """
        if gain == _AT_RUN_TIME and self._project.is_distributed and self._gain_without_batches is not None:
            return self._gain_without_batches
        return gain

    @cached_property
    def _gain_without_batches(self) -> Gain | None:
        """Return the gain *nothing* if provably no dataset of the project can be read in batches.

        The result is None if a dataset may be read in batches, or if the project has no datasets.

        A class without a base from PyTorch is a dataset if code passes its objects to a loader. Datasets and loaders of
        tests do not count.
        """
        readings = [
            dataset_reading_of_instance(self._project, Instance(cls.place, cls), cls)
            for cls in self._run.classes
            if cls.is_dataset and not _only_inherits(cls) and not is_test_file(cls.place.path)
        ]
        own = [loader for loader in self._run.loaders if not is_test_file(loader.place.path)]
        loaded = [one for loader in own for one in loader.arguments.get("dataset", ())]
        others = [
            one
            for one in loaded
            if isinstance(one, Instance)
            and isinstance(one.cls, ClassObject)
            and not one.cls.is_dataset
            and not is_test_file(one.cls.place.path)
        ]
        readings += possible_dataset_readings(self._project, others) if others else []
        found = [one for loader in own for one in self._readings(loader)]
        if not readings or any(one.mode is not SampleReadingMode.ONE_BY_ONE for one in readings):
            return None
        if any(one.mode is SampleReadingMode.AT_ONCE for one in found):
            return None
        known = [one for one in (*readings, *found) if one.mode is SampleReadingMode.ONE_BY_ONE]
        only_indexed = all(one.why == INDEXED_ONE_BY_ONE for one in known)
        return _make_gain(GainKind.NOTHING, ALL_INDEXED_ONE_BY_ONE, readings[0].place) if only_indexed else _NO_BATCHES

    def gain_of_object(self, module: Module, offset: int, *, reads_batches: bool = False) -> Gain:
        """Return the gain of a rewrite that makes an object in a loader picklable.

        Args:
            module: the module that creates the object.
            offset: offset of the code that creates the object; for a definition, offset of the defined name.
            reads_batches: whether loaders that contain the object can read whole batches because of the rewrite.
                Batched reading is a gain even without workers.
        """
        nodes = module.once(self._code_of_objects).get(offset, ())
        holders = _relevant_loaders(module.path, (one for node in nodes for one in self._holders[module.path][node]))
        if not holders and not self._may_have_workers_near(module.path):
            return Gain(GainKind.NOTHING, "no loader of this file, or of the files that it imports, has workers")
        if not holders:
            return Gain(GainKind.AT_RUN_TIME, "the loaders that use this object are known only when the program runs")
        sending = next((one for one in holders if one.sends_to_workers), None)
        if sending is not None:
            return _make_gain(
                GainKind.PICKLABLE, "a loader pickles this object for workers that start without `fork`", sending.place
            )
        if reads_batches:
            gains = (self._gain_of_place(one.place) for one in holders)
            return next(
                (one for one in gains if one.kind is not GainKind.NOTHING), self._gain_of_place(holders[0].place)
            )
        return _make_gain(GainKind.NOTHING, "no loader that uses this object pickles it for workers", holders[0].place)

    def gain_of_class(self, path: str, name: str) -> Gain | None:
        """Return the gain *nothing* if no loader reads samples of a dataset class in batches.

        A decorator of ``chirpid_patch`` on the class then has no effect. The result is None if a loader may read
        samples of the class in batches, or if the analysis finds no loader.

        Args:
            path: path of the module that defines the class.
            name: the name of the class.
        """
        # If no loader is known to read objects of the class, any loader may read such objects.
        loaders = _relevant_loaders(path, self._readers.get((path, name), ())) or _relevant_loaders(
            path, self._run.loaders
        )
        if not loaders or not all(map(self._builds_no_batches, loaders)):
            return None
        return _make_gain(GainKind.NOTHING, "no loader reads samples of this class in batches", loaders[0].place)

    def gain_of_transform(self, path: str, name: str) -> Gain | None:
        """Return the gain *nothing* if no loader applies a transform class to batches.

        A decorator of ``chirpid_patch`` on the class then has no effect. The result is None if a loader may apply the
        transform to batches.

        Args:
            path: path of the module that defines the class.
            name: the name of the class.
        """
        if not _relevant_loaders(path, self._run.loaders):
            return Gain(GainKind.NOTHING, "the project builds no loader")
        return self.gain_of_class(path, name)

    def _builds_no_batches(self, loader: LoaderObject) -> bool:
        """Return whether a loader reads no whole batches after the migration.

        This is the case if the loader has a ``collate_fn`` that is not PyTorch's, or has the gain *nothing*.
        """
        collations = loader.arguments.get("collate_fn", ())
        is_own = bool(collations) and all(map(self._custom_collation, collations))
        return is_own or self._gain_of_place(loader.place, moves=False).kind is GainKind.NOTHING

    def gain_of_stored_class(self, path: str) -> Gain:
        """Return the gain of rewriting ``DataLoader`` where a file does not call the class, as in ``cls = DataLoader``.

        A file that stores ``DataLoader`` in a variable may build loaders with that variable. If samples of such a
        loader can be read in batches, the result is the gain of this loader. Otherwise, the gain is *nothing*.
        """
        places = (CreationPlace(path, node) for node in self._loaders.get(path, ()))
        gains = (self._gain_of_place(one, moves=False) for one in places if self._may_call_variable(one))
        return next((one for one in gains if one.kind is GainKind.BATCHED), _NO_GAIN_AS_VALUE)

    def _may_call_variable(self, place: CreationPlace) -> bool:
        """Return whether the call at a place may call a variable, such as ``cls`` or a parameter ``DataLoader``."""
        if _called_name(place.node) not in {
            "DataLoader",
            *FACTORY_FUNCTIONS,
            *find_aliases(self._project, "DataLoader"),
        }:
            return True
        table, called = import_table(self._project, place.path), getattr(place.node, "func", None)
        if table is None or table.stars or called is None:
            return False
        first = ast.unparse(called).partition(".")[0]
        functions = [one for one in self._definitions_around(place) if isinstance(one, _FUNCTIONS)]
        bound = set().union(*map(_parameters, functions), *map(_names_bound, functions))
        return first not in table.imports or first in table.values or first in bound

    def _may_have_workers_near(self, path: str) -> bool:
        """Return whether a file contains a loader with workers or sets a number of workers.

        Code in the files that the file imports also counts.
        """
        table = import_table(self._project, path)
        names = [one for found in table.imports.values() for one in found] if table is not None else []
        names += [f"{one}.*" for one in table.stars] if table is not None else []
        near = {path, *(file for name in names for file, _ in locate_import(self._project, path, name))}
        return any(_WORKERS.search(self._project.text(one)) for one in near) or any(
            loader.may_have_workers for loader in self._run.loaders if loader.place.path in near
        )

    def pinning_calls(
        self, module: Module, loop: cst.For, is_moved: Callable[[CreationPlace], bool]
    ) -> tuple[CreationPlace, ...]:
        """Return the calls that build those loaders of a loop that pin their batches after the migration.

        A call with ``pin_memory=True`` is in the result only if the call uses the factory, or if its rewrite has a
        gain. ``apply`` does not rewrite calls without a gain.

        Args:
            module: the module of the loop.
            loop: the loop.
            is_moved: function that returns whether the migration makes an object in a loader picklable.
        """
        places = (
            one.place
            for one in self._loaders_of(module, loop)
            if self._pins_by_factory(one)
            or (
                _pins_itself(one)
                and (
                    _called_name(one.place.node) in FACTORY_FUNCTIONS
                    or self._gain_of_rewrite(one.place, is_moved).kind is not GainKind.NOTHING
                )
            )
        )
        return tuple(dict.fromkeys(places))

    def _loaders_of(self, module: Module, loop: cst.For) -> list[LoaderObject]:
        now = dict(
            self._objects.remaining_nodes(module, [one.node for one in self._run.loops if one.path == module.path])
        )
        value = self._run.loops.get(CreationPlace(module.path, now.get(module.span(loop)[0], ast.Pass())), ())
        return _relevant_loaders(module.path, _loaders_in(value))

    def loops_over_pinned(self, module: Module, call: cst.Call) -> list[tuple[str, int]]:
        """Return the loops over the loaders of ``call``, if these loaders pin their batches only after the migration.

        Each result is the path and line of a loop in the original files.
        """
        own = [one for one in self._loaders_at(module, module.span(call)[0]) if self._pins_by_factory(one)]
        return [
            (place.path, getattr(place.node, "lineno", 1))
            for place, value in (self._run.loops.items() if own else ())
            if (is_test_file(module.path) or not is_test_file(place.path))
            and any(one is loader for one in _loaders_in(value) for loader in own)
        ]

    def _pins_by_factory(self, loader: LoaderObject) -> bool:
        """Return whether a loader call omits ``pin_memory``, and the factory would pin the batches.

        The factory pins batches that PyTorch's ``default_collate`` or the runtime builds, not batches of another
        ``collate_fn``. The analysis also requires that all samples are in memory.
        """
        if loader.arguments.get("pin_memory", NONE) != NONE:
            return False
        collation = loader.arguments.get("collate_fn", ())
        return all(map(_stacks_samples, collation)) and all(one.in_memory for one in self._readings(loader))

    def _loaders_at(self, module: Module, offset: int) -> list[LoaderObject]:
        """Return the loaders that the call at ``offset`` of a module builds."""
        nodes = module.once(self._calls_by_offset).get(offset, ())
        return [loader for node in nodes for loader in self._loaders[module.path][node]]

    def _calls_by_offset(self, module: Module) -> dict[int, list[ast.AST]]:
        """Return the calls that build loaders in a module.

        The result is a dictionary: offset of a call in the current text of the module → nodes of the original text.
        """
        return self._index_by_offset(module, self._loaders)

    def _code_of_objects(self, module: Module) -> dict[int, list[ast.AST]]:
        """Return the places in a module that create unpicklable objects, if a loader contains these objects.

        The result is a dictionary: offset in the current text of the module → nodes of the original text.
        """
        return self._index_by_offset(module, self._holders)

    def _index_by_offset(
        self, module: Module, known: dict[str, dict[ast.AST, list[LoaderObject]]]
    ) -> dict[int, list[ast.AST]]:
        found: dict[int, list[ast.AST]] = {}
        for offset, node in self._objects.remaining_nodes(module, list(known.get(module.path, ()))):
            found.setdefault(offset, []).append(node)
        return found

    def _gain_of_place(self, place: CreationPlace, *, moves: bool = True) -> Gain:
        """Return the gain of the loader call at a place, cached.

        ``moves`` is True if the migration makes all objects in the loader picklable.
        """
        key = place, moves
        if key not in self._known:
            self._known[key] = self._gain_of_loaders(self._loaders[place.path][place.node], moves=moves)
        return self._known[key]

    def _gain_of_loaders(self, loaders: list[LoaderObject], *, moves: bool) -> Gain:
        possible = [one for one in loaders if self._possible_datasets(one) or not one.arguments.get("dataset")]
        loaders = possible or loaders
        if _has_no_samples(loaders[0].place.node):
            return _make_gain(GainKind.NOTHING, NO_SAMPLES, loaders[0].place)
        readings = [one for loader in loaders for one in self._readings(loader)]
        known = [one for one in readings if one.mode is not SampleReadingMode.UNKNOWN]
        is_in_memory = all(map(self._holds_samples, loaders)) or (known and all(one.in_memory for one in known))
        if is_in_memory and _has_batches_of_one(loaders):
            why = ONE_SAMPLE_IN_MEMORY if len(known) == len(readings) else ONE_SAMPLE
            return _make_gain(GainKind.NOTHING, why, loaders[0].place)
        at_once = next((one for one in readings if one.mode is SampleReadingMode.AT_ONCE), None)
        collations = [
            one for loader in loaders for one in loader.arguments.get("collate_fn", ()) if not _stacks_samples(one)
        ]
        own = [found for found in map(self._custom_collation, collations) if found is not None]
        replaced, are_single = self._replaced_by(loaders), all(map(_yields_single_samples, loaders))
        if at_once is not None and not collations and replaced is None and not are_single:
            return _make_gain(GainKind.BATCHED, at_once.why, at_once.place)
        is_own = bool(own) and len(own) == len(collations)
        names_collation = is_own and (_names_collation(loaders[0].place.node, own) or self._sets_collation(loaders))
        collates_itself = at_once is None and _passes_collation_of_dataset(loaders[0].place.node)
        if replaced is None and not are_single and not names_collation and not collates_itself:
            if any(one.mode is SampleReadingMode.UNKNOWN for one in readings) or (
                at_once is not None and len(own) < len(collations)
            ):
                return _AT_RUN_TIME
            if not (
                self._annotated_readings(loaders[0].place) or self._has_only_known_datasets(loaders[0].place, readings)
            ):
                return _AT_RUN_TIME
        sending, in_test = [one for one in loaders if one.sends_to_workers], is_test_file(loaders[0].place.path)
        held = [one for loader in sending for one in self._objects.held.get(loader, ())]
        held = [one for one in held if in_test or not is_test_file(one.place.path)]
        if moves and held and all(one.reported_kind in _MOVABLE_KINDS for one in held):
            return _make_gain(
                GainKind.PICKLABLE, "after the rewrite, workers can also start without `fork`", held[0].place
            )
        if are_single:
            return _make_gain(GainKind.NOTHING, "`batch_size=None` disables automatic batching", loaders[0].place)
        if replaced is not None:
            return _make_gain(GainKind.NOTHING, "accelerate rebuilds the loader with PyTorch's class", replaced)
        if own:
            of = "a library" if own[0].place is None else "the project"
            return _make_gain(GainKind.NOTHING, f"a `collate_fn` of {of} builds the batches", own[0].place)
        if collates_itself:
            return _make_gain(GainKind.NOTHING, "a `collate_fn` of the dataset builds the batches", loaders[0].place)
        return _make_gain(GainKind.NOTHING, readings[0].why, readings[0].place)

    def _holds_samples(self, loader: LoaderObject) -> bool:
        """Return whether all samples of a loader are provably in memory, in tensors or in a list."""
        lists = [
            isinstance(one, Container) and one.kind in ("list", "tuple") for one in loader.arguments.get("dataset", ())
        ]
        return (bool(lists) and all(lists)) or all(one.in_memory for one in self._readings(loader))

    def _replaced_by(self, loaders: list[LoaderObject]) -> CreationPlace | None:
        """Return the call, such as accelerate's ``prepare``, that builds new loaders from ``loaders``.

        The result is None if a loop iterates over one of ``loaders`` itself.
        """
        if not all(one.replaced_by for one in loaders) or any(
            held is one for value in self._run.loops.values() for held in _loaders_in(value) for one in loaders
        ):
            return None
        return loaders[0].replaced_by

    def _sets_collation(self, loaders: list[LoaderObject]) -> bool:
        """Return whether ``collate_fn`` of ``loaders`` is a variable that the surrounding function assigns.

        The result is False if the value may be None or a collate function of PyTorch.
        """
        place = loaders[0].place
        given = [one.value for one in getattr(place.node, "keywords", ()) if one.arg == "collate_fn"]
        values = [one for loader in loaders for one in loader.arguments.get("collate_fn", ())]
        if not given or not isinstance(given[0], ast.Name) or any(map(_stacks_samples, values)):
            return False
        function = next((one for one in self._definitions_around(place) if isinstance(one, _FUNCTIONS)), None)
        if function is None:
            return False
        names = (one for one in walk_tree(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
        return given[0].id in {one.id for one in names} - _parameters(function)

    def _custom_collation(self, collation: AbstractObject) -> _Collation | None:
        """Return the function or class of a ``collate_fn`` that provably is not PyTorch's; else None.

        The result is also None for a lambda, because a rewrite may replace the lambda by a function of
        ``chirpid_patch``.
        """
        match collation:
            case FunctionObject(place=CreationPlace(node=ast.FunctionDef(name=name)) as place):
                return _Collation(name, place)
            case BoundMethod(function=FunctionObject() as function):
                return self._custom_collation(function)
            case BoundMethod(owner=Instance(cls=ClassObject() as cls), function=str() as name):
                declared = self._declared_class(cls, name)
                return None if declared is None else _Collation(name, declared.place, is_declared=True)
            case Instance(cls=ClassObject() as cls):
                return _Collation(cls.name, cls.place)
            case Instance(cls="functools.partial", cells={0: (function,)}):
                return self._custom_collation(function)
            case LibraryName(name=name) if not (
                _stacks_samples(collation) or _POSSIBLY_STACKING_COLLATION.fullmatch(name)
            ):
                return _Collation(name.rpartition(".")[2])
        return None

    def _declared_class(self, cls: ClassObject, name: str) -> ClassObject | None:
        """Return the class of the project that annotates an attribute, as in ``self.name: Class``; else None.

        The annotation must have no value: ``self.name: Class = value`` does not count.
        """
        for base in cls.order:
            for node in walk_tree(base.place.node) if isinstance(base, ClassObject) else ():
                match node:
                    case ast.AnnAssign(
                        target=ast.Attribute(value=ast.Name(id="self"), attr=attribute),
                        annotation=annotation,
                        value=None,
                    ) if attribute == name and isinstance(base, ClassObject):
                        return self._class_of_annotation(base.place.path, annotation)
        return None

    def _class_of_annotation(self, path: str, annotation: ast.expr | None) -> ClassObject | None:
        """Return the class of the project that an annotation in a file names; None for other annotations."""
        if annotation is None:
            return None
        named = str(annotation.value) if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        found: Value = (ModuleObject(path, is_own=True),)
        for name in named.split("."):
            found = self._run.attribute_of(found[0], name) if len(found) == 1 else ()
        return found[0] if len(found) == 1 and isinstance(found[0], ClassObject) else None

    def _definitions_around(self, place: CreationPlace) -> list[_Definition]:
        """Return the definitions that contain the node of a place, innermost first."""
        if place.path not in self._definitions:
            nodes = walk_tree(self._run.trees[place.path])
            self._definitions[place.path] = [one for one in nodes if isinstance(one, _Definition)][::-1]
        line, end = getattr(place.node, "lineno", 0), getattr(place.node, "end_lineno", 0)
        return [
            one
            for one in self._definitions[place.path]
            if one.lineno <= line and end <= (one.end_lineno or 0) and one is not place.node
        ]

    def _readings(self, loader: LoaderObject) -> list[DatasetReading]:
        """Return how the datasets of a loader are read: in batches, one by one, or unknown."""
        found = possible_dataset_readings(self._project, self._possible_datasets(loader))
        if not is_test_file(loader.place.path):
            found = [one for one in found if not (one.mode is SampleReadingMode.AT_ONCE and _is_created_by_tests(one))]
        known = [one for one in found if one.mode is not SampleReadingMode.UNKNOWN]
        if known and len(known) == len(found):
            return known
        annotated = self._annotated_readings(loader.place)
        return [*known, *annotated] if annotated else found or [DatasetReading(SampleReadingMode.UNKNOWN)]

    def _possible_datasets(self, loader: LoaderObject) -> Value:
        """Return the possible datasets of a loader, without the objects that an ``isinstance`` check excludes."""
        given = loader.arguments.get("dataset", ())
        if not self._is_checked_to_be_dataset(loader.place):
            return given
        return tuple(one for one in given if not (is_numeric_array(one) or isinstance(one, Container)))

    def _is_checked_to_be_dataset(self, place: CreationPlace) -> bool:
        """Return whether a call with the dataset ``data`` is in a block such as ``if isinstance(data, Dataset):``."""
        given, around = _dataset_of(place.node), self._definitions_around(place)
        if not isinstance(given, ast.Name) or not around:
            return False
        for node in walk_tree(around[0]):
            match node:
                case ast.If(
                    test=ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=checked), cls]), body=body
                ) if checked == given.id and self._is_torch_dataset(place.path, cls):
                    inner = [one for statement in body for one in walk_tree(statement)]
                    if place.node in inner and not any(_may_rebind(one, given.id) for one in inner):
                        return not self._has_outer_variable(place.path, given.id)
        return False

    def _is_torch_dataset(self, path: str, cls: ast.expr) -> bool:
        """Return whether an expression is PyTorch's ``Dataset``, judged by the imports of the file."""
        table, (first, *rest) = import_table(self._project, path), ast.unparse(cls).split(".")
        sources = table.imports.get(first, set()) if table is not None and not table.defines(first) else set()
        named = {".".join((one, *rest)) for one in sources}
        return bool(named) and all(map(_TORCH_DATASET.fullmatch, named))

    def _has_outer_variable(self, path: str, name: str) -> bool:
        """Return whether a function of the file declares ``name`` as ``global`` or ``nonlocal``, to assign to it."""
        outer = (one for one in walk_tree(self._run.trees[path]) if isinstance(one, ast.Global | ast.Nonlocal))
        return any(name in one.names for one in outer)

    def _annotated_readings(self, place: CreationPlace) -> list[DatasetReading]:
        """Return how a loader reads a dataset that is an annotated parameter, as in ``def load(dataset: Birds)``.

        The result is empty unless the annotation is a class of the project, and samples of this class and of all its
        subclasses are provably read one by one.
        """
        given = _dataset_of(place.node)
        function = next((one for one in self._definitions_around(place) if isinstance(one, _FUNCTIONS)), None)
        if not isinstance(given, ast.Name) or function is None or given.id in _names_bound(function):
            return []
        parameters = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        annotation = next((one.annotation for one in parameters if one.arg == given.id), None)
        cls = self._class_of_annotation(place.path, annotation)
        if cls is None:
            return []
        classes = [cls, *(one for one in self._run.classes if one is not cls and cls in one.order)]
        readings = possible_dataset_readings(self._project, [Instance(one.place, one) for one in classes])
        is_known = all(one.mode is SampleReadingMode.ONE_BY_ONE and not _is_stub(one.place) for one in readings)
        return readings if is_known else []

    def _has_only_known_datasets(self, place: CreationPlace, readings: list[DatasetReading]) -> bool:
        """Return whether a loader can only get the datasets that this analysis found.

        The result is False if other code may pass another dataset to the function or class that builds the loader.
        """
        around = self._definitions_around(place)
        if not around or _is_inside(place.path, around[0], readings):
            return True
        for node in around:
            if isinstance(node, _FUNCTIONS) and not _takes_arguments(node):
                continue
            if self._count_mentions(node.name) > self._callers.get(CreationPlace(place.path, node), 0):
                if place not in self._known_alone:
                    self._known_alone[place] = self._is_known_for_any_caller(place, around)
                return self._known_alone[place]
        return True

    def _count_mentions(self, name: str) -> int:
        """Return how many lines mention the name of a definition. Definitions and imports of the name do not count."""
        if name not in self._mentions:
            word = re.compile(rf"\b(?<!def )(?<!class ){re.escape(name)}\b")
            texts = map(self._project.text, self._project.paths_containing(name))
            lines = ((text, {text.rfind("\n", 0, one.start()) + 1 for one in word.finditer(text)}) for text in texts)
            self._mentions[name] = sum(not _IMPORT.match(text, start) for text, starts in lines for start in starts)
        return self._mentions[name]

    def _is_known_for_any_caller(self, place: CreationPlace, around: list[_Definition]) -> bool:
        """Return whether the datasets of a loader are known for any arguments of the function that builds the loader.

        To check this, the analysis calls the function with unknown arguments, or the method on a new object.

        Args:
            place: the call that builds the loader.
            around: the definitions that contain the call, innermost first.
        """
        first, outermost = len(self._run.loaders), around[-1]
        method = around[-2] if isinstance(outermost, ast.ClassDef) and len(around) > 1 else None
        for thing in self._run.module(place.path).cells.get(outermost.name, ()):
            if isinstance(thing, FunctionObject | ClassObject) and thing.place.node is outermost:
                made = self._run.call_from_outside(thing)  # for a class, this calls its constructor
                bound = [one for each in made if method for one in self._run.attribute_of(each, method.name)]
                for one in bound if method and method.name != "__init__" else ():
                    self._run.call_from_outside(one)
        found = [one for one in self._run.loaders[first:] if one.place == place]
        del self._run.loaders[first:]
        return bool(found) and all(
            one.mode is not SampleReadingMode.UNKNOWN for loader in found for one in self._readings(loader)
        )


def _relevant_loaders(path: str, loaders: Iterable[LoaderObject]) -> list[LoaderObject]:
    """Return those of ``loaders`` that count when the analysis computes a gain for the file at ``path``.

    For a test file, these are all loaders. For any other file, loaders that a test file builds are omitted.
    """
    return [one for one in loaders if is_test_file(path) or not is_test_file(one.place.path)]


def _is_created_by_tests(reading: DatasetReading) -> bool:
    """Return whether tests create the dataset that ``reading`` describes, or a dataset inside this dataset."""
    return any(is_test_file(place.path) for place in reading.creating_calls)


def _called_name(call: ast.AST) -> str:
    """Return the last part of the called function's name."""
    called = call.func if isinstance(call, ast.Call) else call
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _may_rebind(node: ast.AST, name: str) -> bool:
    """Return whether a node may bind ``name`` again, or is a lambda.

    The body of a lambda may run later, when the name has another value.
    """
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    bound = (getattr(node, key, None) for key in ("name", "asname", "rest"))
    return isinstance(node, ast.Lambda) or name in bound


def _make_gain(kind: GainKind, why: str, place: CreationPlace | None) -> Gain:
    return Gain(kind, why) if place is None else Gain(kind, why, place.path, getattr(place.node, "lineno", 1))


def _loaders_in(value: Value, depth: int = 4) -> Iterator[LoaderObject]:
    """Yield the loaders that a loop over ``value`` iterates over."""
    for thing in value:
        match thing:
            case LoaderObject() as loader:
                yield loader
            case Instance(loader=LoaderObject() as loader):
                yield loader
            case Instance(cls=str() as name, cells=cells) if depth and name.startswith(("builtins.", "itertools.")):
                yield from (one for held in cells.values() for one in _loaders_in(held, depth - 1))
            case Container(cells=cells) if depth:
                yield from (one for held in cells.values() for one in _loaders_in(held, depth - 1))


def _pins_itself(loader: LoaderObject) -> bool:
    """Return whether the value of ``pin_memory`` of a loader is provably true on a machine with a CUDA device."""
    given = loader.arguments.get("pin_memory", NONE)
    return given != NONE and (all(map(_is_pinning, given)) or _checks_for_cuda(loader.place.node))


def _is_pinning(given: AbstractObject) -> bool:
    """Return whether the value of ``pin_memory`` is true, or is true if CUDA is available."""
    match given:
        case Constant(value=value, is_whole=True):
            return bool(value)
        case Instance(cls="torch.cuda.is_available"):
            return True
    return False


def _checks_for_cuda(call: ast.AST) -> bool:
    """Return whether ``pin_memory`` is a test for CUDA, such as ``device.type == "cuda"``."""
    given = [one.value for one in call.keywords if one.arg == "pin_memory"] if isinstance(call, ast.Call) else []
    for value in given:
        match value:
            case ast.IfExp(test=test, body=ast.Constant(value=True), orelse=ast.Constant(value=False)):
                value = test
        match value:
            case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value="cuda")]):
                return True
            case ast.Call(func=function):
                return ast.unparse(function) == "torch.cuda.is_available"
    return False


def _only_inherits(cls: ClassObject) -> bool:
    """Return whether a class inherits from another dataset class of the project, and defines no method for reading."""
    others = [one for one in cls.order[1:] if isinstance(one, ClassObject)]
    return cls.body.cells.keys().isdisjoint(("__getitem__", "__getitems__", "__iter__")) and any(
        one.is_dataset for one in others
    )


def _dataset_of(call: ast.AST) -> ast.expr | None:
    """Return the expression that a call passes as dataset."""
    if not isinstance(call, ast.Call):
        return None
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "dataset")]
    return given[0] if given else None


def _names_bound(function: ast.AST) -> set[str]:
    """Return the names that the code of a function assigns, and the parameters of its lambdas."""
    nodes = list(walk_tree(function))
    lambdas = (one.args for one in nodes if isinstance(one, ast.Lambda))
    names = {one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    return names | {one.arg for given in lambdas for one in walk_tree(given) if isinstance(one, ast.arg)}


def _is_stub(place: CreationPlace | None) -> bool:
    """Return whether a method ends with ``raise``, ``pass`` or a literal, as in an abstract class."""
    body = getattr(place.node, "body", ()) if place is not None else ()
    match body[-1:]:
        case [ast.Raise() | ast.Pass() | ast.Expr(value=ast.Constant())]:
            return True
    return False


def _has_no_samples(call: ast.AST) -> bool:
    """Return whether the dataset of a call is an empty list or tuple."""
    given = _dataset_of(call)
    return isinstance(given, ast.List | ast.Tuple) and not given.elts


def _has_batches_of_one(loaders: list[LoaderObject]) -> bool:
    """Return whether the call that builds ``loaders`` sets the batch size 1, or omits it (PyTorch's default is 1).

    An omitted batch size counts only in a call of ``DataLoader`` itself, because a subclass or a ``partial`` may have
    another default. The result is False for a call with a sampler, which may yield batches of indices.
    """
    call = loaders[0].place.node
    if not isinstance(call, ast.Call) or any(one.arg in (None, "sampler", "batch_sampler") for one in call.keywords):
        return False
    if len(call.args) > _ARGUMENTS_BEFORE_SAMPLER or any(isinstance(one, ast.Starred) for one in call.args):
        return False
    positional = call.args[1:2]
    if positional and _called_name(call) not in {"DataLoader", *FACTORY_FUNCTIONS}:
        return False
    given = [*positional, *(one.value for one in call.keywords if one.arg == "batch_size")]
    if given:
        return isinstance(given[0], ast.Constant) and type(given[0].value) is int and given[0].value == 1
    return _called_name(call) == "DataLoader" and all("batch_size" not in one.arguments for one in loaders)


def _yields_single_samples(loader: LoaderObject) -> bool:
    """Return whether a loader provably yields single samples (``batch_size=None``)."""
    return loader.arguments.get("batch_size") == NONE and loader.arguments.get("batch_sampler", NONE) == NONE


def _stacks_samples(collation: AbstractObject) -> bool:
    """Return whether a ``collate_fn`` collates samples as ``chirpid_patch`` does."""
    match collation:
        case Constant(value=None):
            return True
        case LibraryName(name=name):
            return _STACKING_COLLATION.fullmatch(name) is not None
    return False


def _passes_collation_of_dataset(call: ast.AST) -> bool:
    """Return whether a call passes an attribute of its dataset as ``collate_fn``, as in ``collate_fn=dataset.collate``.

    PyTorch's datasets have no such attribute, so the function provably is not PyTorch's.
    """
    dataset = _dataset_of(call)
    given = next((one.value for one in getattr(call, "keywords", ()) if one.arg == "collate_fn"), None)
    return isinstance(given, ast.Attribute) and dataset is not None and ast.dump(given.value) == ast.dump(dataset)


def _names_collation(call: ast.AST, own: list[_Collation]) -> bool:
    """Return whether the argument ``collate_fn`` of a call names each item of ``own``, which are not PyTorch's.

    The call need not name items with ``is_declared``.
    """
    given = next((one.value for one in getattr(call, "keywords", ()) if one.arg == "collate_fn"), None)
    match given:
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[function, *_]):
            given = function
        case ast.Call(func=function):
            given = function
    name = given.attr if isinstance(given, ast.Attribute) else getattr(given, "id", "")
    return all(one.is_declared or one.name == name for one in own)


def _is_inside(path: str, node: ast.AST, readings: list[DatasetReading]) -> bool:
    """Return whether the definition ``node`` contains all calls that create the datasets of ``readings``."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    made = [place for one in readings for place in one.creating_calls]
    return bool(made) and all(
        place.path == path and first <= getattr(place.node, "lineno", 0) <= last for place in made
    )


def _takes_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(_parameters(node) - {"self", "cls"})


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    given = node.args
    more = [one for one in (given.vararg, given.kwarg) if one is not None]
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *more)}


def _function_without_calls(module: Module, project: Project, call: cst.Call) -> cst.FunctionDef | None:
    """Return the function around a call if provably no code calls this function; else None.

    The function must be private, or in a script that no file imports.
    """
    outermost = next((one for one in reversed(list(module.ancestors(call))) if isinstance(one, cst.FunctionDef)), None)
    if outermost is None or outermost.decorators or module.parents[outermost] is not module.tree:
        return None
    name = outermost.name.value
    words = len(re.findall(rf"\b{re.escape(name)}\b", module.text))
    if words > 1 or project.is_named_elsewhere(rf"\b{name}\b", name, module.path, settings=True):
        return None
    is_private = name.startswith("_") and not name.startswith("__")
    return outermost if is_private or _is_script(module, project) else None


def _is_script(module: Module, project: Project) -> bool:
    """Return whether a module is a script that no file imports.

    The result is False for a script that may call functions by name, for example with ``globals()`` or ``getattr``.
    """
    is_run = _GUARD.search(module.text) is not None and _CALLS_BY_NAME.search(module.text) is None
    return is_run and files_with_importers(project, [module.path], 1) == [module.path]
