"""Where a function value goes: whether worker processes need it, because a loader, dataset or transform keeps it.

Lambdas and the names of local functions go to the same places. A value is followed through lists, conditional
expressions, ``functools.partial``, variables, attributes of ``self``, parameters, and the functions that return it.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import reads_of
from chirp_migrate.analysis.dataflow.origins import backend_holds
from chirp_migrate.analysis.dataflow.value_flow import Assigned, Chosen, Default, Entry, Given, Kept, Returned, step_of
from chirp_migrate.analysis.qualified_names import DATASET, FACTORY, base_names, inherits, is_call_of
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.outline import Outline, last_name
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import is_name

_WORDS = ("collate", "worker_init", "Dataset", "DataLoader", "Compose")
#: A transform that is given, kept under a key, or made by a function of that name.
_TRANSFORM = re.compile(
    r"""(?<!\w)(?:target_|batch_)?transforms?["']?\s*[=:\]](?!=)|\bLambda\s*\(|\bdef\s+\w*(?<![a-z])transforms?\b"""
)
_LOADER_KEYWORDS = frozenset({"collate_fn", "worker_init_fn"})
_KEYWORDS = _LOADER_KEYWORDS | {"transform", "target_transform", "transforms", "batch_transform"}
_ABOUT_TORCH = re.compile(r"torch|lightning|chirpid_patch")
_ABOUT_DATA = re.compile(r"Dataset|DataLoader|torchvision|torchaudio|Compose")
_POSITIONS = {6: "collate_fn", 10: "worker_init_fn"}
_LOADERS = re.compile(rf"torch\.utils\.data\.(dataloader\.)?DataLoader|{FACTORY}")
_DATA = re.compile(r"data|loader|folder|subset|split|transform|augment|vision|image|cifar|mnist", re.IGNORECASE)
_TRANSFORM_MODULES = re.compile(r"transform|augment|vision|albumentations|kornia|monai|torchio", re.IGNORECASE)
_TRANSFORM_HOLDERS = frozenset({"Compose", "Lambda", "OneOf", "RandomApply", "RandomChoice", "RandomOrder", "SomeOf"})
_LOADER_WORDS = re.compile(r"collate|worker_init", re.IGNORECASE)
_SAYS_TRANSFORM = re.compile(r"(\w+_)?transforms?(_fn|_func)?")
_MAKER = re.compile(r"_*(get|make|build|create|new|setup)_+(?=\w)")

_DEPTH_LIMIT = 8


@lru_cache(maxsize=8)
def may_have_destinations(text: str) -> bool:
    """Whether a text has a word for what may take functions to worker processes."""
    if any(word in text for word in _WORDS):
        return True
    return "ransform" in text and _TRANSFORM.search(text) is not None and _ABOUT_TORCH.search(text) is not None


