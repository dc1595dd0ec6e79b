"""Evaluate calls of libraries, of Python's built-in functions, and of methods that the project does not define."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod

from chirp_migrate.analysis.known_names import (
    ACCELERATOR,
    DATASET,
    FACTORY_METHOD,
    HUGGING_FACE_DATASET,
    LOADER,
    TORCH_POSITIONAL,
)
from chirp_migrate.analysis.objects.abstract_objects import (
    UNKNOWN,
    AbstractObject,
    AbstractScope,
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
    UnpicklableKind,
    UnpicklableLibraryObject,
    Value,
    unite_values,
)
from chirp_migrate.analysis.objects.libraries import (
    KEEPS,
    MAKES_ROWS,
    PASSES_ON,
    PLAIN_CALLABLE,
    STAYS_ROWS,
    is_numeric_array,
    unpicklable_part_of,
    unpicklable_result_of_call,
)
from chirp_migrate.analysis.objects.values import (
    NO_ARGUMENTS,
    NONE,
    Arguments,
    SuperResult,
    copy_object,
    loaders_in,
    possible_texts,
    single_possible_key,
    unknown_text_ending_with,
)
from chirp_migrate.analysis.objects.variable_store import VariableStore
from chirp_migrate.syntax.project import Project

_DICTS = frozenset({"dict", "defaultdict", "OrderedDict", "Counter"})
#: Methods of accelerate's ``Accelerator`` that build new loaders from loaders.
_PREPARE = ("prepare", "prepare_data_loader")
_LISTS = frozenset({"list", "tuple", "set", "frozenset", "deque"})
#: Methods of a Hugging Face dataset that return another dataset.
_GIVES_DATASET = re.compile(
    r"map|filter|select|sort|shuffle|shard|take|skip|repeat|batch|unique|cast\w*|flatten\w*|train_test_split|with_\w+"
    r"|(re|select_|rename_|add_|remove_)\w*columns?|class_encode_column|to_iterable_dataset|get|copy"
)


class LibraryCalls(VariableStore, ABC):
    """Return the results of library calls on abstract values, and record the loaders that the calls build.

    Attributes:
        loaders: the loaders that were built, in order.
    """

    _project: Project

    def __init__(self) -> None:
        super().__init__()
        self.loaders: list[LoaderObject] = []
        self._created = 0  # loaders and datasets

    @abstractmethod
    def _elements(self, value: Value, node: ast.expr, scope: AbstractScope) -> Value: ...

    @abstractmethod
    def _attribute(self, thing: AbstractObject, name: str) -> Value: ...

    @abstractmethod
    def _class_attribute(self, cls: ClassObject, name: str, below: ClassObject | None = None) -> Value: ...

    @abstractmethod
    def _item(self, thing: AbstractObject, keys: Value, node: ast.expr, scope: AbstractScope) -> Value: ...

    @abstractmethod
    def _set_attribute(self, thing: AbstractObject, name: str, value: Value, *, is_only: bool) -> None: ...

    @abstractmethod
    def _set_item(self, thing: AbstractObject, keys: Value, value: Value, *, is_only: bool) -> None: ...

    @abstractmethod
    def _call(
        self, function: AbstractObject, arguments: Arguments, place: CreationPlace, scope: AbstractScope | None = None
    ) -> Value: ...

    @abstractmethod
    def _pass_to_unknown_code(self, arguments: Arguments, place: CreationPlace) -> None: ...

    def _initialise(self, made: Instance, base: str, arguments: Arguments, place: CreationPlace) -> bool:
        """Pass the arguments to the constructor of a library's class, and return whether the object stores them."""
        if LOADER.fullmatch(base):
            made.loader = self._loader(base, arguments, place)
            return True
        if KEEPS.fullmatch(base) and (arguments.positional or arguments.keywords):
            self._store_arguments(made, arguments)
            return True
        if base in ("builtins.dict", "builtins.list", "collections.UserDict", "collections.UserList"):
            self._add(made.cells, None, unite_values(*(self._all_of(value) for value in arguments.values())))
        return False

    def _store_arguments(self, made: Instance, arguments: Arguments) -> None:
        for key, value in (*enumerate(arguments.positional), *arguments.keywords.items()):
            self._add(made.cells, key, value)

    def _all_of(self, value: Value) -> Value:
        """Return all values that the containers in a value contain, without their keys."""
        return unite_values(*(one for thing in value if isinstance(thing, Container) for one in thing.cells.values()))

    def _loader(self, name: str, arguments: Arguments, place: CreationPlace) -> LoaderObject:
        method = FACTORY_METHOD.fullmatch(name)
        names = ("dataset", "batch_size") if method is not None and method["role"] else TORCH_POSITIONAL
        given = dict(zip(names, arguments.positional, strict=False)) | arguments.keywords
        if arguments.more:
            given = {"batch_size": UNKNOWN, "num_workers": UNKNOWN, **given}
        loader = LoaderObject(place, given)
        self.loaders.append(loader)
        self._created += 1
        return loader

    def _call_library(
        self, name: str, arguments: Arguments, place: CreationPlace, scope: AbstractScope | None
    ) -> Value:
        if LOADER.fullmatch(name) or FACTORY_METHOD.fullmatch(name):
            return (self._loader(name, arguments, place),)
        short = name.removeprefix("builtins.").removeprefix("collections.")
        if short != name and (short in _DICTS or short in _LISTS):
            return self._container(short, arguments, place)
        made = unpicklable_result_of_call(name)
        if made is not None:
            return (UnpicklableLibraryObject(place, made.kind, UNKNOWN, made.part),)
        if name in ("functools.wraps", "dataclasses.field", "dataclasses.dataclass"):
            kept = Instance(place, name)
            self._store_arguments(kept, arguments)
            return (kept,)
        if PASSES_ON.fullmatch(name):
            if name.startswith("tqdm"):
                self._pass_to_unknown_code(arguments, place)
            return arguments.first() if arguments.positional else (LibraryName(name),)
        if KEEPS.fullmatch(name):
            keeper = Instance(place, name)
            self._store_arguments(keeper, arguments)
            if name == "functools.partial" and arguments.more:
                keeper.cells[None] = UNKNOWN  # of `partial(function, **unknown)`
            self._created += DATASET.fullmatch(name) is not None
            if name.startswith(("builtins.", "itertools.")):
                self._pass_to_unknown_code(arguments, place)
            if name.rpartition(".")[2] == "random_split":
                return (Container("list", {None: (keeper,)}),)
            return (keeper,)
        if HUGGING_FACE_DATASET.fullmatch(name) or ACCELERATOR.fullmatch(name):
            self._created += 1
            return (Instance(place, name),)
        if MAKES_ROWS.fullmatch(name) and not arguments.keywords.keys() & {"device", "requires_grad"}:
            self._pass_to_unknown_code(arguments, place)
            return (Instance(place, name),)
        found = self._call_builtin(name, arguments, place, scope)
        if not PLAIN_CALLABLE.fullmatch(name):
            self._pass_to_unknown_code(arguments, place)
        return UNKNOWN if found is None else found

    def _call_builtin(
        self, name: str, arguments: Arguments, place: CreationPlace, scope: AbstractScope | None
    ) -> Value | None:
        """Return the result of a function of Python or another library, such as ``list`` or ``numpy.load``.

        The result is ``None`` if this method does not know the function.
        """
        first = arguments.first()
        node = place.node if isinstance(place.node, ast.expr) else ast.Constant(None)
        inner = scope or AbstractScope(place.path, None, "module")
        match name:
            case "torch.cuda.is_available":
                return (Instance(place, name),)
            case "builtins.sorted":
                return (Container("list", {None: self._elements(first, node, inner)}),)
            case "builtins.iter":
                return (Container("list", {None: self._elements(first, node, inner)}),)
            case "builtins.sum" | "builtins.min" | "builtins.max" | "builtins.any" | "builtins.all":
                summed = self._elements(first, node, inner)
                if name == "builtins.sum" and summed and all(isinstance(one, Instance) for one in summed):
                    return summed  # a sum of datasets is a dataset with the samples of all
            case "builtins.next":
                return self._elements(first, node, inner)
            case "builtins.len":
                for thing in first:
                    if isinstance(thing, Instance) and isinstance(thing.cls, ClassObject):
                        for one in self._class_attribute(thing.cls, "__len__"):
                            self._call(
                                BoundMethod(thing, one) if isinstance(one, FunctionObject) else one, NO_ARGUMENTS, place
                            )
            case "inspect.isclass":
                kinds = {type(one) for one in first}
                if kinds == {ClassObject} or (kinds and kinds <= {FunctionObject, BoundMethod}):
                    return (Constant(kinds == {ClassObject}),)
            case "builtins.vars":
                return unite_values(*(self._attribute(thing, "__dict__") for thing in first))
            case "builtins.getattr" if len(arguments.positional) > 1:
                names = [one.value for one in arguments.positional[1] if isinstance(one, Constant)]
                found = [self._attribute(thing, one) for thing in first for one in names if isinstance(one, str)]
                return unite_values(*found, *arguments.positional[2:]) or UNKNOWN
            case "builtins.setattr" | "builtins.object.__setattr__" if len(arguments.positional) > 2:
                for key in arguments.positional[1]:
                    for thing in first:
                        if isinstance(key, Constant) and isinstance(key.value, str):
                            self._set_attribute(thing, key.value, arguments.positional[2], is_only=len(first) == 1)
            case "builtins.delattr" if len(arguments.positional) > 1:
                for key in arguments.positional[1]:
                    for thing in first:
                        if isinstance(key, Constant) and isinstance(thing, Instance):
                            self._delete(thing.cells, key.value)
            case "builtins.super":
                owners = [one for one in first if isinstance(one, ClassObject)]
                if owners and len(arguments.positional) > 1:
                    return (SuperResult(arguments.positional[1], owners[0]),)
            case "builtins.type" if len(arguments.positional) == 3:
                return self._create_class(arguments, place, inner)
            case "builtins.type":
                return tuple(one.cls for one in first if isinstance(one, Instance) and isinstance(one.cls, ClassObject))
            case "copy.copy" | "copy.deepcopy":
                return tuple(copy_object(one) for one in first)
            case "builtins.object.__getstate__":
                return unite_values(*(self._attribute(thing, "__dict__") for thing in first))
            case "numpy.load":
                if any(text.endswith(".npz") for text in possible_texts(arguments.first("file"))):
                    return (UnpicklableLibraryObject(place, UnpicklableKind.ARCHIVE),)
            case "pathlib.Path":
                return self._path(arguments.positional[-1] if arguments.positional else UNKNOWN, place)
            case "os.path.join" | "builtins.str" | "os.fspath":
                return unknown_text_ending_with(arguments.positional[-1]) if arguments.positional else UNKNOWN
            case "collections.namedtuple":
                return self._named_tuple(arguments, place, inner)
            case "importlib.import_module" | "builtins.__import__":
                return (ModuleObject("?", is_own=False),)
            case "multiprocessing.get_context":
                return (LibraryName("multiprocessing"),)
        return None

    def _path(self, end: Value, place: CreationPlace) -> Value:
        """Return a ``pathlib.Path`` that ends with the text ``end``."""
        return (Instance(place, "pathlib.Path", {0: unknown_text_ending_with(end)}),)

    def _named_tuple(self, arguments: Arguments, place: CreationPlace, scope: AbstractScope) -> Value:
        """Return the class that ``collections.namedtuple`` creates."""
        name = next(iter(possible_texts(arguments.first("typename"))), "?")
        given = arguments.positional[1] if len(arguments.positional) > 1 else arguments.keywords.get("field_names", ())
        fields = [word for text in possible_texts(given) for word in text.replace(",", " ").split()]
        fields += [
            text
            for one in given
            if isinstance(one, Container)
            for value in one.cells.values()
            for text in possible_texts(value)
        ]
        body = AbstractScope(place.path, scope, "class")
        return (ClassObject(place, name, scope, [LibraryName("builtins.tuple")], body, fields),)

    def _create_class(self, arguments: Arguments, place: CreationPlace, scope: AbstractScope) -> Value:
        """Return the class that ``type(name, bases, body)`` creates."""
        title, bases, members = arguments.positional
        body = AbstractScope(place.path, scope, "class")
        for one in members:
            if isinstance(one, Container):
                body.cells.update({key: value for key, value in one.cells.items() if isinstance(key, str)})
        over = [thing for one in bases if isinstance(one, Container) for value in one.cells.values() for thing in value]
        name = next((str(one.value) for one in title if isinstance(one, Constant)), "?")
        cls = ClassObject(place, name, scope, over, body)
        for value in body.cells.values():
            for thing in value:
                if isinstance(thing, FunctionObject):
                    thing.owner = thing.owner or cls
        return (cls,)

    def _container(self, kind: str, arguments: Arguments, place: CreationPlace) -> Value:
        made = Container("dict" if kind in _DICTS else kind)
        inner, node = AbstractScope(place.path, None, "module"), ast.Constant(None)
        given = list(arguments.positional)
        if kind == "defaultdict" and given:
            self._write(made.cells, "*factory", given.pop(0))
        for value in given:
            if kind in _DICTS:
                self._update(made, value)
            else:
                self._extend(made, value, node, inner)
        if kind in _DICTS:
            for key, value in arguments.keywords.items():
                self._write(made.cells, key, value)
        return (made,)

    def _extend(self, made: Container, value: Value, node: ast.expr, scope: AbstractScope) -> None:
        if made.kind == "dict":
            self._update(made, value)
        else:
            self._add(made.cells, None, self._elements(value, node, scope))

    def _update(self, made: Container, value: Value) -> None:
        """Add the entries of ``value`` to the dict ``made``, as ``made.update(value)`` does."""
        for thing in value:
            if isinstance(thing, Container):
                for key, one in list(thing.cells.items()):
                    if key == "*factory":
                        continue
                    if thing.kind == "dict" and key is not None:
                        self._write(made.cells, key, one)
                    else:
                        self._add(made.cells, None, one)
            else:
                self._add(made.cells, None, UNKNOWN)

    def _call_named(
        self, owner: AbstractObject, name: str, arguments: Arguments, place: CreationPlace, below: ClassObject | None
    ) -> Value:
        """Return the result of calling the method ``name`` of ``owner``, which the project does not define.

        For a call through ``super()``, ``below`` is the class whose code calls ``super``. Only the classes after
        ``below`` in the method resolution order then count.
        """
        match owner:
            case Container():
                return self._call_container(owner, name, arguments, place)
            case UnpicklableLibraryObject(kind=kind, part=part):
                known = unpicklable_part_of(kind, part, f"{name}()")
                if known == "view":
                    return (UnpicklableLibraryObject(place, UnpicklableKind.VIEW),)
                return (UnpicklableLibraryObject(place, kind, part=known),) if known else UNKNOWN
            case Instance(cls=ClassObject() as cls):
                return self._call_inherited(owner, cls, name, arguments, place, below)
            case Instance(cls=str() as cls) if HUGGING_FACE_DATASET.fullmatch(cls) and _GIVES_DATASET.fullmatch(name):
                self._pass_to_unknown_code(arguments, place)
                return (owner,)
            case Instance() if is_numeric_array(owner) and STAYS_ROWS.fullmatch(name):
                return (owner,)
            case Instance(cls=str() as cls) if ACCELERATOR.fullmatch(cls) and name in _PREPARE:
                return self._prepare(arguments, place)
            case BoundMethod(function="accelerator") if (
                name in _PREPARE
            ):  # the attribute `accelerator` of transformers' `Trainer`
                return self._prepare(arguments, place)
            case Instance(cls="pathlib.Path") if name == "open":
                return (UnpicklableLibraryObject(place, UnpicklableKind.FILE, UNKNOWN, "file"),)
            case Instance(cls="pathlib.Path") if name in ("with_suffix", "with_name", "joinpath"):
                return self._path(arguments.first(), place)
            case Instance(cls="pathlib.Path") if name in ("absolute", "resolve", "expanduser"):
                return (owner,)
        self._pass_to_unknown_code(arguments, place)
        return UNKNOWN

    def _prepare(self, arguments: Arguments, place: CreationPlace) -> Value:
        """Return the results of accelerate's ``prepare``.

        A loader becomes an unknown object, and other arguments stay unchanged.
        """
        made: list[Value] = []
        for value in arguments.positional:
            loaders = list(loaders_in(value))
            for loader in loaders:
                loader.replaced_by = place
            made.append(UNKNOWN if loaders else value)
        if arguments.more or not made:
            return UNKNOWN
        return made[0] if len(made) == 1 else (Container("tuple", dict(enumerate(made))),)

    def _call_inherited(
        self,
        owner: Instance,
        cls: ClassObject,
        name: str,
        arguments: Arguments,
        place: CreationPlace,
        below: ClassObject | None,
    ) -> Value:
        """Return the result of a method that only a base class from a library defines.

        ``below`` has the same meaning as in :meth:`_call_named`.
        """
        order = cls.order
        above = order[order.index(below) + 1 :] if below in order else order
        libraries = [one.name for one in above if isinstance(one, LibraryName)]
        if name == "__init__":
            any(self._initialise(owner, one, arguments, place) for one in libraries)
            return NONE
        if name == "__getstate__":
            return (Container("dict", dict(owner.cells)),)
        if name in ("__setattr__", "register_buffer", "add_module") and len(arguments.positional) > 1:
            for key in arguments.positional[0]:
                if isinstance(key, Constant) and isinstance(key.value, str):
                    self._set_attribute(owner, key.value, arguments.positional[1], is_only=True)
            return NONE
        if any(one in ("builtins.dict", "builtins.list", "collections.UserDict") for one in libraries):
            inner = Container("dict" if "dict" in libraries[0].lower() else "list", owner.cells)
            return self._call_container(inner, name, arguments, place)
        self._pass_to_unknown_code(arguments, place)
        return UNKNOWN

    def _call_container(self, made: Container, name: str, arguments: Arguments, place: CreationPlace) -> Value:
        node = place.node if isinstance(place.node, ast.expr) else ast.Constant(None)
        inner = AbstractScope(place.path, None, "module")
        first = arguments.first()
        known = unite_values(*(value for key, value in made.cells.items() if key != "*factory"))
        match name:
            case "append" | "add" | "appendleft":
                self._add(made.cells, None, first)
            case "insert" if len(arguments.positional) > 1:
                self._add(made.cells, None, arguments.positional[1])
            case "extend" | "extendleft":
                self._extend(made, first, node, inner)
            case "update":
                for value in arguments.positional:
                    self._extend(made, value, node, inner)
                for keyword, value in arguments.keywords.items():
                    self._write(made.cells, keyword, value)
            case "setdefault":
                value = arguments.positional[1] if len(arguments.positional) > 1 else NONE
                self._add(made.cells, single_possible_key(first), value)
                return unite_values(known, value)
            case "get" | "pop" | "__getitem__" if made.kind == "dict":
                key = single_possible_key(first)
                found = self._item(made, first, node, inner)
                if name == "pop" and key is not None:
                    self._delete(made.cells, key)
                return unite_values(found, *(arguments.positional[1:2] or ([NONE] if name == "get" else [])))
            case "pop" | "popleft" | "__getitem__":
                return known or UNKNOWN
            case "__setitem__" if len(arguments.positional) > 1:
                self._set_item(made, first, arguments.positional[1], is_only=True)
            case "clear":
                for cell in list(made.cells):
                    self._delete(made.cells, cell)
            case "keys" if made.kind == "dict":
                keys = unite_values(*((Constant(key),) for key in made.cells if key not in (None, "*factory")))
                return (UnpicklableLibraryObject(place, UnpicklableKind.VIEW, keys or UNKNOWN),)
            case "values" if made.kind == "dict":
                return (UnpicklableLibraryObject(place, UnpicklableKind.VIEW, known or UNKNOWN),)
            case "items" if made.kind == "dict":
                keys = unite_values(*((Constant(key),) for key in made.cells if key not in (None, "*factory")))
                pair = Container("tuple", {0: keys or UNKNOWN, 1: known or UNKNOWN})
                return (UnpicklableLibraryObject(place, UnpicklableKind.VIEW, (pair,)),)
            case "copy" | "__copy__":
                return (Container(made.kind, dict(made.cells)),)
            case _:
                return UNKNOWN
        return NONE
