"""Recognise label scans: code that iterates over a dataset only for the labels.

A label scan has one of the following forms, possibly with ``enumerate``:

* ``dataset[i][1]`` for every ``i``
* ``_, y = dataset[i]`` for every ``i``
* ``sample = dataset[i]`` and ``sample[1]`` for every ``i``
* ``for _, y in dataset``
* ``for sample in dataset`` and ``sample[1]``
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_writes import is_assigned_later
from chirp_migrate.analysis.dataflow.closures import nodes_of_original_tree, variable_uses
from chirp_migrate.analysis.dataflow.effects import first_side_effect, has_await_yield_walrus, side_effect_message
from chirp_migrate.analysis.dataflow.rebinding import may_be_patched_elsewhere
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import NameRole, binding_scope, dotted_source, is_integer, is_name, name_role

IsDataset = Callable[[cst.CSTNode], bool]


@dataclass
class ScannedSamples:
    """A label scan: a loop or comprehension over a dataset that uses only the labels of the samples.

    Attributes:
        dataset: the dataset expression.
        target: the target of the loop. In the rewritten loop, the variable for the label replaces this target.
        iterable: the iterable of the loop, without ``enumerate``.
        index: the expression of a sample's index, which contains the loop's variable; None if the loop iterates over
            the dataset itself.
        unpack: whether the code unpacks samples, as in ``_, y = sample``. If so, samples must be pairs.
        label: the variable with the label; None if the expressions in ``reads`` are the label.
        reads: the expressions whose value is the label.
        opening: the first statement, if it only unpacks the label from the sample; else None. The rewrite removes this
            statement.
        dropped: variables that the rewritten loop no longer binds. Code outside the loop must not read these variables.
        problem: the reason why a rewrite must not read the labels before the loop; None if a rewrite may do so.
    """

    dataset: cst.BaseExpression
    target: cst.BaseExpression
    iterable: cst.BaseExpression
    index: cst.BaseExpression | None = None
    unpack: bool = False
    label: str | None = None
    reads: list[cst.CSTNode] = field(default_factory=list)
    opening: cst.SimpleStatementLine | None = None
    dropped: list[str] = field(default_factory=list)
    problem: str | None = None

    def arguments(self, module: Module) -> str:
        """Return the source of the arguments for the rewritten code.

        The arguments are the dataset and, if the loop reads samples by index, the indices.
        """
        dataset, iterable = module.source(self.dataset).strip(), module.source(self.iterable).strip()
        if self.index is None:
            return dataset
        if isinstance(self.iterable, cst.Tuple) and not self.iterable.lpar:
            iterable = f"({iterable})"
        if isinstance(self.index, cst.Name):
            return f"{dataset}, {iterable}"
        return (
            f"{dataset}, ({module.source(self.index).strip()} for {module.source(self.target).strip()} in {iterable})"
        )


def match_label_scan(
    module: Module,
    is_dataset: IsDataset,
    target: cst.BaseExpression,
    iterable: cst.BaseExpression,
    code: Sequence[cst.CSTNode],
) -> ScannedSamples | None:
    """Return the label scan of ``for target in iterable`` with the body ``code``; None for other loops."""
    match target, iterable:
        case cst.Tuple(elements=[cst.Element(value=cst.Name(value=count)), cst.Element(value=each)]), cst.Call(
            args=[cst.Arg(value=counted, keyword=None, star=""), *_]
        ) if module.qualified_names(iterable.func) == {"builtins.enumerate"}:
            scan = match_label_scan(module, is_dataset, each, counted, code)
            return None if scan is None or count in (scan.label, *scan.dropped) else scan
    pair = _unpacked_pair(target)
    if pair is not None and is_dataset(iterable):
        x, y = pair
        if variable_uses(module, code, x) or not variable_uses(module, code, y):
            return None
        return ScannedSamples(iterable, target, iterable, unpack=True, label=y, dropped=[x])
    if not isinstance(target, cst.Name):
        return None
    opened = _unpacking_scan(module, is_dataset, target, iterable, code)
    if opened is not None:
        return opened
    reads = _labels_of(module, code, target.value)
    if reads and len(reads) == len(variable_uses(module, code, target.value)) and is_dataset(iterable):
        return ScannedSamples(iterable, target, iterable, reads=reads, dropped=[target.value])
    return _indexed_scan(module, is_dataset, target, iterable, code)


def _unpacked_pair(target: cst.BaseExpression) -> tuple[str, str] | None:
    """Return the names of a target such as ``x, y`` with two different names; else None."""
    if not isinstance(target, cst.Tuple | cst.List) or len(target.elements) != 2:
        return None
    names = [e.value.value for e in target.elements if isinstance(e, cst.Element) and isinstance(e.value, cst.Name)]
    return (names[0], names[1]) if len(names) == 2 and names[0] != names[1] else None


def _subscript(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Return ``(a, b)`` for ``a[b]``; None for other nodes."""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        index = node.slice[0].slice
        return None if index.star else (node.value, index.value)
    return None