class Destinations:
    """The destinations of the function values of one module.

    Args:
        module: the module.
        project: the backend it belongs to.
    """

    def __init__(self, module: Module, project: Project) -> None:
        self._module, self._project = module, project
        # A `transform` may be anyone's; in a module about PyTorch it is that of a dataset.
        self._keywords = _KEYWORDS if _ABOUT_TORCH.search(module.text) else _LOADER_KEYWORDS
        self._known: dict[cst.CSTNode, str | None] = {}

    def of(self, node: cst.CSTNode) -> str | None:
        """What an expression is to the one that keeps it, as a name; ``None`` when no worker needs it."""
        if node not in self._known:
            self._known[node] = None  # a circle of names leads nowhere
            self._known[node] = self._direct(node) or self._used_inside(node)
        return self._known[node]

    def of_function(self, node: cst.FunctionDef) -> str | None:
        """The same for a local function: of the uses of its name."""
        return self._first(reads_of(self._module, node.name.value, self._module.scopes.scope_of(node)))

    def of_class(self, node: cst.ClassDef) -> str | None:
        """The name of a local class if it makes datasets."""
        names = base_names(self._module, self._project, node)
        return node.name.value if any(inherits(self._project, name, DATASET) for name in names) else None

    def _first(self, nodes: list[cst.Name] | list[cst.Attribute]) -> str | None:
        return next((found for one in nodes if (found := self.of(one)) is not None), None)

    def _direct(self, node: cst.CSTNode) -> str | None:
        match step_of(self._module, node):
            case Chosen(whole) | Kept(_, cst.List() | cst.Tuple() | cst.Set() as whole):
                return self.of(whole)
            case Given(argument, call) if not argument.star:
                return self._argument(argument, call)
            case Entry(key, display):
                return self._key(key, display)
            case Assigned(targets, statement):
                return next((found for one in targets if (found := self._target(one, statement)) is not None), None)
            case Default(parameter):
                return self._parameter(parameter)
            case Returned(statement):
                return self._returned(statement, node)
        return None

    def _argument(self, argument: cst.Arg, call: cst.Call) -> str | None:
        module, project = self._module, self._project
        keyword = argument.keyword.value if argument.keyword is not None else ""
        position = next(n for n, one in enumerate(call.args) if one is argument)
        called = project.resolved_names(module, call.func)
        starred = any(one.star for one in call.args)
        is_in_place = not keyword and not any(one.star for one in call.args[:position])
        if is_in_place and is_call_of(module, call, _LOADERS, project):
            keyword = _POSITIONS.get(position, "")
        names = [] if keyword or starred else [name for one in called for name in project.parameter_names(one)]
        named = names[position] if position < len(names) else keyword
        if named in _LOADER_KEYWORDS or (named in self._keywords and self._takes_data(call, called)):
            return named
        if "functools.partial" in called and position == 0:
            return self.of(call)
        last = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
        if isinstance(last, cst.Name) and last.value in _TRANSFORM_HOLDERS and self._is_transform(called):
            return _assigned_name(module, call) or "transform"
        if "dataclasses.field" in called and keyword == "default":
            return self.of(call)
        if any(inherits(project, name, DATASET) for name in called):
            return named or "function"
        return None

    def _takes_data(self, call: cst.Call, called: set[str]) -> bool:
        """Whether what is called is about data, by its names: other things take a ``transform`` too."""
        names = {*called, self._module.source(call.func)}
        return any(_DATA.search(one) or inherits(self._project, one, DATASET) for one in names)

    def _is_transform(self, called: set[str]) -> bool:
        return not called or any(_TRANSFORM_MODULES.search(name) for name in called)

    def _key(self, key: cst.BaseExpression, holder: cst.CSTNode) -> str | None:
        """What an entry of a dict is for: by its key, and for transforms only where the dict becomes arguments."""
        name = str(key.evaluated_value) if isinstance(key, cst.SimpleString) else ""
        if name in _LOADER_KEYWORDS or (name in self._keywords and self._is_splatted(holder)):
            return name
        return None

    def _is_splatted(self, node: cst.CSTNode) -> bool:
        """Whether a dict, or the variable it is assigned to, is given to a call as its keywords."""
        module = self._module
        parent = module.parents[node]
        if isinstance(parent, cst.Arg):
            return parent.star == "**"
        name = node if isinstance(node, cst.Name) else None
        if isinstance(parent, cst.Assign) and isinstance(parent.targets[0].target, cst.Name):
            name = parent.targets[0].target
        owner = module.scopes.lookup(name.value, name) if name is not None else None
        if name is None or owner is None:
            return False
        reads = reads_of(module, name.value, owner[0])
        parents = (module.parents[one] for one in reads)
        return any(isinstance(one, cst.Arg) and one.star == "**" for one in parents)

    def _target(self, target: cst.BaseExpression, statement: cst.CSTNode) -> str | None:
        module = self._module
        match target:
            case cst.Attribute():
                return self._attribute(target)
            case cst.Subscript(value=holder, slice=[cst.SubscriptElement(slice=cst.Index(value=key)), *_]):
                return self._key(key, holder)
        owner = module.scopes.lookup(target.value, target) if isinstance(target, cst.Name) else None
        if owner is None or not isinstance(target, cst.Name):
            return None
        if isinstance(owner[0].node, cst.ClassDef):
            # A field of a dataclass; without an annotation it is a method.
            is_field = isinstance(statement, cst.AnnAssign) and target.value in self._keywords
            return target.value if is_field else None
        return target.value if self._first(reads_of(module, target.value, owner[0])) is not None else None

    def _attribute(self, target: cst.Attribute) -> str | None:
        module, name = self._module, target.attr.value
        on_self = is_name(target.value, "self")
        if name in _LOADER_KEYWORDS or (name in self._keywords and not on_self):
            return name
        owner = module.enclosing_class(target)
        if owner is None or not on_self:
            return None
        if self.of_class(owner) is not None or self._first(self._on_self(owner, name)) is not None:
            return name
        return None

    def _on_self(self, owner: cst.ClassDef, name: str) -> list[cst.Attribute]:
        """Reads of ``self.name`` in a class."""
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

    def _parameter(self, parameter: cst.Param) -> str | None:
        name = parameter.name.value
        if name in _LOADER_KEYWORDS:
            return name
        scope = self._module.scopes.scope_of(parameter.name)
        return name if self._first(reads_of(self._module, name, scope)) is not None else None

    def _returned(self, statement: cst.Return, value: cst.CSTNode) -> str | None:
        """What a function returns is for what its calls are for; a name may say so as well."""
        module = self._module
        maker = module.enclosing_function(statement)
        if maker is None:
            return None
        name = maker.name.value
        inner = value.value if isinstance(value, cst.Name) else ""
        short = _MAKER.sub("", name)
        scope = module.scopes.scope_of(maker)
        owner = scope.node
        mentions = self._on_self(owner, name) if isinstance(owner, cst.ClassDef) else reads_of(module, name, scope)
        if any(isinstance(around, cst.Decorator) for one in mentions for around in module.ancestors(one)):
            return None
        says_transform = _ABOUT_DATA.search(module.text) is not None and (
            _SAYS_TRANSFORM.fullmatch(inner) or (short != name and _SAYS_TRANSFORM.fullmatch(short))
        )
        if _LOADER_WORDS.search(name) or _LOADER_WORDS.search(inner) or says_transform:
            return short
        calls = [module.parents[one] for one in mentions]
        if any(isinstance(one, cst.Call) and one.func in mentions and self.of(one) is not None for one in calls):
            return short
        return short if not _passes_all_on(module, value) and _is_called_elsewhere(self._project, name) else None

    def _used_inside(self, node: cst.CSTNode) -> str | None:
        """A name that a function which goes to workers takes from outside goes there with it."""
        if not isinstance(node, cst.Name):
            return None
        owner = self._module.scopes.lookup(node.value, node)
        if owner is None or isinstance(owner[0].node, cst.Module):
            return None
        for around in self._module.ancestors(node):
            if around is owner[0].node:
                return None
            if isinstance(around, cst.Lambda) and self.of(around) is not None:
                return node.value
            if isinstance(around, cst.FunctionDef) and self.of_function(around) is not None:
                return node.value
            if isinstance(around, cst.ClassDef) and self.of_class(around) is not None:
                return node.value
        return None


