"""Find lambdas and local functions that escape to workers.

A function escapes if a loader, dataset or transform stores the function. The loader then pickles the function for
worker processes.

The analysis traces a function through lists, conditional expressions, ``functools.partial``, variables, attributes of
``self``, parameters, and results of other functions.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import variable_reads
from chirp_migrate.analysis.dataflow.value_flow import (
    CallArgument,
    ConditionalOperand,
    ContainerElement,
    DictEntry,
    ParameterDefault,
    ReturnValue,
    ValueAssignment,
    next_use_of_value,
)
from chirp_migrate.analysis.known_names import (
    DATASET,
    FACTORY_METHOD,
    TORCH_LOADER,
    inherits_from,
    is_call_of,
    join_name_patterns,
    may_name_dataset,
    qualified_base_names,
)
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import find_parameter_names, resolve_ast_node, resolve_node
from chirp_migrate.syntax.outline import Outline, last_part_of_name
from chirp_migrate.syntax.project import Project, cached_until_text_changes
from chirp_migrate.syntax.queries import is_name

_WORDS = ("collate", "worker_init", "Dataset", "DataLoader", "Compose")
#: Words for the code that sends functions to worker processes. A text without any of these words has no such code.
DESTINATION_WORDS = (*_WORDS, "ransform")
#: Code that passes a transform, stores it under a key, or defines a function whose name contains ``transform``.
_TRANSFORM = re.compile(
    r"""(?<!\w)(?:target_|batch_)?transforms?["']?\s*[=:\]](?!=)|\bLambda\s*\(|\bdef\s+\w*(?<![a-z])transforms?\b"""
)
_LOADER_KEYWORDS = frozenset({"collate_fn", "worker_init_fn"})
_KEYWORDS = _LOADER_KEYWORDS | {"transform", "target_transform", "transforms", "batch_transform"}
_ABOUT_TORCH = re.compile(r"torch|lightning|chirpid_patch")
_ABOUT_DATA = re.compile(r"Dataset|DataLoader|torchvision|torchaudio|Compose")
#: A keyword argument whose value is a call. The group of the pattern is the last name of the called function.
_GIVEN_CALL = re.compile(rf"\b(?:{'|'.join(sorted(_KEYWORDS))})\s*=\s*(?:\w+\.)*(\w+)\(")
_POSITIONS = {6: "collate_fn", 10: "worker_init_fn"}
_LOADER_CALL = join_name_patterns(TORCH_LOADER, FACTORY_METHOD)
#: Words in names of functions whose parameter ``transform`` is a transform of samples. The next pattern has words in
#: names of modules with transforms. Both patterns are used instead of lists of libraries.
_DATA = re.compile(r"data|loader|folder|subset|split|transform|augment|vision|image|cifar|mnist", re.IGNORECASE)
_TRANSFORM_MODULES = re.compile(r"transform|augment|vision|albumentations|kornia|monai|torchio", re.IGNORECASE)
_TRANSFORM_HOLDERS = frozenset({"Compose", "Lambda", "OneOf", "RandomApply", "RandomChoice", "RandomOrder", "SomeOf"})
_LOADER_WORDS = re.compile(r"collate|worker_init", re.IGNORECASE)
_SAYS_TRANSFORM = re.compile(r"(\w+_)?transforms?(_fn|_func)?")
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_MAKER = re.compile(r"_*(get|make|build|create|new|setup)_+(?=\w)")


@lru_cache(maxsize=8)
def may_send_functions_to_workers(text: str, project: Project) -> bool:
    """Return whether a text contains a word, such as ``DataLoader``, of code that sends functions to workers."""
    if any(word in text for word in _WORDS) or may_name_dataset(text, project):
        return True
    return "ransform" in text and _TRANSFORM.search(text) is not None and _ABOUT_TORCH.search(text) is not None


