"""Define abstract objects, which stand for the objects that a program may create, and their contents.

A value is a tuple of the possible results of an expression. The value contains ``UNKNOWN`` if a possible result is an
object that the analysis does not model.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import NamedTuple

from chirp_migrate.analysis.known_names import DATASET, ITERABLE_DATASET

#: Largest number of objects in a value. The analysis drops further objects.
_MOST = 24
#: Largest number of classes in the method resolution order of a class.
_MOST_BASES = 64


class CreationPlace(NamedTuple):
    """The place in the project where an object is created.

    Attributes:
        path: the file, relative to the root.
        node: the expression or definition that creates the object.
    """

    path: str
    node: ast.AST


class AbstractObject:
    """An object that the program may create."""

    __slots__ = ()


Value = tuple[AbstractObject, ...]
#: Maps names, attributes or keys to their values.
Cells = dict[object, Value]


class _Unknown(AbstractObject):
    __slots__ = ()


_UNKNOWN = _Unknown()
#: The value of expressions that the analysis does not model.
UNKNOWN: Value = (_UNKNOWN,)


@dataclass(frozen=True)
class Constant(AbstractObject):
    """A literal, or a string of which only the end is known.

    For ``folder + ".npz"``, ``value`` is ".npz", and ``is_whole`` is False.
    """

    value: object
    is_whole: bool = True


@dataclass(eq=False)
class AbstractScope:
    """The names of a module, class body or call.

    Attributes:
        path: the file, relative to the root.
        around: the enclosing scope, which is searched for names that this scope does not define; None for a module.
        kind: ``module``, ``class``, ``function`` or ``comprehension``.
        cells: the values of the names.
        elsewhere: names that a statement declares ``global`` or ``nonlocal``, each with the scope that defines the
            name.
        stars: the libraries ``m`` in statements ``from m import *``.
        returned: the possible results, if the scope belongs to a call.
        yielded: the possible items that the call yields, if the scope belongs to a call of a generator function.
        caller: the class whose method runs, and the object of the method. Both are needed to evaluate ``super()``. None
            outside of methods.
    """

    path: str
    around: AbstractScope | None
    kind: str
    cells: Cells = field(default_factory=dict)
    elsewhere: dict[str, AbstractScope] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    returned: list[AbstractObject] = field(default_factory=list)
    yielded: list[AbstractObject] = field(default_factory=list)
    caller: tuple[ClassObject, Value] | None = None

    @property
    def is_local(self) -> bool:
        """Return whether the scope is a function, or inside a function.

        Other processes cannot import the functions and classes that such a scope defines.
        """
        return self.kind == "function" or (self.around is not None and self.around.is_local)

    @property
    def module(self) -> AbstractScope:
        """Return the scope of the module."""
        scope = self
        while scope.around is not None:
            scope = scope.around
        return scope


@dataclass(eq=False)
class FunctionObject(AbstractObject):
    """A function or lambda.

    Attributes:
        place: the definition.
        scope: the scope in which the definition binds the name; for a lambda, the scope around it.
        defaults: the values of parameters that have a default.
        owner: the class whose body defines the function; None for a function that is not a method.
        is_named: whether a decorator, such as ``functools.wraps``, may give the function the name of a module-level
            function. A worker can then find the function by this name, so the function counts as picklable.
        wraps: ``property``, ``staticmethod``, ``classmethod`` or ``contextmanager`` if the function has this decorator,
            else "".
        cells: the attributes of the function.
    """

    place: CreationPlace
    scope: AbstractScope
    defaults: dict[str, Value]
    owner: ClassObject | None = None
    is_named: bool = False
    wraps: str = ""
    cells: Cells = field(default_factory=dict)

    @property
    def unwrapped(self) -> FunctionObject:
        """Return the function that decorators of the project wrap; without such decorators, this function itself."""
        inner = next((one for one in self.cells.get("__wrapped__", ()) if isinstance(one, FunctionObject)), None)
        return self if inner is None else inner.unwrapped


@dataclass(eq=False)
class ClassObject(AbstractObject):
    """A class of the project.

    Attributes:
        place: the definition, or the call that creates the class.
        name: the name of the class.
        scope: the scope in which the definition binds the name.
        bases: the possible values of the bases; code must not change this list.
        body: the scope of the class body.
        fields: the names of the fields of a dataclass or named tuple, in order; None for other classes.
        may_be_replaced: whether a decorator may return another class.
        order: the class and its bases in method resolution order, at most ``_MOST_BASES`` classes.
        is_dataset: whether a base is a dataset of a library.
    """

    place: CreationPlace
    name: str
    scope: AbstractScope
    bases: list[AbstractObject]
    body: AbstractScope
    fields: list[str] | None = None
    may_be_replaced: bool = False
    order: list[AbstractObject] = field(init=False, repr=False)
    is_dataset: bool = field(init=False)

    def __post_init__(self) -> None:
        above = [one for base in self.bases for one in (base.order if isinstance(base, ClassObject) else [base])]
        # A base that several classes share comes after all of these classes.
        self.order = [self, *reversed(dict.fromkeys(reversed(above)))][:_MOST_BASES]
        names = [one.name for one in self.order if isinstance(one, LibraryName)]
        self.is_dataset = any(DATASET.fullmatch(name) or ITERABLE_DATASET.fullmatch(name) for name in names)


@dataclass(eq=False)
class Instance(AbstractObject):
    """An object of a class of the project, or of a library's class that stores its arguments.

    Attributes:
        place: the call that creates the object.
        cls: the class of the object, or the qualified name of a library's class.
        cells: the attributes of the object. An argument that a library's class stores has its name or position as key.
        loader: the loader with its arguments, if the class inherits from ``DataLoader``; None for any other object.
    """

    place: CreationPlace
    cls: ClassObject | str
    cells: Cells = field(default_factory=dict)
    loader: LoaderObject | None = None


@dataclass(eq=False)
class Container(AbstractObject):
    """A list, tuple, set, dict or similar, with values by key or position.

    The key ``None`` stands for all unknown keys and positions.
    """

    kind: str
    cells: Cells = field(default_factory=dict)


@dataclass(eq=False)
class BoundMethod(AbstractObject):
    """A method of an object: the function, or the name of the method if the analysis does not know the function."""

    owner: AbstractObject
    function: FunctionObject | str
    cls: ClassObject | None = None


@dataclass(frozen=True)
class ModuleObject(AbstractObject):
    """A module. ``name`` is the path of a file of the project, or the name of a library's module.

    The expression at ``place`` refers to the module.
    """

    name: str
    is_own: bool
    place: CreationPlace | None = None


@dataclass(frozen=True)
class ImportedName(AbstractObject):
    """An imported name: the path of the importing file, and the absolute name.

    The analysis resolves the name when code uses the name.
    """

    path: str
    name: str
    is_module: bool


@dataclass(frozen=True)
class LibraryName(AbstractObject):
    """A function, class or other object of a library, by its qualified name."""

    name: str


_LATER = "open it on first use in the worker, and drop it in `__getstate__`"


class UnpicklableKind(Enum):
    """Kinds of objects of libraries, such as open files, that cannot be sent to workers.

    Each value has a description, the effect in workers, and advice.
    """

    FILE = ("an open file", "cannot be pickled, and forked workers share its file position", _LATER)
    ARCHIVE = (
        "an open `.npz` archive",
        "cannot be pickled, and forked workers share its file position",
        "store only the needed arrays of the archive, or open the archive on first use in the worker",
    )
    HDF5 = ("an open HDF5 file", "cannot be pickled, and forked workers may read wrong data from it", _LATER)
    NETCDF = ("an open netCDF file", "cannot be pickled, and forked workers may read wrong data from it", _LATER)
    LMDB = ("an open LMDB environment", "cannot be pickled, and LMDB forbids its use in a forked process", _LATER)
    MMAP = (
        "a memory map",
        "cannot be pickled",
        "map the file on first use in the worker, or use `numpy.memmap`",
    )
    CONNECTION = (
        "an open connection",
        "cannot be pickled, and forked workers must not share it",
        _LATER.replace("open it", "connect"),
    )
    LOCK = (
        "a `threading` object",
        "cannot be pickled, and workers do not share it",
        "create it in the worker and drop it in `__getstate__`, or use `multiprocessing`",
    )
    QUEUE = (
        "a queue for threads",
        "cannot be pickled, and workers do not share it",
        "create it in the worker and drop it in `__getstate__`, or use `multiprocessing`",
    )
    THREADS = (
        "threads",
        "cannot be pickled, and do not exist in forked workers, which may then wait forever for them",
        "start them on first use in the worker, and drop them in `__getstate__`",
    )
    GENERATOR = (
        "a generator",
        "cannot be pickled, and each forked worker iterates its own copy, so items repeat",
        "create it in the worker, where it is used",
    )
    VIEW = ("a view of a dict", "cannot be pickled", "store a list, such as `list(d.items())`, instead of the view")
    MODULE = ("a module", "cannot be pickled", "import it where it is used")
    HANDLER = ("an object that pickle does not support", "cannot be pickled", "create it on first use in the worker")


@dataclass(eq=False)
class UnpicklableLibraryObject(AbstractObject):
    """An object of a library or of Python that cannot be pickled.

    Attributes:
        place: the code that creates the object.
        kind: the kind of object.
        items: the possible items of an iteration over the object; for a context manager, the possible values that
            ``with … as`` binds.
        part: ``file`` for an open file, or the name of a part of the file, such as ``variable``; "" if the kind has no
            parts.
    """

    place: CreationPlace
    kind: UnpicklableKind
    items: Value = UNKNOWN
    part: str = ""


@dataclass(eq=False)
class LoaderObject(AbstractObject):
    """A loader with its arguments.

    Attributes:
        place: the call that builds the loader.
        arguments: the values of the arguments, by parameter name.
        replaced_by: the call that builds another loader from this loader's arguments, such as accelerate's ``prepare``;
            None without such a call.
    """

    place: CreationPlace
    arguments: dict[str, Value]
    replaced_by: CreationPlace | None = None

    @property
    def may_have_workers(self) -> bool:
        """Return whether the loader may have workers, which means that its number of workers is not provably 0."""
        counts = self.arguments.get("num_workers", ())
        return not all(isinstance(one, Constant) and one.value in (0, None) for one in counts)

    @property
    def sends_to_workers(self) -> bool:
        """Return whether the loader may have to pickle its dataset for workers.

        The result is False if the loader provably has no workers, or provably forks its workers.
        """
        context = self.arguments.get("multiprocessing_context", ())
        is_forked = context and all(isinstance(one, Constant) and one.value == "fork" for one in context)
        return self.may_have_workers and not is_forked


def unite_values(*values: Value) -> Value:
    """Return a value with the possible objects of all given values.

    If the values contain more than ``_MOST`` different objects, the result contains only the first ``_MOST`` objects.
    The analysis does not see the other objects.
    """
    known = [value for value in values if value]
    if len(known) == 1 and len(known[0]) == 1:
        return known[0]
    return tuple(dict.fromkeys(chain.from_iterable(known)))[:_MOST]
