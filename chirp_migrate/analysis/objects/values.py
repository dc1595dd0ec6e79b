"""Read properties of abstract values, such as their truth or text, without running code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from chirp_migrate.analysis.objects.abstract_objects import (
    UNKNOWN,
    AbstractObject,
    AbstractScope,
    ClassObject,
    Constant,
    Container,
    CreationPlace,
    FunctionObject,
    Instance,
    LoaderObject,
    ModuleObject,
    UnpicklableLibraryObject,
    Value,
)
from chirp_migrate.syntax.module import child_nodes, walk_tree

NONE: Value = (Constant(None),)
_NAMED = (ModuleObject, UnpicklableLibraryObject)


@dataclass(frozen=True)
class SuperResult(AbstractObject):
    """The result of ``super()``.

    Attributes:
        objects: the possible values of ``self`` or ``cls``.
        below: the class whose code calls ``super()``. The search for an attribute starts after this class in the method
            resolution order.
    """

    objects: Value
    below: ClassObject


@dataclass
class Arguments:
    """The arguments of a call.

    Attributes:
        positional: the values by position.
        keywords: the values by name.
        more: whether the call may have further arguments, from ``*`` or ``**`` of an unknown object.
    """

    positional: list[Value] = field(default_factory=list)
    keywords: dict[str, Value] = field(default_factory=dict)
    more: bool = False

    def values(self) -> list[Value]:
        """Return all values."""
        return [*self.positional, *self.keywords.values()]

    def with_first(self, first: Value) -> Arguments:
        """Return the arguments with ``first`` as additional first argument."""
        return Arguments([first, *self.positional], self.keywords, self.more)

    def first(self, keyword: str = "") -> Value:
        """Return the first positional value, or the value of ``keyword``."""
        if self.positional:
            return self.positional[0]
        return self.keywords.get(keyword, UNKNOWN)


NO_ARGUMENTS = Arguments()


def scope_around_comprehensions(scope: AbstractScope) -> AbstractScope:
    """Return the innermost scope that is not a comprehension. ``yield`` and ``:=`` take effect in this scope."""
    while scope.kind == "comprehension" and scope.around is not None:
        scope = scope.around
    return scope


def enclosing_method(scope: AbstractScope) -> tuple[ClassObject, Value] | None:
    around: AbstractScope | None = scope
    while around is not None:
        if around.caller is not None:
            return around.caller
        around = around.around
    return None


@lru_cache(maxsize=4096)
def is_main_guard(test: ast.expr) -> bool:
    """Return whether a condition reads ``__name__``, as in ``if __name__ == "__main__"``."""
    return any(isinstance(one, ast.Name) and one.id == "__name__" for one in walk_tree(test))


def called_expression(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


@lru_cache(maxsize=4096)
def is_generator_function(node: ast.AST) -> bool:
    pending = list(child_nodes(node))
    for one in pending:  # the list grows while the loop runs
        if isinstance(one, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += child_nodes(one)
    return False


def loaders_in(value: Value, depth: int = 2) -> Iterator[LoaderObject]:
    """Yield the loaders in a value and in its containers."""
    for thing in value:
        match thing:
            case LoaderObject() as loader:
                yield loader
            case Instance(loader=LoaderObject() as loader):
                yield loader
            case Container(cells=cells) if depth:
                for one in list(cells.values()):
                    yield from loaders_in(one, depth - 1)


def possible_texts(value: Value) -> list[str]:
    """Return the known texts of the strings and ``Path`` objects that an abstract value contains.

    If only the end of a text is known, such as ``/train.csv``, the result contains this end. The result omits strings
    and paths of which nothing is known.
    """
    found = [one.value for one in value if isinstance(one, Constant) and isinstance(one.value, str)]
    paths = (one.cells.get(0, ()) for one in value if isinstance(one, Instance) and one.cls == "pathlib.Path")
    return found + [text for path in paths for text in possible_texts(path)]


def unknown_text_ending_with(value: Value) -> Value:
    """Return a value for texts of which only the end is known: the end is one of the texts in ``value``."""
    return tuple(Constant(text, is_whole=False) for text in possible_texts(value)) or UNKNOWN


def set_place_of_modules(value: Value, path: str, node: ast.expr) -> Value:
    """Return ``value``, with ``node`` of the file at ``path`` as the place of modules and standard streams.

    No code of the project creates a module object or a stream such as ``sys.stdout``. So rules report such an object at
    ``node``, the code that reads the object.
    """
    for thing in value:
        if isinstance(thing, _NAMED):
            break
    else:
        return value
    place = CreationPlace(path, node)
    return tuple(
        replace(thing, place=place)
        if isinstance(thing, ModuleObject)
        else UnpicklableLibraryObject(place, thing.kind)
        if isinstance(thing, UnpicklableLibraryObject) and not thing.place.path
        else thing
        for thing in value
    )


def single_possible_key(keys: Value) -> object:
    """Return the only possible object in ``keys`` if it is a known string or number; else ``None``."""
    match keys:
        case (Constant(value=str() | int() as key, is_whole=True),):
            return key
    return None


def truth_value(value: Value) -> bool | None:
    """Return whether a value is true; None if the value may be true or false."""
    answers = {_is_true(thing) for thing in value}
    return answers.pop() if len(answers) == 1 else None


def _is_true(thing: AbstractObject) -> bool | None:
    match thing:
        case Constant(value=known, is_whole=True):
            return bool(known)
        case FunctionObject() | ClassObject() | ModuleObject() | UnpicklableLibraryObject():
            return True
    return None


def comparison_result(left: AbstractObject, op: ast.cmpop, right: AbstractObject) -> bool | None:
    """Return the result of a comparison of two objects; None if the result is not certain."""
    negated = isinstance(op, ast.IsNot | ast.NotEq)
    match left, right:
        case Constant(value=first, is_whole=True), Constant(value=second, is_whole=True):
            if isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
                return (first == second) is not negated
        case (Constant(value=None), known) | (known, Constant(value=None)):
            is_object = isinstance(
                known, Instance | Container | FunctionObject | ClassObject | UnpicklableLibraryObject | Constant
            )
            if is_object and isinstance(op, ast.Is | ast.IsNot):
                return negated
    return None


def copy_object(original: AbstractObject) -> AbstractObject:
    match original:
        case Instance():
            return Instance(original.place, original.cls, dict(original.cells), original.loader)
        case Container():
            return Container(original.kind, dict(original.cells))
    return original
