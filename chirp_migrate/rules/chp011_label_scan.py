"""CHP011: labels read one whole sample at a time are read without their samples (R-000-4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, count
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.effects import effect
from chirp_migrate.analysis.dataflow.symbolic import statements_of
from chirp_migrate.analysis.datasets.collecting import is_collecting, is_read_outside, problem_of, scope_of
from chirp_migrate.analysis.datasets.dataset_names import dataset_test, is_variable_somewhere
from chirp_migrate.analysis.datasets.label_scan import IsDataset, Scan, read_scan, why_too_early
from chirp_migrate.analysis.datasets.label_scan_words import DATASET_FACTS, may_scan
from chirp_migrate.edits.imports import runtime
from chirp_migrate.plans.plan import Edit, Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.syntax.module import Module, UnparsableModule, matching, syntax_tree
from chirp_migrate.syntax.project import Project

_RUNTIME = "read_labels"
_FOUND = "labels read by loading every sample"
#: Parts of words for datasets, of which one is there.
_WORDS = (
    *("ataset", "DATASET", "ubset", "SUBSET", "ata_set", "torch.utils", "ds[", "_ds", "in ds"),
    *("_set[", "_set:", "_set)", "_set]", "rainset", "alset", "estset", "evset", "validset", "fullset"),
)
#: One of them followed by what a dataset that is gone through or indexed is followed by.
_GONE_THROUGH = re.compile(r"(?:ata_?set|ubset|[a-z]_?set|\bds|_ds)\w*\s*(?:[\[\]:),}]|for\b|if\b)", re.IGNORECASE)
#: Calls that take all of a generator at once, and keep nothing of it when it raises.
_AT_ONCE = re.compile(
    r"builtins\.(list|tuple|set|frozenset|sorted|sum|min|max|dict)|collections\.Counter|numpy\.fromiter"
)


@lru_cache(maxsize=64)
def _may_scan(text: str) -> bool:
    try:
        return may_scan(syntax_tree(text), text)
    except UnparsableModule:
        return False  # not worth telling in a file that no other rule looks at


Comprehension = cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp


class LabelScan(Rule):
    """Requires, of a loop or comprehension:

    - `known-dataset`: what is read was made, annotated, named or given to a loader as a dataset; an attribute is no
      property.
    - `only-labels`: of a sample only its second part is read, and of the loop's variable nothing but that.
    - `read-once`: each turn reads one sample, once.
    - `one-pass`: a comprehension has one ``for``, nothing is filtered, nothing asynchronous; a loop has no ``else``;
      it does not stand in the body of a class.
    - `read-in-each-turn`: no condition decides whether a sample is read.
    - `only-computes`: what else happens in a turn, and what makes the indices, only computes: operators, Python's own
      functions, methods that numbers, strings and tensors have, a few functions of PyTorch and NumPy.
    - `taken-at-once`: a generator goes straight into a call that takes all of it, such as ``list`` or ``sum``.
    - `only-collects`: a loop does nothing but assign, count and append.
    - `own-collection`: what is appended to is a variable whose every value is made in the same function, anew.
    - `dataset-stays`: the loop neither assigns nor changes what it reads.
    - `same-dataset`: reading a sample puts no other dataset in its place: it is a local variable, a parameter, or a
      name of the module that no function declares ``global`` and no other file assigns; an attribute is only set by
      ``self.NAME = …`` in an ``__init__``, in all files, and neither by ``setattr`` nor in a ``__dict__``. Nor does
      what makes the indices: known functions only.
    - `no-handler`: around a loop there is no ``try``, and no ``with`` but PyTorch's, tqdm's and ``open``.
    - `not-read-later`: the names that the loop no longer binds are not read behind it, here or in another module.
    - `free-name`: no function of the module binds the name ``read_labels``.
    """

    code: ClassVar[str] = "CHP011"
    name: ClassVar[str] = "label-scan"
    reason: ClassVar[str] = (
        "Reading `dataset[i][1]` loads, standardises or augments a sample and throws it away for its label. The "
        "runtime reads the same labels, in the same order and with the same errors, and leaves out the work on x where "
        "nothing can depend on it; other datasets are read sample by sample, as before."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("dataset", "subset", "set", "ds", "torch.utils")

    def concerns(self, text: str, project: Project) -> bool:
        """Only modules with a word for a dataset, and a loop over one that may only want its labels."""
        if not any(word in text for word in _WORDS):
            return False
        return (DATASET_FACTS.search(text) or _GONE_THROUGH.search(text)) is not None and _may_scan(text)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite comprehensions and loops that only use labels."""
        stands_for_dataset = module.once(dataset_test, project)
        if is_variable_somewhere(module, _RUNTIME):
            return  # a variable of that name would be called instead of the runtime's function
        for comprehension in module.find(cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp):
            assert isinstance(comprehension, Comprehension)
            proposal = _comprehension(module, project, stands_for_dataset, comprehension)
            if proposal is not None:
                yield proposal
        for loop in module.find(cst.For):
            proposal = _loop(module, project, stands_for_dataset, loop)
            if proposal is not None:
                yield proposal


