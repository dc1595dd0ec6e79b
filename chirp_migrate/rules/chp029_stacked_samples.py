"""CHP029: gather all samples at once instead of reading and stacking them one by one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values_and_annotations
from chirp_migrate.analysis.datasets.dataset_expressions import make_cached_dataset_predicate
from chirp_migrate.analysis.datasets.label_scan import (
    ScannedSamples,
    match_stacked_samples,
    why_not_readable_before_loop,
)
from chirp_migrate.rules.api import (
    GAP,
    Edit,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    is_call_of,
    runtime_import,
)

_RUNTIME = "stack_samples"
_FOUND = "the code reads samples one by one and stacks them"
_DISPLAYS = (cst.List, cst.Tuple, cst.Set, cst.ListComp, cst.SetComp)
_MAKES_ALL = re.compile(
    r"builtins\.(list|range|set|sorted|tuple)|numpy\.(random\.)?[a-z]\w+"
    r"|torch\.(arange|argsort|nonzero|randint|randperm|tensor)"
)
_STACKS = re.compile(rf"\bstack{GAP}(\[|as\b)")


class StackedSamples(Rule):
    """Rewrites `torch.stack([dataset[index][0] for i in indices])` only if all these conditions hold:

    - `torch-stack`: the function `stack` is PyTorch's function, stacks along axis 0, and has no argument `out`.
    - `every-sample`: the comprehension has one `for`, no `if` and no `async`. Instead of reading samples by index, the
      `for` may iterate over the dataset, as in `[x for x, _ in dataset]`. The comprehension yields the first item of
      each sample unchanged.
    - `known-dataset`: the expression `dataset` is a name or `name.attribute`. The class, annotation or name of
      `dataset` shows that the object is a dataset, and not a list, array or table. A call that passes `dataset` to a
      loader or subset also shows that the object is a dataset.
    - `not-in-class-body`: the call is not directly in the body of a class.
    - `no-bindings`: neither `index` nor `indices` contains `:=`, `await` or `yield`.
    - `pure-index`: an `index` other than `i` has no side effects. Such an `index` consists of names, subscripts,
      attributes, arithmetic and calls of functions that are known to have no side effects.
    - `indices-available`: if `index` is not just `i`, all items of `indices` exist before the code reads the first
      sample. Then `indices` is a list, tuple, set or `range`, or the result of a function such as `sorted`, `np.arange`
      or `torch.randperm`. A variable is permitted if the code assigns only such values to the variable.
    - `same-dataset`: no code that computes an index or reads a sample assigns another object to the name of the
      dataset. A local variable meets this condition if no inner function assigns the variable. Any other dataset must
      meet stricter conditions. Only functions without side effects, or of libraries such as NumPy and PyTorch, compute
      the indices. If the dataset is a name of the module, no function declares the name ``global``, and no other file
      assigns the name. If the dataset is an attribute, no file sets an attribute with this name, except by ``self.NAME
      = …`` in an ``__init__``. No ``setattr`` and no ``__dict__`` changes this attribute.
    - `no-comment`: the code contains no `#`, because the rewrite would lose a comment.
    """

    code = "CHP029"
    name = "stacked-samples"
    reason = (
        "`torch.stack([dataset[i][0] for i in indices])` reads all samples one by one, and then copies all of them. "
        "Projects mostly use such code to compute a mean and a standard deviation. If the samples are rows of tensors "
        "in memory, the new function gathers all rows at once. If not, the new function reads sample by sample, as "
        "before. The new tensor is equal to that of `torch.stack` to the last bit. `streaming_standardization_stats` "
        "computes mean and standard deviation without a second copy of the data, but the last digits of its results "
        "differ."
    )
    safety = Safety.SAFE
    trigger = ("stack",)
    beside = (_STACKS,)
    in_place = True
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a call of ``torch.stack`` stacks a list comprehension that may read samples."""
        return any(
            isinstance(made, ast.ListComp)
            and isinstance(made.elt, ast.Name | ast.Subscript)
            and not made.generators[0].ifs
            and (isinstance(made.elt, ast.Subscript) or isinstance(made.generators[0].target, ast.Tuple | ast.List))
            for call in outline.find(ast.Call)
            for made in call.args[:1]
            if "torch.stack" in outline.possible_names(call.func)
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Rewrite calls of ``torch.stack`` that stack the samples of a dataset."""
        stands_for_dataset = module.once(make_cached_dataset_predicate, project)
        for call in module.find(cst.Call):
            scan = match_stacked_samples(module, stands_for_dataset, call)
            if scan is None or isinstance(module.enclosing_scope(call), cst.ClassDef):
                continue
            yield _make_match(module, project, call, scan)


def _make_match(module: Module, project: Project, call: cst.Call, scan: ScannedSamples) -> RuleMatch:
    offset, problem = module.span(call)[0], why_not_readable_before_loop(module, project, scan)
    computed = scan.index is not None and not isinstance(scan.index, cst.Name)
    if problem is None and computed and not _exists_before_loop(module, scan.iterable):
        problem = (
            f"`{module.source(scan.iterable).strip()}` may compute items during the loop, but the rewrite would "
            "compute all items first"
        )
    if problem is None and "#" in module.source(call):
        problem = "the rewrite would lose a comment in this code"
    if problem is not None:
        dataset = module.source(scan.dataset).strip()
        return RuleMatch(offset, f"{_FOUND}; use `{_RUNTIME}({dataset}, indices)`. Not rewritten: {problem}")
    message = f"{_FOUND}; `{_RUNTIME}` builds an equal tensor, in one operation if possible"
    edit = Edit(*module.span(call), f"{_RUNTIME}({scan.arguments(module)})")
    return RuleMatch(offset, message, (edit,), frozenset({runtime_import(_RUNTIME)}))


def _exists_before_loop(module: Module, iterable: cst.BaseExpression) -> bool:
    """Return whether all items of an iterable provably exist before the first iteration."""
    if isinstance(iterable, cst.Name):
        owner = module.scopes.lookup(iterable.value, iterable)
        values = assigned_values_and_annotations(module, owner[0].node, iterable.value)[0] if owner is not None else []
        every = owner is not None and len(values) == len(owner[1])
        return every and all(origin.part is None and _is_complete_collection(module, origin.value) for origin in values)
    return _is_complete_collection(module, iterable)


def _is_complete_collection(module: Module, value: cst.BaseExpression) -> bool:
    return isinstance(value, _DISPLAYS) or is_call_of(module, value, _MAKES_ALL)
