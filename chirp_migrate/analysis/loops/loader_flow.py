"""Where a loader goes from the call that builds it: through names, returns and arguments to the loops over it.

Followed are variables, attributes of ``self``, tuples that are returned and taken apart, arguments of functions of the
project, and what shows progress around a loader. Whatever else is done with it ends the way, with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import reads_of
from chirp_migrate.analysis.dataflow.value_flow import (
    Assigned,
    Chosen,
    Given,
    Inherited,
    Iterated,
    Kept,
    Member,
    Returned,
    step_of,
)
from chirp_migrate.analysis.known_names import PLAIN_DECORATOR, PROGRESS, resolves_to
from chirp_migrate.analysis.loaders.loader_values import LoaderNames
from chirp_migrate.syntax.gaps import TO_BASE
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import Mention, argument, is_on_self, mention, one_line, parameters

_ASKED = re.compile(r"builtins\.(len|isinstance|print|type|id|bool|hasattr)")
#: What of a loader, or of a progress bar around it, is asked or told without reading a batch.
_MEMBERS = frozenset(
    {"dataset", "sampler", "batch_sampler", "batch_size", "num_workers", "drop_last", "collate_fn", "generator"}
    | {"pin_memory", "persistent_workers", "prefetch_factor", "decision", "shutdown", "set_epoch"}
    | {"set_postfix", "set_postfix_str", "set_description", "set_description_str", "update", "refresh", "close"}
)
#: Statements and expressions that only ask whether there is one, or show it.
_NEUTRAL = cst.If | cst.IfExp | cst.While | cst.Assert | cst.Expr | cst.Del | cst.FormattedStringExpression
_NEUTRAL |= cst.Comparison | cst.ComparisonTarget | cst.UnaryOperation
_STEPS = 8


@dataclass(frozen=True)
class ByAttribute:
    """From one method to another, by an attribute of ``self``."""

    module: Module


@dataclass(frozen=True)
class ByCall:
    """From one function to another, by a call.

    Attributes:
        module: that of the call.
        call: what is given it, or gives it back.
        function: what is called.
        owner: the module of ``function``.
        returns: whether the call gives it back.
    """

    module: Module
    call: cst.Call
    function: cst.FunctionDef
    owner: Module
    returns: bool


Step = ByAttribute | ByCall


@dataclass(frozen=True)
class LoaderLoop:
    """A loop over the loader.

    Attributes:
        target: the part of the loop's target that a batch is bound to; ``None`` where it is not taken apart.
        steps: the way there from the call that builds the loader.
    """

    module: Module
    loop: cst.For
    target: cst.BaseExpression | None
    steps: tuple[Step, ...]


def argument_for(call: cst.Call, function: cst.FunctionDef, name: str) -> cst.BaseExpression | None:
    """What a call gives for a parameter, or its default; ``None`` where that cannot be seen."""
    if any(one.star for one in call.args):
        return None
    names = [one.name.value for one in (*function.params.posonly_params, *function.params.params)]
    if isinstance(call.func, cst.Attribute) and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    value = argument(call, names.index(name) if name in names else -1, name)
    parameter = parameters(function).get(name)
    return parameter.default if value is None and parameter is not None else value


@dataclass(frozen=True)
class _Way:
    """How far a loader has come.

    Attributes:
        module: where it is now.
        inside: the positions in the elements of what is iterated over at which a batch lies.
        steps: how it came there.
    """

    module: Module
    inside: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()

    def __add__(self, step: Step) -> _Way:
        return replace(self, steps=(*self.steps, step))


class LoaderFlow:
    """All that is done with the loader that ``call`` in ``module`` builds.

    Attributes:
        loops: the loops over it.
        ends: where it could not be followed any further, in words.
    """

    def __init__(self, module: Module, project: Project, call: cst.Call) -> None:
        self._project = project
        self._seen: set[tuple[cst.CSTNode, _Way]] = set()
        self.loops: list[LoaderLoop] = []
        self.ends: list[str] = []
        self._value(_Way(module), call)

    def _value(self, way: _Way, node: cst.BaseExpression) -> None:
        """Follow ``node``: the loader, or what is iterated over with its batches inside."""
        if (node, way) in self._seen:
            return
        self._seen.add((node, way))
        module = way.module
        match step_of(module, node):
            case Chosen(whole):
                self._value(way, whole)
            case Assigned(targets, statement):
                for one in targets:
                    self._bound(way, one)
                if isinstance(statement, cst.NamedExpr):
                    self._value(way, statement)
            case Kept(cst.Element() as element, display):
                self._element(way, element, display)
            case Returned(statement):
                self._returned(way, statement)
            case Given(argument, call) if not argument.star:
                self._given(way, argument, call)
            case Given(_, holder) | Inherited(holder):
                self.ends.append(f"`{_short(module, holder)}` is given it")
            case Iterated(cst.For() as loop):
                target: cst.BaseExpression | None = loop.target
                for place in way.inside:
                    target = _part(target, place)
                self.loops.append(LoaderLoop(module, loop, target, way.steps))
            case Member(attribute):
                if attribute.attr.value not in _MEMBERS:
                    self.ends.append(f"`{_short(module, attribute)}` is more than a look at it")
            case _:
                parent = module.parents[node]
                inside = isinstance(parent, cst.ComparisonTarget) and isinstance(parent.operator, cst.In | cst.NotIn)
                if not isinstance(parent, _NEUTRAL) or inside:  # `x in loader` iterates over the batches
                    self.ends.append(f"`{_short(module, parent)}` does more with it than a loop")

    def _bound(self, way: _Way, target: cst.BaseExpression) -> None:
        module = way.module
        if isinstance(target, cst.Name):
            found = module.scopes.lookup(target.value, target)
            if found is None:
                return
            scope = found[0]
            shared = scope is module.scopes.module and self._project.imported_elsewhere(module, target.value)
            if shared or target.value in scope.elsewhere:
                self.ends.append(f"other code may use `{target.value}`, too")
            for name in reads_of(module, target.value, scope):
                if mention(module, name) is Mention.READ:
                    self._value(way, name)
        elif isinstance(target, cst.Attribute) and is_on_self(target):
            self._kept(way + ByAttribute(way.module), target)
        else:
            self.ends.append(f"it is kept in `{_short(module, target)}`")

    def _kept(self, way: _Way, target: cst.Attribute) -> None:
        """The loader is an attribute of ``self``."""
        module, name = way.module, target.attr.value
        owner = module.enclosing_class(target)
        if owner is None or len(way.steps) > _STEPS or self._project.mentions(name, besides=module.path):
            self.ends.append(f"other files may use `self.{name}`, too")
            return
        for one in module.find(cst.Attribute):
            if one.attr.value == name and mention(module, one) is Mention.READ:
                if is_on_self(one) and module.enclosing_class(one) is owner:
                    self._value(way, one)
                else:
                    self.ends.append(f"`{_short(module, one)}` may be the same loader")

    def _element(self, way: _Way, element: cst.Element, display: cst.CSTNode) -> None:
        if isinstance(display, cst.Tuple | cst.List):
            place = display.elements.index(element)
            match step_of(way.module, display):
                case Returned(statement):
                    self._returned(way, statement, place)
                    return
                case _ if self._unpacked(way, display, place, len(display.elements)):
                    return
        self.ends.append(f"it is kept in `{_short(way.module, display)}`")

    def _unpacked(self, way: _Way, value: cst.CSTNode, place: int, size: int | None = None) -> bool:
        """Follow what lies at a place of a value, if every target it is assigned to takes it apart there."""
        step = step_of(way.module, value)
        targets = step.targets if isinstance(step, Assigned) and isinstance(step.statement, cst.Assign) else ()
        parts = [part for target in targets if (part := _part(target, place, size)) is not None]
        if not parts or len(parts) < len(targets):
            return False
        for part in parts:
            self._bound(way, part)
        return True

    def _returned(self, way: _Way, statement: cst.Return, place: int | None = None) -> None:
        """A function returns it, or a tuple that has it at a place."""
        module, function = way.module, way.module.enclosing_function(statement)
        if function is None or len(way.steps) >= _STEPS:
            self.ends.append(f"`{_short(module, statement)}` is too far from where it is built")
            return
        name = function.name.value
        problem = self._unlike_its_calls(module, function)
        calls = None if problem else self._calls(module, function)
        if not calls:
            self.ends.append(problem or f"`{name}` returns it to code that cannot be seen")
            return
        for call in calls:
            further = way + ByCall(module, call, function, module, returns=True)
            if place is None:
                self._value(further, call)
            elif not self._unpacked(further, call, place):
                self.ends.append(f"what `{name}` returns is not taken apart where it is called")

    def _unlike_its_calls(self, module: Module, function: cst.FunctionDef) -> str | None:
        """Why what a function returns or is given may not be what its calls get or give."""
        name = function.name.value
        if not all(resolves_to(module, decorator.decorator, PLAIN_DECORATOR) for decorator in function.decorators):
            return f"a decorator may change what `{name}` does"
        if function.asynchronous is not None:
            return f"`{name}` is a coroutine"
        owner = _owner(module, function)
        if isinstance(owner, cst.ClassDef):
            title = owner.name.value
            if self._project.holds(rf"{TO_BASE}\b{title}\b", title):
                return f"a subclass of `{title}` may have a `{name}` of its own"
        elif module.enclosing_function(function) is not None:
            return f"`{name}` is a function inside another"
        return None

    def _calls(self, module: Module, function: cst.FunctionDef) -> list[cst.Call] | None:
        """Every call of a function of this module; ``None`` where it is used for more, or elsewhere."""
        name, owner = function.name.value, _owner(module, function)
        qualified = {f"{module.name}.{name}"}
        uses: list[tuple[cst.CSTNode, bool]]  # each with whether it is surely this function
        if isinstance(owner, cst.ClassDef):
            is_elsewhere = self._project.mentions(name, besides=module.path)
            members = (attribute for attribute in module.find(cst.Attribute) if attribute.attr.value == name)
            uses = [(member, is_on_self(member) and module.enclosing_class(member) is owner) for member in members]
        else:
            is_elsewhere = self._project.imported_elsewhere(module, name)
            names = (one for one in module.named(name) if mention(module, one) is Mention.READ)
            meant = ((one, module.qualified_names(one)) for one in names)
            uses = [(one, found == qualified) for one, found in meant if found & qualified]
        parents = [module.parents[one] for one, _ in uses]
        calls = [one for one in parents if isinstance(one, cst.Call)]
        is_clear = all(sure for _, sure in uses) and len(calls) == len(uses) and not is_elsewhere
        return calls if is_clear else None

    def _given(self, way: _Way, argument: cst.Arg, call: cst.Call) -> None:
        module, names = way.module, self._project.resolved_names(way.module, call.func)
        place = list(call.args).index(argument)
        if resolves_to(module, call, _ASKED, self._project):
            return
        if names == {"builtins.enumerate"} and place == 0:
            self._value(replace(way, inside=(1, *way.inside)), call)
        elif names == {"builtins.zip"} and argument.keyword is None:
            self._value(replace(way, inside=(place, *way.inside)), call)
        elif place == 0 and resolves_to(module, call, PROGRESS, self._project):
            self._value(way, call)
        else:
            self._passed(way, call, argument)

    def _passed(self, way: _Way, call: cst.Call, argument: cst.Arg) -> None:
        """The loader is an argument of a call; followed where that is a function of the project."""
        found = list(dict.fromkeys(way.module.once(LoaderNames, self._project).functions(call)))
        shown = _short(way.module, call.func)
        if len(found) != 1 or len(way.steps) >= _STEPS:
            self.ends.append(f"`{shown}(…)` is given it")
            return
        owner, function = found[0]
        taken = [one for one in parameters(function) if argument_for(call, function, one) is argument.value]
        problem = self._unlike_its_calls(owner, function)
        if len(taken) != 1 or problem:
            self.ends.append(problem or f"`{shown}(…)` is given it")
            return
        parameter = parameters(function)[taken[0]]
        further = way + ByCall(way.module, call, function, owner, returns=False)
        self._bound(replace(further, module=owner), parameter.name)


def _part(target: cst.BaseExpression | None, place: int, size: int | None = None) -> cst.BaseExpression | None:
    """What a target, of so many parts, has at a place; ``None`` where that is not plain to see."""
    parts = target.elements if isinstance(target, cst.Tuple | cst.List) else ()
    plain = all(isinstance(part, cst.Element) for part in parts) and size in (None, len(parts))
    return parts[place].value if plain and place < len(parts) else None


def _owner(module: Module, function: cst.FunctionDef) -> cst.CSTNode | None:
    """The class that a function is a method of, or the module or function that it is defined in."""
    around = module.parents[function]
    return module.parents[around] if isinstance(around, cst.IndentedBlock) else around


def _short(module: Module, node: cst.CSTNode) -> str:
    text = one_line(module, node)
    return text if len(text) <= 60 else f"{text[:59]}…"
