"""CHP016: report loaders that a loop restarts for each batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.analysis.loaders.loader_outline import PossibleLoaders
from chirp_migrate.analysis.loaders.loader_values import LoaderExpressions, may_use_loader
from chirp_migrate.rules.api import (
    CALL,
    GAP,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    bound_target,
    nodes_in_scope,
    one_line_source,
    passed_values,
    resolve_ast_node,
)

_NEXT = re.compile(rf"\bnext{CALL}{GAP}(builtins{GAP}\.{GAP})?iter\b")
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class LoaderRestarted(Rule):
    code = "CHP016"
    name = "loader-restarted-in-loop"
    reason = (
        "`next(iter(loader))` begins a new epoch each time. The loader starts its workers again, the workers load "
        "several batches, and the loader discards all but the first batch. So each iteration of the surrounding loop "
        "sees only the first batch of an epoch. Without shuffling, this batch is always the same."
    )
    safety = Safety.ADVICE
    trigger = ("next",)
    beside = (may_use_loader, _NEXT)
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop calls ``next(iter(…))`` with an object that may be a loader."""
        loaders = outline.once(PossibleLoaders, project)
        return any(
            "builtins.next" in resolve_ast_node(project, outline, call.func)
            and any(isinstance(around, _LOOPS) for around in outline.ancestors(call))
            and loaders.may_be_loader(iterable)
            for call in outline.find(ast.Call)
            for iterator in passed_values(call)[:1]
            if isinstance(iterator, ast.Call)
            for iterable in passed_values(iterator)[:1]
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report ``next(iter(loader))`` in a loop if the loader is built outside of the loop."""
        names = module.once(LoaderExpressions, project)
        for call in module.find(cst.Call):
            iterator = _first_argument(module, call, "builtins.next")
            node = _first_argument(module, iterator, "builtins.iter")
            loop = _innermost_loop(module, call)
            if node is None or loop is None or _is_bound_in(loop, node) or names.loader(node) is None:
                continue
            message = (
                f"`next(iter({one_line_source(module, node)}))` in a loop restarts the loader and its workers each "
                "time: loop over the loader, or create the iterator once before the loop"
            )
            yield RuleMatch(module.span(call)[0], message)


def _first_argument(module: Module, call: cst.CSTNode | None, function: str) -> cst.BaseExpression | None:
    """Return the first argument of a call of ``function``, such as ``builtins.next``; ``None`` for other calls."""
    match call:
        case cst.Call(args=[cst.Arg(value=first, star=""), *_]) if module.qualified_names(call.func) == {function}:
            return first
    return None


def _innermost_loop(module: Module, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the innermost loop that evaluates ``node`` in each iteration."""
    child = node
    for ancestor in module.ancestors(node):
        match ancestor:
            case cst.FunctionDef() | cst.Lambda() | cst.ClassDef():
                return None
            case cst.For(body=body) if child is body:
                return ancestor
            case cst.While(orelse=orelse) if child is not orelse:
                return ancestor
            case cst.BaseComp(for_in=clause) if child is not clause:
                return ancestor
        child = ancestor
    return None


def _is_bound_in(loop: cst.CSTNode, loader: cst.CSTNode) -> bool:
    """Return whether the loop binds a name of the expression ``loader``, so each iteration may use a new loader."""
    targets = (target for node in (loop, *nodes_in_scope(loop)) if (target := bound_target(node)) is not None)
    bound = {name for target in targets for name in names_in_code(target)}
    return not names_in_code(loader).isdisjoint(bound - {"self"})