def _base_of_second_item(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return ``a`` for ``a[1]``; None for other nodes."""
    parts = _subscript(node)
    return parts[0] if parts is not None and is_integer(parts[1], "1") else None


def _labels_of(module: Module, code: Sequence[cst.CSTNode], sample: str) -> list[cst.CSTNode]:
    """Return the expressions ``x[1]`` in ``code``, where ``x`` is the variable called ``sample``."""
    around = [(use, module.parents[use]) for use in variable_uses(module, code, sample)]
    return [
        parent
        for use, parent in around
        if _base_of_second_item(parent) is use and name_role(module, parent) is NameRole.READ
    ]


def _indexed_sample(
    module: Module, is_dataset: IsDataset, node: cst.CSTNode, name: str
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Return dataset and index if ``node`` is ``dataset[index]`` and the index contains ``name``; else None."""
    parts = _subscript(node)
    if parts is None or not variable_uses(module, [parts[1]], name) or variable_uses(module, [parts[0]], name):
        return None
    return parts if is_dataset(parts[0]) else None


def _indexed_samples(
    module: Module, is_dataset: IsDataset, code: Sequence[cst.CSTNode], name: str
) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, cst.BaseExpression]]:
    """Yield each ``dataset[index]`` in ``code`` whose index contains ``name``, with dataset and index."""
    above = {module.parents[part] for part in nodes_of_original_tree(module, code)}
    holding: dict[cst.CSTNode, None] = {}
    for use in variable_uses(module, code, name):
        holding |= dict.fromkeys(reversed(list(takewhile(lambda node: node not in above, module.ancestors(use)))))
    for node in holding:
        if (parts := _indexed_sample(module, is_dataset, node, name)) is not None:
            yield node, *parts


def _indexed_scan(
    module: Module,
    is_dataset: IsDataset,
    target: cst.Name,
    iterable: cst.BaseExpression,
    code: Sequence[cst.CSTNode],
) -> ScannedSamples | None:
    """Return the label scan of a loop over indices ``i`` whose body reads ``dataset[i][1]``; None for other loops."""
    samples = list(_indexed_samples(module, is_dataset, code, target.value))
    reads = [module.parents[sample] for sample, _, _ in samples]
    if not samples or any(
        _base_of_second_item(read) is not sample for read, (sample, _, _) in zip(reads, samples, strict=True)
    ):
        return None
    if not all(name_role(module, read) is NameRole.READ for read in reads):
        return None
    _, dataset, index = samples[0]
    scan = ScannedSamples(dataset, target, iterable, index, reads=reads, dropped=[target.value])
    within = [use for _, _, each in samples for use in variable_uses(module, [each], target.value)]
    if len(within) < len(variable_uses(module, code, target.value)):
        scan.problem = f"the code uses `{target.value}` not only to read the label"
    elif len(reads) > 1:
        scan.problem = "a sample is read more than once in each iteration"
    return scan


