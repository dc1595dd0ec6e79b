"""Check whether a captured name has the same value when a function is defined and when the function is called.

A captured name is a variable of an enclosing function that inner code reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import CapturedName, variable_reads
from chirp_migrate.analysis.dataflow.late_reads import may_read_captured_name_later
from chirp_migrate.analysis.dataflow.lifetimes import UntraceableLifetime, enclosing_statement, offset_after_last_use
from chirp_migrate.analysis.dataflow.with_blocks import manager_swallows_no_exceptions
from chirp_migrate.syntax.module import Module, code_children, walk_code
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import contains_node
from chirp_migrate.syntax.scopes import Binding, BindingKind, Variable

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


def why_captured_values_change(
    module: Module, project: Project, node: cst.CSTNode, captured: Iterable[CapturedName]
) -> str | None:
    """Return why a rewrite must not store the values of captured names in the object that ``node`` creates.

    Without the rewrite, the object reads the current value of a captured name each time that code uses the object. So a
    value that the rewrite stores when the object is created may be out of date. The result is ``None`` if the stored
    values are correct: each captured name has a value when the program reaches ``node``, and is not assigned again
    before the last use of the object.

    Args:
        module: the module.
        project: the project that contains the module.
        node: the expression that creates the object, or the definition of a function or class.
        captured: the captured names to check.
    """
    problems = (_timing_problem(module, project, node, capture) for capture in captured)
    return next((problem for problem in problems if problem is not None), None)


def _timing_problem(module: Module, project: Project, node: cst.CSTNode, captured: CapturedName) -> str | None:
    name, function = captured.name, captured.scope.node
    bindings = [one for one in captured.bindings if not _only_annotates(one.node)]
    if isinstance(function, _COMPREHENSIONS):
        return f"code that runs after the comprehension reads only the last value of its variable `{name}`"
    place = _direct_definition(module, node, function)
    if any(isinstance(module.parents.get(binding.node), cst.ExceptHandler) for binding in bindings):
        return f"`{name}` is a caught exception, which exists only in its `except` block"
    if any(isinstance(module.parents[one], cst.Del) for one in variable_reads(module, name, captured.scope)):
        return f"`{name}` is deleted"
    inner = (one for one in module.find(cst.Nonlocal) if function in module.ancestors(one))
    if any(item.name.value == name for one in inner for item in one.names):
        return f"`{name}` is rebound by an inner function"
    later = [binding for binding in bindings if _runs_after(module, place, binding)]
    if later and len(later) == len(bindings):
        return f"`{name}` is assigned only below the code that captures it"
    if not is_always_assigned_before(module, place, captured):
        return f"`{name}` may have no value yet when the program reaches the code that captures it"
    around = [one for one in takewhile(lambda one: one is not function, module.ancestors(place)) if _is_loop(one)]
    again = [
        one
        for one in bindings
        if any(contains_node(module, loop, one.node) for loop in around)
        or (one in later and _may_follow(module, place, one.node))
    ]
    return _why_used_after(module, project, node, captured, again) if again else None


def _why_used_after(
    module: Module, project: Project, node: cst.CSTNode, captured: CapturedName, again: Iterable[Binding]
) -> str | None:
    """Return why code may use an object after the captured name has got a new value.

    ``node`` creates the object, and the bindings ``again`` assign the new value. The result is None if the last use of
    the object always comes before these bindings.
    """
    rebound = f"`{captured.name}` is assigned again"
    scope = module.scopes.scope_of(node)
    while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
        scope = scope.parent
    if scope is not captured.scope:
        return f"{rebound} by an enclosing function"
    if may_read_captured_name_later(module, project, node, captured):
        kind = "class" if isinstance(node, cst.ClassDef) else "function"
        return f"{rebound}, and an object that the {kind} creates, such as a generator, may read the new value"
    try:
        end = offset_after_last_use(module, project, node)
    except UntraceableLifetime as use:
        return f"{rebound}, and `{use}` may read the new value later"
    start = module.span(enclosing_statement(module, node))[0]
    if any(start <= module.span(one.node)[0] < end for one in again):
        return f"{rebound}, and the object that captures `{captured.name}` is used later"
    return None


def _only_annotates(node: cst.CSTNode) -> bool:
    """Return whether a node annotates a variable without assigning a value."""
    return isinstance(node, cst.AnnAssign) and node.value is None


def _is_loop(node: cst.CSTNode) -> bool:
    return isinstance(node, (cst.For, cst.While, *_COMPREHENSIONS))


def _direct_definition(module: Module, node: cst.CSTNode, function: cst.CSTNode) -> cst.CSTNode:
    """Return the outermost definition or lambda around ``node`` that is inside ``function``.

    If no definition is between ``function`` and ``node``, the result is ``node`` itself.
    """
    place = node
    for ancestor in module.ancestors(node):
        if ancestor is function:
            break
        if isinstance(ancestor, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            place = ancestor
    return place


def _runs_after(module: Module, place: cst.CSTNode, binding: Binding) -> bool:
    """Return whether a binding comes after the code ``place``, judged by the order of the text."""
    if module.span(binding.node)[0] > module.span(place)[0]:
        return True
    # In ``x = f(lambda: x)``, the target ``x`` comes first in the text, but is bound last.
    node = binding.node
    holder: cst.CSTNode | None = node
    if isinstance(node, cst.AssignTarget | cst.AsName):
        holder = module.parents[node]
    elif isinstance(node, cst.For):
        holder = node.iter
    elif binding.kind is not BindingKind.VALUE:
        holder = None
    return holder is not None and contains_node(module, holder, place)


def _may_follow(module: Module, place: cst.CSTNode, later: cst.CSTNode) -> bool:
    """Return whether ``later`` can run after ``place`` in the same call of the function that contains both parts.

    If ``place`` is inside a loop or ``try``, the result is True. Otherwise, the result is False in two cases:

    * ``later`` is in the ``else`` part of an ``if`` whose body contains ``place``.
    * A block that contains ``place``, but not ``later``, ends with ``return``.
    """
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
            excluded = excluded or _ends_with_jump(ancestor, cst.Return)
        child = ancestor
    return not excluded


def is_always_assigned_before(module: Module, node: cst.CSTNode, variable: Variable | CapturedName) -> bool:
    """Return whether a variable always has a value when the program reaches ``node``."""
    if any(binding.kind is BindingKind.PARAMETER for binding in variable.bindings):
        return True
    found = _DefiniteBindings(module, {one.node for one in variable.bindings if not _only_annotates(one.node)})
    child = node
    for ancestor in module.ancestors(node):
        if found.is_bound_before(child, ancestor):
            return True
        if ancestor is variable.scope.node:
            return False
        child = ancestor
    return False


class _DefiniteBindings:
    """Check whether a part of the code always binds a variable if the part runs to its end.

    Args:
        module: the module.
        nodes: the nodes that bind the variable.
    """

    def __init__(self, module: Module, nodes: set[cst.CSTNode]) -> None:
        self._module, self._nodes = module, nodes

    def is_bound_before(self, child: cst.CSTNode, around: cst.CSTNode) -> bool:
        """Return whether the code in ``around`` that runs before ``child`` always binds the variable."""
        match around:
            case cst.IndentedBlock() | cst.SimpleStatementLine() | cst.SimpleStatementSuite() | cst.Module():
                return any(map(self._statement_binds, takewhile(lambda one: one is not child, around.body)))
            case cst.For(body=body) if child is body:
                return around in self._nodes or self._always_binds(around.iter)
            case cst.With(items=items, body=body) if child is body:
                return any(map(self._always_binds, items))
            case cst.If(test=test, body=body) | cst.While(test=test, body=body) if child is body:
                return self._binds_if_true(test)
            case cst.If(test=test):
                return child is not test and self._always_binds(test)
            case cst.MatchCase(pattern=pattern, body=body) if child is body:
                return any(one in self._nodes for one in walk_code(pattern))
        return False

    def _statement_binds(self, statement: cst.CSTNode) -> bool:
        match statement:
            case cst.FunctionDef() | cst.ClassDef():
                return statement in self._nodes
            case cst.If(test=test, body=body, orelse=other):
                if self._always_binds(test):
                    return True
                rest = other is not None and (
                    self._statement_binds(other) if isinstance(other, cst.If) else self._block_binds(other.body)
                )
                return rest and (self._binds_if_true(test) or self._block_binds(body))
            case cst.With(items=items, body=body):
                return self._with_binds(items, body)
            case (
                cst.Try(body=body, handlers=handlers, finalbody=last)
                | cst.TryStar(body=body, handlers=handlers, finalbody=last)
            ):
                if last is not None and self._block_binds(last.body):
                    return True
                return self._block_binds(body) and all(self._block_binds(one.body) for one in handlers)
            case cst.For(iter=head) | cst.While(test=head) | cst.Match(subject=head):
                return self._always_binds(head)
        return self._always_binds(statement)

    def _with_binds(self, items: Iterable[cst.WithItem], body: cst.BaseSuite) -> bool:
        """Return whether a ``with`` statement always binds the variable.

        An assignment in the block counts only if no context manager of the statement swallows errors, because an error
        may end the block before the assignment.
        """
        for item in items:
            if self._always_binds(item):
                return True
            if not manager_swallows_no_exceptions(self._module, item):
                return False
        return self._block_binds(body)

    def _block_binds(self, body: cst.BaseSuite) -> bool:
        """Return whether a block always binds the variable, or ends with a jump such as ``return``."""
        return any(map(self._statement_binds, body.body)) or _ends_with_jump(
            body, cst.Return, cst.Raise, cst.Continue, cst.Break
        )

    def _binds_if_true(self, test: cst.BaseExpression) -> bool:
        """Return whether an expression always binds the variable if its value is true."""
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
            return self._binds_if_true(test.left) or self._binds_if_true(test.right)
        return self._always_binds(test)

    def _always_binds(self, node: cst.CSTNode) -> bool:
        """Return whether a simple statement or expression always binds the variable.

        Parts that do not always run, such as the right side of ``and``, do not count.
        """
        return node in self._nodes or any(map(self._always_binds, _evaluated_parts(node)))


def _evaluated_parts(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Return the parts of a node that are always evaluated when the node is evaluated."""
    match node:
        case cst.BooleanOperation(left=first) | cst.IfExp(test=first) | cst.Assert(test=first):
            return (first,)
        case cst.Comparison(left=first, comparisons=[second, *_]):
            return first, second
        case cst.ListComp() | cst.SetComp() | cst.DictComp() | cst.GeneratorExp():
            return (node.for_in.iter,)
        case cst.Lambda():
            return ()
    return code_children(node)


def _ends_with_jump(body: cst.BaseSuite, *ways: type[cst.CSTNode]) -> bool:
    """Return whether a block ends with a statement of one of the types ``ways``, such as ``cst.Return``."""
    last: cst.CSTNode | None = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, ways)
