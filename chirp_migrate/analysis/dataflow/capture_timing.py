"""Whether taking the value of a captured name where a function is defined gives what it would read when called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import Capture, reads_of
from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.syntax.module import Module, find_in, walk
from chirp_migrate.syntax.queries import holds, method_called
from chirp_migrate.syntax.scopes import Binding, Kind, Variable

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_KEEPING = re.compile(r"append|add|insert|extend|register|push|put|setdefault|update|submit")


def early_binding_problem(module: Module, node: cst.CSTNode, captured: Iterable[Capture]) -> str | None:
    """Why a function that takes the values of ``captured`` where ``node`` stands could see others than before.

    ``None`` when it cannot: each has its value before ``node``, and gets no other one after it, or only in another
    iteration of a loop that ``node`` does not outlive.
    """
    return next((problem for capture in captured if (problem := _problem(module, node, capture)) is not None), None)


def _problem(module: Module, node: cst.CSTNode, captured: Capture) -> str | None:
    name, function = captured.name, captured.scope.node
    if isinstance(function, _COMPREHENSIONS):
        return f"it sees the last `{name}` of the comprehension around it"
    place = _place(module, node, function)
    if any(isinstance(module.parents.get(binding.node), cst.ExceptHandler) for binding in captured.bindings):
        return f"`{name}` is a caught exception, whose name goes with its handler"
    if any(isinstance(module.parents[one], cst.Del) for one in reads_of(module, name, captured.scope)):
        return f"`{name}` is deleted"
    inner = (one for one in module.find(cst.Nonlocal) if function in module.ancestors(one))
    if any(item.name.value == name for one in inner for item in one.names):
        return f"`{name}` is rebound by an inner function"
    later = [binding for binding in captured.bindings if _runs_after(module, place, binding)]
    if later and len(later) == len(captured.bindings):
        return f"`{name}` is assigned only after it"
    if any(_may_follow(module, place, one.node) for one in later):
        return f"`{name}` is assigned again after it"
    around = takewhile(lambda one: one is not function, module.ancestors(place))
    for loop in (one for one in around if isinstance(one, cst.For | cst.While)):
        if any(holds(module, loop, binding.node) for binding in captured.bindings) and _outlives(module, place, loop):
            return f"it may outlive the iteration of the loop in which `{name}` is assigned"
    if not has_value(module, place, captured):
        return f"`{name}` may have no value yet where it is defined"
    return None


def _place(module: Module, node: cst.CSTNode, function: cst.CSTNode) -> cst.CSTNode:
    """``node`` as seen from ``function``: the definition straight inside it that holds ``node``."""
    place = node
    for ancestor in module.ancestors(node):
        if ancestor is function:
            break
        if isinstance(ancestor, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            place = ancestor
    return place


def _runs_after(module: Module, place: cst.CSTNode, binding: Binding) -> bool:
    """Whether a binding is executed after ``place``, going by the text."""
    if module.span(binding.node)[0] > module.span(place)[0]:
        return True
    # ``x = f(lambda: x)``: the target stands first, and is bound last.
    node = binding.node
    holder: cst.CSTNode | None = node
    if isinstance(node, cst.AssignTarget | cst.AsName):
        holder = module.parents[node]
    elif isinstance(node, cst.For):
        holder = node.iter
    elif binding.kind is not Kind.VALUE:
        holder = None
    return holder is not None and holds(module, holder, place)


def _may_follow(module: Module, place: cst.CSTNode, later: cst.CSTNode) -> bool:
    """Whether ``later`` can run after ``place`` in one call: not in the other branch, nor after a ``return``."""
    around = set(module.ancestors(later))
    unclear = (cst.For, cst.While, cst.Try, cst.TryStar)
    child, excluded = place, False
    for ancestor in module.ancestors(place):
        if isinstance(ancestor, cst.FunctionDef | cst.Lambda):
            break
        if isinstance(ancestor, unclear):
            return True
        if ancestor in around:
            excluded = excluded or (isinstance(ancestor, cst.If) and child is ancestor.body and child not in around)
        elif isinstance(ancestor, cst.IndentedBlock):
            excluded = excluded or _leaves(ancestor, cst.Return)
        child = ancestor
    return not excluded


def _outlives(module: Module, place: cst.CSTNode, loop: cst.For | cst.While) -> bool:
    """Whether something made from ``place`` may be kept beyond the current iteration of ``loop``."""
    if isinstance(place, cst.FunctionDef | cst.ClassDef):
        first: cst.CSTNode = place
        carriers = {place.name.value}
    else:
        statement = next((a for a in module.ancestors(place) if isinstance(a, cst.SimpleStatementLine)), None)
        if statement is None:
            return True
        first, carriers = statement, _targets(statement)
    start = module.span(first)[0]
    lines = find_in(loop, cst.SimpleStatementLine)
    for line in (one for one in lines if module.span(one)[0] >= start):
        if holds(module, place, line):
            continue
        targets = _targets(line)
        if line is not first and carriers.isdisjoint(names_in_code(line)):
            continue
        grown = (targets - carriers if line is not first else targets) & _read(line)
        if grown or any(map(_keeps, walk(line))):
            return True
        carriers |= targets
    return any(_read(line) & carriers for line in lines if module.span(line)[0] < start)


def _keeps(node: cst.CSTNode) -> bool:
    """Whether a part of a statement stores something in what there is, or gives it away."""
    match node:
        case cst.AssignTarget(target=cst.Subscript() | cst.Attribute()) | cst.Yield() | cst.AugAssign():
            return True
    return _KEEPING.match(method_called(node)) is not None


def _targets(line: cst.CSTNode) -> set[str]:
    targets = (node.target for node in walk(line) if isinstance(node, cst.AssignTarget | cst.AnnAssign))
    return {name for target in targets for name in names_in_code(target)}


def _read(line: cst.CSTNode) -> set[str]:
    """Names in a line outside of its targets."""
    targets = {name for one in find_in(line, cst.AssignTarget) for name in find_in(one, cst.Name)}
    return {name.value for name in find_in(line, cst.Name) if name not in targets}


def has_value(module: Module, place: cst.CSTNode, variable: Variable | Capture) -> bool:
    """Whether a variable has a value on every way to ``place``."""
    if any(binding.kind is Kind.PARAMETER for binding in variable.bindings):
        return True
    nodes = {binding.node for binding in variable.bindings}
    child = place
    for ancestor in module.ancestors(place):
        heads: Sequence[cst.CSTNode] = ()
        match ancestor:
            case cst.IndentedBlock() | cst.SimpleStatementLine() | cst.SimpleStatementSuite() | cst.Module():
                before = ancestor.body[: [statement is child for statement in ancestor.body].index(True)]
                if any(_binds(one, nodes) for one in before):
                    return True
            case cst.For(body=body) if child is body and ancestor in nodes:
                return True
            case cst.With(items=items, body=body) if child is body:
                heads = items
            case cst.If(test=head, body=body) | cst.While(test=head, body=body) if child is body:
                heads = (head,)
            case cst.MatchCase(pattern=head, body=body) if child is body:
                heads = (head,)
        if any(_holds_one(head, nodes) for head in heads):
            return True
        if ancestor is variable.scope.node:
            return False
        child = ancestor
    return False


def _binds(statement: cst.CSTNode, nodes: set[cst.CSTNode]) -> bool:
    """Whether a statement binds one of ``nodes`` on every way through it."""
    match statement:
        case cst.FunctionDef() | cst.ClassDef():
            return statement in nodes
        case cst.If(test=test, body=body, orelse=other):
            if other is None or not _block_binds(body, nodes):
                return _holds_one(test, nodes)
            return _binds(other, nodes) if isinstance(other, cst.If) else _block_binds(other.body, nodes)
        case cst.With(items=items, body=body):
            return any(_holds_one(item, nodes) for item in items) or _block_binds(body, nodes)
        case cst.Try(body=body) | cst.TryStar(body=body):
            last = statement.finalbody
            if last is not None and _block_binds(last.body, nodes):
                return True
            return _block_binds(body, nodes) and all(_block_binds(one.body, nodes) for one in statement.handlers)
        case cst.For() | cst.While() | cst.Match():
            return False
    return _holds_one(statement, nodes)


def _holds_one(node: cst.CSTNode, nodes: set[cst.CSTNode]) -> bool:
    return any(one in nodes for one in walk(node))


def _block_binds(body: cst.BaseSuite, nodes: set[cst.CSTNode]) -> bool:
    return any(_binds(one, nodes) for one in body.body) or _leaves(body, cst.Return, cst.Raise, cst.Continue, cst.Break)


def _leaves(body: cst.BaseSuite, *ways: type[cst.CSTNode]) -> bool:
    """Whether a block ends with a statement that leaves it."""
    last: cst.CSTNode | None = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, ways)
