"""CHP014: call `set_epoch`, so that a distributed sampler shuffles each epoch in another order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import libcst as cst

from chirp_migrate.analysis.known_names import PROGRESS
from chirp_migrate.analysis.loaders.distributed_sampler import (
    DistributedSampler,
    distributed_sampler_of_loader,
    has_set_epoch_call,
)
from chirp_migrate.analysis.loaders.loader_outline import PossibleLoaders
from chirp_migrate.analysis.loaders.loader_values import LoaderExpressions, may_use_loader
from chirp_migrate.edits.statements import insert_at_start_of_block
from chirp_migrate.rules.api import (
    LINE,
    SEE_IT,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dotted_source,
    find_nodes,
    is_call_of,
    nodes_in_scope,
    passed_values,
    resolve_ast_node,
    resolve_node,
)

_COUNTED = re.compile(r"builtins\.range|tqdm(\.\w+)*\.trange")
_LOOP = re.compile(rf"{LINE}for\b(?:(?![\r\n][ \t\f]*for\b)[^:])*\bt?range\b|\btrange\s+as\b")
#: Words in conditions that are true only if the training runs in several processes.
_DISTRIBUTED = re.compile(r"distribut|(?<![a-z])(?:dist|ddp|hvd)|rank|world|gpu|replica|processes|is_initialized", re.I)
_NO_PASS = re.compile(r"builtins\.(len|print|isinstance|type|id|repr|str)")


class SetEpoch(Rule):
    """Rewrites a loop over `range` or `trange` that uses a loader, only if all these conditions hold:

    - `shuffling-sampler`: a call that builds the loader has a `DistributedSampler` that shuffles.
    - `known-sampler`: the loop can use a variable that refers to the sampler, such as `train_sampler`. Or the loader
      provably has this sampler and no other sampler, so the new code can call `loader.sampler.set_epoch(epoch)`. If the
      variable may refer to another sampler, the module imports the class of the sampler at its top level. In this case,
      the new code checks the class with `isinstance`.
    - `iterates-each-time`: each iteration iterates over the loader, or passes the loader to a call other than `len`,
      `print` or similar.
    - `set-epoch-not-called`: no code of the same function calls `set_epoch`, and no other code of the module calls
      `set_epoch` on this sampler or loader. The loop calls no function of the project that calls `set_epoch`.
    - `kept-sampler`: at least one loop over `range` or `trange` around the use of the loader does not build a new
      sampler in each iteration.
    - `one-counter`: exactly one loop meets the condition `kept-sampler`. Or several loops meet this condition, and
      exactly one of these loops has `epoch` in the name of its variable.
    - `named-epoch`: the variable of the loop over epochs is a plain name that contains a letter.
    - `body-on-own-lines`: if the new code must check the class of the sampler, the body of the loop is not on the line
      of the `for`.

    The rule applies without `--unsafe` if a condition such as `if args.distributed` or `if dist.is_initialized()`
    decides whether the sampler is built or the loop runs. With such a condition, the rewrite does not change training
    in a single process.
    """

    code = "CHP014"
    name = "set-epoch"
    reason = (
        "A DistributedSampler shuffles by its seed and its epoch. A loop that never calls `set_epoch` trains on the "
        "same order in every epoch. Calling `set_epoch` changes the order from the second epoch on. So the rewrite "
        "needs --unsafe, unless a condition such as `if args.distributed` decides whether the sampler is built or the "
        "loop runs."
    )
    safety = Safety.BEHAVIOUR
    finds_bugs = True
    trigger = ("ampler", "poch")
    beside = (may_use_loader, _LOOP)
    follows = frozenset()

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether a loop in the text may use a loader, and the project names ``DistributedSampler``."""
        return super().concerns(text, project) and project.search(r"\bDistributedSampler\b", "DistributedSampler")

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop over ``range`` or ``trange`` iterates over a loader or passes a loader to a call."""
        loaders = outline.once(PossibleLoaders, project)
        return any(
            loaders.may_be_loader(part)
            for loop in outline.find(ast.For)
            if any(_is_called_to_count(outline, project, one) for one in (loop.iter, *outline.inside(loop.iter)))
            for node in outline.inside(loop)
            if isinstance(node, ast.For | ast.Call)
            for part in ((node.iter, *outline.inside(node.iter)) if isinstance(node, ast.For) else passed_values(node))
            if isinstance(part, ast.expr)
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Call ``set_epoch`` at the start of each epoch in loops that use a loader with a ``DistributedSampler``."""
        epochs = [loop for loop in module.find(cst.For) if _is_counted(module, project, loop.iter)]
        names = module.once(LoaderExpressions, project)
        seen: set[tuple[cst.CSTNode, str]] = set()
        for place, node in _loader_passes(module, project, epochs):
            loader = names.loader(node)
            sampler = (
                distributed_sampler_of_loader(module, project, node, loader, place) if loader is not None else None
            )
            around = [one for one in module.ancestors(place) if isinstance(one, cst.For) and one in epochs]
            if sampler is None or not around or (around[-1], sampler.name) in seen:
                continue
            seen.add((around[-1], sampler.name))
            if not has_set_epoch_call(module, project, around[-1], sampler, node):
                yield _insert_set_epoch(module, around, sampler)


