"""Look up the bindings of names in a module by Python's rules for scopes.

Names are resolved on request, because rules need few names. LibCST's metadata providers would resolve every name of a
file, and would take several times as long as parsing.
"""

from __future__ import annotations

import builtins
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import libcst as cst
from libcst.helpers import get_full_name_for_node

from chirp_migrate.syntax.import_table import qualified_member_name

_BUILTINS = frozenset(dir(builtins))
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_SCOPES = (cst.Module, cst.FunctionDef, cst.Lambda, cst.ClassDef, *_COMPREHENSIONS)
#: Nodes that determine the scope of the nodes below them.
_DECIDE = frozenset({cst.Param, cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.CompFor, *_COMPREHENSIONS})
#: Nodes that bind names to values, each with the field that contains the bound names.
TARGETS: dict[type[cst.CSTNode], str] = {
    **dict.fromkeys((cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor), "target"),
    **dict.fromkeys((cst.AsName, cst.MatchAs, cst.MatchStar), "name"),
    cst.MatchMapping: "rest",
}
#: Nodes that bind names, other than parameters.
_BINDERS = (cst.Import, cst.ImportFrom, cst.FunctionDef, cst.ClassDef, *TARGETS)


class BindingKind(Enum):
    """How a name gets its value."""

    IMPORT = "import"
    DEFINITION = "definition"
    PARAMETER = "parameter"
    VALUE = "value"


@dataclass(frozen=True)
class Binding:
    """One place in the code that binds a name.

    Attributes:
        kind: how the name gets its value.
        node: the import, definition or parameter; for any other binding, the node with the target, such as a loop.
        qualified: for an import, the dotted name of the imported object, with the leading dots of a relative import.
    """

    kind: BindingKind
    node: cst.CSTNode
    qualified: str = ""


@dataclass
class Scope:
    """A scope of Python: a module, class, function, lambda or comprehension.

    Attributes:
        node: the node that creates the scope.
        parent: the scope around this scope; ``None`` for the module.
        bindings: the bindings of each name in this scope, in no particular order.
        elsewhere: the names that the scope declares ``global`` or ``nonlocal``, each with the type ``cst.Global`` or
            ``cst.Nonlocal``.
    """

    node: cst.CSTNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    elsewhere: dict[str, type[cst.CSTNode]] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Return the prefix of the qualified names in this scope, such as ``Class.``; "" for the module."""
        if self.parent is None:
            return ""
        if isinstance(self.node, cst.ClassDef):
            return f"{self.parent.prefix}{self.node.name.value}."
        if isinstance(self.node, cst.FunctionDef):
            return f"{self.parent.prefix}{self.node.name.value}.<locals>."
        return f"{self.parent.prefix}<{type(self.node).__name__.lower()}>."


def _normalized_name(name: str) -> str:
    """Return a name in Python's normal form (NFKC), which replaces variants of a letter by the same letter."""
    return name if name.isascii() else unicodedata.normalize("NFKC", name)


def _add_binding(scope: Scope, name: str, binding: Binding) -> None:
    """Add a binding to a scope, under the name as written and under the name in Python's normal form (NFKC)."""
    for spelled in {name, _normalized_name(name)}:
        scope.bindings.setdefault(spelled, []).append(binding)


class Variable(NamedTuple):
    """The variable that a name refers to: its scope, and all its bindings in this scope."""

    scope: Scope
    bindings: list[Binding]


