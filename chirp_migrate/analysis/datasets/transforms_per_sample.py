"""Transforms that a class makes for every sample, and whether they could be made once, in its ``__init__``.

What can be made once draws no random numbers when it is made, and remembers nothing between calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.uses_elsewhere import is_changed, is_settled
from chirp_migrate.analysis.known_names import (
    NN_MODULE,
    TORCH_DATASET,
    TORCHVISION_DATASET,
    TRANSFORM,
    one_of,
    resolves_to,
)
from chirp_migrate.syntax.module import Module, find_in
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    dotted,
    find_own,
    is_docstring,
    is_name,
    is_on_self,
    is_super,
    is_super_init,
    method_called,
    methods_of,
    names_below,
    own_nodes,
    parameters,
)

ENTRY = re.compile(r"__getitems?__|__call__|\w*collate\w*")
BASE = one_of(r"builtins\.object", TORCH_DATASET, TORCHVISION_DATASET)
_LIBRARIES = ("torch.", "torchvision.", "torchaudio.", "numpy.", "math.")
#: Methods that say how attributes are kept, and may know only those of today.
_OWN_STATE = frozenset({"__slots__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__setattr__"})
_LITERALS = (cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)
_CONDITIONS = (cst.If, cst.IfExp, cst.For, cst.While, cst.Try, cst.BooleanOperation, cst.ExceptHandler, cst.Match)
#: What says how tensors are made from now on.
_SET_DEFAULTS = ("set_default_dtype", "set_default_device", "set_default_tensor_type")
_DEFAULTS = rf"\b({'|'.join(_SET_DEFAULTS)})\b"
#: Ways to give attributes values without naming them.
_SETTERS = ("setattr", "vars", "__dict__", "__new__", "__setattr__", "__setstate__", "copyreg")
_SET_BY_NAME = r"\b(setattr|vars)\s*\(|\b__(dict|new|setattr|setstate)__\b|\bcopyreg\b"
#: Transforms that were looked at: they store their arguments and constants computed from them, and draw when called.
_KNOWN = re.compile(
    r"torchvision\.transforms\.(v2\.|transforms\.)?"
    r"(AugMix|AutoAugment|CenterCrop|ColorJitter|Compose|ConvertImageDtype|FiveCrop|GaussianBlur|Grayscale|Normalize"
    r"|PILToTensor|Pad|RandAugment|Random(AdjustSharpness|Affine|Apply|Autocontrast|Choice|Crop|Equalize|Erasing"
    r"|Grayscale|HorizontalFlip|Invert|Order|Perspective|Posterize|ResizedCrop|Rotation|Solarize|VerticalFlip)|Resize"
    r"|TenCrop|ToDtype|ToImage|ToPILImage|ToTensor|TrivialAugmentWide)"
    r"|torchaudio\.transforms\.(_transforms\.)?"
    r"(AmplitudeToDB|ComputeDeltas|Deemphasis|Fade|FrequencyMasking|LFCC|MFCC|MelScale|MelSpectrogram|MuLawDecoding"
    r"|MuLawEncoding|Preemphasis|Resample|SpecAugment|Spectrogram|TimeMasking|TimeStretch|Vol)"
)
#: What changes an attribute that it holds, or may hand it on; an element may be one of a target.
_CHANGES = (
    *(cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Del, cst.Element, cst.StarredElement),
    *(cst.Attribute, cst.Subscript),
)


class NotOnce(Exception):
    """Why a transform cannot surely be made once, in words."""


class SampleTransforms:
    """What the methods of a class that run for each sample make.

    Args:
        module: where the class stands.
        project: the backend it belongs to.
        definition: the class.
    """

    def __init__(self, module: Module, project: Project, definition: cst.ClassDef) -> None:
        self._module, self._project, self._definition = module, project, definition
        self._methods = methods_of(definition)
        self._running = [name for name in self._methods if ENTRY.fullmatch(name)]
        for name in self._running:  # and what these call on ``self``
            for node in own_nodes(self._methods[name]):
                match node:
                    case cst.Call(func=cst.Attribute(value=cst.Name(value="self"), attr=cst.Name(value=called))):
                        if called in self._methods.keys() - {"__init__", *self._running}:
                            self._running.append(called)

    @property
    def init(self) -> cst.FunctionDef:
        """The ``__init__`` in which they could be made; :meth:`check` sees that there is one."""
        return self._methods["__init__"]

    def calls(self) -> Iterator[tuple[cst.FunctionDef, cst.Call]]:
        """Outermost calls that make a transform of nothing that belongs to the sample, with their methods."""
        if not all(resolves_to(self._module, base.value, BASE, self._project) for base in self._definition.bases):
            return
        for method in (self._methods[name] for name in self._running):
            local = self._module.scopes.names_bound(method) - {"self"}
            found = {node for node in find_own(method.body, cst.Call) if self._makes(node)}
            outermost = (call for call in found if not found.intersection(self._around(call, method)))
            for call in sorted(outermost, key=lambda one: self._module.span(one)[0]):
                if not names_below(call, *local):
                    yield method, call

    def _makes(self, call: cst.Call) -> bool:
        named = isinstance(call.func, cst.Name | cst.Attribute)
        return named and _is_transform(self._project, self._project.resolved_names(self._module, call.func))

    def _around(self, node: cst.CSTNode, method: cst.FunctionDef) -> Iterator[cst.CSTNode]:
        return takewhile(lambda one: one is not method, self._module.ancestors(node))

    def check(self, method: cst.FunctionDef, call: cst.Call) -> None:
        """See that a call can be made in ``__init__`` instead.

        Raises:
            NotOnce: it cannot, for the reason given.
        """
        module, project = self._module, self._project
        attributes = self._attributes(call)
        if not _is_made_once(project, project.resolved_names(module, call.func)):
            raise NotOnce("it may draw random numbers when it is made, or remember something between calls")
        if project.holds(_DEFAULTS, *_SET_DEFAULTS):
            raise NotOnce("what it holds may get another dtype or device: the project changes the default")
        self._check_use(method, call)
        self._check_class(method)
        self._check_init()
        names = {name.value for name in find_in(call, cst.Name)} - {"self"}
        shadowed = module.scopes.names_bound(self.init) & (names - attributes)
        if shadowed:
            raise NotOnce(f"`{min(shadowed)}` means something else in `__init__`")
        conditional = any(isinstance(one, _CONDITIONS) for one in self._around(call, method))
        leaves = (module.span(node)[1] for node in find_own(method, cst.Return, cst.Raise))
        returned = any(end < module.span(call)[0] for end in leaves)
        if attributes and (conditional or returned or not ENTRY.fullmatch(method.name.value)):
            raise NotOnce(f"it is only made under a condition, and `self.{min(attributes)}` may not fit otherwise")

    def _attributes(self, call: cst.Call) -> set[str]:
        """Attributes of ``self`` that a call is made from; it may not be made from anything else that changes."""
        attributes: set[str] = set()
        pending: list[cst.CSTNode] = list(call.args)
        while pending:
            node = pending.pop()
            shown = f"`{self._module.source(node).strip()}`"
            match node:
                case cst.Arg(star="*" | "**"):
                    raise NotOnce(f"what {shown} holds may change")
                case cst.DictElement(key=key, value=value) | cst.BinaryOperation(left=key, right=value):
                    pending += [key, value]
                case cst.Arg(value=value) | cst.Element(value=value) | cst.UnaryOperation(expression=value):
                    pending.append(value)
                case cst.Tuple(elements=parts) | cst.List(elements=parts) | cst.Dict(elements=parts):
                    pending += parts
                case cst.Call(func=made, args=parts):
                    if not _is_made_once(self._project, self._project.resolved_names(self._module, made)):
                        raise NotOnce(f"{shown} may give something else each time")
                    pending += parts
                case cst.Attribute(value=cst.Name(value="self"), attr=cst.Name(value=name)) if self._is_set_once(name):
                    attributes.add(name)
                case _ if is_on_self(node) or not (isinstance(node, _LITERALS) or self._is_constant(node)):
                    raise NotOnce(f"{shown} may change between samples")
        return attributes

    def _is_constant(self, node: cst.CSTNode) -> bool:
        """Whether a name is one of a library's or Python's constants, or one that the module gives its only value."""
        module, name = self._module, dotted(node)
        if name in ("True", "False", "None"):
            return True
        names = module.qualified_names(node)
        if names and all(one.startswith(_LIBRARIES) for one in names):
            return True
        owner = module.scopes.lookup(name, node) if name is not None else None
        if name is None or owner is None or owner[0] is not module.scopes.module:
            return False
        statement = module.parents[owner[1][0].node]
        constant = isinstance(statement, cst.Assign) and isinstance(statement.value, (*_LITERALS, cst.Tuple))
        return constant and is_settled(module, self._project, name, owner[1], len(module.text))

    def _is_set_once(self, attribute: str) -> bool:
        """Whether ``self.attribute`` gets its value at the top level of ``__init__`` and nowhere else in the project.

        Classes of other files may have an attribute of that name of their own: this one has no subclasses.
        """
        module, init = self._module, self._methods.get("__init__")
        given = (one for one in module.find(cst.AssignTarget) if is_on_self(one.target, attribute))
        lines = (module.parents[module.parents[module.parents[one]]] for one in given)
        at_top = init is not None and any(line is init.body for line in lines)
        project = self._project
        by_name = project.holds(_SET_BY_NAME, *_SETTERS)
        return at_top and not by_name and not is_changed(module, project, attribute)

    def _check_use(self, method: cst.FunctionDef, call: cst.Call) -> None:
        match self._module.parents[call]:
            case cst.Call(func=function) if function is call:
                return
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
                uses = names_below(method.body, name)
            case _:
                raise NotOnce("it is used for more than being called")
        for node in uses:
            around = self._module.parents[node]
            is_called = isinstance(around, cst.Call) and around.func is node
            if not is_called and not isinstance(around, cst.AssignTarget):
                raise NotOnce(f"`{name}` is used for more than being called")

    def _check_class(self, method: cst.FunctionDef) -> None:
        definition, project, init = self._definition, self._project, self._methods.get("__init__")
        if init is None or not isinstance(init.body, cst.IndentedBlock) or init.decorators:
            raise NotOnce("the class has no `__init__` of the usual form")
        firsts = [next(iter(parameters(one)), "") for one in (init, method)]
        named = {node.value for node in find_in(definition.body, cst.Name)}
        if definition.decorators or method.decorators or firsts != ["self", "self"] or named & _OWN_STATE:
            raise NotOnce("the class defines how its attributes are set or read")
        if project.holds(r"\b__new__\b", "__new__"):
            raise NotOnce("objects may be made without `__init__`")
        name = definition.name.value
        if project.holds(rf"\bclass\s+\w+\s*\([^)]*\b{name}\b", name):
            raise NotOnce(f"a subclass of {name} may have an `__init__` of its own")

    def _check_init(self) -> None:
        for node in own_nodes(self.init.body):
            if isinstance(node, cst.Return):
                raise NotOnce("`__init__` may return early")
            if is_name(node, "self"):
                match self._module.parents[node]:
                    case cst.Attribute(attr=cst.Name(value=used)):
                        if used in self._running:
                            raise NotOnce(f"`__init__` already uses `{used}`")
                    case around:
                        call = self._module.parents[around]
                        if not is_super(call) and method_called(call) != "__init__":
                            raise NotOnce("`__init__` already hands the object on")


def _is_transform(project: Project, names: set[str]) -> bool:
    """Whether a call of these qualified names makes a transform of a library, or a module of the project."""
    return bool(names) and all(TRANSFORM.fullmatch(n) or _module_class(project, n) is not None for n in names)


def _is_made_once(project: Project, names: set[str]) -> bool:
    """Whether one instance gives what a new one for each call would give."""
    return bool(names) and all(_KNOWN.fullmatch(n) or _only_stores(project, n) for n in names)


def _module_class(project: Project, qualified: str) -> tuple[Module, cst.ClassDef] | None:
    """A class of the project that is directly a ``torch.nn.Module`` and nothing else."""
    if not any(map(NN_MODULE.fullmatch, project.base_classes(qualified) or ())):
        return None  # known without LibCST, which would read the file of every class that is called
    found = project.class_definition(qualified)
    if found is None or len(found[1].bases) != 1:
        return None
    return found if resolves_to(found[0], found[1].bases[0].value, NN_MODULE, project) else None


def _only_stores(project: Project, qualified: str) -> bool:
    """Whether ``__init__`` of a module of the project stores its parameters, and its methods only read them."""
    found = _module_class(project, qualified)
    if found is None or found[1].decorators or found[1].keywords:
        return False
    module, definition = found
    methods = [one for one in definition.body.body if isinstance(one, cst.FunctionDef)]
    targets = (one.target for one in find_in(definition, cst.AssignTarget))
    stored = {target.attr.value for target in targets if isinstance(target, cst.Attribute) and is_on_self(target)}
    own = {method.name.value for method in methods} | stored
    for position, statement in enumerate(definition.body.body):
        if isinstance(statement, cst.FunctionDef):
            initialises = statement.name.value == "__init__"
            if not (_stores(statement) if initialises else _reads(module, statement, own)):
                return False
        elif position or not is_docstring(statement):
            return False
    return True


def _stores(init: cst.FunctionDef) -> bool:
    known = parameters(init).keys() | {"True", "False", "None"}
    for statement in init.body.body:
        if is_super_init(statement) or is_docstring(statement):
            continue
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else (None,):
            if not isinstance(small, cst.Assign):
                return False
            constant = isinstance(small.value, cst.Integer | cst.Float | cst.SimpleString)
            if not constant and not (isinstance(small.value, cst.Name) and small.value.value in known):
                return False
            if not all(is_on_self(target.target) for target in small.targets):
                return False
    return not init.decorators


def _reads(module: Module, method: cst.FunctionDef, own: set[str]) -> bool:
    """Whether a method only takes values from ``self``: nothing is set, changed in place or handed on.

    Args:
        own: methods of the class, and attributes that it stores; others are the base's, and may change the object.
    """
    if any(isinstance(node, cst.Global | cst.Nonlocal) for node in own_nodes(method)):
        return False
    for name in names_below(method.body, "self"):
        attribute = module.parents[name]
        if not isinstance(attribute, cst.Attribute):
            return False
        around = module.parents[attribute]
        if isinstance(around, cst.Call) and attribute.attr.value not in own:
            return False
        if isinstance(around, _CHANGES):
            return False
        if isinstance(around, cst.Arg) and not _is_function_call(module, around):
            return False
    return True


def _is_function_call(module: Module, argument: cst.Arg) -> bool:
    """Whether an argument goes to a function of a library, which keeps and changes nothing it is not meant to."""
    call = module.parents[argument]
    names = module.qualified_names(call.func) if isinstance(call, cst.Call) else set()
    libraries = ("torch.", "torchaudio.", "torchvision.", "math.", "random.", "numpy.", "builtins.")
    return bool(names) and all(name.startswith(libraries) for name in names)
