"""CHP019: report CUDA in forked workers, and datasets that move samples to the GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import libcst as cst

from chirp_migrate.analysis.datasets.dataset_expressions import possible_dataset_classes
from chirp_migrate.analysis.datasets.dataset_state import DatasetClass, dataset_classes, possible_value_expressions
from chirp_migrate.analysis.devices.device_moves import calls_initializing_cuda, is_move_to_cuda
from chirp_migrate.analysis.loaders.loader_calls import may_pass_loader_argument_by_position
from chirp_migrate.rules.api import (
    CALL,
    GAP,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    find_nodes,
    keyword_arguments,
    may_name_dataset,
    one_line_source,
)

_STARTS = frozenset({"multiprocessing.set_start_method", "torch.multiprocessing.set_start_method"})
_MOVES = re.compile(rf"\.{GAP}cuda{CALL}|[\"']cuda")
_SAMPLES = ("__getitem__", "__iter__")
_CONTEXTS = frozenset({"multiprocessing.get_context", "torch.multiprocessing.get_context"})


class ForkAfterCuda(Rule):
    code = "CHP019"
    name = "fork-after-cuda"
    reason = (
        "If a process has used CUDA, the processes that it forks cannot use CUDA: PyTorch raises `Cannot "
        "re-initialize CUDA in forked subprocess`. So workers must return samples on the CPU, and the training loop "
        "must move the batches to the GPU."
    )
    safety = Safety.ADVICE
    finds_bugs = True
    trigger = ("cuda",)
    follows = frozenset({"CHP001"})

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether code in the text may select ``fork``, or move samples of a dataset to the GPU."""
        if not super().concerns(text, project):
            return False
        samples = _MOVES.search(text) is not None and (
            any(word in text for word in _SAMPLES) or may_name_dataset(text, project)
        )
        return samples or '"fork"' in text or "'fork'" in text

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether code selects the start method ``fork``, or a class may be a dataset."""
        asked = any(one.arg == "multiprocessing_context" for one in outline.find(ast.keyword)) or any(
            outline.possible_names(call.func) & _STARTS for call in outline.find(ast.Call)
        )
        return asked or bool(outline.once(possible_dataset_classes, project))

    def may_follow(self, module: Module, project: Project, rewriters: frozenset[str]) -> bool:
        """Return whether a rewrite may turn a positional ``multiprocessing_context`` into a keyword argument.

        The rule only looks at keyword arguments. So after such a rewrite, the rule may report a call that the rule did
        not report before.
        """
        return super().may_follow(module, project, rewriters) and may_pass_loader_argument_by_position(
            module, "multiprocessing_context"
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Report code that selects ``fork`` although CUDA is in use, and datasets that create samples on the GPU."""
        yield from _find_forks_after_cuda(module)
        for state in dataset_classes(module, project):
            yield from _samples_on_gpu(state)


def _samples_on_gpu(state: DatasetClass) -> Iterator[RuleMatch]:
    module = state.module
    for method in state.sampling_methods:
        if method.module is not module or method.owner not in (state.node, module.tree):
            continue
        calls = find_nodes(method.function, cst.Call)
        moving = next((call for call in calls if is_move_to_cuda(module, call)), None)
        if moving is not None:
            yield RuleMatch(
                module.span(moving)[0],
                f"`{_shorten_source(module, moving)}` moves samples to the GPU in `{method.function.name.value}`: "
                "forked workers cannot use CUDA. Return CPU tensors; move batches in the training loop",
            )


def _find_forks_after_cuda(module: Module) -> Iterator[RuleMatch]:
    for call in module.find(cst.Call):
        first = call.args[0].value if call.args else None
        if _is_fork(module, first) and module.qualified_names(call.func) & _STARTS:
            cuda_call = next(calls_initializing_cuda(module, module.tree, nested=True), None)
            if cuda_call is not None:
                yield _report_fork(module, call, cuda_call)
        context = keyword_arguments(call).get("multiprocessing_context")
        scope = module.enclosing_function(call) or module.tree
        if context is not None and any(
            _is_fork(module, one) for one in possible_value_expressions(module, scope, context)
        ):
            cuda_call = next(
                (use for one in dict.fromkeys((scope, module.tree)) for use in calls_initializing_cuda(module, one)),
                None,
            )
            if cuda_call is not None:
                yield _report_fork(module, context, cuda_call)


def _is_fork(module: Module, node: cst.BaseExpression | None) -> bool:
    """Return whether an expression is ``"fork"`` or ``get_context("fork")``."""
    if isinstance(node, cst.SimpleString):
        return node.evaluated_value == "fork"
    if isinstance(node, cst.Call) and node.args and module.qualified_names(node.func) & _CONTEXTS:
        return _is_fork(module, node.args[0].value)
    return False


def _report_fork(module: Module, selection: cst.CSTNode, cuda_call: cst.Call) -> RuleMatch:
    line = module.position(module.span(cuda_call)[0])[0]
    return RuleMatch(
        module.span(selection)[0],
        f"workers are forked after CUDA was used (`{_shorten_source(module, cuda_call)}`, line {line}): these workers "
        'cannot use CUDA, and may hang. Use "forkserver" or "spawn", with a picklable dataset',
    )


def _shorten_source(module: Module, call: cst.Call) -> str:
    text = one_line_source(module, call)
    return text if len(text) <= 60 else f"{text[:57]}…"
