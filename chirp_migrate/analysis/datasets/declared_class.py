"""Infer which decorator of ``chirpid_patch`` fits a dataset class.

The choice depends on ``__getitem__``, and on the methods that ``__getitem__`` calls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import (
    Attr,
    CodePath,
    Evaluator,
    UnmodelledCode,
    Value,
    block_statements,
    takes_plain_arguments,
)
from chirp_migrate.analysis.datasets.dataset_expressions import only_base_is_torch_dataset
from chirp_migrate.analysis.datasets.dataset_meaning import (
    INDEX,
    SELF,
    AugmentedSamples,
    Meaning,
    SequenceSamples,
    StandardizedSamples,
    infer_getitem_result,
    match_dataset_pattern,
)
from chirp_migrate.analysis.datasets.image_dataset_meaning import CLEAR as IMAGE_NAMES
from chirp_migrate.analysis.datasets.image_dataset_meaning import AugmentedImages, match_image_pattern
from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.name_resolution import resolve_node
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    NameRole,
    is_self_attribute,
    methods_of_plain_class,
    name_role,
    normalized_source,
)

_PATHS = re.compile(r"(?:.*_)?(?:(?:file|image|img|f)?(?:paths?|names?)|files?|urls?|uris?)")
_LISTS_FILES = re.compile(r"\b(?:r?glob|iglob|listdir|scandir|iterdir)\(")
#: Objects that a non-local name in the methods may refer to.
_CLEAR = frozenset({"torch", "builtins.None", "builtins.True", "builtins.False"})
_OTHER_ACCESS = frozenset({"__getitems__", "__iter__", "__getattr__", "__getattribute__"})


#: The decorator of ``chirpid_patch`` for each kind of inferred semantics.
_DECORATORS: dict[type, str] = {
    StandardizedSamples: "standardizes_samples",
    AugmentedSamples: "augments_samples",
    SequenceSamples: "lists_samples",
    AugmentedImages: "augments_images",
}
#: Decorators of ``chirpid_patch`` that describe the samples of a class.
DECORATORS = frozenset(_DECORATORS.values())


class _NotAnAttribute(Exception):
    """Raised if samples depend on a value that is not an attribute of ``self``, such as ``self.config.mean``.

    The decorators accept only names of attributes.
    """


@dataclass(frozen=True)
class DeclaringDecorator:
    """A decorator of ``chirpid_patch`` that describes the samples of a class, and its arguments."""

    decorator: str
    arguments: tuple[str, ...]


def may_be_declarable(
    module: Module, project: Project, node: cst.ClassDef, captured: Mapping[str, Sequence[cst.Name]] | None = None
) -> bool:
    """Return whether a decorator of ``chirpid_patch`` may fit the class ``node``, possibly after a rewrite.

    Args:
        module: the module that defines the class.
        project: the user's project.
        node: the class.
        captured: the captured variables (variables of enclosing functions that the class reads), each with the places
            that read the variable. Rule CHP006 (local dataset classes) turns these variables into attributes, and may
            change the bases of the class. None for a class that CHP006 does not change.
    """
    methods = methods_of_plain_class(node) if captured else None
    for name, method in (methods or {}).items():
        inside = set(find_nodes(method, cst.Name))
        if name not in ("__getitem__", "__init__", "__len__") and any(
            one in inside for reads in (captured or {}).values() for one in reads
        ):
            return True
    return find_declaring_decorator(module, project, node, lambdas_as_methods=True, captured=captured) is not None


def find_declaring_decorator(
    module: Module,
    project: Project,
    node: cst.ClassDef,
    *,
    lambdas_as_methods: bool = False,
    captured: Collection[str] | None = None,
) -> DeclaringDecorator | str | None:
    """Return the decorator that fits the class ``node``, or the reason why no decorator fits.

    The result is ``None`` for a class that is not a dataset of a known kind.
    ``chirp_migrate.rules.chp002_dataset_class`` describes the conditions under which a decorator fits.

    Args:
        module: the module that defines the class.
        project: the user's project.
        node: the class.
        lambdas_as_methods: whether a lambda that ``__init__`` stores in an attribute counts as a method. Rule CHP007
            (lambdas that workers need) turns such lambdas into methods.
        captured: variables of enclosing functions that count as attributes. None means that no variable counts as an
            attribute, and that the only base of the class must be PyTorch's ``Dataset``. Otherwise, the class may have
            any bases.
    """
    if node.keywords or node.decorators:
        return None
    if captured is None and not only_base_is_torch_dataset(module, project, [base.value for base in node.bases]):
        return None
    methods = methods_of_plain_class(node) or {}
    getitem = methods.get("__getitem__")
    if getitem is None or not _OTHER_ACCESS.isdisjoint(methods):
        return None
    reader = _DeclaredReader(module, project, methods | (_lambdas_as_methods(methods) if lambdas_as_methods else {}))
    try:
        paths = reader.control_flow_paths(getitem, captured or ())
    except UnmodelledCode:
        return None
    images = match_image_pattern(paths)
    if images is not None:
        return reader.unclear_name(IMAGE_NAMES) or reader.declared(images, set())
    samples = infer_getitem_result(paths)
    meaning = None if samples is None else match_dataset_pattern(samples)
    if samples is None or meaning is None:
        return None
    if isinstance(meaning, SequenceSamples) and _is_list_of_paths(module, methods, meaning.samples):
        return None
    if not samples.complete:
        return "`__getitem__` has side effects, or statements that the rule does not recognise"
    return reader.unclear_name() or reader.declared(meaning, samples.none_tested)


def _is_list_of_paths(module: Module, methods: Mapping[str, cst.FunctionDef], samples: Value) -> bool:
    """Return whether the list ``samples`` contains file paths, judged by its name or by the code that creates it.

    No decorator fits such a list, because samples in files cannot be read in whole batches.
    """
    attribute = samples.name if isinstance(samples, Attr) else ""
    if _PATHS.fullmatch(attribute):
        return True
    assigns = find_nodes(methods["__init__"], cst.Assign) if "__init__" in methods else []
    stores = (one for one in assigns if len(one.targets) == 1 and is_self_attribute(one.targets[0].target, attribute))
    return any(_LISTS_FILES.search(module.source(store)) for store in stores)


class _DeclaredReader:
    """Evaluate a ``__getitem__`` and the methods that it calls symbolically, and choose the decorator."""

    def __init__(self, module: Module, project: Project, methods: Mapping[str, cst.FunctionDef]) -> None:
        self._module, self._project = module, project
        self._methods = methods
        self._held = _held_methods(module, methods)
        #: Names of evaluated methods that the code calls by name, and attributes through which the code calls such
        #: methods.
        self._calls: set[str] = set()
        self._called_held: set[str] = set()

    def control_flow_paths(self, getitem: cst.FunctionDef, captured: Collection[str]) -> list[CodePath]:
        """Return each path of execution through the method ``getitem``, with its symbolic value.

        The variables in ``captured`` count as attributes.
        """
        self_name, index = _parameters(getitem, 2)
        evaluator = Evaluator(self._module.source, self._inline)
        attributes: dict[str, Value] = {name: Attr(SELF, name) for name in captured}
        return evaluator.paths(block_statements(getitem.body), attributes | {self_name: SELF, index: INDEX})

    def _inline(self, function: Value) -> cst.FunctionDef | None:
        if not isinstance(function, Attr) or function.base != SELF:
            return None
        called = function.name
        if called in self._held:
            self._called_held.add(called)
            called = self._held[called]
        elif called in self._methods:
            self._calls.add(called)
        else:
            return None
        method = self._methods[called]
        _parameters(method, len(method.params.params))
        return method

    def unclear_name(self, more: frozenset[str] = frozenset()) -> str | None:
        """Return a message about the first name with an unknown value in the evaluated methods.

        The result is None if there is no such name.

        The value is known for a local variable, and for a name that provably refers to ``torch`` or to an object whose
        qualified name is in ``more``.
        """
        read = {"__getitem__", *self._calls, *(self._held[name] for name in self._called_held)}
        unclear = (self._unclear_name(self._methods[method], _CLEAR | more) for method in sorted(read))
        name = next((one for one in unclear if one is not None), None)
        return None if name is None else f"`{name}` may be rebound"

    def _unclear_name(self, method: cst.FunctionDef, clear: frozenset[str]) -> str | None:
        for found in find_nodes(method.body, cst.Name):
            owner = self._module.scopes.lookup(found.value, found)
            if name_role(self._module, found) is NameRole.LABEL or (owner is not None and owner[0].node is method):
                continue
            names = resolve_node(self._project, self._module, found)
            if not names or not names <= clear:
                return found.value
        return None

    def declared(self, meaning: Meaning | AugmentedImages, none_tested: set[Value]) -> DeclaringDecorator | str:
        """Return the decorator for the semantics ``meaning``, or the reason why no decorator fits.

        ``none_tested`` contains the values that the code compares with None.
        """
        transforms = meaning.transforms if isinstance(meaning, AugmentedSamples) else ()
        flags = {transform.gate for transform in transforms if transform.gate != transform.function}
        flags |= {meaning.training} if isinstance(meaning, AugmentedSamples) else set()
        try:
            arguments = list(_decorator_arguments(meaning))
        except _NotAnAttribute:
            arguments = []
        if not arguments or not none_tested.isdisjoint(flags):
            return "the samples depend on a value other than an attribute, or on whether an attribute is None"
        arguments += [f"calls={string_tuple_source(sorted(self._calls))}"] if self._calls else []
        held = ", ".join(f'"{name}": "{self._held[name]}"' for name in sorted(self._called_held))
        return DeclaringDecorator(_DECORATORS[type(meaning)], (*arguments, *([f"held={{{held}}}"] if held else [])))


def _parameters(function: cst.FunctionDef, count: int) -> list[str]:
    """Return the parameter names of a method without decorators, defaults and stars.

    Raises:
        UnmodelledCode: the method has decorators, defaults or stars, or does not have ``count`` parameters.
    """
    names = [parameter.name.value for parameter in function.params.params]
    unusual = function.decorators or function.asynchronous or not takes_plain_arguments(function)
    if unusual or len(names) != count:
        name = function.name.value
        raise UnmodelledCode(
            f"`{name}` has `async`, a decorator, a default value, `*`, `/`, `**`, or an unexpected number of parameters"
        )
    return names


def _held_methods(module: Module, methods: Mapping[str, cst.FunctionDef]) -> dict[str, str]:
    """Return the methods that ``__init__`` assigns to attributes, as in ``self.scale = self._scale``.

    The keys are names of attributes, and the values are names of methods.
    """
    assigns = find_nodes(methods["__init__"], cst.Assign) if "__init__" in methods else []
    stores = (re.fullmatch(r"self\.(\w+) = self\.(\w+)", normalized_source(module, assign)) for assign in assigns)
    return {store[1]: store[2] for store in stores if store is not None and store[2] in methods}


def _lambdas_as_methods(methods: Mapping[str, cst.FunctionDef]) -> dict[str, cst.FunctionDef]:
    """Return the lambdas that ``__init__`` assigns to attributes, by the name of the attribute.

    Each lambda is converted to a method.
    """
    found: dict[str, cst.FunctionDef] = {}
    for assign in find_nodes(methods["__init__"], cst.Assign) if "__init__" in methods else []:
        match assign:
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Attribute(value=owner, attr=cst.Name(value=name)))],
                value=cst.Lambda(params=params, body=body),
            ) if name not in methods and isinstance(owner, cst.Name):
                taken = params.with_changes(params=(cst.Param(owner), *params.params))
                block = cst.IndentedBlock([cst.SimpleStatementLine([cst.Return(body)])])
                found[name] = cst.FunctionDef(cst.Name(name), taken, block)
    return found


def _decorator_arguments(meaning: Meaning | AugmentedImages) -> Iterator[str]:
    """Yield the arguments of the decorator.

    Raises:
        _NotAnAttribute: a part of ``meaning`` is not an attribute of ``self``.
    """
    for key, value in vars(meaning).items():
        if isinstance(meaning, SequenceSamples):
            yield _attribute_name(value)
        elif isinstance(value, Value):
            yield f"{key}={_attribute_name(value)}"
        elif isinstance(value, float) and value != getattr(type(meaning), key):
            yield f"{key}={shortest_number_source(value)}"
        elif isinstance(value, tuple):
            pairs = ((_attribute_name(one.function), one.gate and _attribute_name(one.gate)) for one in value)
            yield f"transforms={{{', '.join(f'{function}: {gate}' for function, gate in pairs)}}}"


def _attribute_name(value: Value) -> str:
    """Return the quoted name of an attribute of ``self``, such as ``"x"`` for ``self.x``."""
    if isinstance(value, Attr) and value.base == SELF:
        return f'"{value.name}"'
    raise _NotAnAttribute


def shortest_number_source(number: float) -> str:
    """Return the shortest source of a number, such as ``1e-8`` instead of ``1e-08``."""
    return re.sub("e-0", "e-", repr(number))


def string_tuple_source(names: Sequence[str]) -> str:
    """Return the source of a tuple of strings."""
    quoted = [f'"{name}"' for name in names]
    return f"({', '.join(quoted)}{',' if len(names) == 1 else ''})"
