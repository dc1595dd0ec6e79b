"""Whether a number that a loop reads is a loss: one floating-point number in a tensor of PyTorch's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import values_of
from chirp_migrate.analysis.dataflow.uses_elsewhere import set_from_outside
from chirp_migrate.analysis.known_names import is_call_of, resolves_to
from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    dotted,
    find_own,
    holds,
    is_name,
    is_on_self,
    keywords,
    method_called,
    names_below,
    own_nodes,
    target_of,
)

_LOSS = re.compile(r"torch\.nn\.(modules\.loss\.)?(?!AdaptiveLog)\w+Loss")
_LOSS_FUNCTION = re.compile(r"torch\.nn\.functional\.(\w*loss|\w*cross_entropy\w*|kl_div)")
#: Losses whose ``reduction`` comes before what others have there.
_REDUCTION_FIRST = re.compile(r".*\.(HuberLoss|huber_loss)")
#: Context managers that let exceptions pass, and leave the device's stream as it is.
_TRANSPARENT = re.compile(r"torch\.(?!cuda\.[sS]tream).+|tqdm\..+|builtins\.open")
_SAME = frozenset({"detach", "mean", "sum"})
_ITEM = re.compile(r"\bitem\b")
#: What ``float(…)`` and ``int(…)`` ask an object for.
_NUMBERS = ("__float__", "__int__", "__index__")
_OWN_NUMBER = r"def\s+__(float|int|index)__|__(?<!\w__)(float|int|index)__\s*=(?!=)"


class NotProven(Exception):
    """The sums are not surely the same; the message says why, as half a sentence."""


def as_float64(module: Module, project: Project, loop: cst.For, node: cst.BaseExpression, at: cst.CSTNode) -> str:
    """What is written after a loss to have it as float64, without dimensions; "" where it is not surely a loss.

    A loss of PyTorch's makes it, or the loop went back from it before: that only a tensor of one number can, and what
    the project makes to look like one. An object of a class of the project, made right there, is no tensor.

    Args:
        at: the statement that reads it.

    Raises:
        NotProven: only the last is in doubt.
    """
    if method_called(node) in _SAME and isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return "" if node.args else as_float64(module, project, loop, node.func.value, at)
    if isinstance(node, cst.Name):
        value = value_in(module, loop, node.value, at)
        if value is None:
            return ""
        changed = any(is_name(adding.target, node.value) for adding in find_own(loop.body, cst.AugAssign))
        known = "" if changed else as_float64(module, project, loop, value, module.parents[value])
        if known:
            return known
        backward = [part for part in own_nodes(loop.body) if _goes_backward(part, node.value)]
        if not any(has_run(module, loop, statement, at) for statement in backward):
            return ""
        made = project.resolved_names(module, value.func) if isinstance(value, cst.Call) else ()
        if any(project.is_class(one) for one in made):
            return ""
        refuse_own_items(project, f"`{node.value}`")
        return ".detach().double().sum()"
    return ".detach().double()" if isinstance(node, cst.Call) and _is_made_by_torch(module, project, node) else ""


def refuse_own_items(project: Project, shown: str) -> None:
    """Refuse what may be an object of the project's that looks like a tensor."""
    if any(_gives_item(text) for _, text in project.matching(_ITEM, "item")):
        raise NotProven(f"{shown} may be no tensor: the project has objects with an `item` of their own")
    if project.holds(_OWN_NUMBER, *_NUMBERS):
        raise NotProven(
            f"{shown} may be no tensor: the project has objects with a `__float__` or `__int__` of their own"
        )


def _is_made_by_torch(module: Module, project: Project, call: cst.Call) -> bool:
    """Whether a call gives a loss of PyTorch's, as one number."""
    if resolves_to(module, call.func, _LOSS_FUNCTION):
        return _is_reduced(module, call, 3)
    name = dotted(call.func)
    made = values_of(module, call.func)
    if is_on_self(call.func):  # one that is not made in `__init__` may be the class's own until then
        makers = (module.enclosing_function(origin.value) for origin in made)
        made = made if any(maker is not None and maker.name.value == "__init__" for maker in makers) else []
    return (
        name is not None
        and bool(made)
        and _times_given(module, project, call, name) == len(made)
        and all(
            origin.part is None and is_call_of(module, origin.value, _LOSS) and _is_reduced(module, origin.value, 1)
            for origin in made
        )
    )


