"""Find code that may behave differently after a rewrite, because the rewrite replaces a function by another object.

The search follows the function through variables, attributes, containers, arguments of functions of the project, and
results. Attributes with the same name count as one attribute, also if they belong to different objects. Code may also
pass the function to a function of another package, as in ``library.run(callback=function)``. The search then assumes
that ``run`` only calls ``function``, or stores ``function`` in an attribute ``callback``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeGuard

import libcst as cst

from chirp_migrate.syntax.module import Module, syntax_tree_or_empty
from chirp_migrate.syntax.outline import last_part_of_name, parameter_defaults
from chirp_migrate.syntax.project import Project


class FunctionUseKind(Enum):
    """A kind of use of a function, other than a call."""

    KEY = "code uses the function as a key, or reads its identity"
    ATTRIBUTE = "code sets attributes on the function"
    METHOD = "code makes the function a method"
    CLASS = "code reads the class of the function"
    PLACE = "code reads the `__qualname__` of the function"
    LOST = "code passes on the function in a way that the analysis cannot trace"


#: The key of a variable, attribute or result that may hold the function. The key of a local variable contains the file,
#: the position of the enclosing function, and the name of the variable. The key of an attribute or module-level name is
#: ``("", name)``. The key of the results of a function is ``("()", function)``.
_Holder = tuple[str, ...]
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_DEFINITIONS, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)
#: Parents of an expression with the function that only call, test, compare or print the function.
_HARMLESS = (
    *(ast.Call, ast.Compare, ast.Expr, ast.If, ast.IfExp, ast.While, ast.Assert, ast.FormattedValue, ast.UnaryOp),
    *(ast.Delete, ast.comprehension, ast.Slice),
)
_TEXTS = (ast.Constant, ast.JoinedStr)
#: Characters that may precede a lambda in an expression that contains only this lambda.
_BRACKETS = re.compile(r"[\s(\\]*")
#: Largest number of variables, attributes and results that may hold the function. If the search finds more, the search
#: ends.
_MOST_HOLDERS = 300
#: Functions and classes that use their argument's hash or identity.
_HASHING_FUNCTIONS = frozenset({"id", "hash", "set", "frozenset", "Counter", "fromkeys"}) | frozenset(
    {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "ref", "proxy", "finalize", "WeakMethod"}
)
#: Methods whose first argument is a key or an element.
_HASHING_METHODS = frozenset(
    {"add", "get", "setdefault", "pop", "discard", "__contains__", "__getitem__", "__setitem__"}
)
#: Methods that add elements to a container, and methods that return elements of a container.
_ADDING_METHODS = frozenset(
    {"append", "appendleft", "insert", "extend", "add", "setdefault", "update", "put", "__setitem__"}
)
_GETTING_METHODS = frozenset(
    {"items", "values", "get", "pop", "popitem", "popleft", "copy", "setdefault", "__getitem__"}
)
#: Functions whose results contain their arguments.
_RESULT_CONTAINS_ARGUMENTS = frozenset(
    {"list", "tuple", "set", "frozenset", "dict", "deque", "iter", "next", "reversed", "enumerate", "zip", "chain"}
    | {"filter", "sorted", "islice", "cycle", "copy", "getattr", "field"}
)
_INSPECTING = frozenset(
    {"dir", "getsource", "getsourcelines", "getsourcefile", "getfullargspec", "getmodule", "getfile", "getdoc"}
    | {"getclosurevars", "getmembers", "getmembers_static", "getattr_static", "get_type_hints"}
)
_CACHES = frozenset({"lru_cache", "cache"})
_CALLERS = frozenset({"map", "filter", "sorted", "reduce", "starmap", "submit", "partial", "Thread", "Process"})
#: Functions that create classes or methods.
_CLASS_AND_METHOD_MAKERS = frozenset({"make_dataclass", "new_class", "MethodType"})


def find_function_uses(
    module: Module, project: Project, node: cst.FunctionDef | cst.Lambda
) -> dict[FunctionUseKind, str]:
    """Return how code of the project may use a function, other than by a call.

    The result maps each kind of use that occurs to one place (``path:line``).
    """
    return _FunctionSearch(project, _names_in_file(module.path, module.text)).run(module, node)


def find_class_mutation_on_lines(project: Project, lines: Mapping[str, Collection[int]]) -> str | None:
    """Return a place (``path:line``) where code may set attributes on a class, or read ``__qualname__`` of a class.

    The search only follows the classes that code on ``lines`` uses. The result is None if there is no such place.

    Args:
        project: the project whose files are searched.
        lines: for each file, the numbers of the lines that use the class of an object as a value, as in
            ``kind = type(x)``.
    """
    return _FunctionSearch(project).find_class_mutation_from(lines)


@dataclass(frozen=True)
class _CalledFunction:
    """The parameters of a function or class that code calls.

    Attributes:
        positional: the parameters that receive positional arguments, in order, without ``self``.
        named: the parameters that receive keyword arguments, by name.
        rest: the parameters ``*args`` and ``**kwargs``, if the function has them.
        is_cached: whether a call may read the hash or identity of an argument. A function with ``lru_cache`` reads the
            hash, because its cache has the arguments as keys.
        dispatches: whether a call reads the class of an argument, as a function with ``singledispatch`` does.
        is_method: whether the function is a method with a parameter such as ``self``.
    """

    positional: tuple[_Holder, ...]
    named: dict[str, _Holder]
    rest: tuple[_Holder, ...]
    is_cached: bool = False
    dispatches: bool = False
    is_method: bool = False


class _FileNames:
    """The places where the names of one file are bound and read, by scope."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.tree: ast.AST = syntax_tree_or_empty(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, ast.AST] = {}
        self.binds: dict[ast.AST, set[str]] = defaultdict(set)
        self.outer: dict[ast.AST, set[str]] = defaultdict(set)
        self.reads: dict[str, list[ast.expr]] = defaultdict(list)
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.aliases: list[ast.alias] = []
        self.definitions: dict[str, list[ast.AST]] = defaultdict(list)
        self.stored: set[str] = set()
        self._visit_tree(self.tree, self.tree)

    def _visit_tree(self, root: ast.AST, outermost: ast.AST) -> None:
        pending = [(root, outermost)]
        while pending:
            node, scope = pending.pop()
            self.scopes[node] = scope
            self._record_names(node, scope)
            inner = node if isinstance(node, _SCOPES) else scope
            around = self.scopes[self.parents[node]] if isinstance(node, ast.arguments) else scope
            outside = _outside_parts(node)
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                pending.append((child, around if child in outside else inner))

    def _record_names(self, node: ast.AST, scope: ast.AST) -> None:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                if isinstance(node.ctx, ast.Load):
                    self.reads[name].append(node)
                elif isinstance(node, ast.Name):
                    while isinstance(self.parents[node], ast.NamedExpr) and isinstance(scope, _COMPREHENSIONS):
                        scope = self.scopes[scope]
                    self.binds[scope].add(name)
                    self.stored.add(name)
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self.binds[scope].add(name)
            case ast.ExceptHandler(name=str(name)):
                self.binds[scope].add(name)
            case ast.alias():
                self.aliases.append(node)
                if not isinstance(scope, ast.Module):
                    self.binds[scope].add((node.asname or node.name).partition(".")[0])
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self.outer[scope].update(names)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.binds[scope].add(name)
                self.definitions[name].append(node)
            case ast.Call(func=called):
                self.calls[last_part_of_name(called)].append(node)
                if last_part_of_name(called) in ("getattr", "attrgetter"):
                    for one in node.args:
                        if isinstance(one, ast.Constant) and isinstance(one.value, str):
                            self.reads[one.value].append(node)
            case ast.Subscript(slice=ast.Constant(value=str(name)), value=mapping):
                if (
                    last_part_of_name(mapping) == "__dict__"
                    or last_part_of_name(getattr(mapping, "func", mapping)) == "vars"
                ):
                    self.reads[name].append(node)

    def holder(self, name: str, node: ast.AST) -> _Holder:
        """Return the key that identifies the variable to which ``name`` refers at ``node``."""
        scope, first = self.scopes[node], True
        while not isinstance(scope, ast.Module):
            if name in self.binds[scope] - self.outer[scope] and (first or not isinstance(scope, ast.ClassDef)):
                return ("", name) if isinstance(scope, ast.ClassDef) else self.variable(scope, name)
            scope, first = self.scopes[scope], False
        return "", name

    def variable(self, scope: ast.AST, name: str) -> _Holder:
        """Return the key of a variable: the file, the line and column of the function ``scope``, and the name."""
        return self.path, str(getattr(scope, "lineno", 0)), str(getattr(scope, "col_offset", 0)), name

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the innermost class that contains ``node``; None outside of classes."""
        while (node := self.parents.get(node, self.tree)) is not self.tree:
            if isinstance(node, ast.ClassDef):
                return node
        return None

    def is_in_error(self, node: ast.AST) -> bool:
        """Return whether an expression is part of a ``raise`` statement."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return isinstance(node, ast.Raise)

    def is_self(self, node: ast.AST) -> bool:
        """Return whether an expression is ``self`` in a method of a class that is not a metaclass."""
        if not isinstance(node, ast.Name) or node.id != "self":
            return False
        owner = self.owner(node)
        return owner is not None and all(last_part_of_name(base) != "type" for base in owner.bases)


