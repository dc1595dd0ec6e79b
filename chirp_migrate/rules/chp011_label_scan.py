"""CHP011: read the labels of a dataset without loading its samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from itertools import chain, count

import libcst as cst

from chirp_migrate.analysis.dataflow.symbolic import names_in_code
from chirp_migrate.analysis.datasets.dataset_expressions import make_cached_dataset_predicate
from chirp_migrate.analysis.datasets.label_loops import Comprehension, match_label_comprehension, match_label_loop
from chirp_migrate.analysis.datasets.label_scan import ScannedSamples
from chirp_migrate.analysis.datasets.label_scan_outline import contains_dataset_words, may_scan_labels
from chirp_migrate.edits.move_definition import span_with_parentheses
from chirp_migrate.rules.api import (
    DATASET_WORDS,
    GAP,
    Edit,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dataset_class_names,
    is_name,
    runtime_import,
)

_READ, _ITERATE = "read_labels", "iterate_labels"
_FOUND = "the code loads every sample just for its label"
#: Parts of names of datasets. The rule skips a source text that contains none of these words.
_WORDS = (
    *("ataset", "DATASET", "ubset", "SUBSET", "ata_set", "torch.utils", "ds[", "_ds", "in ds"),
    *("_set[", "_set:", "_set)", "_set]", "rainset", "alset", "estset", "evset", "validset", "fullset"),
)
#: A name of a dataset, followed by text that shows that the dataset is indexed or iterated over.
_GONE_THROUGH = re.compile(
    rf"(?:ata_?set|ubset|[a-z]_?set|\bds|_ds)\w{{0,80}}{GAP}(?:[\[\]:),}}]|for\b|if\b)", re.IGNORECASE
)


class LabelScan(Rule):
    """Rewrites a loop or comprehension only if all these conditions hold:

    - `known-dataset`: the loop reads a dataset. The class, annotation or name of the object shows that the object is a
      dataset, or the code passes the object to a loader or subset, as in `DataLoader(data)`. If the object is an
      attribute, no property computes this attribute.
    - `only-labels`: the loop uses only the second item of each sample, as in `_, label = dataset[i]`. The variable of
      the loop has no other use.
    - `read-once`: each iteration reads exactly one sample, and reads this sample only once.
    - `one-pass`: a comprehension has one ``for``, no filter, and no ``async``. A loop has no ``else``. The
      comprehension or loop is not directly in the body of a class.
    - `read-in-each-iteration`: each iteration reads its sample without a condition.
    - `read-first`: the rewritten code reads the sample at the start of the iteration. So if an iteration reads its
      sample by index, earlier code of this iteration only counts, as in `n += 1`, or consists of literals and names.
      While the loop runs, no code outside of the loop may assign these names.
    - `only-computes`: all other code of an iteration, and the code that computes the indices, has no side effects. Such
      code uses only operators, Python's own functions, methods of numbers, strings and tensors, and a few functions of
      PyTorch and NumPy.
    - `consumed-at-once`: a generator expression is the argument of a call that consumes the whole generator, such as
      ``list`` or ``sum``.
    - `only-collects`: a loop only assigns, counts and appends.
    - `local-collection`: a loop appends to a variable, as in `labels.append(label)`. Every value of this variable is an
      object that the same function creates, as in `labels = []`.
    - `dataset-unchanged`: the loop neither assigns nor changes the dataset or the indices.
    - `same-dataset`: code that reads a sample cannot assign another object to the name of the dataset. The dataset is a
      local variable, a parameter, an attribute or a name of the module. If the dataset is a name of the module, no
      function declares the name ``global`` and no other file assigns the name. If the dataset is an attribute, no file
      of the project sets an attribute with this name, except by ``self.NAME = …`` in an ``__init__``. No file uses
      ``setattr`` or ``__dict__`` in a way that may set this attribute. The code that computes the indices only calls
      known functions, which do not replace the dataset.
    - `no-handler`: no ``try`` contains the loop. All context managers of ``with`` statements around the loop, such as
      ``open`` or ``torch.no_grad()``, are known not to swallow exceptions.
    - `names-unused-later`: the rewritten loop `for label in …` binds only the label, and not the other names of the
      original loop, such as `i` or `_`. No code of the project reads these other names after the loop. The enclosing
      function does not call ``locals``, ``eval`` or similar functions.
    """

    code = "CHP011"
    name = "label-scan"
    reason = (
        "`dataset[i][1]` loads, standardises or augments a sample just for its label. The runtime reads the same "
        "labels, in the same order and with the same errors. The runtime does not read or compute the input x of "
        "a sample if this work has no other effect. If the work may have other effects, such as random calls, the "
        "runtime reads whole samples one by one."
    )
    safety = Safety.SAFE
    trigger = (*_WORDS, *DATASET_WORDS)
    in_place = True
    follows = frozenset()

    def names(self, project: Project) -> Set[str]:
        """Return the names of the project's dataset classes."""
        return dataset_class_names(project)

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the text may use a dataset.

        The text must contain a name that is typical of datasets, such as ``train_dataset``, or the name of a dataset
        class.
        """
        return super().concerns(text, project) and (
            _GONE_THROUGH.search(text) is not None or contains_dataset_words(text, project)
        )

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether the module may contain a loop or comprehension that uses only the labels of a dataset."""
        return may_scan_labels(outline, project)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Rewrite comprehensions and loops that use only the labels of samples."""
        is_dataset = module.once(make_cached_dataset_predicate, project)
        for node in module.find(cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.For):
            if isinstance(node, cst.For):
                scan = match_label_loop(module, project, is_dataset, node)
            else:
                assert isinstance(node, Comprehension)
                scan = match_label_comprehension(module, project, is_dataset, node)
            if scan is not None:
                yield _make_match(module, node, scan)


def _make_match(module: Module, node: cst.CSTNode, scan: ScannedSamples) -> RuleMatch:
    offset, called = module.span(node)[0], _choose_runtime_function(module, node, scan)
    if scan.problem is not None:
        indices = "" if scan.index is None else ", indices"
        advice = f"loop over `{_ITERATE}({module.source(scan.dataset).strip()}{indices})` instead"
        return RuleMatch(offset, f"{_FOUND}; {advice}. Not rewritten: {scan.problem}")
    message = f"{_FOUND}: `{called}` reads only the labels"
    return RuleMatch(
        offset, message, tuple(_edits_for_scan(module, node, scan, called)), frozenset({runtime_import(called)})
    )


def _choose_runtime_function(module: Module, node: cst.CSTNode, scan: ScannedSamples) -> str:
    """Return ``read_labels`` if one call of it can replace the whole comprehension, else ``iterate_labels``."""
    return _READ if isinstance(node, cst.ListComp) and _yields_plain_labels(module, node, scan) else _ITERATE


def _yields_plain_labels(module: Module, node: cst.ListComp | cst.GeneratorExp, scan: ScannedSamples) -> bool:
    """Return whether a comprehension only yields the unchanged labels, and contains no comment.

    A single call can then replace the whole comprehension.
    """
    as_they_are = node.elt is scan.reads[0] if scan.reads else is_name(node.elt, scan.label or "")
    return as_they_are and scan.iterable is node.for_in.iter and "#" not in module.source(node)


def _edits_for_scan(module: Module, node: cst.CSTNode, scan: ScannedSamples, called: str) -> Iterator[Edit]:
    """Yield the edits that make the loop iterate over labels."""
    arguments = scan.arguments(module)
    if scan.unpack is (scan.index is not None):  # the function's default for `unpack` does not fit this code
        arguments += f", unpack={scan.unpack}"
    call = f"{called}({arguments})"
    if isinstance(node, cst.ListComp | cst.GeneratorExp) and _yields_plain_labels(module, node, scan):
        yield Edit(*span_with_parentheses(module, node), call)
        return
    label = scan.label or _unused_label_name(module.enclosing_scope(node) if isinstance(node, cst.For) else node)
    yield Edit(*span_with_parentheses(module, scan.target), label)
    yield Edit(*span_with_parentheses(module, scan.iterable), call)
    yield from (Edit(*module.span(read), label) for read in scan.reads)
    if scan.opening is not None:
        start, end = module.span(scan.opening)
        line_end = module.line_end(end - 1)
        comment = module.text[end:line_end].lstrip()
        yield Edit(start, line_end - len(comment), "") if comment else Edit(module.line_start(start), line_end, "")


def _unused_label_name(code: cst.CSTNode) -> str:
    """Return the name ``label``, or ``label_2``, ``label_3``, … if the code already uses that name."""
    taken = names_in_code(code)
    return next(name for name in chain(("label",), map("label_{}".format, count(2))) if name not in taken)