def _is_called_to_count(outline: Outline, project: Project, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(map(_COUNTED.fullmatch, resolve_ast_node(project, outline, node.func)))


def _is_counted(module: Module, project: Project, iterable: cst.BaseExpression) -> bool:
    match iterable:
        case cst.Call(args=[first, *_]) if is_call_of(module, iterable, PROGRESS, project):
            return _is_counted(module, project, first.value)
    return is_call_of(module, iterable, _COUNTED, project)


def _loader_passes(
    module: Module, project: Project, epochs: Iterable[cst.For]
) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Yield each inner loop and each call in the bodies of ``epochs``, with an expression that may be a loader.

    The expression is the iterable of the inner loop, a part of this iterable, or an argument of the call.
    """
    inside = {node for loop in epochs for node in nodes_in_scope(loop.body) if isinstance(node, cst.For | cst.Call)}
    for node in sorted(inside, key=lambda one: module.span(one)[0]):
        if isinstance(node, cst.For):
            yield from ((node, part) for part in _nested_arguments(node.iter))
        elif not any(_NO_PASS.fullmatch(name) for name in resolve_node(project, module, node.func)):
            yield from ((node, one.value) for one in node.args if isinstance(one.value, cst.Name | cst.Attribute))


def _nested_arguments(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    yield node
    for argument in node.args if isinstance(node, cst.Call) else ():
        yield from _nested_arguments(argument.value)


def _insert_set_epoch(module: Module, around: list[cst.For], sampler: DistributedSampler) -> RuleMatch:
    inner = [loop for loop in around if not any(loop in module.ancestors(made.value) for made in sampler.made)]
    named = [loop for loop in inner if "epoch" in (dotted_source(loop.target) or "").lower()]
    chosen = named if len(named) == 1 else inner
    loop = next(iter(chosen), around[0])
    epoch = dotted_source(loop.target) or "."
    call = f"{sampler.name}.set_epoch({epoch})"
    lines = [f"if isinstance({sampler.name}, {sampler.guard}):", f"\t{call}"] if sampler.guard else [call]
    edit = insert_at_start_of_block(module, loop.iter, loop.body, lines)
    problems = (
        (edit is None, "the loop is on one line, so the rule cannot insert an `if` statement"),
        (not inner, "the loop builds the sampler again in every iteration"),
        (len(chosen) > 1, "it is not clear which of the loops counts the epochs"),
        ("." in epoch or not epoch.strip("_"), "the loop has no variable for the epoch"),
        (not sampler.is_known, f"`{sampler.name}` may not be a DistributedSampler"),
    )
    problem = next((said for is_so, said in problems if is_so), None)
    shown = call if "." not in epoch and epoch.strip("_") else f"{sampler.name}.set_epoch(epoch)"
    found = f"with several processes every epoch has the same order: call `{shown}`"
    if problem is not None:
        found += f" at the start of each epoch; not rewritten: {problem}. {SEE_IT}"
    edits = (edit,) if edit is not None and problem is None else ()
    return RuleMatch(module.span(loop)[0], found, edits, by_default=_is_guarded(module, loop, sampler))


def _is_guarded(module: Module, loop: cst.For, sampler: DistributedSampler) -> bool:
    """Return whether a condition about distributed training decides if the sampler is built or the loop runs."""
    places = (loop, *(one.value for one in sampler.made))
    tests = [one.test for place in places for one in module.ancestors(place) if isinstance(one, cst.If)]
    tests += [one.test for made in sampler.made for one in find_nodes(made.value, cst.IfExp)]
    return any(_DISTRIBUTED.search(module.source(test)) for test in tests)