def _comprehension(
    module: Module, project: Project, stands_for_dataset: IsDataset, node: Comprehension
) -> Proposal | None:
    loops = [node.for_in]
    while loops[-1].inner_for_in is not None:
        loops.append(loops[-1].inner_for_in)
    if any(loop.asynchronous is not None for loop in loops) or isinstance(scope_of(module, node), cst.ClassDef):
        return None  # the body of a class is no scope to its comprehensions
    results: list[cst.CSTNode] = [node.key, node.value] if isinstance(node, cst.DictComp) else [node.elt]
    tests = [condition.test for loop in loops for condition in loop.ifs]
    for position, loop in enumerate(loops):
        code = [*results, *tests, *(inner.iter for inner in loops[position + 1 :])]
        scan = read_scan(module, stands_for_dataset, loop.target, loop.iter, code)
        if scan is None:
            continue
        problem = scan.problem
        if len(loops) > 1:
            problem = "it has more than one `for`"
        elif tests:
            problem = "it has an `if`"
        problem = (
            problem
            or _effect_in(module, results)
            or _condition(module, scan, node)
            or why_too_early(module, project, scan)
        )
        if problem is None and isinstance(node, cst.GeneratorExp) and not _is_taken_at_once(module, node):
            problem = "a generator reads them lazily"
        if problem is not None:
            return _left_alone(module, node, scan, problem)
        whole = results[0] is scan.reads[0] if scan.reads else m.matches(results[0], m.Name(scan.label or ""))
        plain = scan.iterable is loop.iter and "#" not in module.source(node)
        if whole and plain and isinstance(node, cst.ListComp | cst.GeneratorExp):
            return _proposal(module, node, [Edit(*_with_brackets(module, node), _call(module, scan))])
        label = scan.label or _free_label(results)
        return _proposal(module, node, _edits(module, scan, label))
    return None


def _loop(module: Module, project: Project, stands_for_dataset: IsDataset, node: cst.For) -> Proposal | None:
    body = statements_of(node.body)
    if node.orelse is not None or node.asynchronous is not None:
        return None
    scan = read_scan(module, stands_for_dataset, node.target, node.iter, body)
    scope = scope_of(module, node)
    if scan is None or isinstance(scope, cst.ClassDef):
        return None
    statements = body if scan.opening is None else body[1:]
    if not is_collecting(statements):
        return None
    early = [scan.dataset, scan.iterable, *([scan.index] if scan.index is not None else [])]
    problem = scan.problem or problem_of(module, node, statements, early)
    problem = (
        problem or (None if scan.opening else _condition(module, scan, node)) or why_too_early(module, project, scan)
    )
    for name in scan.dropped:
        if is_read_outside(module, node, name):
            problem = problem or f"`{name}` may be read after the loop"
        if isinstance(scope, cst.Module) and project.imported_elsewhere(module, name):
            problem = problem or f"another module may import `{name}`"
    if problem is not None:
        return _left_alone(module, node, scan, problem)
    label = scan.label or _free_label([scope])
    return _proposal(module, node, _edits(module, scan, label))


