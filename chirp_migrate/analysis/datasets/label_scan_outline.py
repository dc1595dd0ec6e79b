"""Test quickly whether a module may contain a label scan: code that iterates over a dataset only for the labels.

The test reads the syntax tree of ``ast``. It accepts all code that ``label_scan`` recognises, and more: it checks the
same forms of code, but fewer conditions about names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from chirp_migrate.analysis.datasets.dataset_names import DATASET_NAME
from chirp_migrate.analysis.known_names import may_name_dataset
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project

#: Only in a text with one of these words can anything but the name of a variable show that it is a dataset.
_FACTS = re.compile(r"Dataset|Subset|random_split|DataLoader|create_\w*loader|torchvision")

_Loop = ast.For | ast.comprehension


def may_show_dataset_type(text: str, project: Project) -> bool:
    """Return whether anything in a text, other than the name of a variable, may show that the variable is a dataset."""
    return _FACTS.search(text) is not None or may_name_dataset(text, project)


def may_scan_labels(outline: Outline, project: Project) -> bool:
    """Return whether a module may contain a loop or comprehension that only uses the labels of a dataset."""
    facts = may_show_dataset_type(outline.text, project)

    def dataset(node: ast.expr) -> bool:
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return bool(last) and (facts or DATASET_NAME.fullmatch(last) is not None)

    if any(_may_only_collect(loop.body) and _is_scan(loop, list(loop.body), dataset) for loop in outline.find(ast.For)):
        return True
    for clause in outline.find(ast.comprehension):
        node = outline.parents[clause]
        assert isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        code: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        code += [part for one in node.generators for part in (*one.ifs, one.iter)]
        if _is_scan(clause, code, dataset):
            return True
    return False


def _may_only_collect(statements: Sequence[ast.stmt]) -> bool:
    """Return whether statements may only assign, count and append."""
    for one in statements:
        match one:
            case ast.Assign() | ast.AugAssign() | ast.Pass() | ast.Expr(value=ast.Call(func=ast.Attribute(), args=[_])):
                pass
            case ast.If() if _may_only_collect([*one.body, *one.orelse]):
                pass
            case _:
                return False
    return True


def _is_scan(loop: _Loop, code: list[ast.AST], dataset: Callable[[ast.expr], bool]) -> bool:
    target, iterable = loop.target, loop.iter
    match target, iterable:
        case ast.Tuple(elts=[_, inner]), ast.Call(args=[first, *_]):  # `enumerate`, perhaps under another name
            target, iterable = inner, first
    match target:
        case ast.Tuple(elts=[ast.Name(id=x), ast.Name(id=y)]) | ast.List(elts=[ast.Name(id=x), ast.Name(id=y)]):
            return dataset(iterable) and not _uses(code, x) and _uses(code, y) > 0
        case ast.Name(id=each):
            pass
        case _:
            return False
    seconds = [
        node.value
        for part in code
        for node in ast.walk(part)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 1
    ]
    samples = [*seconds, *_unpacked_samples(code[0], seconds)]
    if dataset(iterable) and len([sample for sample in samples if _is_name(sample, each)]) == _uses(code, each) > 0:
        return True
    return any(
        isinstance(sample, ast.Subscript)
        and dataset(sample.value)
        and _uses([sample.slice], each)
        and not _uses([sample.value], each)
        for sample in samples
    )


def _unpacked_samples(first: ast.AST, seconds: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield the sample that the first statement of a loop unpacks, or assigns to a variable whose item 1 is read."""
    match first:
        case ast.Assign(targets=[ast.Tuple(elts=[_, _]) | ast.List(elts=[_, _])], value=sample):
            yield sample
        case ast.Assign(targets=[ast.Name(id=name)], value=sample) if any(_is_name(second, name) for second in seconds):
            yield sample


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _uses(code: Sequence[ast.AST], name: str) -> int:
    return sum(_is_name(node, name) for part in code for node in ast.walk(part))
