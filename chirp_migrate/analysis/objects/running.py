"""Run a program on abstract values: its statements in order, and the functions of the project that it calls.

An abstract value contains all objects that an expression may have as a result. If a condition is unknown, both branches
run, and a variable has the values from both branches. Loops run once. The number of steps and the depth of calls are
limited. Calls beyond these limits return an unknown object.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

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
    ImportedName,
    Instance,
    LibraryName,
    ModuleObject,
    UnpicklableKind,
    UnpicklableLibraryObject,
    Value,
    unite_values,
)
from chirp_migrate.analysis.objects.calls import TracedCalls
from chirp_migrate.analysis.objects.libraries import MODULES, TRANSPARENT, is_numeric_array
from chirp_migrate.analysis.objects.values import (
    NONE,
    Arguments,
    called_expression,
    comparison_result,
    is_main_guard,
    possible_texts,
    scope_around_comprehensions,
    set_place_of_modules,
    single_possible_key,
    truth_value,
    unknown_text_ending_with,
)
from chirp_migrate.analysis.objects.variable_store import STEPS, STEPS_OF_UNCALLED_FUNCTION, StepLimitReached
from chirp_migrate.syntax.import_table import absolute_name
from chirp_migrate.syntax.module import UnparsableModule, package_name, syntax_tree, walk_tree
from chirp_migrate.syntax.name_resolution import locate_import
from chirp_migrate.syntax.outline import parameter_defaults
from chirp_migrate.syntax.project import Project

_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Types of `try` statements. Python 3.11 added `except*`.
_TRIES: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
_DATACLASSES = frozenset(
    {"dataclasses.dataclass", "attr.s", "attr.attrs", "attr.define", "attrs.define", "attrs.frozen", "attr.dataclass"}
)


def _is_own_function(decorator: AbstractObject) -> bool:
    function = decorator.function if isinstance(decorator, BoundMethod) else decorator
    return isinstance(function, FunctionObject)


def _keeps_class(decorator: AbstractObject) -> bool:
    """Return whether a decorator is from a library and returns the decorated class."""
    return isinstance(decorator, LibraryName) and (
        decorator.name in _DATACLASSES or TRANSPARENT.fullmatch(decorator.name) is not None
    )


class AbstractRun(TracedCalls):
    """A run of the modules of a project on abstract values.

    Args:
        project: the user's project.

    Attributes:
        classes: the classes of the project that were defined.
        trees: the syntax trees of the modules. The nodes of all ``CreationPlace`` objects belong to these trees.
    """

    def __init__(self, project: Project) -> None:
        super().__init__()
        self._project = project
        self.classes: list[ClassObject] = []
        self.trees: dict[str, ast.Module] = {}
        self._modules: dict[str, AbstractScope] = {}
        self._guards: dict[str, list[ast.If]] = {}

    def module(self, path: str) -> AbstractScope:
        """Return the names of a module after its import. Code in ``if __name__ == "__main__"`` does not run."""
        if path not in self._modules:
            scope = self._modules[path] = AbstractScope(path, None, "module")
            try:
                tree = self.trees[path] = syntax_tree(self._project.text(path))
            except UnparsableModule:
                return scope
            with self._with_own_step_limit():
                self._stack, self._is_import = [], True
                self._block(tree.body, scope)
        return self._modules[path]

    def without_module(self, path: str) -> AbstractRun:
        """Return a new run that has already imported all modules that this run has imported, except one.

        The new run has not imported the module at ``path``.
        """
        other = AbstractRun(self._project)
        other._modules = {name: scope for name, scope in self._modules.items() if name != path}
        return other

    def run_main_guard(self, path: str) -> None:
        """Run the code of a module in ``if __name__ == "__main__"``.

        This code may import a function or class that the module also defines, such as ``from package.train import Net``
        in ``package/train.py``. The name then has both objects as possible values, because other files still import the
        object that the module defines.
        """
        scope, guards = self.module(path), self._guards.get(path, ())
        nodes = (one for guard in guards for one in walk_tree(guard) if isinstance(one, ast.ImportFrom))
        imported = {alias.asname or alias.name for one in nodes for alias in one.names}
        defined = {name: value for name, value in scope.cells.items() if name in imported}
        for statement in guards:
            with self._with_own_step_limit():
                self._block(statement.body, scope)
        for name, value in defined.items():
            if scope.cells.get(name) != value:
                scope.cells[name] = unite_values(value, scope.cells.get(name, ()))

    def call_from_outside(self, function: AbstractObject, arguments: Arguments | None = None) -> Value:
        """Call a function or class as code outside of the project may call it, and return the result.

        By default, the arguments are unknown.
        """
        found: Value = UNKNOWN
        with self._with_own_step_limit(STEPS_OF_UNCALLED_FUNCTION):
            place = (
                function.place if isinstance(function, FunctionObject | ClassObject) else CreationPlace("", ast.Pass())
            )
            found = self._call(function, arguments or Arguments(more=True), place)
        return found

    def attribute_of(self, thing: AbstractObject, name: str) -> Value:
        """Return the possible values of the attribute ``name`` of an object."""
        found: Value = UNKNOWN
        with self._with_own_step_limit():
            found = self._attribute(thing, name)
        return found

    @contextmanager
    def _with_own_step_limit(self, steps: int = STEPS) -> Iterator[None]:
        """Run the ``with`` block of the caller with a separate limit of steps.

        At the limit, the block ends without an error. The limit of the surrounding run does not change.
        """
        before = self._left, self._stack, self._log, self._is_import
        self._left, self._stack, self._log, self._is_import = steps, list(self._stack), None, False
        try:
            yield
        except (StepLimitReached, RecursionError):
            pass
        finally:
            self._left, self._stack, self._log, self._is_import = before

    def _block(self, statements: Iterable[ast.stmt], scope: AbstractScope) -> bool:
        """Run statements, and return whether a statement leaves the block, so that no later statement runs."""
        return any(self._statement(statement, scope) for statement in statements)

    def _statement(self, node: ast.stmt, scope: AbstractScope) -> bool:
        self._step()
        match node:
            case ast.Expr(value=value):
                self._value(value, scope)
            case ast.Assign(targets=targets, value=value):
                found = self._value(value, scope)
                for target in targets:
                    self._assign(target, found, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._assign(target, self._value(value, scope), scope)
            case ast.AugAssign(target=target, op=op, value=value):
                self._augment(target, op, self._value(value, scope), scope)
            case ast.Return(value=value):
                call = scope_around_comprehensions(scope)
                found = NONE if value is None else self._value(value, scope)
                call.returned.extend(found)
                return True
            case ast.Raise(exc=exc):
                if exc is not None:
                    self._value(exc, scope)
                return True
            case ast.Continue() | ast.Break():
                return True
            case ast.If():
                return self._if(node, scope)
            case (
                ast.For(target=target, iter=iterable, body=body, orelse=orelse)
                | ast.AsyncFor(target=target, iter=iterable, body=body, orelse=orelse)
            ):
                found = self._value(iterable, scope)
                place = CreationPlace(scope.path, node)
                self.loops[place] = unite_values(self.loops.get(place, ()), found)
                self._assign(target, self._elements(found, node.iter, scope), scope)
                self._run_alternatives([lambda: self._block(body, scope) and False, lambda: False])
                self._block(orelse, scope)
            case ast.While(test=test, body=body, orelse=orelse):
                self._value(test, scope)
                self._run_alternatives([lambda: self._block(body, scope) and False, lambda: False])
                self._block(orelse, scope)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    entered = self._value_of_with(self._value(item.context_expr, scope), item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, entered, scope)
                return self._block(body, scope)
            case ast.stmt() if isinstance(node, _TRIES):
                return self._try(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(node.name, self._function(node, scope), scope)
            case ast.ClassDef():
                self._bind(node.name, self._class(node, scope), scope)
            case ast.Import(names=names):
                for alias in names:
                    bound = alias.name if alias.asname else alias.name.partition(".")[0]
                    brought = (ImportedName(scope.path, alias.name, is_module=True),)
                    if alias.asname or bound not in scope.cells or "." not in alias.name:
                        self._bind(alias.asname or bound, brought, scope)
            case ast.ImportFrom():
                self._import_from(node, scope)
            case ast.Global(names=names):
                scope.elsewhere.update(dict.fromkeys(names, scope.module))
            case ast.Nonlocal(names=names):
                for name in names:
                    owner = self._owner(name, scope.around)
                    if owner is not None:
                        scope.elsewhere[name] = owner
            case ast.Delete(targets=targets):
                for target in targets:
                    self._remove(target, scope)
            case ast.Match(subject=subject, cases=cases):
                self._value(subject, scope)
                blocks: list[Callable[[], bool]] = [partial(self._block, one.body, scope) for one in cases]
                return self._run_alternatives([*blocks, lambda: False])
            case ast.Assert(test=test):
                self._value(test, scope)
        return False

    def _if(self, node: ast.If, scope: AbstractScope) -> bool:
        if is_main_guard(node.test):
            if scope.kind == "module":
                self._guards.setdefault(scope.path, []).append(node)
                return self._block(node.orelse, scope)
            return self._block(node.orelse if self._is_import else node.body, scope)
        decided = truth_value(self._value(node.test, scope))
        if decided is not None:
            return self._block(node.body if decided else node.orelse, scope)
        return self._run_alternatives(
            [partial(self._branch, node.body, scope), partial(self._branch, node.orelse, scope)]
        )

    def _branch(self, statements: Sequence[ast.stmt], scope: AbstractScope) -> bool:
        ended = self._block(statements, scope)
        if ended and self._log is not None and statements and isinstance(statements[-1], ast.Raise):
            # The branch ends in an error, so its assignments have no effect on later code.
            for cells, key, before in reversed(self._log):
                if before is None:
                    cells.pop(key, None)
                else:
                    cells[key] = before
            self._log.clear()
        return ended

    def _try(self, node: ast.Try, scope: AbstractScope) -> bool:
        ended = self._block(node.body, scope)
        if not ended:
            ended = self._block(node.orelse, scope)
        handlers: list[Callable[[], bool]] = [partial(self._branch, one.body, scope) for one in node.handlers]
        handled = self._run_alternatives([lambda: ended, *handlers]) if handlers else ended
        return self._block(node.finalbody, scope) or handled

    def _bind(self, name: str, value: Value, scope: AbstractScope) -> None:
        owner = scope.elsewhere.get(name, scope)
        self._write(owner.cells, name, value)

    def _owner(self, name: str, scope: AbstractScope | None) -> AbstractScope | None:
        """Return the innermost scope, among ``scope`` and the scopes around it, that defines a name.

        As in Python, code in a function does not read the names of a class body around the function.
        """
        inner = scope
        while scope is not None:
            if name in scope.elsewhere:
                return scope.elsewhere[name]
            if name in scope.cells and (scope.kind != "class" or scope is inner):
                return scope
            scope = scope.around
        return None

    def _name(self, name: str, scope: AbstractScope) -> Value:
        owner = self._owner(name, scope)
        if owner is not None:
            return self._value_of_name(owner, name)
        stars = scope.module.stars
        if stars:
            return (
                UNKNOWN
                if hasattr(builtins, name)
                else unite_values(*((LibraryName(f"{one}.{name}"),) for one in stars))
            )
        return (LibraryName(f"builtins.{name}"),)

    def _value_of_name(self, scope: AbstractScope, name: str) -> Value:
        """Return the value of a name in a scope, with imports resolved."""
        value = scope.cells.get(name, UNKNOWN)
        if any(isinstance(thing, ImportedName) for thing in value):
            scope.cells[name] = UNKNOWN  # `from . import name` looks here again if the package has no module `name`
            try:
                looked_up = (
                    self._imported_object(one, name) if isinstance(one, ImportedName) else (one,) for one in value
                )
                value = unite_values(*looked_up)
            finally:
                scope.cells[name] = value
        return value

    def _imported_object(self, one: ImportedName, bound: str) -> Value:
        """Return the object that an import binds. ``import a.b`` without ``as`` binds ``a``."""
        name = one.name
        if one.is_module and "." in name and bound == name.partition(".")[0]:
            found = self._imported(one.path, bound)
            name = bound
            if found == (LibraryName(bound),):
                found = self._imported_folder(one.name, one.path)
        else:
            found = self._imported(one.path, name)
        is_library = found == (LibraryName(name),)
        return (
            (ModuleObject(name, is_own=False),) if is_library and (one.is_module or MODULES.fullmatch(name)) else found
        )

    def _imported(self, path: str, name: str) -> Value:
        """Return the object that an import of an absolute name in the file at ``path`` finds."""
        found = [self._member_of_module(file, rest) for file, rest in locate_import(self._project, path, name)]
        return unite_values(*found) if found else (LibraryName(name),)

    def _imported_folder(self, name: str, path: str) -> Value:
        """Return the object that ``import a.b`` binds if ``a`` is a library, or a folder without ``__init__.py``."""
        inner = self._imported(path, name)
        first, *parts = name.split(".")
        if inner == (LibraryName(name),):
            return (LibraryName(first),)
        for part in reversed(parts):
            inner = (Instance(CreationPlace(path, ast.Pass()), "folder", {part: inner}),)
        return inner

    def _member_of_module(self, path: str, rest: str) -> Value:
        parts = rest.split(".") if rest else []
        value: Value = (ModuleObject(path, is_own=True),)
        for part in parts:
            value = unite_values(*(self._attribute(thing, part) for thing in value))
        return value

    def _import_from(self, node: ast.ImportFrom, scope: AbstractScope) -> None:
        source = absolute_name("." * node.level + (node.module or ""), package_name(scope.path))
        for alias in node.names:
            if alias.name != "*":
                name = f"{source}.{alias.name}".lstrip(".")
                self._bind(alias.asname or alias.name, (ImportedName(scope.path, name, is_module=False),), scope)
                continue
            own = [file for file, rest in locate_import(self._project, scope.path, f"{source}.*") if rest == "*"]
            for file in own:
                module = self.module(file)
                scope.module.stars += module.stars
                for known, value in list(module.cells.items()):
                    if isinstance(known, str) and not known.startswith("_"):
                        self._bind(known, value, scope)
            if not own:
                scope.module.stars.append(source)

    def _assign(self, target: ast.expr, value: Value, scope: AbstractScope) -> None:
        match target:
            case ast.Name(id=name):
                self._bind(name, value, scope)
            case ast.Starred(value=inner):
                self._assign(inner, value, scope)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for position, element in enumerate(elements):
                    self._assign(element, self._unpacked(value, position, element, scope), scope)
            case ast.Attribute(value=owner, attr=name):
                owners = self._value(owner, scope)
                for thing in owners:
                    self._set_attribute(thing, name, value, is_only=len(owners) == 1)
            case ast.Subscript(value=owner, slice=key):
                owners, keys = self._value(owner, scope), self._value(key, scope)
                for thing in owners:
                    self._set_item(thing, keys, value, is_only=len(owners) == 1)

    def _unpacked(self, value: Value, position: int, element: ast.expr, scope: AbstractScope) -> Value:
        found: list[Value] = []
        for thing in value:
            if isinstance(thing, Container) and position in thing.cells and not isinstance(element, ast.Starred):
                found.append(thing.cells[position])
            else:
                found.append(self._elements((thing,), element, scope))
        if isinstance(element, ast.Starred):
            return (Container("list", {None: unite_values(*found)}),)
        return unite_values(*found)

    def _augment(self, target: ast.expr, op: ast.operator, value: Value, scope: AbstractScope) -> None:
        before = self._value(target, scope)
        containers = [one for one in before if isinstance(one, Container) and one.kind != "tuple"]
        if containers and isinstance(op, ast.Add | ast.BitOr):
            for one in containers:
                self._extend(one, value, target, scope)
            return
        self._assign(target, self._added(before, value) if isinstance(op, ast.Add) else UNKNOWN, scope)

    def _remove(self, target: ast.expr, scope: AbstractScope) -> None:
        match target:
            case ast.Name(id=name):
                self._delete(scope.elsewhere.get(name, scope).cells, name)
            case ast.Attribute(value=owner, attr=name):
                owners = self._value(owner, scope)
                for thing in owners:
                    if isinstance(thing, Instance) and len(owners) == 1:
                        self._delete(thing.cells, name)
            case ast.Subscript(value=owner, slice=key):
                owners, keys = self._value(owner, scope), self._value(key, scope)
                for thing in owners:
                    if (
                        isinstance(thing, Container)
                        and len(owners) == 1
                        and (known := single_possible_key(keys)) is not None
                    ):
                        self._delete(thing.cells, known)
            case ast.Tuple(elts=elements):
                for element in elements:
                    self._remove(element, scope)

    def _function(self, node: _Function | ast.Lambda, scope: AbstractScope) -> Value:
        defaults = {name: self._value(value, scope) for name, value in parameter_defaults(node.args)}
        found = FunctionObject(CreationPlace(scope.path, node), scope, defaults)
        if not isinstance(node, ast.Lambda):
            found.scope = scope.elsewhere.get(node.name, scope) if scope.kind == "function" else scope
            if found.scope is not scope:
                return (found,)  # workers can find a function only by a global name
            return self._decorated(found, node, scope)
        return (found,)

    def _decorated(self, function: FunctionObject, node: _Function, scope: AbstractScope) -> Value:
        value: Value = (function,)
        for decorator in reversed(node.decorator_list):
            match decorator:
                case ast.Attribute(value=ast.Name(id=name), attr="setter" | "getter" | "deleter" as role):
                    for known in self._name(name, scope):
                        if isinstance(known, FunctionObject):
                            if role == "setter":
                                known.cells["setter"] = value
                            return (known,)
            for thing in self._value(decorator, scope):
                match thing:
                    case LibraryName(name="builtins.property" | "functools.cached_property"):
                        function.wraps = "property"
                    case LibraryName(name="builtins.staticmethod" | "builtins.classmethod" as name):
                        function.wraps = name.rpartition(".")[2]
                    case LibraryName(name="contextlib.contextmanager" | "contextlib.asynccontextmanager"):
                        function.wraps = "contextmanager"
                    case Instance(cls="functools.wraps", cells=cells):
                        function.is_named = True
                        function.cells["__wrapped__"] = cells.get(0, ())
                    case FunctionObject() | Instance(cls=ClassObject()) | BoundMethod() | ClassObject():
                        inner, value = value, self._decorate(thing, value, CreationPlace(scope.path, decorator))
                        for one in value:
                            if isinstance(one, FunctionObject) and one.scope.is_local and one not in inner:
                                one.cells.setdefault("__wrapped__", inner)
                    case LibraryName(name=name) if TRANSPARENT.fullmatch(name):
                        pass
                    case _:
                        function.is_named = True  # the result of the decorator is unknown
        return value

    def _decorate(self, decorator: AbstractObject, value: Value, place: CreationPlace) -> Value:
        """Return the object by which a decorator replaces a function or class.

        The run limits the total steps of all calls of a function (see ``TracedCalls.is_counting``). This method resets
        the count for the decorator before the call. So the run also analyses a decorator that many functions have.
        """
        function = decorator.function if isinstance(decorator, BoundMethod) else decorator
        if isinstance(function, FunctionObject):
            self._steps_without_loaders.pop((function.place.node, function.unwrapped.place.node), None)
        return self._call(decorator, Arguments([value]), place)

    def _class(self, node: ast.ClassDef, scope: AbstractScope) -> Value:
        bases = [thing for base in node.bases for thing in self._value(base, scope)[:4]]
        body = AbstractScope(scope.path, scope, "class")
        home = scope.elsewhere.get(node.name, scope)
        cls = ClassObject(CreationPlace(scope.path, node), node.name, home, bases, body)
        named = [
            one
            for one in bases
            if isinstance(one, LibraryName) and one.name.rpartition(".")[2] in ("NamedTuple", "Module_")
        ]
        decorators = [(one, self._value(called_expression(one), scope)) for one in node.decorator_list]
        is_data = any(
            isinstance(one, LibraryName) and one.name in _DATACLASSES for _, made in decorators for one in made
        )
        self.classes.append(cls)
        self._block(node.body, body)
        for value in body.cells.values():
            for function in (thing.unwrapped for thing in value if isinstance(thing, FunctionObject)):
                if function.owner is None and function.scope is body:
                    function.owner = cls
        if is_data or named:
            inherited = [name for one in bases if isinstance(one, ClassObject) for name in one.fields or ()]
            own = [
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
            cls.fields = list(dict.fromkeys([*inherited, *own]))
        for decorator, made in decorators:
            if any(map(_is_own_function, made)):
                functions = made if decorator is called_expression(decorator) else self._value(decorator, scope)
                given = [self._decorate(one, (cls,), cls.place) for one in functions]
                cls.may_be_replaced |= any(value != (cls,) for value in given)
            else:
                cls.may_be_replaced |= not all(map(_keeps_class, made))
        return (cls,)

    def _value(self, node: ast.expr, scope: AbstractScope) -> Value:
        """Return the possible values of an expression."""
        self._step()
        match node:
            case ast.Constant(value=value):
                return (Constant(value),)
            case ast.Name(id=name):
                return set_place_of_modules(self._name(name, scope), scope.path, node)
            case ast.Attribute(value=owner, attr=name):
                found = unite_values(*(self._attribute(thing, name) for thing in self._value(owner, scope)))
                return set_place_of_modules(found, scope.path, node)
            case ast.Call():
                return self._call_expression(node, scope)
            case ast.Lambda():
                return self._function(node, scope)
            case ast.List(elts=elements):
                return (self._display("list", elements, scope),)
            case ast.Tuple(elts=elements):
                return (self._display("tuple", elements, scope),)
            case ast.Set(elts=elements):
                return (self._display("set", elements, scope),)
            case ast.Dict(keys=keys, values=values):
                return (self._dict(keys, values, scope),)
            case ast.ListComp(elt=element, generators=generators):
                return (Container("list", {None: self._comprehension(element, generators, scope)}),)
            case ast.SetComp(elt=element, generators=generators):
                return (Container("set", {None: self._comprehension(element, generators, scope)}),)
            case ast.DictComp(value=value, generators=generators):
                found = self._comprehension(value, generators, scope)
                # A comprehension with a condition omits keys, and these keys are unknown.
                is_filtered = any(one.ifs for one in generators)
                return UNKNOWN if is_filtered else (Container("dict", {None: found}),)
            case ast.GeneratorExp(elt=element, generators=generators):
                items = self._comprehension(element, generators, scope)
                return (UnpicklableLibraryObject(CreationPlace(scope.path, node), UnpicklableKind.GENERATOR, items),)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                decided = truth_value(self._value(test, scope))
                chosen = [body, orelse] if decided is None else [body if decided else orelse]
                return unite_values(*(self._value(one, scope) for one in chosen))
            case ast.BoolOp(op=op, values=values):
                return self._boolean(op, values, scope)
            case ast.UnaryOp(op=operation, operand=operand):
                decided = truth_value(self._value(operand, scope))
                return (Constant(not decided),) if isinstance(operation, ast.Not) and decided is not None else UNKNOWN
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compared(self._value(left, scope), ops, [self._value(one, scope) for one in comparators])
            case ast.BinOp(left=left, op=operator, right=right):
                first, second = self._value(left, scope), self._value(right, scope)
                match operator:
                    case ast.Add() | ast.BitOr():
                        return self._added(first, second)
                    case ast.Mult():
                        return tuple(one for one in first if isinstance(one, Container)) or UNKNOWN
                    case ast.Div():
                        return (
                            self._path(second, CreationPlace(scope.path, node)) if possible_texts(second) else UNKNOWN
                        )
                return UNKNOWN
            case ast.Subscript(value=owner, slice=key):
                if isinstance(key, ast.Slice):
                    owners = self._value(owner, scope)
                    return (
                        tuple(one for one in owners if isinstance(one, Container) or is_numeric_array(one)) or UNKNOWN
                    )
                asked = self._value(key, scope)
                return unite_values(*(self._item(one, asked, node, scope) for one in self._value(owner, scope)))
            case ast.NamedExpr(target=target, value=value):
                found = self._value(value, scope)
                self._assign(target, found, scope_around_comprehensions(scope))
                return found
            case ast.Starred(value=value) | ast.Await(value=value):
                return self._value(value, scope)
            case ast.Yield(value=value):
                scope_around_comprehensions(scope).yielded.extend(NONE if value is None else self._value(value, scope))
            case ast.YieldFrom(value=value):
                scope_around_comprehensions(scope).yielded.extend(
                    self._elements(self._value(value, scope), node, scope)
                )
            case ast.JoinedStr(values=values):
                parts = [self._value(one, scope) for one in values]
                return unknown_text_ending_with(parts[-1]) if parts else (Constant(""),)
            case ast.FormattedValue(value=value):
                return self._value(value, scope)
        return UNKNOWN

    def _display(self, kind: str, elements: Sequence[ast.expr], scope: AbstractScope) -> Container:
        made = Container(kind)
        position: int | None = 0
        for element in elements:
            value = self._value(element, scope)
            if isinstance(element, ast.Starred):
                self._add(made.cells, None, self._elements(value, element, scope))
                position = None
            elif position is None or kind == "set":
                self._add(made.cells, None, value)
            else:
                self._write(made.cells, position, value)
                position += 1
        return made

    def _dict(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], scope: AbstractScope) -> Container:
        made = Container("dict")
        for key, value in zip(keys, values, strict=True):
            found = self._value(value, scope)
            if key is None:
                self._update(made, found)
            else:
                self._set_item(made, self._value(key, scope), found, is_only=True)
        return made

    def _comprehension(self, element: ast.expr, generators: Sequence[ast.comprehension], scope: AbstractScope) -> Value:
        inner = AbstractScope(scope.path, scope, "comprehension")
        for one in generators:
            self._assign(one.target, self._elements(self._value(one.iter, inner), one.iter, inner), inner)
            for test in one.ifs:
                self._value(test, inner)
        return self._value(element, inner)

    def _boolean(self, op: ast.boolop, values: Sequence[ast.expr], scope: AbstractScope) -> Value:
        found: list[Value] = []
        for node in values:
            value = self._value(node, scope)
            decided = truth_value(value)
            is_last = node is values[-1]
            if decided is not None and not is_last:
                if decided is isinstance(op, ast.Or):
                    found.append(value)
                    break
                continue
            found.append(value)
        return unite_values(*found)

    def _compared(self, left: Value, ops: Sequence[ast.cmpop], others: Sequence[Value]) -> Value:
        if len(ops) != 1:
            return UNKNOWN
        answers = {comparison_result(one, ops[0], other) for one in left for other in others[0]}
        return (Constant(answers.pop()),) if len(answers) == 1 and None not in answers else UNKNOWN

    def _added(self, first: Value, second: Value) -> Value:
        containers = [one for one in (*first, *second) if isinstance(one, Container)]
        if not containers and first and second and all(isinstance(one, Instance) for one in (*first, *second)):
            return unite_values(first, second)  # for datasets: a dataset with the samples of both
        if not containers:
            return unknown_text_ending_with(second)
        made = Container(containers[0].kind)
        for one in containers:
            for key, value in one.cells.items():
                self._add(made.cells, key if one.kind == "dict" else None, value)
        if len(containers) < len(first) + len(second):
            self._add(made.cells, None, UNKNOWN)
        return (made,)
