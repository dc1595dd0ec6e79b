"""CHP014: a distributed sampler is told the epoch, or every epoch has the same order. Changes training: opt-in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.origins import backend_holds, origins, scope_of
from chirp_migrate.analysis.loaders.loader_names import Loader, LoaderNames, may_use_loader
from chirp_migrate.plans.plan import Edit, Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.syntax.module import Module, matching
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, own_nodes

_SAMPLER = re.compile(r"torch\.utils\.data\.(distributed\.)?DistributedSampler")
_COUNTED = re.compile(r"builtins\.range|tqdm(\.\w+)*\.trange")
_SHOWN = re.compile(r"tqdm(\.\w+)*\.tqdm(_notebook)?|rich\.progress\.track")
_LOOP = re.compile(r"^[ \t]*for\b[^\r\n]*\b(range|trange)\b", re.MULTILINE)
_NO_PASS = re.compile(r"builtins\.(len|print|isinstance|type|id|repr|str)")
_SET = r"\.\s*set_epoch\s*\("
#: Position of ``sampler`` in ``DataLoader(…)`` and of ``shuffle`` in ``DistributedSampler(…)``.
_POSITION = 3


class SetEpoch(Rule):
    """Requires, of a loader in a loop that counts (`range`, `trange`):

    - `shuffling-sampler`: a call that makes it gives a `DistributedSampler` that is not told to leave the order.
    - `known-sampler`: the sampler has a name there, or the loader surely has that sampler and no other; where it may
      be another one, its class is imported at the top of the module, to ask.
    - `passes-in-turns`: each turn goes through the loader, or gives it to a call other than `len`, `print` and such.
    - `not-told`: no `set_epoch` is called in the same function, on this sampler or loader elsewhere in the module, or
      by a function of the project that the loop calls.
    - `kept-sampler`: some counting loop around does not make the sampler anew in each turn.
    - `one-counter`: one loop has `epoch` in its variable's name, or there is only one.
    - `named-epoch`: its variable is a plain name with a letter in it.
    - `own-lines`: where the sampler's class has to be asked, the body of the loop has lines of its own.
    """

    code: ClassVar[str] = "CHP014"
    name: ClassVar[str] = "set-epoch"
    reason: ClassVar[str] = (
        "A DistributedSampler shuffles by its seed and the epoch it was told. A loop that never calls `set_epoch` "
        "trains on the same order in every epoch. Telling it the epoch changes the order from the second epoch on, so "
        "it is opt-in."
    )
    safety: ClassVar[Safety] = Safety.BEHAVIOUR
    finds_bugs: ClassVar[bool] = True
    trigger: ClassVar[tuple[str, ...]] = ("range",)

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules with a counted loop, a word for epochs and one for a loader, in a project with such samplers."""
        if "range" not in text or not ("ampler" in text or "poch" in text):
            return False
        if not backend_holds(project, r"\bDistributedSampler\b"):
            return False
        return may_use_loader(text) and _LOOP.search(text) is not None

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Call ``set_epoch`` at the start of each turn of a loop that goes through such a loader."""
        epochs = [loop for loop in module.find(cst.For) if _is_counted(module, project, loop)]
        names = module.once(LoaderNames, project)
        seen: set[tuple[cst.CSTNode, str]] = set()
        for node, loader_node, loader in _passes(module, project, names, epochs):
            sampler = _sampler(module, project, loader_node, loader, node)
            around = [one for one in module.ancestors(node) if one in epochs and isinstance(one, cst.For)]
            if sampler is None or not around or (around[-1], sampler.name) in seen:
                continue
            seen.add((around[-1], sampler.name))
            if not _is_told(module, project, names, around[-1], sampler.name, dotted(loader_node) or ""):
                yield _tell(module, names, around, sampler)


@dataclass(frozen=True)
class _Sampler:
    """A distributed sampler that shuffles, as the loop can name it."""

    name: str
    made: tuple[int, ...]  # where in the module it is bound
    guard: str = ""  # its class as the module names it, where it may be something else
    problem: str = ""


def _is_counted(module: Module, project: Project, loop: cst.For) -> bool:
    call: cst.BaseExpression = loop.iter
    while isinstance(call, cst.Call):
        names = project.resolved_names(module, call.func)
        if names and all(_COUNTED.fullmatch(name) for name in names):
            return True
        if not names or not call.args or not all(_SHOWN.fullmatch(name) for name in names):
            return False
        call = call.args[0].value
    return False


def _passes(
    module: Module, project: Project, names: LoaderNames, epochs: Iterable[cst.For]
) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, Loader]]:
    """Loops through loaders and calls that are given one: the place, the loader's expression and what it is."""
    inside = {node for loop in epochs for node in own_nodes(loop.body) if isinstance(node, cst.For | cst.Call)}
    for node in sorted(inside, key=lambda one: module.span(one)[0]):
        given: list[cst.BaseExpression] = []
        if isinstance(node, cst.For):
            given += _parts(node.iter)
        elif isinstance(node, cst.Call):
            given += [a.value for a in node.args if isinstance(a.value, cst.Name | cst.Attribute)]
            if any(_NO_PASS.fullmatch(name) for name in project.resolved_names(module, node.func)):
                continue
        for one in given:
            loader = names.loader(one)
            if loader is not None and loader.calls:
                yield node, one, loader