def _outside_parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a definition that are evaluated in the scope around the definition, such as decorators."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.decorator_list, *([node.returns] if node.returns else [])]
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *node.keywords]
        case ast.arguments():
            return [*node.defaults, *(one for one in node.kw_defaults if one is not None)]
    return []


@lru_cache(maxsize=512)
def _names_in_file(path: str, text: str) -> _FileNames:
    return _FileNames(path, text)


class _FunctionSearch:
    def __init__(self, project: Project, own: _FileNames | None = None) -> None:
        self._project, self._own = project, own
        self._found: dict[FunctionUseKind, str] = {}
        self._seen: set[_Holder] = set()
        self._pending: list[_Holder] = []
        self._followed: set[ast.AST] = set()
        self._called: dict[str, list[_CalledFunction]] = {}

    def find_class_mutation_from(self, lines: Mapping[str, Collection[int]]) -> str | None:
        for path, found in lines.items():
            file = self._names_in_file(path)
            for node in [
                one for one in file.scopes if getattr(one, "lineno", 0) in found and object_of_class_expression(one)
            ]:
                self._follow_expression(file, node)
        self._follow_all()
        return next(
            (
                self._found[use]
                for use in (FunctionUseKind.ATTRIBUTE, FunctionUseKind.PLACE, FunctionUseKind.LOST)
                if use in self._found
            ),
            None,
        )

    def run(self, module: Module, node: cst.FunctionDef | cst.Lambda) -> dict[FunctionUseKind, str]:
        file = self._names_in_file(module.path)
        if isinstance(node, cst.Lambda):
            start = module.span(node)[0]
            lambdas = (one for one in file.scopes if isinstance(one, ast.Lambda))
            places = {module.offset(one.lineno, one.col_offset): one for one in lambdas}
            place = min((one for one in places if one >= start), default=start)
            if _BRACKETS.fullmatch(module.text, start, place) is None or place not in places:
                # The lambda is in an f-string, where older versions of Python report a wrong position.
                self._record_use(FunctionUseKind.LOST, file, file.tree)
            else:
                self._follow_expression(file, places[place])
        else:
            line = module.position(module.span(node.name)[0])[0]
            named = (one for one in file.definitions[node.name.value] if isinstance(one, _DEFINITIONS))
            found = max((one for one in named if one.lineno <= line), key=lambda one: one.lineno)
            self._add_holders(file.holder(found.name, found))
        self._follow_all()
        return self._found

    def _follow_all(self) -> None:
        while self._pending:
            holder = self._pending.pop()
            if len(self._seen) > _MOST_HOLDERS:
                self._found.setdefault(FunctionUseKind.LOST, holder[0] or holder[-1])
                break
            self._follow(holder)

    def _names_in_files(self, word: str) -> Iterator[_FileNames]:
        for path in self._project.paths_containing(word):
            yield self._names_in_file(path)

    def _names_in_file(self, path: str) -> _FileNames:
        if self._own is not None and path == self._own.path:
            return self._own
        return _names_in_file(path, self._project.text(path))

    def _record_use(self, use: FunctionUseKind, file: _FileNames, node: ast.AST) -> None:
        self._found.setdefault(use, f"{file.path}:{getattr(node, 'lineno', 1)}")

    def _add_holders(self, *holders: _Holder) -> None:
        for one in holders:
            if one not in self._seen:
                self._seen.add(one)
                self._pending.append(one)

    def _follow(self, holder: _Holder) -> None:
        """Follow the function to all code that reads ``holder``.

        ``holder`` is a variable, attribute or result that may be the function.
        """
        kind, name = holder[0], holder[-1]
        if kind == "()":
            for file in self._names_in_files(name):
                for call in file.calls.get(name, ()):
                    self._follow_expression(file, call)
            return
        files = [self._names_in_file(kind)] if kind else self._names_in_files(name)
        for file in files:
            for read in file.reads.get(name, ()):
                if isinstance(read, ast.Name) != bool(kind) and kind:
                    continue
                if not isinstance(read, ast.Name) or file.holder(name, read) == holder:
                    self._follow_expression(file, read)
                if isinstance(read, ast.Call) and isinstance(file.parents.get(read), ast.Call):
                    self._follow_expression(file, file.parents[read])  # attrgetter("…")(…), map(attrgetter("…"), …)
            for one in file.aliases if not kind else ():
                if one.name == name and one.asname:
                    self._add_holders(file.holder(one.asname, one))

    def _follow_expression(self, file: _FileNames, node: ast.AST) -> None:
        """Follow the function to the code around an expression whose value is or contains the function."""
        if node in self._followed:
            return
        self._followed.add(node)
        parent = file.parents.get(node, file.tree)
        match parent:
            case ast.Call() if parent.func is not node:
                self._follow_argument(file, parent, node)
            case ast.keyword():
                call = file.parents[parent]
                if isinstance(call, ast.Call):
                    self._follow_argument(file, call, node, parent.arg or "**")
                else:
                    self._record_use(FunctionUseKind.LOST, file, node)  # a keyword in the header of a class
            case ast.Starred():
                call = file.parents[parent]
                if isinstance(call, ast.Call):
                    self._follow_argument(file, call, node, "*")
                else:
                    self._follow_expression(file, parent)
            case ast.Set() | ast.SetComp(elt=_):
                self._record_use(FunctionUseKind.KEY, file, node)
            case ast.Dict(keys=keys) if node in keys:
                self._record_use(FunctionUseKind.KEY, file, node)
            case ast.DictComp(key=key) if key is node:
                self._record_use(FunctionUseKind.KEY, file, node)
            case ast.Subscript(slice=key) if key is node:
                self._record_use(FunctionUseKind.KEY, file, node)
            case ast.Compare(ops=operators, comparators=others) if node is not others[-1] and any(
                isinstance(one, ast.In | ast.NotIn) for one in operators
            ):
                self._record_use(FunctionUseKind.KEY, file, node)
            case ast.IfExp(test=test) if test is node:
                return
            case ast.Tuple(elts=elements) if isinstance(around := file.parents[parent], ast.Assign):
                for target in around.targets:
                    self._follow_assignment(file, _target_at(target, elements, node), node)
            case ast.Tuple() | ast.List() | ast.Dict() | ast.DictComp() | ast.ListComp() | ast.GeneratorExp():
                self._follow_expression(file, parent)
            case ast.BinOp(left=left, right=right) if any(isinstance(one, _TEXTS) for one in (left, right)):
                return  # the operator adds or formats strings
            case ast.IfExp() | ast.BoolOp() | ast.BinOp() | ast.Await() | ast.Subscript():
                self._follow_expression(file, parent)
            case ast.NamedExpr(target=target):
                self._follow_assignment(file, target, node)
                self._follow_expression(file, parent)
            case ast.Assign(targets=targets):
                for target in targets:
                    self._follow_assignment(file, target, node)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                self._follow_assignment(file, target, node)
            case (
                ast.For(iter=iterable, target=target)
                | ast.AsyncFor(iter=iterable, target=target)
                | ast.comprehension(iter=iterable, target=target)
            ) if iterable is node:
                self._follow_assignment(file, _element_target(node, target), node)
            case ast.Attribute(attr=name):
                self._follow_attribute_read(file, parent, name)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                self._follow_return(file, parent)
            case ast.arguments():
                self._follow_default(file, parent, node)
            case ast.Match(cases=cases):
                for pattern in (one for case in cases for one in ast.walk(case.pattern)):
                    if isinstance(pattern, ast.MatchClass):
                        self._record_use(FunctionUseKind.CLASS, file, pattern.cls)
                    elif isinstance(pattern, ast.MatchAs | ast.MatchStar) and pattern.name:
                        self._add_holders(file.holder(pattern.name, pattern))
            case _ if not isinstance(parent, _HARMLESS):
                self._record_use(FunctionUseKind.LOST, file, node)

    def _follow_attribute_read(self, file: _FileNames, read: ast.Attribute, name: str) -> None:
        around = file.parents.get(read, file.tree)
        is_called = isinstance(around, ast.Call) and around.func is read
        if name == "__dict__" or not isinstance(read.ctx, ast.Load):
            self._record_use(FunctionUseKind.ATTRIBUTE, file, read)
        elif name == "__class__":
            self._record_use(FunctionUseKind.CLASS, file, read)
        elif name in ("__mro__", "__base__", "__bases__"):
            self._follow_expression(file, read)
        elif name == "mro" and is_called:
            self._follow_expression(file, around)
        elif name == "__qualname__":
            self._record_use(FunctionUseKind.PLACE, file, read)
        elif name == "__get__":
            self._record_use(FunctionUseKind.METHOD, file, read)
        elif name == "__hash__":
            self._record_use(FunctionUseKind.KEY, file, read)
        elif is_called and name in _GETTING_METHODS:
            self._follow_expression(file, around)

    def _follow_assignment(self, file: _FileNames, target: ast.AST, value: ast.AST) -> None:
        match target:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for one in elements:
                    self._follow_assignment(file, one, value)
            case ast.Starred(value=inner):
                self._follow_assignment(file, inner, value)
            case ast.Name(id=name):
                if isinstance(file.scopes[target], ast.ClassDef):
                    self._record_use(FunctionUseKind.METHOD, file, target)
                self._add_holders(file.holder(name, target))
            case ast.Attribute(value=owner, attr=name):
                if self._may_be_class(file, owner):
                    self._record_use(FunctionUseKind.METHOD, file, target)
                self._add_holders(("", name))
                self._add_setter_parameters("__set__", "__setattr__")
                # A property setter with this name receives the function.
                self._add_holders(*(one for found in self._definitions(name) for one in found.positional[:1]))
            case ast.Subscript(value=container):
                self._add_container_holder(file, container)
                self._add_setter_parameters("__setitem__")

    def _add_setter_parameters(self, *methods: str) -> None:
        """Follow the function into the parameter ``value`` of ``methods``, such as ``__setattr__(self, name, value)``.

        If the project defines such a method, Python calls the method for an assignment such as ``x.a = function``.
        """
        for one in (found for method in methods for found in self._definitions(method)):
            self._add_holders(*one.positional[1:2])

    def _add_container_holder(self, file: _FileNames, container: ast.AST) -> None:
        """Follow the function into a variable or attribute ``container``, as in ``container.append(function)``."""
        while isinstance(container, ast.Subscript):
            container = container.value
        match container:
            case ast.Name(id=name):
                self._add_holders(file.holder(name, container))
            case ast.Attribute(attr=name):
                self._add_holders(("", name))
                if name == "__dict__" and self._may_be_class(file, container.value):
                    self._record_use(FunctionUseKind.METHOD, file, container)
            case ast.Call(func=called) if last_part_of_name(called) in ("vars", "globals", "locals"):
                self._record_use(FunctionUseKind.LOST, file, container)

    def _follow_return(self, file: _FileNames, statement: ast.AST) -> None:
        scope = file.scopes[statement]
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            self._add_holders(("()", scope.name))
            if scope.name in ("__iter__", "__next__", "__enter__"):  # loops and `with` statements call this method
                self._record_use(FunctionUseKind.LOST, file, statement)
            if scope.decorator_list:  # the decorated function may be a property, or the decorator may call the function
                self._add_holders(("", scope.name))

    def _follow_default(self, file: _FileNames, given: ast.arguments, node: ast.AST) -> None:
        for name, default in parameter_defaults(given):
            if default is node:
                self._add_holders(file.variable(file.parents[given], name))

    def _follow_argument(self, file: _FileNames, call: ast.Call, node: ast.AST, keyword: str = "") -> None:
        name = last_part_of_name(call.func)
        place = call.args.index(node) if node in call.args else 0
        is_first = not keyword and place == 0
        if _is_type_call(call.func) and not isinstance(call.func.args[0], ast.Name):
            self._record_use(FunctionUseKind.METHOD, file, call)  # a call such as `type(self.run)(function, self)`
        if name in _HASHING_FUNCTIONS or (name in _HASHING_METHODS and is_first):
            self._record_use(FunctionUseKind.KEY, file, call)
        if (name == "type" and len(call.args) == 3) or name in _CLASS_AND_METHOD_MAKERS:
            self._record_use(FunctionUseKind.METHOD, file, call)
        elif name in ("type", *_INSPECTING) or (
            name == "isinstance" and is_first and not self._are_known_classes(file, call.args[-1])
        ):
            if not file.is_in_error(call):
                self._record_use(FunctionUseKind.CLASS, file, call)
        elif name in ("getattr", "hasattr") and is_first:
            asked = call.args[1] if len(call.args) > 1 else None
            if not isinstance(asked, ast.Constant) or str(asked.value) in ("__get__", "__class__", "__hash__"):
                self._record_use(FunctionUseKind.CLASS, file, call)
        elif (name in ("setattr", "delattr", "__setattr__", "update_wrapper") and is_first) or name == "vars":
            self._record_use(FunctionUseKind.ATTRIBUTE, file, call)
        elif name in ("setattr", "__setattr__", "object") and place >= 1:
            self._follow_set_call(file, call)
        for one in call.keywords:
            if one.arg == "key" and node in call.args:
                self._pass_to_callee(file, call, one.value, 0)
        if name in _CALLERS and place and call.args:
            self._pass_to_callee(file, call, call.args[0], place - 1)
        if name in _ADDING_METHODS and isinstance(call.func, ast.Attribute):
            self._add_container_holder(file, call.func.value)
            if keyword and keyword != "**":
                self._add_holders(("", keyword))
        if name in _RESULT_CONTAINS_ARGUMENTS and keyword != "key" and not (name == "filter" and is_first):
            self._follow_expression(file, call)
        self._pass_argument(file, call, name, place, keyword)

    def _follow_set_call(self, file: _FileNames, call: ast.Call) -> None:
        """Follow the function into the attribute that a call such as ``setattr`` sets."""
        owner, name = call.args[0], call.args[-2]
        path = str(name.value) if isinstance(name, ast.Constant) else ""
        if owner is name:
            owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if self._may_be_class(file, owner) or any(part[:1].isupper() for part in path.split(".")[:-1]):
            self._record_use(FunctionUseKind.METHOD, file, call)
        if not path:
            self._record_use(FunctionUseKind.LOST, file, call)
        self._add_holders(("", path.rpartition(".")[2]))

    def _pass_to_callee(self, file: _FileNames, call: ast.Call, called: ast.expr, place: int) -> None:
        """Follow the function into a parameter of ``called``, as in the call ``partial(called, function)``."""
        callee = last_part_of_name(called)
        if callee in _HASHING_FUNCTIONS or callee in _HASHING_METHODS:
            self._record_use(FunctionUseKind.KEY, file, call)
        elif callee == "type":
            self._record_use(FunctionUseKind.CLASS, file, call)
        elif callee in ("setattr", "__setattr__"):
            self._record_use(FunctionUseKind.ATTRIBUTE, file, call)
        for one in self._callees(file, called):
            self._add_holders(*(one.positional[place : place + 1] or one.rest))

    def _callees(self, file: _FileNames, called: ast.expr) -> list[_CalledFunction]:
        """Return the functions and classes of the project, or the lambda, that a called expression may refer to."""
        return (
            [_definition(file, called)]
            if isinstance(called, ast.Lambda)
            else self._definitions(last_part_of_name(called))
        )

    def _pass_argument(self, file: _FileNames, call: ast.Call, name: str, place: int, keyword: str) -> None:
        owner = file.owner(call)
        names = [name]
        if name == "__init__" and owner is not None:
            names = [last_part_of_name(base.value if isinstance(base, ast.Subscript) else base) for base in owner.bases]
            is_explicit = isinstance(call.func, ast.Attribute) and not isinstance(call.func.value, ast.Call)
            place = place - 1 if is_explicit else place
        elif owner is not None and (name in ("cls", "__class__") or _is_type_call(call.func)):
            names = [owner.name]
        found = [one for title in names for one in self._definitions(title)] or self._callees(file, call.func)
        if not found and file.holder(name, call)[0]:  # the callee is a local variable
            found = self._definitions("__call__")
            names = []
        if keyword and keyword[0] != "*" and not (names and names[0]):
            self._add_holders(*self._parameters(keyword))  # any function may be the callee
        if keyword and keyword[0] != "*" and not any(keyword in one.named for one in found):
            self._add_holders(("", keyword))
        owned = isinstance(call.func, ast.Attribute) and not self._may_be_class(file, call.func.value)
        for one in found:
            if one.is_cached:
                self._record_use(FunctionUseKind.KEY, file, call)
            if one.dispatches:
                self._record_use(FunctionUseKind.CLASS, file, call)
            if keyword in ("*", "**"):
                self._add_holders(*one.positional, *one.named.values(), *one.rest)
            elif keyword:
                self._add_holders(*([one.named[keyword]] if keyword in one.named else one.rest))
            else:
                self._add_holders(*(one.positional[place : place + 1] or one.rest))
                if one.is_method and not owned and place:
                    self._add_holders(*(one.positional[place - 1 : place] or one.rest))

    def _parameters(self, name: str) -> Iterator[_Holder]:
        """Yield the parameters called ``name`` of all functions of the project."""
        for file in self._names_in_files(name):
            given = (node for node in file.scopes if isinstance(node, ast.arg) and node.arg == name)
            yield from (file.variable(file.scopes[node], name) for node in given)

    def _definitions(self, name: str) -> list[_CalledFunction]:
        """Return the definitions of all functions and classes called ``name`` in the project."""
        if name not in self._called:
            self._called[name] = []  # ends the recursion if the definitions of names refer to each other
            for file in self._names_in_files(name) if name else ():
                for node in file.definitions.get(name, ()):
                    self._called[name] += self._definitions_of(file, node)
                self._called[name] += _cached_variables(file, name)
        return self._called[name]

    def _definitions_of(self, file: _FileNames, node: ast.AST) -> Iterator[_CalledFunction]:
        if isinstance(node, ast.ClassDef):
            made = [
                one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in ("__init__", "__new__")
            ]
            for method in made:
                yield _definition(file, method)
            fields = [one.target.id for one in node.body if _is_field(one)]  # type: ignore[attr-defined]
            if fields:
                named: dict[str, _Holder] = {one: ("", one) for one in fields}
                yield _CalledFunction(tuple(named.values()), named, (), is_cached=_may_be_key(node))
            for base in node.bases if not made else ():
                yield from self._definitions(last_part_of_name(base.value if isinstance(base, ast.Subscript) else base))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _definition(file, node)
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                for other in self._names_in_files(last_part_of_name(called)):
                    for one in other.definitions.get(last_part_of_name(called), ()):
                        inner = (part for part in ast.walk(one) if part is not one)
                        yield from (_definition(other, part) for part in inner if isinstance(part, ast.FunctionDef))

    def _are_known_classes(self, file: _FileNames, asked: ast.AST) -> bool:
        """Return whether an expression, such as the second argument of ``isinstance``, contains only known classes.

        A class is known if no code of the project assigns another value to its name.
        """
        match asked:
            case ast.Tuple(elts=elements):
                return all(self._are_known_classes(file, one) for one in elements)
            case ast.BinOp(left=left, right=right):
                return self._are_known_classes(file, left) and self._are_known_classes(file, right)
            case ast.Constant(value=None):
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name):
                is_variable = isinstance(asked, ast.Name) and file.holder(name, asked)[0] != ""
                return not is_variable and not any(name in one.stored for one in self._names_in_files(name))
        return False

    def _may_be_class(self, file: _FileNames, owner: ast.AST, depth: int = 0) -> bool:
        """Return whether an expression may be a class.

        The search follows chains of at most 4 variables. ``depth`` is the number of variables of the chain so far.
        """
        if file.is_self(owner):
            return False
        match owner:
            case ast.Name(id="cls") | ast.Attribute(attr="__class__" | "__mro__" | "__bases__"):
                return True
            case ast.Call(func=called):
                return last_part_of_name(called) in ("type", "mro", "getmro", "__subclasses__") or any(
                    self._may_be_class(file, one, depth) for one in owner.args
                )
            case ast.Name(id=name) | ast.Attribute(attr=name) if name.lstrip("_")[:1].isupper():
                return not name.isupper() or any(
                    isinstance(one, ast.ClassDef)
                    for found in self._names_in_files(name)
                    for one in found.definitions[name]
                )
            case ast.Subscript(value=inner) | ast.Starred(value=inner):
                return self._may_be_class(file, inner, depth)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
                return any(self._may_be_class(file, one, depth) for one in parts)
            case ast.IfExp(body=one, orelse=other):
                return self._may_be_class(file, one, depth) or self._may_be_class(file, other, depth)
            case ast.GeneratorExp(generators=clauses) | ast.ListComp(generators=clauses):
                return any(self._may_be_class(file, one.iter, depth) for one in clauses)
            case ast.Name(id=name):
                return depth < 4 and any(
                    self._may_be_class(other, value, depth + 1)
                    for other, value in self._possible_values(file, name, owner)
                )
        return False

    def _possible_values(self, file: _FileNames, name: str, read: ast.Name) -> Iterator[tuple[_FileNames, ast.AST]]:
        """Yield the sources of a variable's value: assigned values, iterables of loops, and arguments of calls."""
        holder = file.holder(name, read)
        for node in file.scopes:
            match node:
                case ast.Assign(targets=targets, value=value):
                    held = targets
                case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                    held = [target]
                case ast.NamedExpr(target=target, value=value):
                    held = [target]
                case ast.arg(arg=parameter) if parameter == name and file.holder(name, node) == holder:
                    yield from self._passed_arguments(file, file.scopes[node], name)
                    continue
                case _:
                    continue
            parts = [one for target in held for one in ast.walk(target)]
            if any(isinstance(one, ast.Name) and one.id == name and file.holder(name, one) == holder for one in parts):
                yield file, value

    def _passed_arguments(
        self, file: _FileNames, function: ast.AST, parameter: str
    ) -> Iterator[tuple[_FileNames, ast.AST]]:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        taking = _definition(file, function)
        holder = file.variable(function, parameter)
        owner = file.owner(function)
        called = owner.name if function.name == "__init__" and owner is not None else function.name
        for other in self._names_in_files(called):
            for call in other.calls.get(called, ()):
                for place, one in enumerate(call.args):
                    if holder in (taking.positional[place : place + 1] or taking.rest):
                        yield other, one
                yield from ((other, one.value) for one in call.keywords if taking.named.get(one.arg or "") == holder)