def _is_called_elsewhere(project: Project, maker: str) -> bool:
    """Whether a file of the project gives what ``maker`` returns to a loader."""
    keywords = "|".join(sorted(_KEYWORDS))
    return backend_holds(project, rf"\b(?:{keywords})\s*=\s*(?:\w+\.)*{re.escape(maker)}\(", maker)


def _assigned_name(module: Module, node: cst.CSTNode) -> str | None:
    parent = module.parents[node]
    if isinstance(parent, cst.Assign) and isinstance(parent.targets[0].target, cst.Name):
        return parent.targets[0].target.value
    return None


def _passes_all_on(module: Module, value: cst.CSTNode) -> bool:
    """Whether a name stands for a function that takes any arguments, as the wrappers that decorators make."""
    owner = module.scopes.lookup(value.value, value) if isinstance(value, cst.Name) else None
    for one in owner[1] if owner is not None else ():
        match one.node:
            case cst.FunctionDef(params=cst.Parameters(star_arg=cst.Param(), star_kwarg=cst.Param())):
                return True
    return False


# What ``ast`` tells before LibCST reads a module: most function values are called on the spot, or given to a function
# of another package. What becomes of the others is not followed.

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_KEEPERS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Dict, ast.arguments)
_BUNDLES = (ast.List, ast.Tuple, ast.Set, ast.IfExp, ast.BoolOp, ast.Starred)


def lambdas_may_go(outline: Outline, project: Project) -> bool:
    """Whether a lambda of a module may have a destination."""
    return any(_may_go(outline, project, one) for one in outline.find(ast.Lambda))


def local_functions_may_go(outline: Outline, project: Project) -> bool:
    """Whether a function that is defined in another one may have a destination."""
    local = {one.name for one in outline.functions if any(isinstance(a, _Function) for a in outline.ancestors(one))}
    reads = [one for one in outline.find(ast.Name) if one.id in local]
    if any(_may_go(outline, project, one) for one in reads):
        return True
    around = {one for read in reads for one in outline.ancestors(read)}
    return any(
        _may_go(outline, project, one)
        if isinstance(one, ast.Lambda)
        else any(inherits(project, n, DATASET) for base in one.bases for n in project.possible_names(outline, base))
        for one in around
        if isinstance(one, ast.Lambda | ast.ClassDef)
    )


def _may_go(outline: Outline, project: Project, node: ast.AST, depth: int = 0) -> bool:
    parent = outline.parents[node]
    while isinstance(parent, _BUNDLES):
        node, parent = parent, outline.parents[parent]
    if isinstance(parent, ast.keyword):
        call = outline.parents[parent]
        return isinstance(call, ast.Call) and _may_take(outline, project, call, parent.arg)
    if isinstance(parent, ast.Call):
        return node is not parent.func and _may_take(outline, project, parent, None)
    return isinstance(parent, _KEEPERS) or (
        isinstance(parent, ast.Return) and _may_return(outline, project, parent, depth)
    )


def _may_take(outline: Outline, project: Project, call: ast.Call, keyword: str | None) -> bool:
    """Whether a call may hand an argument on to workers; see ``Destinations._argument``."""
    if keyword in _KEYWORDS or last_name(call.func) in _TRANSFORM_HOLDERS:
        return True
    return any(
        _LOADERS.fullmatch(name)
        or name in ("functools.partial", "dataclasses.field")
        or (keyword is None and not _KEYWORDS.isdisjoint(project.parameter_names(name)))
        or inherits(project, name, DATASET)
        for name in project.possible_names(outline, call.func)
    )


def _may_return(outline: Outline, project: Project, statement: ast.Return, depth: int) -> bool:
    """Whether what a function returns may go somewhere; see ``Destinations._returned``."""
    maker = next((one.name for one in outline.ancestors(statement) if isinstance(one, _Function)), "")
    names = (maker, last_name(statement.value) if statement.value is not None else "")
    if any(_LOADER_WORDS.search(one) or "transform" in one for one in names) or depth > _DEPTH_LIMIT:
        return True
    calls = (one for one in outline.find(ast.Call) if last_name(one.func) == maker)
    return any(_may_go(outline, project, one, depth + 1) for one in calls) or _is_called_elsewhere(project, maker)