def _parts(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    yield node
    for argument in node.args if isinstance(node, cst.Call) else ():
        yield from _parts(argument.value)


def _sampler(
    module: Module, project: Project, node: cst.BaseExpression, loader: Loader, place: cst.CSTNode
) -> _Sampler | None:
    """The sampler of a loader, when it is or may be a distributed one that shuffles."""
    given = [(owner, value) for owner, call in loader.calls if (value := _argument(call, "sampler")) is not None]
    found = [(owner, value, _made(owner, project, value)) for owner, value in given]
    known = [(owner, value, made) for owner, value, made in found if made[0]]
    if not known:
        return None
    owner, value, (calls, always) = known[0]
    always = always and loader.complete and len(known) == len(loader.calls)
    name = dotted(value)
    if owner is module and name is not None and len(known) == 1:
        scope = scope_of(module, value, name)
        if scope_of(module, place, name) is scope:
            bound = tuple(module.span(origin.value)[0] for origin in origins(module, scope, name)[0])
            certain = _made(owner, project, value)[1]
            guard = "" if certain else module.source(calls[0].func).strip()
            seen = certain or _is_imported(module, calls[0].func)
            return _Sampler(name, bound, guard, "" if seen else "it may be another sampler, or none")
    loader_name = dotted(node)
    if loader_name is None:
        return None
    bound = tuple(module.span(o.value)[0] for o in origins(module, scope_of(module, node, loader_name), loader_name)[0])
    return _Sampler(f"{loader_name}.sampler", bound, "", "" if always else "it may be another sampler, or none")


def _argument(call: cst.Call, keyword: str) -> cst.BaseExpression | None:
    for position, argument in enumerate(call.args):
        if argument.keyword is not None and argument.keyword.value == keyword:
            return argument.value
        if argument.keyword is None and not argument.star and position == _POSITION:
            return argument.value
    return None


def _made(module: Module, project: Project, value: cst.BaseExpression) -> tuple[list[cst.Call], bool]:
    """Calls that make a shuffling distributed sampler of a value, and whether nothing else can be there."""
    name = dotted(value)
    values = [value]
    if name is not None:
        found = origins(module, scope_of(module, value, name), name)[0]
        values = [one.value for one in found if one.part is None]
        if len(values) < len(found) or not values:
            return [], False
    values = [part for one in values for part in ((one.body, one.orelse) if isinstance(one, cst.IfExp) else (one,))]
    calls = [one for one in values if isinstance(one, cst.Call) and _is_sampler(module, project, one)]
    return calls, bool(calls) and len(calls) == len(values)


def _is_sampler(module: Module, project: Project, call: cst.Call) -> bool:
    names = project.resolved_names(module, call.func)
    shuffle = _argument(call, "shuffle")
    shuffles = shuffle is None or not m.matches(shuffle, m.Name("False"))
    return shuffles and bool(names) and all(_SAMPLER.fullmatch(name) for name in names)


def _is_imported(module: Module, node: cst.BaseExpression) -> bool:
    """Whether the name that an expression starts with is imported at the top of the module."""
    first = (dotted(node) or "").partition(".")[0]
    for statement in module.tree.body:
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.Import | cst.ImportFrom) and not isinstance(small.names, cst.ImportStar):
                names = (a.evaluated_alias or a.evaluated_name.partition(".")[0] for a in small.names)
                if first in names:
                    return True
    return False


