"""Read and set attributes and items of abstract objects, and use such objects in loops and ``with``."""

from __future__ import annotations

import ast
from abc import abstractmethod

from chirp_migrate.analysis.known_names import HUGGING_FACE_DATASET
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
from chirp_migrate.analysis.objects.libraries import is_numeric_array, unpicklable_part_of, unpicklable_result_of_call
from chirp_migrate.analysis.objects.library_calls import LibraryCalls
from chirp_migrate.analysis.objects.values import NO_ARGUMENTS, Arguments, SuperResult, single_possible_key
from chirp_migrate.syntax.module import package_name
from chirp_migrate.syntax.name_resolution import locate_import

#: Attributes of objects of libraries, each with the position of the constructor argument that the attribute contains.
_PLACES = {"dataset": 0, "datasets": 0, "transforms": 0, "indices": 1, "func": 0}


class ObjectAccess(LibraryCalls):
    """Read and set attributes (``x.a``), items (``x[key]``) and iterated elements of abstract objects."""

    @abstractmethod
    def module(self, path: str) -> AbstractScope:
        """Import a module, and return the scope with its names."""

    @abstractmethod
    def _value_of_name(self, scope: AbstractScope, name: str) -> Value: ...

    @abstractmethod
    def _record_iteration(self, loader: LoaderObject, place: CreationPlace) -> None: ...

    def _class_attribute(self, cls: ClassObject, name: str, below: ClassObject | None = None) -> Value:
        """Return the value of a class attribute that the project defines in a class or one of its bases.

        If the project defines no such attribute, the result is empty.

        With ``below``, only search the classes after ``below`` in the method resolution order.
        """
        order = cls.order
        if below is not None:
            order = order[order.index(below) + 1 :] if below in order else order[1:]
        for one in order:
            if isinstance(one, ClassObject) and name in one.body.cells:
                return one.body.cells[name]
        return ()

    def _attribute(self, thing: AbstractObject, name: str) -> Value:
        match thing:
            case Instance(cls=ClassObject() as cls):
                if name in thing.cells:
                    return thing.cells[name]
                if name == "__dict__":
                    return (Container("dict", thing.cells),)
                if name == "__class__":
                    return (cls,)
                if thing.loader is not None and name in thing.loader.arguments:
                    return thing.loader.arguments[name]
                found = self._class_attribute(cls, name)
                bound = unite_values(*(self._bind_to_object(one, thing, cls) for one in found))
                return bound or thing.cells.get(_PLACES.get(name, -1)) or (BoundMethod(thing, name),)
            case Instance(cls=str()):
                return thing.cells.get(name) or thing.cells.get(_PLACES.get(name, -1)) or (BoundMethod(thing, name),)
            case SuperResult(objects=objects, below=below):
                found_: list[Value] = []
                for one in objects:
                    if isinstance(one, Instance) and isinstance(one.cls, ClassObject):
                        above = self._class_attribute(one.cls, name, below)
                        found_ += [self._bind_to_object(each, one, one.cls) for each in above] or [
                            (BoundMethod(one, name, below),)
                        ]
                    elif isinstance(one, ClassObject):
                        found_ += [
                            self._bind_to_object(each, one, one) for each in self._class_attribute(one, name, below)
                        ]
                return unite_values(*found_) or UNKNOWN
            case ClassObject():
                found = self._class_attribute(thing, name)
                if found:
                    return unite_values(*(self._bind_to_class(one, thing) for one in found))
                return (BoundMethod(thing, name),)
            case ModuleObject(name=path, is_own=True):
                return self._module_attribute(path, name)
            case ModuleObject(name=module) | LibraryName(name=module):
                return self._library_attribute(f"{module}.{name}")
            case UnpicklableLibraryObject(kind=kind, part=part):
                known = unpicklable_part_of(kind, part, name)
                return (
                    (UnpicklableLibraryObject(thing.place, kind, part=known),) if known else (BoundMethod(thing, name),)
                )
            case LoaderObject(arguments=arguments):
                return arguments.get(name, UNKNOWN)
            case FunctionObject():
                return thing.cells.get(name, UNKNOWN)
            case Container() | BoundMethod():
                return (BoundMethod(thing, name),)
        return UNKNOWN

    def _library_attribute(self, name: str) -> Value:
        made = unpicklable_result_of_call(name) if name.startswith("sys.std") else None
        return (
            (LibraryName(name),)
            if made is None
            else (UnpicklableLibraryObject(CreationPlace("", ast.Pass()), made.kind),)
        )

    def _module_attribute(self, path: str, name: str) -> Value:
        scope = self.module(path)
        if name in scope.cells:
            return self._value_of_name(scope, name)
        if path.rpartition("/")[2] == "__init__.py":
            inner = [
                one for one, rest in locate_import(self._project, path, f"{package_name(path)}.{name}") if not rest
            ]
            if inner:
                return (ModuleObject(inner[0], is_own=True),)
        found = (LibraryName(f"{star}.{name}") for star in scope.stars)
        return tuple(found) or UNKNOWN

    def _bind_to_object(self, found: AbstractObject, owner: AbstractObject, cls: ClassObject) -> Value:
        match found:
            case FunctionObject(wraps="property"):
                return self._call(BoundMethod(owner, found), NO_ARGUMENTS, found.place)
            case FunctionObject(wraps="staticmethod"):
                return (found,)
            case FunctionObject(wraps="classmethod"):
                return (BoundMethod(cls, found),)
            case FunctionObject() if found.owner is not None or isinstance(found.place.node, ast.Lambda):
                return (BoundMethod(owner, found),)
            case FunctionObject(unwrapped=FunctionObject(owner=ClassObject(), wraps="")):
                return (BoundMethod(owner, found),)
        return (found,)

    def _bind_to_class(self, found: AbstractObject, cls: ClassObject) -> Value:
        return (
            (BoundMethod(cls, found),)
            if isinstance(found, FunctionObject) and found.wraps == "classmethod"
            else (found,)
        )

    def _item(self, thing: AbstractObject, keys: Value, node: ast.expr, scope: AbstractScope) -> Value:
        match thing:
            case LibraryName() | ClassObject():
                return (thing,)  # a generic class such as `Dataset[int]`
            case Container(cells=cells):
                key = single_possible_key(keys)
                if key is not None and key in cells:
                    return unite_values(cells[key], cells.get(None, ()))
                if key is not None and None in cells:
                    return cells[None]
                factory = cells.get("*factory", ())
                made = unite_values(
                    *(self._call(one, NO_ARGUMENTS, CreationPlace(scope.path, node)) for one in factory)
                )
                for one in made if factory else ():
                    self._add(cells, None, (one,))
                known = [value for cell, value in cells.items() if cell != "*factory"]
                return unite_values(*known) if (key is None or factory) and known else UNKNOWN
            case Instance(cls=ClassObject() as cls):
                found = [one for one in self._class_attribute(cls, "__getitem__") if isinstance(one, FunctionObject)]
                if found:
                    place = CreationPlace(scope.path, node)
                    return unite_values(
                        *(self._call(BoundMethod(thing, one), Arguments([keys]), place) for one in found)
                    )
                return thing.cells.get(None, UNKNOWN)
            case Instance(cls=str() as name) if HUGGING_FACE_DATASET.fullmatch(name):
                is_sample = any(isinstance(key, Constant) and isinstance(key.value, int) for key in keys)
                return UNKNOWN if is_sample else (thing,)  # a split of a dataset, or an object that counts as a split
            case Instance() if is_numeric_array(thing):
                return (thing,)
            case Instance(cls=str()):
                dataset = thing.cells.get("dataset") or thing.cells.get(0) or ()
                for one in dataset:
                    if isinstance(one, Instance):
                        self._item(one, UNKNOWN, node, scope)
            case UnpicklableLibraryObject(kind=kind, part=part):
                known_part = unpicklable_part_of(kind, part, "[]")
                is_text = any(isinstance(key, Constant) and isinstance(key.value, str) for key in keys)
                if known_part and is_text:
                    return (UnpicklableLibraryObject(CreationPlace(scope.path, node), kind, part=known_part),)
        return UNKNOWN

    def _elements(self, value: Value, node: ast.expr, scope: AbstractScope) -> Value:
        """Return the items that iteration over an object yields."""
        found: list[Value] = []
        for thing in value:
            match thing:
                case Container(kind=kind, cells=cells):
                    if kind == "dict":
                        keys = [(Constant(key),) for key in cells if key is not None]
                        found += [*keys, *([UNKNOWN] if None in cells or not keys else [])]
                    else:
                        found += list(cells.values())
                case UnpicklableLibraryObject(items=items):
                    found.append(items)
                case (LoaderObject() as loader) | Instance(loader=LoaderObject() as loader):
                    self._record_iteration(loader, CreationPlace(scope.path, node))
                    if not loader.may_have_workers:
                        # Without workers, the main process reads the samples.
                        self._elements(loader.arguments.get("dataset", ()), node, scope)
                    found.append(UNKNOWN)
                case Instance(cls=ClassObject() as cls):
                    found.append(self._iterated(thing, cls, node, scope))
                case Instance(cls=str() as name):
                    kept = [self._elements(one, node, scope) for one in thing.cells.values()]
                    if name in ("builtins.zip", "builtins.enumerate"):
                        kept = [(Container("tuple", dict(enumerate([UNKNOWN] * (name[9] == "e") + kept))),)]
                    found += kept if name.startswith(("builtins.", "itertools.")) else [UNKNOWN]
                case Constant(value=str()):
                    found.append(UNKNOWN)
                case _:
                    found.append(UNKNOWN)
        return unite_values(*found) or UNKNOWN

    def _iterated(self, thing: Instance, cls: ClassObject, node: ast.expr, scope: AbstractScope) -> Value:
        place = CreationPlace(scope.path, node)
        for name, arguments in (("__iter__", NO_ARGUMENTS), ("__getitem__", Arguments([UNKNOWN]))):
            functions = [one for one in self._class_attribute(cls, name) if isinstance(one, FunctionObject)]
            if functions:
                given = unite_values(*(self._call(BoundMethod(thing, one), arguments, place) for one in functions))
                if name == "__iter__":
                    others = [one for one in given if one is not thing]
                    return self._elements(tuple(others), node, scope) if others else UNKNOWN
                return given
        return thing.cells.get(None, UNKNOWN)

    def _value_of_with(self, value: Value, node: ast.expr, scope: AbstractScope) -> Value:
        """Return the value that ``with … as`` binds."""
        found: list[Value] = []
        for thing in value:
            match thing:
                case UnpicklableLibraryObject(kind=UnpicklableKind.GENERATOR, items=items, part="context"):
                    found.append(items)
                case Instance(cls=ClassObject() as cls):
                    functions = [
                        one for one in self._class_attribute(cls, "__enter__") if isinstance(one, FunctionObject)
                    ]
                    place = CreationPlace(scope.path, node)
                    found += [self._call(BoundMethod(thing, one), NO_ARGUMENTS, place) for one in functions] or [
                        (thing,)
                    ]
                case _:
                    found.append((thing,))
        return unite_values(*found)

    def _set_attribute(self, thing: AbstractObject, name: str, value: Value, *, is_only: bool) -> None:
        write = self._write if is_only else self._add
        match thing:
            case Instance(cls=ClassObject() as cls):
                setter = [
                    one for one in self._class_attribute(cls, name) if isinstance(one, FunctionObject) and one.wraps
                ]
                if setter and setter[0].wraps == "property":
                    for function in setter[0].cells.get("setter", ()):
                        self._call(BoundMethod(thing, function) if isinstance(function, FunctionObject) else function,
                                   Arguments([value]), thing.place)  # fmt: skip
                    return
                write(thing.cells, name, value)
            case Instance() | FunctionObject():
                write(thing.cells, name, value)
            case ClassObject():
                write(thing.body.cells, name, value)
            case ModuleObject(name=path, is_own=True):
                write(self.module(path).cells, name, value)
            case LoaderObject():
                thing.arguments[name] = value
            case Container() if name == "default_factory":
                write(thing.cells, "*factory", value)
            case SuperResult(objects=objects):
                for one in objects:
                    self._set_attribute(one, name, value, is_only=is_only)

    def _set_item(self, thing: AbstractObject, keys: Value, value: Value, *, is_only: bool) -> None:
        match thing:
            case Container():
                key = single_possible_key(keys)
                if key is not None and is_only:
                    self._write(thing.cells, key, value)
                else:
                    self._add(thing.cells, key, value)
            case Instance(cls=ClassObject() as cls):
                function = self._class_attribute(cls, "__setitem__")
                for one in function:
                    if isinstance(one, FunctionObject):
                        self._call(BoundMethod(thing, one), Arguments([keys, value]), thing.place)
                if not function:
                    self._add(thing.cells, None, value)
