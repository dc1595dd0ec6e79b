"""Find expressions whose value is a ``DataLoader``, and the calls that may have built the loader.

An expression is a loader if its value comes from a call that builds a loader. The call may be in a helper function of
the project, and the value may be stored in an attribute of ``self``. A variable is also a loader if its annotation
names a loader, or if its name is typical of loaders. A value that is clearly of another class is not a loader, even if
the name of the variable is typical.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values_and_annotations, assigning_scope
from chirp_migrate.analysis.known_names import (
    FACTORY_METHOD,
    LOADER,
    NO_LOADER,
    PROGRESS,
    inherits_from,
    is_call_of,
    join_name_patterns,
)
from chirp_migrate.syntax.gap_patterns import LINE
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import find_function, is_project_class, resolve_node
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    called_method_name,
    dotted_source,
    find_nodes_in_scope,
    function_parameters,
    is_self_attribute,
)

#: Patterns with which a quick check of a text decides whether the slower analysis is necessary.
_SHORT = re.compile(r"(?:\b|_)dl\b")
_BATCHES = re.compile(rf"{LINE}for\b(?![^\r\n]*\brange\b)[^\r\n]*[bB]atch")

#: Permitted text after the last "loader" in the name of a loader.
_SUFFIX = re.compile(r"(_?(\d+|[a-rt-z][a-z]*))?")
#: Endings of names of collections of loaders.
_PLURAL = re.compile(r"loaders?(_\w|\Z)|(^|_)dls?\Z", re.IGNORECASE)
_QUOTED = re.compile(r"\bDataLoader\b")
_SAME = re.compile(r"(typing\.)?(Optional|Union|Annotated|Final)|types\.UnionType")
#: Calls that yield the items of their first argument.
WRAPPER = join_name_patterns(PROGRESS, r"builtins\.iter|itertools\.islice")
_LITERALS = (cst.Integer, cst.Float, cst.SimpleString, cst.FormattedString, cst.ConcatenatedString, cst.Lambda)
_CONTAINERS = (cst.List, cst.Tuple, cst.Dict, cst.Set, cst.ListComp, cst.DictComp, cst.SetComp)
_DEPTH_LIMIT = 8


@lru_cache(maxsize=8)
def may_use_loader(text: str) -> bool:
    """Return whether the text of a module contains a word such as ``loader``, so code may iterate over a loader."""
    if "oader" in text or ("dl" in text and _SHORT.search(text) is not None):
        return True
    return "atch" in text and _BATCHES.search(text) is not None


@dataclass(frozen=True)
class LoaderValue:
    """The value of an expression that is a loader.

    Attributes:
        calls: the calls that may have built the loader, each with its module.
        complete: whether ``calls`` contains every call that may have built the loader.
    """

    calls: tuple[tuple[Module, cst.Call], ...] = ()
    complete: bool = False


class LoaderExpressions:
    """Find the expressions in one module that are loaders.

    Args:
        module: the module.
        project: the project that defines helper functions and subclasses.
    """

    def __init__(self, module: Module, project: Project) -> None:
        self._module = module
        self._project = project
        self._known: dict[tuple[Module, cst.CSTNode, str, bool], LoaderValue | None] = {}

    def loader(self, node: cst.BaseExpression) -> LoaderValue | None:
        """Return the loader that an expression refers to; None if the expression is not a loader."""
        return self._value(self._module, node, 0)

    def functions(self, call: cst.Call, module: Module | None = None) -> list[tuple[Module, cst.FunctionDef]]:
        """Return the functions of the project, or methods of the enclosing class, that ``call`` may call.

        The results are pairs (module, function).

        Args:
            call: a call in ``module``.
            module: the module that contains the call; by default the module of this object.
        """
        module = module or self._module
        if is_self_attribute(call.func):
            owner = module.enclosing_class(call)
            named = _functions_named(owner.body.body, called_method_name(call)) if owner is not None else []
            return [(module, function) for function in named]
        functions: list[tuple[Module, cst.FunctionDef]] = []
        for qualified in resolve_node(self._project, module, call.func):
            definition = find_function(self._project, qualified)
            if definition is not None:
                home = module if definition[0].path == module.path else definition[0]
                functions += [(home, one) for one in _functions_named(home.tree.body, definition[1].name.value)]
        return functions

    def _value(
        self, module: Module, node: cst.BaseExpression, depth: int, part: int | None = None, inside: bool = False
    ) -> LoaderValue | None:
        """Return the loader that is the value of ``node``; None if the value is not a loader.

        With ``part``, the value of ``node`` must be a container with the loader at this position. With ``inside``, the
        value must be a container with the loader at any position.
        """
        if depth > _DEPTH_LIMIT:
            return None
        match node:
            case cst.Call():
                return self._loader_of_call(module, node, depth, part, inside)
            case cst.IfExp(body=body, orelse=orelse):
                return _unite_loaders(self._value(module, one, depth + 1, part, inside) for one in (body, orelse))
            case cst.Tuple(elements=elements) | cst.List(elements=elements) if part is not None:
                return self._value(module, elements[part].value, depth + 1) if part < len(elements) else None
            case cst.List() | cst.Tuple() | cst.Set() | cst.Dict() if inside:
                return _unite_loaders(self._value(module, one.value, depth + 1) for one in node.elements)
            case cst.ListComp(elt=element) | cst.SetComp(elt=element) | cst.DictComp(value=element) if inside:
                return self._value(module, element, depth + 1)
            case cst.Subscript(value=holder) if part is None:
                return self._value(module, holder, depth + 1, inside=True)
            case cst.Name() | cst.Attribute() if part is None:
                return self._loader_of_name(module, node, depth, inside)
        return None

    def _loader_of_call(
        self, module: Module, call: cst.Call, depth: int, part: int | None, inside: bool
    ) -> LoaderValue | None:
        names = resolve_node(self._project, module, call.func)
        whole = part is None and not inside
        if (
            names
            and whole
            and all(FACTORY_METHOD.fullmatch(n) or inherits_from(self._project, n, LOADER) for n in names)
        ):
            return LoaderValue(((module, call),), complete=True)
        if call.args and not call.args[0].star and is_call_of(module, call, WRAPPER, self._project):
            return self._value(module, call.args[0].value, depth + 1, part, inside)
        for owner, function in self.functions(call, module):
            returned = [n.value for n in find_nodes_in_scope(function, cst.Return) if n.value is not None]
            found = _unite_loaders(self._value(owner, value, depth + 1, part, inside) for value in returned)
            if found is not None:
                return found
        last = (dotted_source(call.func) or "").rpartition(".")[2]
        classes = any(is_project_class(self._project, name) for name in names)
        return LoaderValue() if _is_typical_loader_name(last) and whole and not classes else None

    def _loader_of_name(
        self, module: Module, node: cst.Name | cst.Attribute, depth: int, inside: bool
    ) -> LoaderValue | None:
        name = dotted_source(node)
        if name is None:
            return LoaderValue() if _is_typical_loader_name(node.attr.value) else None  # type: ignore[union-attr]
        scope = assigning_scope(module, node, name)
        key = (module, scope, name, inside)
        if key not in self._known:
            # `None` ends the recursion if a name gets its value from itself, as in `loader = tqdm(loader)`.
            self._known[key] = None
            self._known[key] = self._loader_of_binding(module, scope, name, depth, inside)
        return self._known[key]

    def _loader_of_binding(
        self, module: Module, scope: cst.CSTNode, name: str, depth: int, inside: bool
    ) -> LoaderValue | None:
        values, annotations = assigned_values_and_annotations(module, scope, name)
        made = _unite_loaders(self._value(module, one.value, depth + 1, one.part, inside) for one in values)
        if made is not None and made.calls:
            return replace(made, complete=made.complete and name not in function_parameters(scope))
        if any(self._is_loader_annotation(module, one, inside) for one in annotations):
            return LoaderValue()
        last = name.rpartition(".")[2]
        if not (_PLURAL.search(last) if inside else _is_typical_loader_name(last)):
            return None
        if (
            values
            and name not in function_parameters(scope)
            and all(self._is_known_non_loader(module, o.value, inside) for o in values)
        ):
            return None
        return LoaderValue()

    def _is_loader_annotation(self, module: Module, node: cst.BaseExpression, inside: bool) -> bool:
        """Return whether an annotation names a loader; with ``inside``, whether it names a container of loaders."""
        if isinstance(node, cst.SimpleString):
            return _QUOTED.search(node.value) is not None and not inside
        if isinstance(node, cst.BinaryOperation):
            return any(self._is_loader_annotation(module, one, inside) for one in (node.left, node.right))
        if isinstance(node, cst.Subscript):
            head = resolve_node(self._project, module, node.value)
            if any(inherits_from(self._project, one, LOADER) for one in head):
                return not inside
            transparent = any(_SAME.fullmatch(one) for one in head)
            parts = [e.slice.value for e in node.slice if isinstance(e.slice, cst.Index)]
            return (transparent or inside) and any(
                self._is_loader_annotation(module, p, inside and transparent) for p in parts
            )
        names = resolve_node(self._project, module, node)
        return not inside and any(inherits_from(self._project, one, LOADER) for one in names)

    def _is_known_non_loader(self, module: Module, value: cst.BaseExpression, inside: bool) -> bool:
        if isinstance(value, _LITERALS) or (isinstance(value, _CONTAINERS) and not inside):
            return True
        if not isinstance(value, cst.Call):
            return False
        names = resolve_node(self._project, module, value.func)
        return bool(names) and all(NO_LOADER.fullmatch(name) or is_project_class(self._project, name) for name in names)


def _is_typical_loader_name(name: str) -> bool:
    """Return whether a name is typical of loaders.

    Names may be very long. So the function uses no regular expression that backtracks over a whole name.
    """
    name = name.lower()
    _, found, suffix = name.rpartition("loader")
    return bool(found and _SUFFIX.fullmatch(suffix)) or name == "dl" or name.endswith("_dl")


def _unite_loaders(found: Iterable[LoaderValue | None]) -> LoaderValue | None:
    """Return the loader of an expression with several possible values; None if no value is a loader."""
    every = list(found)
    known = [one for one in every if one is not None]
    if not known:
        return None
    calls = tuple(dict.fromkeys(call for one in known for call in one.calls))
    complete = len(known) == len(every) and all(one.complete for one in known)
    return LoaderValue(calls, complete)


def _functions_named(body: Sequence[cst.CSTNode], name: str) -> list[cst.FunctionDef]:
    """Return the functions called ``name`` among the statements ``body``."""
    return [one for one in body if isinstance(one, cst.FunctionDef) and one.name.value == name]
