"""Find lambdas and local functions that escape to workers.

A function escapes if a loader, dataset or transform stores it, so that the loader pickles it for worker processes.

The analysis traces a function through lists, conditional expressions, ``functools.partial``, variables, attributes of
``self``, parameters, and results of other functions.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from itertools import takewhile

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
from chirp_migrate.syntax.outline import Outline, last_name
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import is_name

_WORDS = ("collate", "worker_init", "Dataset", "DataLoader", "Compose")
#: Every text whose code may send functions to worker processes contains at least one of these words.
DESTINATION_WORDS = (*_WORDS, "ransform")
#: Code that passes a transform, stores it under a key, or defines a function whose name contains ``transform``.
_TRANSFORM = re.compile(
    r"""(?<!\w)(?:target_|batch_)?transforms?["']?\s*[=:\]](?!=)|\bLambda\s*\(|\bdef\s+\w*(?<![a-z])transforms?\b"""
)
_LOADER_KEYWORDS = frozenset({"collate_fn", "worker_init_fn"})
_KEYWORDS = _LOADER_KEYWORDS | {"transform", "target_transform", "transforms", "batch_transform"}
_ABOUT_TORCH = re.compile(r"torch|lightning|chirpid_patch")
_ABOUT_DATA = re.compile(r"Dataset|DataLoader|torchvision|torchaudio|Compose")
#: An argument with one of the keywords, up to the last name of its value.
_GIVEN = rf"\b(?:{'|'.join(sorted(_KEYWORDS))})\s*=\s*(?:\w+\.)*"
_POSITIONS = {6: "collate_fn", 10: "worker_init_fn"}
_LOADER_CALL = join_name_patterns(TORCH_LOADER, FACTORY_METHOD)
#: Words in names of functions whose parameter ``transform`` is a transform of samples. The next pattern has words in
#: names of modules with transforms. Both patterns are used instead of lists of libraries.
_DATA = re.compile(r"data|loader|folder|subset|split|transform|augment|vision|image|cifar|mnist", re.IGNORECASE)
_TRANSFORM_MODULES = re.compile(r"transform|augment|vision|albumentations|kornia|monai|torchio", re.IGNORECASE)
_TRANSFORM_HOLDERS = frozenset({"Compose", "Lambda", "OneOf", "RandomApply", "RandomChoice", "RandomOrder", "SomeOf"})
_LOADER_WORDS = re.compile(r"collate|worker_init", re.IGNORECASE)
_SAYS_TRANSFORM = re.compile(r"(\w+_)?transforms?(_fn|_func)?")
_MAKER = re.compile(r"_*(get|make|build|create|new|setup)_+(?=\w)")


@lru_cache(maxsize=8)
def may_send_functions_to_workers(text: str, project: Project) -> bool:
    """Return whether a text contains a word for an object, such as a loader, that sends functions to workers."""
    if any(word in text for word in _WORDS) or may_name_dataset(text, project):
        return True
    return "ransform" in text and _TRANSFORM.search(text) is not None and _ABOUT_TORCH.search(text) is not None


