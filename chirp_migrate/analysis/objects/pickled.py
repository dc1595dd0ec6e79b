"""Find objects of a project that a loader would pickle for worker processes, but that cannot be pickled.

The analysis runs every file about loading (with words such as ``DataLoader``) on abstract values. In each file, the
analysis runs the top level, the code in ``if __name__ == "__main__"``, and functions that no code calls. Then the
analysis visits the objects that ``pickle`` would visit for each loader with workers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

from chirp_migrate.analysis.known_names import (
    DATASET_WORDS,
    FACTORY,
    FACTORY_FUNCTIONS,
    dataset_class_names,
)
from chirp_migrate.analysis.objects.abstract_objects import (
    AbstractObject,
    BoundMethod,
    ClassObject,
    Container,
    CreationPlace,
    FunctionObject,
    Instance,
    LibraryName,
    LoaderObject,
    ModuleObject,
    UnpicklableKind,
    UnpicklableLibraryObject,
    Value,
)
from chirp_migrate.analysis.objects.importers import files_with_importers
from chirp_migrate.analysis.objects.libraries import unpicklable_kind_of_class
from chirp_migrate.analysis.objects.nodes_after_rewrite import NodesAfterRewrite, line_and_column
from chirp_migrate.analysis.objects.running import AbstractRun
from chirp_migrate.analysis.objects.values import Arguments
from chirp_migrate.syntax.module import Module, syntax_tree, walk_tree
from chirp_migrate.syntax.name_uses import find_aliases
from chirp_migrate.syntax.project import Project

#: Largest depth of nested objects to visit.
_DEPTH = 24
#: How often the search for files about loading adds files that import the files found before.
_IMPORT_ROUNDS = 4
_WORD = re.compile(r"\w+")
_PICKLING = ("__reduce__", "__reduce_ex__", "__getnewargs_ex__")


class ReportedUnpicklableKind(Enum):
    """The kind of an object that cannot be pickled, which determines the rule that reports the object.

    The kinds are lambdas, local functions, local classes, and other objects such as open files (``STATE``).
    """

    LAMBDA = "lambda"
    FUNCTION = "function"
    CLASS = "class"
    STATE = "state"


@dataclass(frozen=True)
class UnpicklableObject:
    """An object that is sent to worker processes and cannot be pickled.

    Attributes:
        reported_kind: the kind of object.
        place: the code that creates the object.
        holder: the object or attribute that contains the object, as text for messages, such as ```Compose.steps` ``.
        kind: the kind of state, such as an open file, if ``reported_kind`` is ``STATE``; else None.
        attribute: name of the attribute that stores the object, if code of the same class creates the object, as in
            ``self.lock = Lock()``; otherwise "".
    """

    reported_kind: ReportedUnpicklableKind
    place: CreationPlace
    holder: str
    kind: UnpicklableKind | None = None
    attribute: str = ""


@lru_cache(maxsize=4)
def find_unpicklable_objects(project: Project) -> UnpicklableObjects:
    """Return the objects of a project that cannot be pickled for workers.

    The first call computes the result, and later calls return the same object.
    """
    return UnpicklableObjects(project)


def _pattern_of_words(words: Set[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(words))))


class UnpicklableObjects:
    """The objects of a project that cannot be pickled for workers, by file.

    Args:
        project: the user's project before any rewrite.

    Attributes:
        run: the abstract run of the project.
        held: for each loader of the run, the objects in the loader that cannot be pickled.
        classes: for each loader, the class definitions of all objects in the dataset of the loader, including the
            definitions of base classes. Classes of libraries are omitted.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.run = AbstractRun(project)
        self.held: dict[LoaderObject, list[UnpicklableObject]] = {}
        self.classes: dict[LoaderObject, set[CreationPlace]] = {}
        self._seen_loaders = self._seen_instances = 0
        self._reached: set[ast.AST] = set()
        self._idle: set[tuple[str, str]] = set()
        self._busy: set[tuple[str, str]] = set()
        self._others: list[tuple[Instance, list[UnpicklableObject]]] = []
        self._found: dict[ast.AST, UnpicklableObject] = {}
        loaders = {"DataLoader", FACTORY, *FACTORY_FUNCTIONS, *find_aliases(project, "DataLoader")}
        self._words_of_loaders = _pattern_of_words(loaders)
        self._words_of_loading = _pattern_of_words({*loaders, *DATASET_WORDS, *dataset_class_names(project)})
        self._made: set[ast.AST] = set()
        self._lines: tuple[str, list[str]] = ("", [])
        paths, about = self._files_about_loading()
        for path in paths:
            self.run.run_main_guard(path)
            self._visit_new_objects()
        for path in paths:
            for _ in self._run_uncalled_code(path, about):
                self._visit_new_objects()
        for cls in [one for one in self.run.classes if one.scope.is_local and one.is_dataset]:
            if cls.place.node not in self._made:
                self.run.call_from_outside(cls)
                self._visit_new_objects()
        self.run.is_counting = False
        # If the project can be installed, its users may build further loaders.
        may_have_workers = any(one.may_have_workers for one in self.run.loaders)
        self._others_are_sent = may_have_workers or project.is_distributed or not self.run.loaders
        for made, found in self._others if self._others_are_sent else ():
            if isinstance(made.cls, ClassObject) and made.cls.place.node not in self._reached:
                self._add_objects(found)
        self._others.clear()
        self._by_path: dict[str, list[UnpicklableObject]] = {}
        for one in self._found.values():
            self._by_path.setdefault(one.place.path, []).append(one)
        self._read = {path: project.text(path) for path in {*paths, *self.run.trees}}

    def run_for_module(self, path: str) -> AbstractRun:
        """Return a run of the project in which the module at ``path`` has its current text.

        If a rule has rewritten the module, the result is a new run that has not imported the module yet.
        """
        is_as_read = self._read.setdefault(path, self._project.text(path)) == self._project.text(path)
        return self.run if is_as_read else self.run.without_module(path)

    def objects_in_file(self, path: str, reported_kind: ReportedUnpicklableKind) -> list[UnpicklableObject]:
        """Return the objects of the kind ``reported_kind`` that a file creates."""
        return [one for one in self._by_path.get(path, ()) if one.reported_kind is reported_kind]

    def has_no_workers(self, path: str, name: str) -> bool:
        """Return True if the analysis shows that no loader with workers reads objects of a dataset class.

        There are two cases:

        * The analysis finds loaders that read objects of the class. Then none of these loaders may have workers.
        * The analysis finds no such loader. Then the project must build at least one loader, no loader of the project
          may have workers, and other projects must not be able to install the project, because they could build loaders
          with workers.
        """
        return (path, name) in self._idle or not (self._others_are_sent or (path, name) in self._busy)

    def words(self, reported_kind: ReportedUnpicklableKind) -> frozenset[str]:
        """Return words with which to search for files that create objects of the kind ``reported_kind``.

        Most words are names of functions and classes around the objects.
        """
        return self._words.get(reported_kind, frozenset())

    @cached_property
    def _words(self) -> dict[ReportedUnpicklableKind, frozenset[str]]:
        words: dict[ReportedUnpicklableKind, set[str]] = {}
        for path, found in self._by_path.items():
            tree = syntax_tree(self._read[path])
            for one in found:
                words.setdefault(one.reported_kind, set()).add(_word_around(tree, one.place.node))
        return {reported_kind: frozenset(known) for reported_kind, known in words.items()}

    def remaining_objects(
        self, module: Module, reported_kind: ReportedUnpicklableKind
    ) -> Iterator[tuple[int, UnpicklableObject]]:
        """Yield each object of the kind ``reported_kind`` that the rewritten module still creates, with its offset."""
        by_node = {one.place.node: one for one in self.objects_in_file(module.path, reported_kind)}
        yield from ((offset, by_node[node]) for offset, node in self.remaining_nodes(module, list(by_node)))

    def remaining_nodes(self, module: Module, nodes: list[ast.AST]) -> Iterator[tuple[int, ast.AST]]:
        """Yield offset and original node for each of ``nodes`` that the module still contains."""
        before, now = self._read.get(module.path, module.text), module.text
        for node in nodes:
            there = node if before == now else _same_nodes(before).find(node, now)
            if there is not None:
                yield _name_offset(module, there, module.offset(*line_and_column(there))), node

    def _add_objects(self, found: list[UnpicklableObject]) -> None:
        for one in found:
            self._found.setdefault(one.place.node, one)

    def _run_uncalled_code(self, path: str, about: Set[str]) -> Iterator[None]:
        """Run the functions and classes about loading that no code has called.

        To run the methods of a class, the analysis creates an object of the class with unknown arguments.
        """
        run = self.run
        for name, value in list(run.module(path).cells.items()):
            for thing in value if name in about else ():
                match thing:
                    case FunctionObject(unwrapped=FunctionObject(place=CreationPlace(path=own, node=node))) if (
                        own == path and node not in run.called
                    ):
                        run.call_from_outside(thing)
                        yield
                    case ClassObject(place=CreationPlace(path=own)) if own == path and self._may_load(thing):
                        yield from self._run_uncalled_methods(thing, about)

    def _may_load(self, cls: ClassObject) -> bool:
        """Return whether a class is a dataset, or its code contains ``DataLoader`` or another word for loaders."""
        return cls.is_dataset or self._words_of_loaders.search(self._text_of(cls.place)) is not None

    def _files_about_loading(self) -> tuple[list[str], set[str]]:
        """Return the files about loading, and the names of their functions and classes about loading.

        A definition is about loading if its text contains a word for loading, such as ``DataLoader``, or the name of
        another such definition. A file is about loading in two cases:

        * The file contains a word for loading.
        * The file imports from a file about loading, and contains the name of a function or class about loading.
        """
        paths: list[str] = []
        direct: set[str] = set()
        words: dict[str, set[str]] = {}
        new = [path for path, _ in self._project.matching(self._words_of_loading)]
        about: set[str] = set()
        for _ in range(_IMPORT_ROUNDS):
            paths += new
            for path in new:
                self._collect_words(path, words, direct)
                self._visit_new_objects()
            about = direct | {name for name, known in words.items() if not known.isdisjoint(direct)}
            beside = files_with_importers(self._project, new, 1)[len(new) :]
            naming = set(self._project.paths_containing(*about)) if about else set()
            new = [path for path in beside if path in naming and path not in paths]
            if not new:
                break
        return paths, about

    def _collect_words(self, path: str, words: dict[str, set[str]], about: set[str]) -> None:
        for name, value in self.run.module(path).cells.items():
            for thing in value:
                if isinstance(thing, FunctionObject | ClassObject):
                    place = thing.unwrapped.place if isinstance(thing, FunctionObject) else thing.place
                    if place.path != path:
                        continue
                    text = self._text_of(place)
                    words.setdefault(str(name), set()).update(_WORD.findall(text))
                    if self._words_of_loading.search(text):
                        about.add(str(name))

    def _text_of(self, place: CreationPlace) -> str:
        """Return the lines of a definition."""
        if place.path != self._lines[0]:
            self._lines = place.path, self._project.text(place.path).splitlines()
        last = getattr(place.node, "end_lineno", None) or 0
        return "\n".join(self._lines[1][line_and_column(place.node)[0] - 1 : last])

    def _run_uncalled_methods(self, cls: ClassObject, about: Set[str]) -> Iterator[None]:
        run, is_made = self.run, cls.place.node in self._made
        if cls.is_dataset:
            if not is_made:
                run.call_from_outside(cls)
                yield
            return
        methods = [
            (str(name), one)
            for name, value in cls.body.cells.items()
            for one in value
            if isinstance(one, FunctionObject)
            and one.unwrapped.owner is cls
            and one.wraps != "property"
            and one.unwrapped.place.node not in run.called
            and self._is_about_loading(one.unwrapped, about)
        ]
        if is_made and not methods:
            return
        objects = [one for one in run.call_from_outside(cls) if isinstance(one, Instance)]
        # If the limit of steps ends the constructor, the methods run on the unfinished object.
        objects = objects or [one for one in run.instances if one.cls is cls][-1:]
        yield
        for name, function in methods:
            if function.unwrapped.place.node not in run.called:
                for thing in objects:
                    for method in run.attribute_of(thing, name):
                        run.call_from_outside(method, Arguments(more=True))
                yield

    def _is_about_loading(self, function: FunctionObject, about: Set[str]) -> bool:
        text = self._text_of(function.place)
        return self._words_of_loading.search(text) is not None or not about.isdisjoint(_WORD.findall(text))

    def _visit_new_objects(self) -> None:
        """Visit the loaders and datasets that were created since the last call."""
        run = self.run
        loaders, instances = run.loaders[self._seen_loaders :], run.instances[self._seen_instances :]
        for loader in loaders:
            walk = _PickleVisitor(run)
            walk.value(loader.arguments.get("dataset", ()), "the dataset")
            self._reached |= {node for *_, node in walk.visited_classes}
            titles = {(path, title) for path, title, _ in walk.visited_classes}
            self.classes[loader] = set(walk.classes)
            for name in ("collate_fn", "worker_init_fn"):
                walk.value(loader.arguments.get(name, ()), f"`{name}`")
            self.held[loader] = walk.found
            if not loader.may_have_workers:
                self._idle |= titles - self._busy
                continue
            self._busy |= titles
            self._idle -= titles
            if loader.sends_to_workers:
                self._add_objects(walk.found)
        for made in instances:
            cls = made.cls
            if isinstance(cls, ClassObject):
                self._made.add(cls.place.node)
            if isinstance(cls, ClassObject) and cls.place.node not in self._reached and cls.is_dataset:
                walk = _PickleVisitor(run)
                walk.value((made,), "the dataset")
                if walk.found:
                    self._others.append((made, walk.found))
        self._seen_loaders, self._seen_instances = len(run.loaders), len(run.instances)


