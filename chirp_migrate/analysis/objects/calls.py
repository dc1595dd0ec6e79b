"""Run calls of functions and classes of the project on abstract values."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from functools import partial

from chirp_migrate.analysis.objects.abstract_objects import (
    UNKNOWN,
    AbstractObject,
    AbstractScope,
    BoundMethod,
    Cells,
    ClassObject,
    Container,
    CreationPlace,
    FunctionObject,
    Instance,
    LibraryName,
    LoaderObject,
    UnpicklableKind,
    UnpicklableLibraryObject,
    Value,
    unite_values,
)
from chirp_migrate.analysis.objects.object_access import ObjectAccess
from chirp_migrate.analysis.objects.values import (
    NO_ARGUMENTS,
    NONE,
    Arguments,
    SuperResult,
    enclosing_method,
    is_generator_function,
    loaders_in,
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
#: Depth of calls to follow, and how often one function may occur in such a chain of calls.
_DEPTH = 9
_MOST_RECURSIONS = 2
#: Limits for a function whose runs create neither loaders nor datasets. ``_MOST_STEPS_OF_RUNS`` limits the total number
#: of steps of all its runs, including the steps of called functions. One run adds at most ``_MOST_STEPS_OF_RUN`` to the
#: total. Beyond the limit, further calls of the function return an unknown object. Without the limit, the analysis of
#: each test of a library would run the library again.
_MOST_STEPS_OF_RUNS = 2_000
_MOST_STEPS_OF_RUN = 100


class TracedCalls(ObjectAccess):
    """Run calls of the project's functions and classes on abstract values, and record what the calls do.

    Attributes:
        instances: the created objects of the project's classes.
        called: the functions of the project that ran.
        callers: for the definition of each called function and class, the places of its calls.
        loops: for each loop statement, the values that the loop iterates over.
        iterated: the loaders that code iterates over during the import of a module, each with the calls that lead to
            the loop, outermost first. Passing a loader to unknown code counts as a loop.
        is_counting: whether the run limits the total number of steps of each function whose calls create neither
            loaders nor datasets. After a function has used up its steps, further calls of the function return an
            unknown object. So the result of a call may then depend on the number of earlier calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.instances: list[Instance] = []
        self.called: set[ast.AST] = set()
        self.callers: dict[CreationPlace, set[CreationPlace]] = {}
        self.loops: dict[CreationPlace, Value] = {}
        self.iterated: list[tuple[LoaderObject, tuple[CreationPlace, ...]]] = []
        self.is_counting = True
        # The key is the running function and the function that it wraps, because a decorator's wrapper runs for many
        # functions.
        self._steps_without_loaders: Counter[tuple[ast.AST, ast.AST]] = Counter()
        self._steps_of: Counter[tuple[ast.AST, ast.AST]] = Counter()  # in the last run without new loaders and datasets
        self._stack: list[tuple[ast.AST, CreationPlace]] = []
        self._is_import = False

    @abstractmethod
    def _value(self, node: ast.expr, scope: AbstractScope) -> Value: ...

    @abstractmethod
    def _block(self, statements: Iterable[ast.stmt], scope: AbstractScope) -> bool: ...

    def _call_expression(self, node: ast.Call, scope: AbstractScope) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            caller = enclosing_method(scope)
            return UNKNOWN if caller is None else (SuperResult(caller[1], caller[0]),)
        functions = self._value(node.func, scope)
        arguments = self._arguments(node, scope)
        place = CreationPlace(scope.path, node)
        known = [one for one in functions if one not in UNKNOWN]
        if not known:
            self._pass_to_unknown_code(arguments, place)
            return UNKNOWN
        found: list[Value] = [UNKNOWN] if len(known) < len(functions) else []
        if len(known) == 1:
            found.append(self._call(known[0], arguments, place, scope))
        else:

            def called(function: AbstractObject) -> bool:
                found.append(self._call(function, arguments, place, scope))
                return False

            self._run_alternatives([partial(called, one) for one in known])
        return unite_values(*found)

    def _arguments(self, node: ast.Call, scope: AbstractScope) -> Arguments:
        arguments = Arguments()
        for one in node.args:
            value = self._value(one, scope)
            if not isinstance(one, ast.Starred):
                arguments.positional.append(value)
                continue
            match value:
                case (Container(kind="list" | "tuple" as kind, cells=cells),) if kind == "tuple" or None not in cells:
                    # Unknown elements of a tuple follow the known elements.
                    arguments.positional += [cells[key] for key in sorted(k for k in cells if isinstance(k, int))]
                    arguments.more |= None in cells
                case _:
                    arguments.more = True
        for keyword in node.keywords:
            value = self._value(keyword.value, scope)
            if keyword.arg is not None:
                arguments.keywords[keyword.arg] = value
                continue
            for thing in value:
                if isinstance(thing, Container):
                    arguments.keywords.update({k: v for k, v in thing.cells.items() if isinstance(k, str)})
                arguments.more |= not isinstance(thing, Container) or None in thing.cells
        return arguments

    def _pass_to_unknown_code(self, arguments: Arguments, place: CreationPlace) -> None:
        """Record that unknown code gets these arguments. Such code may, for example, iterate over loaders."""
        for value in arguments.values():
            for loader in loaders_in(value):
                self._record_iteration(loader, place)

    def _record_iteration(self, loader: LoaderObject, place: CreationPlace) -> None:
        """Record that code iterates over a loader, if the code runs during the import of a module."""
        if self._is_import:
            self.iterated.append((loader, (*(one for _, one in self._stack), place)))

    def _call(
        self, function: AbstractObject, arguments: Arguments, place: CreationPlace, scope: AbstractScope | None = None
    ) -> Value:
        self._step()
        match function:
            case FunctionObject():
                return self._run(function, arguments, place)
            case BoundMethod(owner=owner, function=FunctionObject() as inner):
                return self._run(inner, arguments.with_first((owner,)), place)
            case BoundMethod(owner=owner, function=str() as name, cls=below):
                return self._call_named(owner, name, arguments, place, below)
            case ClassObject():
                return self._construct(function, arguments, place)
            case LibraryName(name=name):
                return self._call_library(name, arguments, place, scope)
            case Instance(cls="functools.partial"):
                given = [value for key, value in function.cells.items() if isinstance(key, int)]
                first, bound = (given[0], given[1:]) if given else (UNKNOWN, [])  # of `partial(*unknown)`
                named = {key: value for key, value in function.cells.items() if isinstance(key, str)}
                more = arguments.more or None in function.cells
                every = Arguments([*bound, *arguments.positional], {**named, **arguments.keywords}, more)
                return (
                    unite_values(*(self._call(one, every, place, scope) for one in first if one not in UNKNOWN))
                    or UNKNOWN
                )
            case Instance(cls=ClassObject() as cls):
                found = [one for one in self._class_attribute(cls, "__call__") if isinstance(one, FunctionObject)]
                return (
                    unite_values(*(self._call(BoundMethod(function, one), arguments, place) for one in found))
                    or UNKNOWN
                )
        self._pass_to_unknown_code(arguments, place)
        return UNKNOWN

    def _run(self, function: FunctionObject, arguments: Arguments, place: CreationPlace) -> Value:
        """Return the result of a call of a function of the project; an unknown object beyond the limits of the run."""
        node = function.place.node
        assert isinstance(node, _FUNCTIONS)
        same = sum(one is node for one, _ in self._stack)
        if len(self._stack) >= _DEPTH or same >= _MOST_RECURSIONS:
            return UNKNOWN
        self.called.add(node)
        key = node, function.unwrapped.place.node
        if self._steps_without_loaders[key] >= _MOST_STEPS_OF_RUNS:
            self._left -= self._steps_of[key]  # so that the number of remaining steps does not depend on this limit
            self._pass_to_unknown_code(arguments, place)
            return UNKNOWN
        self.callers.setdefault(function.place, set()).add(place)
        left, created = self._left, self._created
        scope = AbstractScope(function.place.path, function.scope, "function")
        self._assign_arguments(function, node, arguments, scope)
        if function.owner is not None and arguments.positional:
            scope.caller = (function.owner, arguments.positional[0])
        self._stack.append((node, place))
        try:
            if isinstance(node, ast.Lambda):
                return self._value(node.body, scope)
            self._block(node.body, scope)
        finally:
            self._stack.pop()
            is_of_dataset = function.owner is not None and function.owner.is_dataset
            if self.is_counting and created == self._created and not is_of_dataset:
                self._steps_of[key] = left - self._left
                self._steps_without_loaders[key] += min(left - self._left, _MOST_STEPS_OF_RUN)
        if is_generator_function(node):
            part = "context" if function.wraps == "contextmanager" else ""
            return (
                UnpicklableLibraryObject(place, UnpicklableKind.GENERATOR, tuple(dict.fromkeys(scope.yielded)), part),
            )
        if isinstance(node, ast.AsyncFunctionDef):
            return UNKNOWN
        return tuple(dict.fromkeys(scope.returned)) or NONE

    def _assign_arguments(
        self,
        function: FunctionObject,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        arguments: Arguments,
        scope: AbstractScope,
    ) -> None:
        parameters = node.args
        names = [*parameters.posonlyargs, *parameters.args]
        cells, given = scope.cells, dict(arguments.keywords)
        for position, parameter in enumerate(names):
            name = parameter.arg
            if position < len(arguments.positional):
                cells[name] = arguments.positional[position]
            else:
                cells[name] = self._argument_value(function, parameter, given, arguments.more)
        for parameter in parameters.kwonlyargs:
            cells[parameter.arg] = self._argument_value(function, parameter, given, arguments.more)
        if parameters.vararg is not None:
            rest: Cells = dict(enumerate(arguments.positional[len(names) :]))
            cells[parameters.vararg.arg] = (Container("tuple", rest | ({None: UNKNOWN} if arguments.more else {})),)
        if parameters.kwarg is not None:
            others: Cells = {}
            others.update(given)
            cells[parameters.kwarg.arg] = (Container("dict", others | ({None: UNKNOWN} if arguments.more else {})),)

    def _argument_value(
        self, function: FunctionObject, parameter: ast.arg, given: dict[str, Value], more: bool
    ) -> Value:
        if parameter.arg in given:
            return given.pop(parameter.arg)
        default = function.defaults.get(parameter.arg)
        unknown = UNKNOWN
        if more and isinstance(parameter.annotation, ast.Name | ast.Subscript):
            named = (
                parameter.annotation.value if isinstance(parameter.annotation, ast.Subscript) else parameter.annotation
            )
            if isinstance(named, ast.Name) and named.id in ("dict", "Dict"):
                unknown = (Container("dict", {None: UNKNOWN}),)
        return unite_values(default or (), unknown if more or default is None else ())

    def _construct(self, cls: ClassObject, arguments: Arguments, place: CreationPlace) -> Value:
        """Return the object that a call of the project's class ``cls`` creates."""
        made = Instance(place, cls)
        self.instances.append(made)
        self._created += cls.is_dataset
        self.callers.setdefault(cls.place, set()).add(place)
        for base in cls.order:
            if isinstance(base, ClassObject):
                init = [one for one in base.body.cells.get("__init__", ()) if isinstance(one, FunctionObject)]
                if init:
                    for one in init:
                        self._call(BoundMethod(made, one), arguments, place)
                    break
                if base.fields is not None:
                    self._fill_fields(made, base, arguments, place)
                    break
            elif isinstance(base, LibraryName) and self._initialise(made, base.name, arguments, place):
                break
        return (made,)

    def _fill_fields(self, made: Instance, cls: ClassObject, arguments: Arguments, place: CreationPlace) -> None:
        """Assign the arguments to the fields of a dataclass."""
        given = dict(zip(cls.fields or (), arguments.positional, strict=False)) | arguments.keywords
        for name in cls.fields or ():
            if name in given:
                made.cells[name] = given[name]
                continue
            found: list[Value] = []
            for default in self._class_attribute(cls, name):
                match default:
                    case Instance(cls="dataclasses.field"):
                        found.append(default.cells.get("default", ()))
                        for one in default.cells.get("default_factory", ()):
                            found.append(self._call(one, NO_ARGUMENTS, place))
                    case _:
                        found.append((default,))
            made.cells[name] = unite_values(*found, UNKNOWN if arguments.more or not found else ())
        for one in self._class_attribute(cls, "__post_init__"):
            if isinstance(one, FunctionObject):
                self._call(BoundMethod(made, one), NO_ARGUMENTS, place)