class WorkerPurposeFinder:
    """Find the purposes for which workers need the functions of one module, such as "collate_fn".

    Args:
        module: the module.
        project: the backend that contains the module.
    """

    def __init__(self, module: Module, project: Project) -> None:
        self._module, self._project = module, project
        # Many libraries have an argument `transform`. In a module about PyTorch, the argument belongs to a dataset.
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
        """Return the purpose of a local function, which follows from the uses of its name."""
        return self._first(variable_reads(self._module, node.name.value, self._module.scopes.scope_of(node)))

    def purpose_of_class(self, node: cst.ClassDef) -> str | None:
        """Return the name of a local class as purpose if its objects are datasets; else None."""
        names = qualified_base_names(self._module, self._project, node)
        return node.name.value if any(inherits_from(self._project, name, DATASET) for name in names) else None

    def _first(self, nodes: list[cst.Name] | list[cst.Attribute]) -> str | None:
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
        called = project.resolved_names(module, call.func)
        starred = any(one.star for one in call.args)
        is_in_place = not keyword and not any(one.star for one in call.args[:position])
        if is_in_place and is_call_of(module, call, _LOADER_CALL, project):
            keyword = _POSITIONS.get(position, "")
        names = [] if keyword or starred else [name for one in called for name in project.parameter_names(one)]
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
        """Return whether the names of a called function show that the function is about data.

        Functions that pass nothing to workers may also have a parameter ``transform``.
        """
        names = {*called, self._module.source(call.func)}
        return any(_DATA.search(name) or inherits_from(self._project, name, DATASET) for name in names)

    def _is_transform(self, called: set[str]) -> bool:
        return not called or any(_TRANSFORM_MODULES.search(name) for name in called)

    def _purpose_of_key(self, key: cst.BaseExpression, holder: cst.CSTNode) -> str | None:
        """Return the purpose of the entry ``key`` of a dictionary.

        A key for a transform counts only if the dictionary becomes the keyword arguments of a call.
        """
        name = str(key.evaluated_value) if isinstance(key, cst.SimpleString) else ""
        if name in _LOADER_KEYWORDS or (name in self._keywords and self._becomes_keywords(holder)):
            return name
        return None

    def _becomes_keywords(self, node: cst.CSTNode) -> bool:
        """Return whether a call receives a dictionary, or the variable with this dictionary, as ``**`` argument."""
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
        return target.value if self._first(variable_reads(module, target.value, owner.scope)) is not None else None

    def _purpose_of_attribute(self, target: cst.Attribute) -> str | None:
        module, name = self._module, target.attr.value
        on_self = is_name(target.value, "self")
        if name in _LOADER_KEYWORDS or (name in self._keywords and not on_self):
            return name
        owner = module.enclosing_class(target)
        if owner is None or not on_self:
            return None
        if self.purpose_of_class(owner) is not None or self._first(self._reads_on_self(owner, name)) is not None:
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
        return name if self._first(variable_reads(self._module, name, scope)) is not None else None

    def _purpose_of_result(self, statement: cst.Return, value: cst.CSTNode) -> str | None:
        """Return the purpose of a function's result, which follows from the function's name or calls."""
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
        """Return the purpose of a name that an escaping function captures. The value of the name also escapes."""
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
    return project.search(rf"{_GIVEN}{maker}\(", maker)


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


# The following code does the same analysis with ``ast``, before LibCST parses a module. It compares names by spelling
# only, so it may find too many escaping functions.

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def may_send_lambdas(outline: Outline, project: Project) -> bool:
    """Return whether a lambda in a module may escape to workers."""
    may = _MayEscape(outline, project)
    return any(may.may_escape(node) for node in outline.find(ast.Lambda))


def may_send_local_functions(outline: Outline, project: Project) -> bool:
    """Return whether any function that is defined in another function may escape to workers."""
    may = _MayEscape(outline, project)
    around = [(node.name, may.function_around(node)) for node in outline.functions]
    return any(may.variable_may_escape(name, owner) for name, owner in around if owner is not None)