class _PickleVisitor:
    """Visit the objects that ``pickle`` would visit, and collect the objects that cannot be pickled.

    Attributes:
        found: the objects that cannot be pickled.
        visited_classes: file, name and definition of each class of the project to which a visited object belongs.
        classes: the definitions of the classes in ``visited_classes``, and of their bases.
    """

    def __init__(self, run: AbstractRun) -> None:
        self._run = run
        self._seen: set[int] = set()
        self._holder: tuple[ClassObject, str] | None = None
        self.found: list[UnpicklableObject] = []
        self.visited_classes: set[tuple[str, str, ast.AST]] = set()
        self.classes: set[CreationPlace] = set()

    def value(self, value: Value, holder: str, depth: int = 0) -> None:
        """Visit each object in ``value``, which has all possible results of an expression."""
        for thing in value:
            if id(thing) not in self._seen and depth < _DEPTH:
                self._seen.add(id(thing))
                self._visit_object(thing, holder, depth)

    def _report(
        self,
        reported_kind: ReportedUnpicklableKind,
        place: CreationPlace,
        holder: str,
        kind: UnpicklableKind | None = None,
    ) -> None:
        self.found.append(UnpicklableObject(reported_kind, place, holder, kind, self._attribute_around(place)))

    def _attribute_around(self, place: CreationPlace) -> str:
        """Return the name of the attribute whose value the visitor visits now, such as ``lock`` for ``self.lock``.

        The result is "" if the visitor is not in the value of an attribute. The result is also "" if ``place``, the
        code that creates the visited object, is outside of the class whose object has the attribute.
        """
        if self._holder is None:
            return ""
        cls, name = self._holder
        line, around = line_and_column(place.node)[0], cls.place.node
        end = getattr(around, "end_lineno", 0)
        return name if place.path == cls.place.path and line_and_column(around)[0] <= line <= end else ""

    def _visit_object(self, thing: AbstractObject, holder: str, depth: int) -> None:
        match thing:
            case FunctionObject(is_named=True):
                pass
            case FunctionObject(place=CreationPlace(node=ast.Lambda()) as place):
                self._report(ReportedUnpicklableKind.LAMBDA, place, holder)
            case FunctionObject(scope=scope, place=place) if thing.owner is None and scope.is_local:
                self._report(ReportedUnpicklableKind.FUNCTION, place, holder)
            case FunctionObject(owner=ClassObject() as owner):
                self._visit_class(owner, holder)
            case ClassObject():
                self._visit_class(thing, holder)
            case BoundMethod(owner=owner):
                self.value((owner,), holder, depth + 1)
            case Instance():
                self._visit_instance(thing, holder, depth)
            case Container(cells=cells):
                for value in list(cells.values()):
                    self.value(value, holder, depth + 1)
            case LoaderObject(arguments=arguments):
                for value in list(arguments.values()):
                    self.value(value, holder, depth + 1)
            case UnpicklableLibraryObject(place=place, kind=kind):
                self._report(ReportedUnpicklableKind.STATE, place, holder, kind)
            case ModuleObject(place=CreationPlace() as place):
                self._report(ReportedUnpicklableKind.STATE, place, holder, UnpicklableKind.MODULE)
            case _:
                pass

    def _visit_class(self, cls: ClassObject, holder: str) -> None:
        if cls.scope.is_local:
            self._report(ReportedUnpicklableKind.CLASS, cls.place, holder)

    def _visit_instance(self, made: Instance, holder: str, depth: int) -> None:
        cls = made.cls
        if isinstance(cls, str):
            for value in list(made.cells.values()):
                self.value(value, holder, depth + 1)
            return
        self.visited_classes.add((cls.place.path, cls.name, cls.place.node))
        self._visit_class(cls, holder)
        order = cls.order
        self.classes |= {one.place for one in order if isinstance(one, ClassObject)}
        kinds = [unpicklable_kind_of_class(one.name) for one in order if isinstance(one, LibraryName)]
        kind = next((one for one in kinds if one is not None), None)
        own = {name for one in order if isinstance(one, ClassObject) for name in one.body.cells}
        if not own.isdisjoint(_PICKLING):
            return
        if kind is not None:
            self._report(ReportedUnpicklableKind.STATE, made.place, holder, kind)
            return
        if "__getstate__" in own:
            for method in self._run.attribute_of(made, "__getstate__"):
                self.value(self._run.call_from_outside(method, Arguments()), f"`{cls.name}.__getstate__`", depth + 1)
            return
        before = self._holder
        for name, value in list(made.cells.items()):
            self._holder = (cls, name) if isinstance(name, str) else before
            self.value(value, f"`{cls.name}.{name}`" if isinstance(name, str) else holder, depth + 1)
        self._holder = before