def _is_told(module: Module, project: Project, names: LoaderNames, loop: cst.For, sampler: str, loader: str) -> bool:
    """Whether ``set_epoch`` is called around the loop, on this sampler elsewhere, or by what the loop calls."""
    if re.search(_SET, module.text) is None and not backend_holds(project, _SET):
        return False
    function = module.enclosing_function(loop) or module.tree
    around = matching(function, m.Call(m.Attribute(attr=m.Name("set_epoch"))))
    if around:
        return True
    for call in module.find(cst.Call):
        if m.matches(call.func, m.Attribute(attr=m.Name("set_epoch"))):
            receiver = dotted(call.func.value) if isinstance(call.func, cst.Attribute) else None
            if receiver in (sampler, loader, f"{loader}.sampler", f"{loader}.batch_sampler"):
                return True
    called = (node for node in own_nodes(loop.body) if isinstance(node, cst.Call))
    definitions = (one for call in called for one in names.functions(call))
    return any(re.search(_SET, owner.source(definition)) for owner, definition in definitions)


def _tell(module: Module, names: LoaderNames, around: list[cst.For], sampler: _Sampler) -> Proposal:
    inner = [loop for loop in around if not any(_inside(module, loop, place) for place in sampler.made)]
    named = [loop for loop in inner if "epoch" in (dotted(loop.target) or "").lower()]
    chosen = named if len(named) == 1 else inner
    loop = chosen[0] if chosen else around[0]
    epoch = dotted(loop.target)
    problem = sampler.problem
    if not inner:
        problem = "it is made anew in every iteration of the loop"
    elif len(chosen) > 1:
        problem = "it is not clear which of the loops counts the epochs"
    elif epoch is None or "." in epoch or epoch.strip("_") == "":
        problem = "the loop has no name for the epoch"
    if isinstance(loop.body, cst.SimpleStatementSuite) and sampler.guard:
        problem = "it may be another sampler, or none"
    offset = module.span(loop)[0]
    found = f"`{sampler.name}` is never told the epoch, so every epoch has the same order"
    if problem:
        return Proposal(offset, f"{found}; call `set_epoch` at the start of each epoch: {problem}")
    return Proposal(offset, found, (_insertion(module, loop, sampler, f"{sampler.name}.set_epoch({epoch})"),))


def _inside(module: Module, node: cst.CSTNode, offset: int) -> bool:
    start, end = module.span(node)
    return start <= offset < end


def _insertion(module: Module, loop: cst.For, sampler: _Sampler, call: str) -> Edit:
    first = module.span(loop.body.body[0])[0]
    if isinstance(loop.body, cst.SimpleStatementSuite):
        return Edit(first, first, f"{call}; ")
    indent, newline = module.indentation(first), module.newline
    deeper = indent + ("\t" if "\t" in indent else "    ")
    lines = [f"if isinstance({sampler.name}, {sampler.guard}):", f"{deeper}{call}"] if sampler.guard else [call]
    offset, header = module.line_start(first), module.line_end(module.span(loop.iter)[1])
    while offset > header and module.text[module.line_start(offset - 1) : offset].lstrip().startswith("#"):
        offset = module.line_start(offset - 1)
    return Edit(offset, offset, "".join(f"{indent if n == 0 else ''}{line}{newline}" for n, line in enumerate(lines)))