class WorkerUseFinder:
    """Find out whether and for which purpose, such as "collate_fn", workers need a function of a module.

    Args:
        module: the module.
        project: the user's project that contains the module.
    """

    def __init__(self, module: Module, project: Project) -> None:
        self._module, self._project = module, project
        # Functions of many libraries have an argument `transform`. In a module that uses PyTorch, the argument is for a
        # dataset.
        self._keywords = _KEYWORDS if _ABOUT_TORCH.search(module.text) else _LOADER_KEYWORDS
        self._known: dict[cst.CSTNode, str | None] = {}

    def purpose_of(self, node: cst.CSTNode) -> str | None:
        """Return the purpose of an expression whose value a loader, dataset or transform stores.

        The purpose is a name, such as "collate_fn". The result is ``None`` if no worker needs the value.
        """
        if node not in self._known:
            self._known[node] = None  # ends the recursion if names refer to each other
            self._known[node] = self._direct_purpose(node) or self._purpose_of_captured(node)
        return self._known[node]

    def purpose_of_function(self, node: cst.FunctionDef) -> str | None:
        """Return the purpose for which workers need a local function, such as "collate_fn"; None if no worker needs it.

        The purpose is inferred from the code that reads the function's name.
        """
        return self._first_purpose(variable_reads(self._module, node.name.value, self._module.scopes.scope_of(node)))

    def purpose_of_class(self, node: cst.ClassDef) -> str | None:
        """Return the name of a local class if its objects are datasets, which loaders send to workers; else None."""
        names = qualified_base_names(self._module, self._project, node)
        return node.name.value if any(inherits_from(self._project, name, DATASET) for name in names) else None

    def _first_purpose(self, nodes: list[cst.Name] | list[cst.Attribute]) -> str | None:
        return next((found for node in nodes if (found := self.purpose_of(node)) is not None), None)

    def _direct_purpose(self, node: cst.CSTNode) -> str | None:
        match next_use_of_value(self._module, node):
            case ConditionalOperand(whole) | ContainerElement(_, cst.List() | cst.Tuple() | cst.Set() as whole):
                return self.purpose_of(whole)
            case CallArgument(argument, call) if not argument.star:
                return self._purpose_of_argument(argument, call)
            case DictEntry(key, display):
                return self._purpose_of_key(key, display)
            case ValueAssignment(targets, statement):
                return next(
                    (found for one in targets if (found := self._purpose_of_target(one, statement)) is not None), None
                )
            case ParameterDefault(parameter):
                return self._purpose_of_parameter(parameter)
            case ReturnValue(statement):
                return self._purpose_of_result(statement, node)
        return None

    def _purpose_of_argument(self, argument: cst.Arg, call: cst.Call) -> str | None:
        module, project = self._module, self._project
        keyword = argument.keyword.value if argument.keyword is not None else ""
        position = next(n for n, one in enumerate(call.args) if one is argument)
        called = resolve_node(project, module, call.func)
        starred = any(one.star for one in call.args)
        is_in_place = not keyword and not any(one.star for one in call.args[:position])
        if is_in_place and is_call_of(module, call, _LOADER_CALL, project):
            keyword = _POSITIONS.get(position, "")
        names = [] if keyword or starred else [name for one in called for name in find_parameter_names(project, one)]
        named = names[position] if position < len(names) else keyword
        if named in _LOADER_KEYWORDS or (named in self._keywords and self._is_about_data(call, called)):
            return named
        if "functools.partial" in called and position == 0:
            return self.purpose_of(call)
        last = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
        if isinstance(last, cst.Name) and last.value in _TRANSFORM_HOLDERS and self._is_transform(called):
            target = _assigned_to(module, call)
            return "transform" if target is None else target.value
        if "dataclasses.field" in called and keyword == "default":
            return self.purpose_of(call)
        if any(inherits_from(project, name, DATASET) for name in called):
            return named or "function"
        return None

    def _is_about_data(self, call: cst.Call, called: set[str]) -> bool:
        """Return whether the name of a called function contains a word such as ``dataset`` or ``augment``.

        The name of a dataset class also counts. Other functions with a parameter ``transform`` are assumed to pass
        nothing to workers.
        """
        names = {*called, self._module.source(call.func)}
        return any(_DATA.search(name) or inherits_from(self._project, name, DATASET) for name in names)

    def _is_transform(self, called: set[str]) -> bool:
        return not called or any(_TRANSFORM_MODULES.search(name) for name in called)

    def _purpose_of_key(self, key: cst.BaseExpression, holder: cst.CSTNode) -> str | None:
        """Return the purpose of the entry ``key`` of a dictionary.

        A key such as ``transform`` counts only if a call receives the dictionary as ``**`` argument.
        """
        name = str(key.evaluated_value) if isinstance(key, cst.SimpleString) else ""
        if name in _LOADER_KEYWORDS or (name in self._keywords and self._becomes_keywords(holder)):
            return name
        return None

    def _becomes_keywords(self, node: cst.CSTNode) -> bool:
        """Return whether a call receives a dictionary, directly or through a variable, as ``**`` argument."""
        module = self._module
        parent = module.parents[node]
        if isinstance(parent, cst.Arg):
            return parent.star == "**"
        name = node if isinstance(node, cst.Name) else _assigned_to(module, node)
        owner = module.scopes.lookup(name.value, name) if name is not None else None
        if name is None or owner is None:
            return False
        parents = (module.parents[one] for one in variable_reads(module, name.value, owner.scope))
        return any(isinstance(one, cst.Arg) and one.star == "**" for one in parents)

    def _purpose_of_target(self, target: cst.BaseExpression, statement: cst.CSTNode) -> str | None:
        module = self._module
        match target:
            case cst.Attribute():
                return self._purpose_of_attribute(target)
            case cst.Subscript(value=holder, slice=[cst.SubscriptElement(slice=cst.Index(value=key)), *_]):
                return self._purpose_of_key(key, holder)
        owner = module.scopes.lookup(target.value, target) if isinstance(target, cst.Name) else None
        if owner is None or not isinstance(target, cst.Name):
            return None
        if isinstance(owner.scope.node, cst.ClassDef):
            # With an annotation, the name is a field of a dataclass. Without an annotation, a function becomes a
            # method.
            is_field = isinstance(statement, cst.AnnAssign) and target.value in self._keywords
            return target.value if is_field else None
        return (
            target.value if self._first_purpose(variable_reads(module, target.value, owner.scope)) is not None else None
        )

    def _purpose_of_attribute(self, target: cst.Attribute) -> str | None:
        module, name = self._module, target.attr.value
        on_self = is_name(target.value, "self")
        if name in _LOADER_KEYWORDS or (name in self._keywords and not on_self):
            return name
        owner = module.enclosing_class(target)
        if owner is None or not on_self:
            return None
        if (
            self.purpose_of_class(owner) is not None
            or self._first_purpose(self._reads_on_self(owner, name)) is not None
        ):
            return name
        return None

    def _reads_on_self(self, owner: cst.ClassDef, name: str) -> list[cst.Attribute]:
        """Return the places in a class that read the attribute ``name`` of ``self``."""
        module = self._module
        return [
            parent
            for one in module.named(name)
            if isinstance(parent := module.parents[one], cst.Attribute)
            and one is parent.attr
            and is_name(parent.value, "self")
            and not isinstance(module.parents[parent], cst.AssignTarget)
            and owner in module.ancestors(parent)
        ]

    def _purpose_of_parameter(self, parameter: cst.Param) -> str | None:
        name = parameter.name.value
        if name in _LOADER_KEYWORDS:
            return name
        scope = self._module.scopes.scope_of(parameter.name)
        return name if self._first_purpose(variable_reads(self._module, name, scope)) is not None else None

    def _purpose_of_result(self, statement: cst.Return, value: cst.CSTNode) -> str | None:
        """Return the purpose of ``value``, which ``statement`` returns from a function.

        The purpose follows from the name of the function, such as ``make_collate``, or from the code that calls the
        function.
        """
        module = self._module
        maker = module.enclosing_function(statement)
        if maker is None:
            return None
        name = maker.name.value
        inner = value.value if isinstance(value, cst.Name) else ""
        short = _MAKER.sub("", name)
        scope = module.scopes.scope_of(maker)
        owner = scope.node
        mentions = (
            self._reads_on_self(owner, name) if isinstance(owner, cst.ClassDef) else variable_reads(module, name, scope)
        )
        if any(isinstance(around, cst.Decorator) for mention in mentions for around in module.ancestors(mention)):
            return None
        says_transform = _ABOUT_DATA.search(module.text) is not None and (
            _SAYS_TRANSFORM.fullmatch(inner) or (short != name and _SAYS_TRANSFORM.fullmatch(short))
        )
        if _LOADER_WORDS.search(name) or _LOADER_WORDS.search(inner) or says_transform:
            return short
        calls = [module.parents[mention] for mention in mentions]
        if any(
            isinstance(call, cst.Call) and call.func in mentions and self.purpose_of(call) is not None for call in calls
        ):
            return short
        return (
            short if not _forwards_all_arguments(module, value) and _is_called_elsewhere(self._project, name) else None
        )

    def _purpose_of_captured(self, node: cst.CSTNode) -> str | None:
        """Return the purpose of a captured name.

        Workers need the value of the name if they need the lambda, function or class that captures the name.
        """
        if not isinstance(node, cst.Name):
            return None
        owner = self._module.scopes.lookup(node.value, node)
        if owner is None or isinstance(owner.scope.node, cst.Module):
            return None
        for around in self._module.ancestors(node):
            if around is owner.scope.node:
                return None
            if isinstance(around, cst.Lambda) and self.purpose_of(around) is not None:
                return node.value
            if isinstance(around, cst.FunctionDef) and self.purpose_of_function(around) is not None:
                return node.value
            if isinstance(around, cst.ClassDef) and self.purpose_of_class(around) is not None:
                return node.value
        return None