@lru_cache(maxsize=2)
def _same_nodes(before: str) -> NodesAfterRewrite:
    return NodesAfterRewrite(before)


def _name_offset(module: Module, node: ast.AST, offset: int) -> int:
    """Return the offset at which rules report ``node``, which begins at ``offset``.

    For a function or class, the result is the offset of its name. For any other node, the result is ``offset``.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return module.text.index(node.name, offset)
    return offset


def _word_around(tree: ast.Module, node: ast.AST) -> str:
    """Return a word by which a search can find the code around a node.

    The word is the name of the definition around the node or, at the top level, the longest word of the statement.
    """
    line = line_and_column(node)[0]
    name = ""
    pending: list[ast.AST] = [tree]
    for around in pending:
        for one in ast.iter_child_nodes(around):
            if isinstance(one, ast.expr) or not getattr(one, "lineno", 1) <= line <= getattr(one, "end_lineno", line):
                continue
            pending.append(one)
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not one.name.startswith("__"):
                name = one.name
            elif isinstance(one, ast.stmt) and not name:
                name = _longest_word(one)
    return name


@lru_cache(maxsize=8)
def _longest_word(statement: ast.stmt) -> str:
    words = [part.id for part in walk_tree(statement) if isinstance(part, ast.Name)]
    words += [part.attr for part in walk_tree(statement) if isinstance(part, ast.Attribute)]
    return max(words, key=len, default="")