class _MayEscape:
    """Find out, by names only, whether :class:`WorkerPurposeFinder` may find a purpose for a function."""

    def __init__(self, outline: Outline, project: Project) -> None:
        self._outline, self._project = outline, project
        self._seen: set[ast.AST | tuple[str, ast.AST | None]] = set()  # ends the recursion

    def may_escape(self, node: ast.AST) -> bool:
        """Return whether the value of an expression may escape to workers."""
        if node in self._seen:
            return False
        self._seen.add(node)
        parent = self._outline.parents[node]
        match parent:
            case ast.List() | ast.Tuple() | ast.Set() | ast.IfExp() | ast.BoolOp() | ast.Starred():
                return self.may_escape(parent)
            case ast.keyword(arg=keyword):
                call = self._outline.parents[parent]
                return isinstance(call, ast.Call) and self._may_pass_on(call, keyword)
            case ast.Call():
                return node is not parent.func and self._may_pass_on(parent, None)
            case ast.Dict(keys=keys, values=values):
                return any(_is_key(key) for key, value in zip(keys, values, strict=True) if value is node)
            case ast.Assign(targets=targets):
                return any(map(self._is_target, targets))
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return self._is_target(target) or (isinstance(target, ast.Name) and target.id in _KEYWORDS)
            case ast.arguments():
                return self._is_default(parent, node)
            case ast.Return():
                return self._is_returned(parent)
        return False

    def function_around(self, node: ast.AST) -> _Function | None:
        """Return the innermost function that contains a node."""
        return next((ancestor for ancestor in self._outline.ancestors(node) if isinstance(ancestor, _Function)), None)

    def variable_may_escape(self, name: str, owner: ast.AST | None) -> bool:
        """Return whether the variable ``name`` of a function, or of the module, may escape to workers."""
        if (name, owner) in self._seen:
            return False
        self._seen.add((name, owner))
        if name in self._outline.once(_global_or_nonlocal_names):
            return True
        code = self._outline.find(ast.Name) if owner is None else self._outline.inside(owner)
        reads = [node for node in code if isinstance(node, ast.Name) and node.id == name]
        return any(
            self.may_escape(read) or (owner is not None and self._escapes_with_function(read, owner)) for read in reads
        )

    def _escapes_with_function(self, read: ast.Name, owner: ast.AST) -> bool:
        """Return whether a function that captures a name may escape (see ``_purpose_of_captured``)."""
        for around in takewhile(lambda node: node is not owner, self._outline.ancestors(read)):
            match around:
                case ast.Lambda():
                    goes = self.may_escape(around)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    goes = self.variable_may_escape(around.name, self.function_around(around))
                case _:
                    goes = isinstance(around, ast.ClassDef) and self._is_dataset(around)
            if goes:
                return True
        return False

    def _is_dataset(self, node: ast.ClassDef) -> bool:
        bases = (name for base in node.bases for name in self._project.possible_names(self._outline, base))
        return any(inherits_from(self._project, name, DATASET) for name in bases)

    def _is_target(self, target: ast.expr) -> bool:
        """Return whether an assigned variable or attribute may escape (see ``_purpose_of_target``)."""
        match target:
            case ast.Subscript(slice=key):
                return _is_key(key)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                owner = next((one for one in self._outline.ancestors(target) if isinstance(one, ast.ClassDef)), None)
                reads = (attribute for attribute in self._outline.find(ast.Attribute) if attribute.attr == name)
                return (
                    name in _LOADER_KEYWORDS
                    or (owner is not None and self._is_dataset(owner))
                    or any(self.may_escape(read) for read in reads if isinstance(read.ctx, ast.Load))
                )
            case ast.Attribute(attr=name):
                return name in _KEYWORDS
            case ast.Name(id=name):
                return self.variable_may_escape(name, self.function_around(target))
        return False

    def _is_default(self, arguments: ast.arguments, default: ast.AST) -> bool:
        """Return whether the parameter with this default may escape (see ``_purpose_of_parameter``)."""
        function = self._outline.parents[arguments]
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [
            *zip(reversed(positional), reversed(arguments.defaults), strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        names = [parameter.arg for parameter, value in pairs if value is default]
        return any(name in _LOADER_KEYWORDS or self.variable_may_escape(name, function) for name in names)

    def _may_pass_on(self, call: ast.Call, keyword: str | None) -> bool:
        """Return whether a call may pass an argument on to workers (see ``_purpose_of_argument``)."""
        if keyword in _KEYWORDS or last_name(call.func) in _TRANSFORM_HOLDERS:
            return True
        return any(
            _LOADER_CALL.fullmatch(name)
            or name in ("functools.partial", "dataclasses.field")
            or (keyword is None and not _KEYWORDS.isdisjoint(self._project.parameter_names(name)))
            or inherits_from(self._project, name, DATASET)
            for name in self._project.possible_names(self._outline, call.func)
        )

    def _is_returned(self, statement: ast.Return) -> bool:
        """Return whether the result of the function may escape (see ``_purpose_of_result``)."""
        function = self.function_around(statement)
        maker = function.name if function is not None else ""
        names = (maker, last_name(statement.value) if statement.value is not None else "")
        if any(_LOADER_WORDS.search(name) or "transform" in name for name in names):
            return True
        calls = (call for call in self._outline.find(ast.Call) if last_name(call.func) == maker)
        return any(map(self.may_escape, calls)) or _is_called_elsewhere(self._project, maker)


def _global_or_nonlocal_names(outline: Outline) -> set[str]:
    """Return the names that any function declares ``global`` or ``nonlocal``."""
    statements = outline.find(ast.Global), outline.find(ast.Nonlocal)
    return {name for kind in statements for statement in kind for name in statement.names}


def _is_key(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value in _KEYWORDS