def _unpacking_scan(
    module: Module,
    is_dataset: IsDataset,
    target: cst.Name,
    iterable: cst.BaseExpression,
    code: Sequence[cst.CSTNode],
) -> ScannedSamples | None:
    """Return the label scan of a loop whose first statement reads the sample or its label; None for other loops.

    Examples of such a statement are ``_, y = dataset[i]``, ``y = dataset[i][1]`` and ``sample = dataset[i]``.
    """
    match code[0]:
        case (
            cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=left)], value=value)]) as first
        ) if len(code) > 1:
            rest = code[1:]
        case _:
            return None
    second = _base_of_second_item(value)
    whole = value if second is None else second
    sample = _indexed_sample(module, is_dataset, whole, target.value)
    if sample is not None:
        scan = ScannedSamples(sample[0], target, iterable, sample[1], opening=first, dropped=[target.value])
    elif is_name(whole, target.value) and is_dataset(iterable):
        scan = ScannedSamples(iterable, target, iterable, opening=first, dropped=[target.value])
    else:
        return None
    pair = _unpacked_pair(left)
    if second is not None and isinstance(left, cst.Name):
        scan.label = left.value
    elif second is None and pair is not None and not variable_uses(module, rest, pair[0]):
        scan.label, scan.unpack = pair[1], True
        scan.dropped.append(pair[0])
    elif second is None and isinstance(left, cst.Name) and left.value != target.value:
        scan.reads = _labels_of(module, rest, left.value)
        if not scan.reads or len(scan.reads) < len(variable_uses(module, rest, left.value)):
            return None
        scan.dropped.append(left.value)
    else:
        return None
    if scan.label is not None and (scan.label == target.value or not variable_uses(module, rest, scan.label)):
        return None
    if variable_uses(module, rest, target.value):
        if scan.index is None:
            return None
        scan.problem = f"the code uses `{target.value}` not only to read the label"
    return None if any(_indexed_samples(module, is_dataset, rest, target.value)) else scan


def match_stacked_samples(module: Module, is_dataset: IsDataset, call: cst.Call) -> ScannedSamples | None:
    """Return the dataset and indices of a ``torch.stack([…])`` of the first items of a dataset's samples; else None.

    The list is ``[dataset[i][0] for i in …]`` or ``[x for x, _ in dataset]``.
    """
    if module.qualified_names(call.func) != {"torch.stack"} or module.names_from_later_stars(call.func):
        return None
    match call.args:
        case [
            cst.Arg(
                value=cst.ListComp(elt=x, for_in=cst.CompFor(ifs=[], inner_for_in=None, asynchronous=None) as loop),
                keyword=None,
            ),
            *more,
        ]:
            target = loop.target
        case _:
            return None
    if len(more) > 1 or any(axis.star or not is_integer(axis.value, "0") for axis in more):
        return None  # the call stacks along another axis, or into an existing tensor (`out=`)
    pair = _unpacked_pair(target)
    if pair is not None:
        is_scan = is_name(x, pair[0]) and is_dataset(loop.iter)
        return ScannedSamples(loop.iter, target, loop.iter) if is_scan else None
    element = _subscript(x)
    if element is None or not isinstance(target, cst.Name) or not is_integer(element[1], "0"):
        return None
    sample = _indexed_sample(module, is_dataset, element[0], target.value)
    return None if sample is None else ScannedSamples(sample[0], target, loop.iter, sample[1])


def why_not_readable_before_loop(module: Module, project: Project, scan: ScannedSamples) -> str | None:
    """Return the reason why a rewrite must not read all samples before the loop; None if a rewrite may do so.

    For example, the code that computes the indices may replace the dataset.
    """
    parts = [scan.iterable, *([scan.index] if scan.index is not None else [])]
    if any(has_await_yield_walrus(part) for part in parts):
        return "the expression that computes the indices contains `await`, `yield` or `:=`"
    if scan.index is None:
        return None
    problem = side_effect_message(module, [scan.index])
    if problem is not None or _is_local(module, scan.dataset):
        return problem
    found = first_side_effect(module, scan.iterable, allow_libraries=True)
    if found is not None:
        return f"`{found}` computes the indices and might assign another object to the dataset's name"
    if may_be_rebound_during_loop(module, project, scan.dataset):
        return f"reading a sample might assign another object to `{module.source(scan.dataset).strip()}`"
    return None


def may_be_rebound_during_loop(module: Module, project: Project, node: cst.BaseExpression) -> bool:
    """Return whether code outside of a loop may rebind ``node`` while the loop runs.

    ``node`` is a name or dotted name.
    """
    path = dotted_source(node) or ""
    while isinstance(node, cst.Attribute):
        if is_assigned_later(project, node.attr.value):
            return True
        node = node.value
    assert isinstance(node, cst.Name)
    if _is_local(module, node):
        return False
    declared = any(one.name.value == node.value for one in module.find(cst.NameItem))
    return (
        declared or may_be_patched_elsewhere(module, project, path) or project.search(r"\bglobals\s*\(\s*\)", "globals")
    )


def _is_local(module: Module, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a local variable that no inner function binds, so that no call can rebind it."""
    if not isinstance(node, cst.Name) or isinstance(binding_scope(module, node, node.value), cst.Module):
        return False
    return not any(item.name.value == node.value for item in module.find(cst.NameItem))