class Scopes:
    """The scopes of one module.

    Args:
        tree: LibCST tree of the module.
        parents: parent of every node, except for layout such as white space and commas.
        find: function that returns every node of the given types.
    """

    def __init__(
        self,
        tree: cst.Module,
        parents: Mapping[cst.CSTNode, cst.CSTNode],
        find: Callable[..., Sequence[cst.CSTNode]],
    ) -> None:
        self._parents = parents
        self.module = Scope(tree, None)
        self._scopes: dict[cst.CSTNode, Scope] = {tree: self.module}
        self._of: dict[cst.CSTNode, Scope] = {}
        #: Each ``import *``: the module's name as written in the code, and the statement.
        self.stars: list[tuple[str, cst.ImportFrom]] = []
        for statement in find(cst.Global, cst.Nonlocal):
            assert isinstance(statement, cst.Global | cst.Nonlocal)
            scope = self.scope_of(statement)
            for item in statement.names:
                scope.elsewhere[item.name.value] = type(statement)
        # Bind parameters first, because a ``nonlocal`` statement may refer to a parameter.
        for parameter in find(cst.Param):
            assert isinstance(parameter, cst.Param)
            scope = self.scope_of(parameter.name)
            _add_binding(scope, parameter.name.value, Binding(BindingKind.PARAMETER, parameter))
        for node in find(*_BINDERS):
            self._bind(node)

    def scope_of(self, node: cst.CSTNode) -> Scope:
        """Return the scope in which the names of ``node`` are looked up.

        For a class or function definition, the result is the scope that contains the definition.
        """
        if node not in self._of:
            self._of[node] = self._enclosing_scope(node)
        return self._of[node]

    def _enclosing_scope(self, node: cst.CSTNode) -> Scope:
        child, outside = node, False
        while True:
            parent = self._parents.get(child)
            if parent is None:
                return self.module
            if type(parent) is cst.IndentedBlock:
                return self.scope_of(parent)
            if type(parent) not in _DECIDE:
                child = parent
                continue
            if isinstance(parent, cst.Param):
                outside = child is not parent.name
            elif isinstance(parent, cst.FunctionDef | cst.Lambda):
                if child is parent.body or (child is parent.params and not outside):
                    return self._scope(parent)
                outside = False
            elif isinstance(parent, cst.ClassDef):
                if child is parent.body:
                    return self._scope(parent)
            elif isinstance(parent, cst.CompFor):
                outside = child is parent.iter and isinstance(self._parents[parent], _COMPREHENSIONS)
            elif isinstance(parent, _COMPREHENSIONS):
                if not outside:
                    return self._scope(parent)
                outside = False
            child = parent

    def _scope(self, node: cst.CSTNode) -> Scope:
        if node not in self._scopes:
            self._scopes[node] = Scope(node, self.scope_of(node))
        return self._scopes[node]

    def lookup(self, name: str, node: cst.CSTNode) -> Variable | None:
        """Return the variable that ``name`` refers to at ``node``; ``None`` if no scope binds the name."""
        name = _normalized_name(name)
        scope: Scope | None = self.scope_of(node)
        first = True
        while scope is not None:
            if scope.elsewhere.get(name) is cst.Global:
                scope = self.module
            if name in scope.bindings and (first or not isinstance(scope.node, cst.ClassDef)):
                return Variable(scope, scope.bindings[name])
            first = first and isinstance(scope.node, _COMPREHENSIONS)
            scope = scope.parent
        return None

    def local_scopes_binding(self, name: str) -> Iterator[Scope]:
        """Return the scopes of functions, classes and comprehensions that bind ``name``."""
        return (one for one in self._scopes.values() if one.parent and name in one.bindings)

    def names_bound(self, node: cst.CSTNode, *, nested: bool = False) -> set[str]:
        """Return the names that a function or class binds, including parameters and names of comprehensions.

        Names that the code declares ``global`` or ``nonlocal`` count, too. With ``nested``, the result includes names
        that inner functions and classes bind.
        """
        names: set[str] = set()
        for scope in self._scopes.values():
            around: Scope | None = scope
            while around and around.node is not node:
                around = around.parent if nested or isinstance(around.node, _COMPREHENSIONS) else None
            if around:
                names.update(scope.bindings, scope.elsewhere)
        return names

    def is_builtin(self, name: str) -> bool:
        """Return whether ``name`` is one of Python's built-in names.

        Callers must check that no scope of the module binds the name.
        """
        return name in _BUILTINS

    def _bind(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Import | cst.ImportFrom):
            self._bind_import(node)
            return
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._add(self.scope_of(node), node.name.value, Binding(BindingKind.DEFINITION, node))
            return
        if isinstance(node, cst.AsName) and isinstance(self._parents[node], cst.ImportAlias):
            return
        scope = self.scope_of(node)
        if isinstance(node, cst.NamedExpr):
            while isinstance(scope.node, _COMPREHENSIONS):
                scope = scope.parent or self.module
        elif isinstance(node, cst.CompFor):
            scope = self._comprehension(node)
        for name in _target_names(node):
            self._add(scope, name, Binding(BindingKind.VALUE, node))

    def _comprehension(self, node: cst.CSTNode) -> Scope:
        while not isinstance(node, _COMPREHENSIONS):
            node = self._parents[node]
        return self._scope(node)

    def _add(self, scope: Scope, name: str, binding: Binding) -> None:
        declared = scope.elsewhere.get(name)
        if declared is cst.Global:
            scope = self.module
        elif declared is cst.Nonlocal:
            outer = scope.parent
            while outer is not None and (isinstance(outer.node, cst.ClassDef) or name not in outer.bindings):
                outer = outer.parent
            scope = outer or scope
        _add_binding(scope, name, binding)

    def _bind_import(self, node: cst.Import | cst.ImportFrom) -> None:
        scope = self.scope_of(node)
        if isinstance(node, cst.Import):
            for alias in node.names:
                whole = alias.evaluated_name
                name = alias.evaluated_alias or whole.partition(".")[0]
                self._add(scope, name, Binding(BindingKind.IMPORT, node, whole if alias.asname is not None else name))
            return
        source = "." * len(node.relative)
        if node.module is not None:
            source += get_full_name_for_node(node.module) or ""
        if isinstance(node.names, cst.ImportStar):
            self.stars.append((source, node))
            return
        for alias in node.names:
            name = alias.evaluated_alias or alias.evaluated_name
            self._add(
                scope, name, Binding(BindingKind.IMPORT, node, qualified_member_name(source, alias.evaluated_name))
            )


def _target_names(node: cst.CSTNode) -> Iterator[str]:
    """Yield the names that an assignment, loop, ``with``, ``except`` or pattern binds.

    Targets such as ``x.a`` and ``x[0]`` bind no name, so they are omitted.
    """
    pending: list[cst.CSTNode | None] = [getattr(node, TARGETS[type(node)])]
    while pending:
        one = pending.pop()
        if isinstance(one, cst.Name):
            yield one.value
        elif isinstance(one, cst.Tuple | cst.List):
            pending += [element.value for element in one.elements]
        elif isinstance(one, cst.StarredElement):
            pending.append(one.value)
