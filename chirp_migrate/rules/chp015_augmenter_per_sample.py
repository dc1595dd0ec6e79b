"""CHP015: transforms are made once, not for every sample (R-000-4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.attribute_changes import is_changed
from chirp_migrate.analysis.dataflow.origins import backend_holds
from chirp_migrate.analysis.datasets.transform_classes import is_made_once, is_transform
from chirp_migrate.plans.plan import Edit, Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, own_nodes, parameters

_METHOD = re.compile(r"\bdef\s+(__getitems?__|__call__|\w*collate\w*)\s*\(\s*self\b")
_MADE = re.compile(r"\b[A-Z]\w*[a-z]\w*\s*\(|\b[A-Z]{4}\s*\(")
#: Words of which one is there where samples are augmented.
_WORDS = ("Dataset", "__getitem__", "ugment", "torchvision", "torchaudio")
_ENTRY = re.compile(r"__getitems?__|__call__|\w*collate\w*")
_BASE = re.compile(r"builtins\.object|torch\.utils\.data\.(dataset\.)?Dataset|torchvision\.datasets\.\w+")
_LIBRARIES = ("torch.", "torchvision.", "torchaudio.", "numpy.", "math.")
#: Methods that say how attributes are kept, and may know only those of today.
_OWN_STATE = frozenset({"__slots__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__setattr__"})
_LITERALS = (cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)
_CONDITIONS = (cst.If, cst.IfExp, cst.For, cst.While, cst.Try, cst.BooleanOperation, cst.ExceptHandler, cst.Match)

#: What says how tensors are made from now on.
_DEFAULTS = r"\bset_default_(dtype|device|tensor_type)\b"

#: Ways to give attributes values without naming them.
_SET_BY_NAME = r"\b(setattr|vars)\s*\(|__(dict|new|setattr|setstate)__|\bcopyreg\b"


class _PerSample(Exception):
    """What a transform is made from is not known before the sample."""


class _Unsure(Exception):
    """Why a transform cannot surely be made once, in words."""


class AugmenterPerSample(Rule):
    """Requires, of a call that makes a transform:

    - `known-transform`: it makes one of the transforms of torchvision and torchaudio that were looked at, or a
      `torch.nn.Module` of the project that stores its arguments and constants when it is made and only reads them.
      No file of the project holds `set_default_dtype`, `set_default_device` or `set_default_tensor_type`.
    - `plain-bases`: its class inherits from PyTorch's `Dataset`, a torchvision dataset or nothing.
    - `runs-per-sample`: it stands in `__getitem__`, `__getitems__`, `__call__`, a method with `collate` in its name, or
      a method that one of these calls on ``self``.
    - `known-before-sample`: no variable of the method is in it.
    - `unchanging-arguments`: its arguments are literals, known transforms, constants of libraries, names to which the
      module gives one constant value (no file holds ``globals(`` or sets an attribute of that name), attributes of
      ``self``, and what operators make of those; nothing is spread.
    - `attribute-set-once`: such an attribute gets its value at the top level of `__init__`; nothing else in the module,
      and in other files nothing but assignments to their ``self``, sets it or calls a method of what it holds; and no
      file of the project holds the words `setattr(`, `vars(`, `__dict__`, `__new__`, `__setattr__`, `__setstate__` or
      `copyreg`.
    - `only-called`: it is called where it is made, or through a variable that is only called.
    - `plain-init`: the class has an `__init__` of several lines, without decorator and ``return``, which neither hands
      the object on nor uses the methods that run for each sample.
    - `plain-class`: class and method have no decorators and call the object ``self``; the class has no `__slots__` and
      no say in how it is copied; no file of the project holds the word `__new__`.
    - `no-subclass`: no class of the project names it among its bases.
    - `always-made`: where it is made from attributes, it is made for every sample, under no condition.
    - `same-names`: `__init__` does not bind a name that is in it.
    """

    code: ClassVar[str] = "CHP015"
    name: ClassVar[str] = "augmenter-per-sample"
    reason: ClassVar[str] = (
        "A transform that is made inside `__getitem__` is made again for every sample: its arguments are checked, its "
        "windows and filter banks computed, its module set up. Made once in `__init__` it gives the same results, as "
        "it draws its random numbers when it is called and keeps nothing between calls."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("__getitem", "__call__", "collate")

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules with a method that runs for each sample, behind which something may be made."""
        if not any(word in text for word in _WORDS):
            return False
        found = _METHOD.search(text)
        return found is not None and _MADE.search(text, found.end()) is not None

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Make transforms with unchanging arguments in ``__init__``."""
        for definition in module.find(cst.ClassDef):
            yield from _in_class(module, project, definition)


def _in_class(module: Module, project: Project, definition: cst.ClassDef) -> Iterator[Proposal]:
    methods = {one.name.value: one for one in definition.body.body if isinstance(one, cst.FunctionDef)}
    bases = [b.value.value if isinstance(b.value, cst.Subscript) else b.value for b in definition.bases]
    known = [project.resolved_names(module, base) for base in bases]
    entries = [name for name in methods if _ENTRY.fullmatch(name)]
    if not all(names and all(_BASE.fullmatch(n) for n in names) for names in known):
        return
    running = _reached(methods, entries)
    sites: dict[str, list[cst.Call]] = {}
    for name in running:
        for call in _made(module, project, methods[name]):
            start, end = module.span(call)
            try:
                _check(module, project, definition, methods, running, methods[name], call)
            except _PerSample:
                continue
            except _Unsure as problem:
                shown = module.source(call.func).strip()
                message = f"`{shown}` is rebuilt for every sample; build it once in `__init__`. Left alone:"
                yield Proposal(start, f"{message} {problem}")
            else:
                sites.setdefault(module.text[start:end], []).append(call)
    taken: set[str] = set()
    for calls in sites.values():
        yield _move(module, methods["__init__"], calls, taken)


def _reached(methods: dict[str, cst.FunctionDef], entries: Sequence[str]) -> list[str]:
    """Methods that run for each sample: the given ones, and those they call on ``self``."""
    found = list(entries)
    for name in found:
        for node in own_nodes(methods[name]):
            called = m.matches(node, m.Call(m.Attribute(m.Name("self"))))
            callee = node.func.attr.value if called else ""  # type: ignore[attr-defined]
            if callee in methods and callee not in found and callee != "__init__":
                found.append(callee)
    return found


def _made(module: Module, project: Project, method: cst.FunctionDef) -> list[cst.Call]:
    """Outermost calls in a method that make a transform."""
    found = {
        node
        for node in own_nodes(method.body)
        if isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name | cst.Attribute)
        and is_transform(project, project.resolved_names(module, node.func))
    }
    outermost = [call for call in found if not found.intersection(_until(module, call, method))]
    return sorted(outermost, key=lambda call: module.span(call)[0])


def _until(module: Module, node: cst.CSTNode, outer: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for ancestor in module.ancestors(node):
        if ancestor is outer:
            return
        yield ancestor


def _check(
    module: Module,
    project: Project,
    definition: cst.ClassDef,
    methods: dict[str, cst.FunctionDef],
    running: Sequence[str],
    method: cst.FunctionDef,
    call: cst.Call,
) -> None:
    """Raise what keeps a call from being moved to ``__init__``."""
    local = _bound(method)
    attributes = _attributes(module, project, definition, methods, call, local)
    if not is_made_once(project, project.resolved_names(module, call.func)):
        raise _Unsure("it may draw random numbers when it is made, or remember something between calls")
    if backend_holds(project, _DEFAULTS):
        raise _Unsure("what it holds may get another dtype or device: the project changes the default")
    _check_use(module, method, call)
    _check_class(module, project, definition, methods, running, method)
    init = methods["__init__"]
    names = {one.value for one in walk(call) if isinstance(one, cst.Name)} - {"self"}
    shadowed = _bound(init) & (names - attributes)
    if shadowed:
        raise _Unsure(f"`{min(shadowed)}` means something else in `__init__`")
    conditional = any(isinstance(one, _CONDITIONS) for one in _until(module, call, method))
    start = module.span(call)[0]
    returned = any(isinstance(one, cst.Return | cst.Raise) and module.span(one)[1] < start for one in own_nodes(method))
    if attributes and (conditional or returned or not _ENTRY.fullmatch(method.name.value)):
        raise _Unsure(f"it is only made under a condition, and `self.{min(attributes)}` may not fit otherwise")


def _bound(function: cst.FunctionDef) -> set[str]:
    """Names that a function binds."""
    bound = set(parameters(function)) - {"self"}
    for node in own_nodes(function.body):
        if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.NamedExpr | cst.For | cst.CompFor):
            bound |= _target_names(node.target)
        elif isinstance(node, cst.AsName):
            bound |= _target_names(node.name)
        elif isinstance(node, cst.ImportAlias) and node.asname is None:
            bound.add(node.evaluated_name.partition(".")[0])
        elif isinstance(node, cst.FunctionDef | cst.ClassDef):
            bound.add(node.name.value)
    return bound


def _target_names(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    parts = target.elements if isinstance(target, cst.Tuple | cst.List) else ()
    return {name for part in parts for name in _target_names(part.value)}


def _attributes(
    module: Module,
    project: Project,
    definition: cst.ClassDef,
    methods: dict[str, cst.FunctionDef],
    call: cst.Call,
    local: set[str],
) -> set[str]:
    """Attributes of ``self`` that a call is made from.

    Raises:
        _PerSample: when it is made from what belongs to the sample.
        _Unsure: when it is made from something that may change.
    """
    if any(isinstance(one, cst.Name) and one.value in local for one in walk(call)):
        raise _PerSample
    attributes: set[str] = set()
    pending: list[cst.CSTNode] = list(call.args)
    while pending:
        node = pending.pop()
        shown = f"`{module.source(node).strip()}`"
        if isinstance(node, cst.Arg | cst.Element | cst.DictElement):
            if isinstance(node, cst.Arg) and node.star:
                raise _Unsure(f"what {shown} holds may change")
            pending += [node.value, *([node.key] if isinstance(node, cst.DictElement) else [])]
        elif isinstance(node, cst.Tuple | cst.List | cst.Dict):
            pending += node.elements
        elif isinstance(node, cst.UnaryOperation):
            pending.append(node.expression)
        elif isinstance(node, cst.BinaryOperation):
            pending += [node.left, node.right]
        elif isinstance(node, cst.Call):
            if not is_made_once(project, project.resolved_names(module, node.func)):
                raise _Unsure(f"{shown} may give something else each time")
            pending += node.args
        elif m.matches(node, m.Attribute(m.Name("self"))):
            assert isinstance(node, cst.Attribute)
            if not _is_set_once(module, project, methods, node.attr.value):
                raise _Unsure(f"{shown} may change between samples")
            attributes.add(node.attr.value)
        elif not isinstance(node, _LITERALS) and not _is_constant(module, project, node):
            raise _Unsure(f"{shown} may change between samples")
    return attributes


def _is_constant(module: Module, project: Project, node: cst.CSTNode) -> bool:
    """Whether a name is one of a library's or Python's constants, or one that the module gives its only value.

    Other files must not assign to an attribute of that name, nor any file by ``globals()``.
    """
    name = dotted(node)
    if name in ("True", "False", "None"):
        return True
    names = module.qualified_names(node)
    if names and all(one.startswith(_LIBRARIES) for one in names):
        return True
    kinds = cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.For
    given = [t for t in own_nodes(module.tree) if isinstance(t, kinds) and name in _target_names(t.target)]
    if len(given) != 1 or any(one.name.value == name for one in module.find(cst.NameItem)):
        return False
    statement = module.parents[given[0]]
    line = module.parents[statement]
    constant = isinstance(statement, cst.Assign) and isinstance(statement.value, (*_LITERALS, cst.Tuple))
    if not constant or not isinstance(module.parents[line], cst.Module):
        return False
    return not backend_holds(project, rf"\.{name}\s*=(?!=)|\bglobals\(")


def _is_set_once(module: Module, project: Project, methods: dict[str, cst.FunctionDef], attribute: str) -> bool:
    """Whether ``self.attribute`` gets its value at the top level of ``__init__`` and nowhere else in the project.

    Classes of other files may have an attribute of that name of their own: this one has no subclasses.
    """
    target = m.AssignTarget(m.Attribute(m.Name("self"), m.Name(attribute)))
    given = [one for one in module.find(cst.AssignTarget) if m.matches(one, target)]
    init = methods.get("__init__")
    at_top = init is not None and any(module.parents[module.parents[module.parents[one]]] is init.body for one in given)
    return at_top and not is_changed(module, project, attribute) and not backend_holds(project, _SET_BY_NAME)


def _check_use(module: Module, method: cst.FunctionDef, call: cst.Call) -> None:
    parent = module.parents[call]
    if isinstance(parent, cst.Call) and parent.func is call:
        return
    name = dotted(parent.targets[0].target) if isinstance(parent, cst.Assign) and len(parent.targets) == 1 else None
    if name is None or "." in name:
        raise _Unsure("it is used for more than being called")
    for node in walk(method.body):
        if m.matches(node, m.Name(name)) and not isinstance(module.parents[node], cst.AssignTarget):
            around = module.parents[node]
            if not (isinstance(around, cst.Call) and around.func is node):
                raise _Unsure(f"`{name}` is used for more than being called")


def _check_class(
    module: Module,
    project: Project,
    definition: cst.ClassDef,
    methods: dict[str, cst.FunctionDef],
    running: Sequence[str],
    method: cst.FunctionDef,
) -> None:
    init, name = methods.get("__init__"), definition.name.value
    if init is None or not isinstance(init.body, cst.IndentedBlock) or init.decorators:
        raise _Unsure("the class has no `__init__` of the usual form")
    firsts = [next(iter(parameters(one)), "") for one in (init, method)]
    named = {one.value for one in walk(definition.body) if isinstance(one, cst.Name)}
    if definition.decorators or method.decorators or firsts != ["self", "self"] or named & _OWN_STATE:
        raise _Unsure("the class defines how its attributes are set or read")
    if backend_holds(project, r"__new__"):
        raise _Unsure("objects may be made without `__init__`")
    if backend_holds(project, rf"\bclass\s+\w+\s*\([^)]*\b{re.escape(name)}\b"):
        raise _Unsure(f"a subclass of {name} may have an `__init__` of its own")
    for node in own_nodes(init.body):
        if isinstance(node, cst.Return):
            raise _Unsure("`__init__` may return early")
        if m.matches(node, m.Name("self")):
            around = module.parents[node]
            whole = not isinstance(around, cst.Attribute)
            if whole and not m.matches(
                module.parents[around], m.Call(m.Name("super") | m.Attribute(attr=m.Name("__init__")))
            ):
                raise _Unsure("`__init__` already hands the object on")
            if isinstance(around, cst.Attribute) and around.attr.value in running:
                raise _Unsure(f"`__init__` already uses `{around.attr.value}`")


def _move(module: Module, init: cst.FunctionDef, calls: Sequence[cst.Call], taken: set[str]) -> Proposal:
    start, end = module.span(calls[0])
    shown = module.source(calls[0].func).strip()
    wish = "_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", shown.rpartition(".")[2]).lower()
    words, name, number = {*re.findall(r"\w+", module.text), *taken}, wish, 2
    while name in words:
        name, number = f"{wish}_{number}", number + 1
    taken.add(name)
    old, indent = module.indentation(start), module.indentation(module.span(init.body.body[0])[0])
    lines = module.text[start:end].splitlines(keepends=True)
    text = lines[0] + "".join(indent + one[len(old) :] if one.startswith(old) else one for one in lines[1:])
    behind = module.line_end(module.span(init.body.body[-1])[1] - 1)
    lead = "" if module.text[:behind].endswith(("\n", "\r")) else module.newline
    made = Edit(behind, behind, f"{lead}{indent}self.{name} = {text}{module.newline}")
    message = f"`{shown}` was rebuilt for every sample: now built once, as `self.{name}`"
    return Proposal(start, message, (made, *(Edit(*module.span(call), f"self.{name}") for call in calls)))