def object_of_class_expression(node: ast.AST) -> ast.expr | None:
    """Return ``x`` for ``type(x)`` and ``x.__class__``; None for other expressions."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[asked], keywords=[]):
            return asked
        case ast.Attribute(value=asked, attr="__class__"):
            return asked
    return None


def _element_target(iterable: ast.AST, target: ast.AST) -> ast.AST:
    """Return the part of a loop's target that receives the elements of a container.

    For ``for key, value in x.items()`` and ``for index, value in enumerate(x)``, the part is ``value``. For any other
    loop, the result is the whole target.
    """
    match iterable, target:
        case ast.Call(func=called), ast.Tuple(elts=[_, element]) if last_part_of_name(called) in ("items", "enumerate"):
            return element
    return target


def _target_at(target: ast.AST, elements: list[ast.expr], value: ast.AST) -> ast.AST:
    """Return the part of a target that receives ``value``, such as ``b`` in ``a, b = x, value``."""
    targets = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    if len(targets) == len(elements) and not any(isinstance(one, ast.Starred) for one in (*targets, *elements)):
        return next(to for to, one in zip(targets, elements, strict=True) if one is value)
    return target


def _is_field(statement: ast.AST) -> bool:
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def _may_be_key(node: ast.ClassDef) -> bool:
    """Return whether Python hashes the objects of a class by their fields, as for a frozen dataclass or NamedTuple."""
    options = {one.arg for decorator in node.decorator_list for one in getattr(decorator, "keywords", ())}
    bases = {last_part_of_name(base) for base in node.bases}
    return "NamedTuple" in bases or not options.isdisjoint(("frozen", "unsafe_hash"))


def _is_type_call(called: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(called, ast.Call) and last_part_of_name(called.func) == "type" and len(called.args) == 1


def _definition(file: _FileNames, function: _Function) -> _CalledFunction:
    given = function.args
    positional = [one.arg for one in (*given.posonlyargs, *given.args)]
    written = [] if isinstance(function, ast.Lambda) else function.decorator_list
    is_static = any(last_part_of_name(one) == "staticmethod" for one in written) or isinstance(function, ast.Lambda)
    is_method = isinstance(file.scopes[function], ast.ClassDef) and not is_static
    positional = positional[is_method:]
    names = [one.arg for one in (*given.args, *given.kwonlyargs)]
    rest = [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    decorators = {last_part_of_name(one.func if isinstance(one, ast.Call) else one) for one in written}
    return _CalledFunction(
        tuple(file.variable(function, one) for one in positional),
        {one: file.variable(function, one) for one in names},
        tuple(file.variable(function, one) for one in rest),
        not _CACHES.isdisjoint(decorators),
        "singledispatch" in decorators,
        is_method,
    )


def _cached_variables(file: _FileNames, name: str) -> Iterable[_CalledFunction]:
    """Return how calls of the variable ``name`` use their arguments.

    The result has one item, or no item if the file assigns no value to ``name``.

    The field ``is_cached`` is True if the value is a function with a cache, as in ``load = lru_cache(read)``, or a
    function such as ``id``. The field ``dispatches`` is True if the value is ``type``.
    """
    assigned = (one for one in file.scopes if isinstance(one, ast.Assign)) if name in file.stored else ()
    for node in assigned:
        if any(last_part_of_name(one) == name for one in node.targets):
            is_cached = (
                any(last_part_of_name(one) in _CACHES for one in ast.walk(node.value))
                or last_part_of_name(node.value) in _HASHING_FUNCTIONS | _HASHING_METHODS
            )
            return [
                _CalledFunction((), {}, (), is_cached=is_cached, dispatches=last_part_of_name(node.value) == "type")
            ]
    return []