def _is_called_elsewhere(project: Project, maker: str) -> bool:
    """Return whether a file of the project passes the result of ``maker`` to a loader."""
    return maker in _functions_called_for_keywords(project)


@cached_until_text_changes
def _functions_called_for_keywords(project: Project) -> frozenset[str]:
    paths = project.paths_containing(*_KEYWORDS)
    return frozenset[str]().union(*(project.fact(path, _names_called_for_keywords) for path in paths))


def _names_called_for_keywords(text: str) -> frozenset[str]:
    return frozenset(_GIVEN_CALL.findall(text))


def _assigned_to(module: Module, node: cst.CSTNode) -> cst.Name | None:
    """Return the first variable to which an assignment assigns the value of ``node``."""
    match module.parents[node]:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as name), *_]):
            return name
    return None


def _forwards_all_arguments(module: Module, value: cst.CSTNode) -> bool:
    """Return whether a name refers to a function with ``*args`` and ``**kwargs``, such as a decorator's wrapper."""
    owner = module.scopes.lookup(value.value, value) if isinstance(value, cst.Name) else None
    for one in owner.bindings if owner is not None else ():
        match one.node:
            case cst.FunctionDef(params=cst.Parameters(star_arg=cst.Param(), star_kwarg=cst.Param())):
                return True
    return False