def _times_given(module: Module, project: Project, call: cst.Call, name: str) -> int | None:
    """How many values what is called gets anywhere; ``None`` where others may give it some."""
    first, _, attribute = name.rpartition(".")
    if first == "self":
        written = re.compile(rf"\.\s*{attribute}\s*([:,][^=\n]*)?=(?!=)|setattr\s*\([^)\n]*['\"]{attribute}\b")
        return sum(len(written.findall(text)) for _, text in project.matching(written, attribute))
    variable = module.scopes.lookup(name, call)
    if first or variable is None:
        return None
    shared = variable.scope is module.scopes.module and project.holds(set_from_outside(name), name)
    return None if shared else len(variable.bindings)


def _is_reduced(module: Module, call: cst.CSTNode, positional: int) -> bool:
    """Whether what is called or made so is one number, with so many arguments by position that do not decide on it."""
    assert isinstance(call, cst.Call)
    named, limit = keywords(call), positional - resolves_to(module, call.func, _REDUCTION_FIRST)
    starred = any(argument.star for argument in call.args)
    known = not starred and len(call.args) - len(named) <= limit and "reduce" not in named
    reduction = named.get("reduction")
    literal = reduction.evaluated_value if isinstance(reduction, cst.SimpleString) else None
    return known and (reduction is None or literal in ("mean", "sum"))


def _goes_backward(node: cst.CSTNode, loss: str) -> bool:
    """Whether it is ``loss.backward()``, perhaps scaled: the gradient of one number."""
    match node:
        case cst.Expr(value=cst.Call(func=cst.Attribute(value=whence, attr=cst.Name(value="backward")), args=options)):
            match whence:
                case cst.Call(args=[cst.Arg(value=scaled)]) if method_called(whence) == "scale":
                    whence = scaled
            plain = all(is_name(option.keyword, "retain_graph", "create_graph") for option in options)
            return plain and is_name(whence, loss)
    return False


def _gives_item(text: str) -> bool:
    """Whether code may give objects of its own an ``item``."""
    try:
        nodes = list(ast.walk(syntax_tree(text)))
    except UnparsableModule:
        return True
    for node in nodes:
        match node:
            case ast.FunctionDef(name="item") | ast.keyword(arg="item"):
                return True
            case ast.Attribute(attr="item", ctx=ast.Store()) | ast.Constant(value="item"):
                return True
            case ast.Constant(value=str(words)) if {"item", "backward"} <= set(re.findall(r"\w+", words)):
                return True
            case ast.ClassDef(body=statements):
                names = (part for statement in statements for part in ast.walk(statement) if isinstance(part, ast.Name))
                if any(name.id == "item" and isinstance(name.ctx, ast.Store) for name in names):
                    return True
    return False


def targets_in(loop: cst.For) -> Iterator[cst.BaseExpression]:
    """What the body of a loop gives values to, but for ``+=`` and the like."""
    for node in own_nodes(loop.body):
        target = None if isinstance(node, cst.AugAssign | cst.CompFor) else target_of(node)
        if target is not None:
            yield target


def value_in(module: Module, loop: cst.For, name: str, at: cst.CSTNode) -> cst.BaseExpression | None:
    """The one value that a loop gives to a name in each iteration before ``at``; ``None`` if that is not so."""
    shared = [item for item in module.find(cst.NameItem) if is_name(item.name, name)]  # global, nonlocal
    plain = (target for target in targets_in(loop) if not isinstance(target, cst.Subscript | cst.Attribute))
    bound = [target for target in plain if names_below(target, name)]
    if shared or len(bound) != 1:
        return None
    match module.parents[module.parents[bound[0]]]:
        case cst.Assign(value=value) as statement if isinstance(bound[0], cst.Name):
            return value if has_run(module, loop, statement, at) else None
    return None


def has_run(module: Module, scope: cst.CSTNode, node: cst.CSTNode, at: cst.CSTNode) -> bool:
    """Whether one statement in a loop or function has run, in the same iteration or call, when another one does."""
    around = takewhile(lambda ancestor: ancestor is not scope, module.ancestors(node))
    suites = [ancestor for ancestor in around if isinstance(ancestor, cst.BaseSuite)]
    return module.span(node)[0] < module.span(at)[0] and all(
        holds(module, suite, at) or lets_errors_pass(module, module.parents[suite]) for suite in suites
    )


def lets_errors_pass(module: Module, node: cst.CSTNode) -> bool:
    """Whether it is a ``with`` that neither goes on after an error nor leaves the device's stream."""
    return isinstance(node, cst.With) and all(is_call_of(module, item.item, _TRANSPARENT) for item in node.items)