def _proposal(module: Module, node: cst.CSTNode, edits: Sequence[Edit]) -> Proposal:
    message = f"{_FOUND}: `{_RUNTIME}` reads labels alone"
    return Proposal(module.span(node)[0], message, tuple(edits), frozenset({runtime(_RUNTIME)}))


def _left_alone(module: Module, node: cst.CSTNode, scan: Scan, problem: str) -> Proposal:
    indices = "" if scan.index is None else ", indices"
    advice = f"loop over `{_RUNTIME}({module.source(scan.dataset).strip()}{indices})` instead"
    return Proposal(module.span(node)[0], f"{_FOUND}; {advice}. Left alone: {problem}")


def _edits(module: Module, scan: Scan, label: str) -> list[Edit]:
    """The loop runs over the labels, and what read them is the loop's variable."""
    edits = [
        Edit(*_with_brackets(module, scan.target), label),
        Edit(*_with_brackets(module, scan.iterable), _call(module, scan)),
        *(Edit(*module.span(read), label) for read in scan.reads),
    ]
    if scan.opening is not None:
        start, end = module.span(scan.opening)
        line_end = module.line_end(end - 1)
        comment = module.text[end:line_end].lstrip()
        if comment:
            edits.append(Edit(start, line_end - len(comment), ""))
        else:
            edits.append(Edit(module.line_start(start), line_end, ""))
    return edits


def _call(module: Module, scan: Scan) -> str:
    dataset, iterable = module.source(scan.dataset).strip(), module.source(scan.iterable).strip()
    if scan.index is None:
        return f"{_RUNTIME}({dataset})" if scan.unpack else f"{_RUNTIME}({dataset}, unpack=False)"
    if isinstance(scan.iterable, cst.Tuple) and not scan.iterable.lpar:
        iterable = f"({iterable})"
    if not m.matches(scan.index, m.Name()):
        iterable = f"({module.source(scan.index).strip()} for {module.source(scan.target).strip()} in {iterable})"
    return f"{_RUNTIME}({dataset}, {iterable}{', unpack=True' if scan.unpack else ''})"


def _with_brackets(module: Module, node: cst.CSTNode) -> tuple[int, int]:
    """Span of an expression with its own parentheses."""
    start, end = module.span(node)
    before, after = getattr(node, "lpar", ()), getattr(node, "rpar", ())
    return start - sum(len(module.source(one)) for one in before), end + sum(len(module.source(one)) for one in after)


def _free_label(code: Iterable[cst.CSTNode]) -> str:
    """``label``, with a number behind it if the code already has that name."""
    taken = {name.value for one in code for name in matching(one, m.Name()) if isinstance(name, cst.Name)}
    return next(name for name in chain(("label",), map("label_{}".format, count(2))) if name not in taken)


def _effect_in(module: Module, code: Iterable[cst.CSTNode]) -> str | None:
    found = next((f for one in code if (f := effect(module, one)) is not None), None)
    return None if found is None else f"`{found}` may do more than compute"


def _condition(module: Module, scan: Scan, node: cst.CSTNode) -> str | None:
    """Why a sample that is read where its label is used might not be read in every turn."""
    if scan.index is None:
        return None
    for read in scan.reads:
        inner = read
        for ancestor in module.ancestors(read):
            if ancestor is node:
                break
            branch = isinstance(ancestor, cst.IfExp | cst.If) and inner is not ancestor.test
            second = isinstance(ancestor, cst.BooleanOperation) and inner is ancestor.right
            chained = isinstance(ancestor, cst.Comparison) and inner is not ancestor.left
            chained = chained and inner is not ancestor.comparisons[0]  # type: ignore[attr-defined]
            if branch or second or chained:
                return "a condition decides whether a sample is read"
            inner = ancestor
    return None


def _is_taken_at_once(module: Module, node: cst.GeneratorExp) -> bool:
    argument = module.parents[node]
    call = module.parents[argument]
    if not isinstance(call, cst.Call) or call.args[0] is not argument or call.args[0].keyword:
        return False
    names = module.qualified_names(call.func)
    known = bool(names) and all(_AT_ONCE.fullmatch(name) for name in names)
    return known and all(effect(module, other) is None for other in call.args[1:])