def may_send_lambdas(outline: Outline, project: Project) -> bool:
    """Return whether a module contains a lambda, and code that may send a lambda to workers."""
    return bool(outline.find(ast.Lambda)) and outline.once(_may_have_purpose, project)


def may_send_local_functions(outline: Outline, project: Project) -> bool:
    """Return whether a module contains a function in another function, and code that may send a function to workers."""
    around = (one for function in outline.functions for one in outline.ancestors(function))
    return any(isinstance(one, _FUNCTION) for one in around) and outline.once(_may_have_purpose, project)


def _may_have_purpose(outline: Outline, project: Project) -> bool:
    """Return whether :class:`WorkerUseFinder` may find a purpose in a module, judged by the names in the module."""
    stored = {
        *(one.arg for one in outline.find(ast.keyword)),
        *(one.attr for one in outline.find(ast.Attribute) if isinstance(one.ctx, ast.Store)),
        *(last_part_of_name(one.target) for one in outline.find(ast.AnnAssign)),
        *(one.value for one in outline.find(ast.Constant) if isinstance(one.value, str)),
    }
    parameters = {one.arg for one in outline.find(ast.arg)}
    makers = {one.name for one in outline.functions}
    returned = {last_part_of_name(one.value) for one in outline.find(ast.Return) if one.value is not None}
    called = [one.func for one in outline.find(ast.Call)]
    if (
        not (_KEYWORDS.isdisjoint(stored) and _LOADER_KEYWORDS.isdisjoint(parameters))
        or any(_LOADER_WORDS.search(name) or "transform" in name for name in makers | returned)
        or not _TRANSFORM_HOLDERS.isdisjoint(map(last_part_of_name, called))
        or any(_is_called_elsewhere(project, name) for name in makers)
    ):
        return True
    bases = (base for one in outline.find(ast.ClassDef) for base in one.bases)
    return any(
        _LOADER_CALL.fullmatch(name)
        or inherits_from(project, name, DATASET)
        or not _KEYWORDS.isdisjoint(find_parameter_names(project, name))
        for node in (*bases, *called)
        for name in resolve_ast_node(project, outline, node)
    )
