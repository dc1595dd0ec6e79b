"""CHP020: scripts that worker processes run again, because nothing keeps them from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Set

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_state import assigned_value
from chirp_migrate.analysis.loaders.loader_calls import LoaderCall, gives_by_position, loader_calls, may_build_loader
from chirp_migrate.rules.api import (
    GAP,
    Module,
    Outline,
    Project,
    Proposal,
    Rule,
    Safety,
    dotted,
    find_in,
    find_own,
    is_name,
    last_name,
    own_nodes,
    resolves_to,
    walk,
)

_WORKERS = ("num_workers", "max_workers")
_GIVEN = re.compile(rf"\b(num|max)_workers{GAP}=(?!=)")
#: What of a loader starts no workers: all but ``iter`` and what iterates over its argument.
_LOOKS = re.compile(r"builtins\.(len|print|isinstance|type)")
#: Any other statement at the margin than a definition or an import: what a module may do when it is imported.
_TOP_LEVEL = re.compile(r"(?:^|[\r\n])(?!(def|class|async|import|from|if __name__)\b)[\w(\[{*][^\r\n]|;[ \t]*\w")


class UnguardedScript(Rule):
    code = "CHP020"
    name = "unguarded-script"
    reason = (
        "Workers that are not forked (macOS, Windows, and Linux from Python 3.14 on) import the main script. Without "
        '`if __name__ == "__main__":` that runs it again in every worker.'
    )
    safety = Safety.ADVICE
    for_the_curious = True
    trigger = _WORKERS
    beside = ("oader", _GIVEN, _TOP_LEVEL)
    follows = frozenset({"CHP001"})

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a call that names workers for a loader stands behind no guard."""
        return any(
            any(keyword.arg in _WORKERS for keyword in call.keywords)
            and may_build_loader(outline, project, call)
            and not _may_be_guarded(outline, call)
            for call in outline.find(ast.Call)
        )

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Only where the argument gets a name by the rewrite."""
        return super().may_follow(module, project, rewriters) and gives_by_position(module, "num_workers")

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Report loaders with workers that are built when the module is imported."""
        if module.path.endswith((".ipynb", "__main__.py")):  # workers run neither notebooks nor `python -m package`
            return
        loaders = [one for one in loader_calls(module, project, *_WORKERS) if _asks_for_workers(module, one)]
        if not loaders:
            return
        run = _run_on_import(module)
        if not _iterates(module, run, {one.call for one in loaders}):
            return
        for loader in loaders:
            scope = module.enclosing_scope(loader.call)
            if scope in run and not _is_guarded(module, loader.call):
                yield Proposal(
                    module.span(loader.call)[0],
                    "loader with workers built at import: under spawn and forkserver (macOS, Windows, Linux from "
                    'Python 3.14) each worker runs this again. Put it under `if __name__ == "__main__":`',
                )


def _may_be_guarded(outline: Outline, node: ast.AST) -> bool:
    """See :func:`_is_guarded`."""
    tests = (ancestor.test for ancestor in outline.ancestors(node) if isinstance(ancestor, ast.If))
    return any(last_name(part) == "__name__" for test in tests for part in (test, *outline.inside(test)))


def _asks_for_workers(module: Module, loader: LoaderCall) -> bool:
    count = next((loader.arguments[name] for name in _WORKERS if name in loader.arguments), None)
    context = loader.arguments.get("multiprocessing_context")
    if count is None or (isinstance(context, cst.SimpleString) and context.evaluated_value == "fork"):
        return False
    values = [count]
    if isinstance(count, cst.Name):
        same = module.named(count.value)
        values = [v for n in same if (v := assigned_value(module, n)) is not None] or values
    return not all(is_name(v, "None") or (isinstance(v, cst.Integer) and v.evaluated_value == 0) for v in values)


def _run_on_import(module: Module) -> list[cst.CSTNode]:
    """The module, and the functions of it that run when it is imported."""
    functions = {s.name.value: s for s in module.tree.body if isinstance(s, cst.FunctionDef)}
    run: list[cst.CSTNode] = [module.tree]
    for scope in run:
        for call in find_own(scope, cst.Call):
            function = functions.get(dotted(call.func) or "")
            if function is not None and function not in run and not _is_guarded(module, call):
                run.append(function)
    return run


def _is_guarded(module: Module, node: cst.CSTNode) -> bool:
    """Whether code runs only in the main script."""
    return any(
        isinstance(ancestor, cst.If) and any(is_name(part, "__name__") for part in walk(ancestor.test))
        for ancestor in module.ancestors(node)
    )


def _loader_names(run: list[cst.CSTNode], built: Set[cst.Call]) -> set[str]:
    """Names that the code run on import gives to loaders, or to what its own functions that build loaders return."""
    functions = (scope for scope in run if isinstance(scope, cst.FunctionDef))
    makers = {function.name.value for function in functions if not built.isdisjoint(find_own(function, cst.Call))}
    names: set[str] = set()
    for assign in (node for scope in run for node in find_own(scope, cst.Assign)):
        if any(node in built or is_name(node.func, *makers) for node in find_in(assign.value, cst.Call)):
            names |= {name.value for target in assign.targets for name in find_in(target.target, cst.Name)}
    return names


def _iterates(module: Module, run: list[cst.CSTNode], built: Set[cst.Call]) -> bool:
    """Whether what runs on import iterates over its loaders: in a loop, or in something it hands them to."""
    names = _loader_names(run, built)
    for node in (node for scope in run for node in own_nodes(scope)):
        over: list[cst.CSTNode] = []
        if isinstance(node, cst.For | cst.CompFor):
            over = [node.iter]
        elif isinstance(node, cst.Call) and not resolves_to(module, node, _LOOKS):
            over = [argument.value for argument in node.args]
        inside = (part for one in over for part in walk(one))
        if any(part in built or is_name(part, *names) for part in inside) and not _is_guarded(module, node):
            return True
    return False
