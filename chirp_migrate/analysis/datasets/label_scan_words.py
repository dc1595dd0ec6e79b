"""Signs in a module's plain syntax tree that it may scan a dataset for its labels: they decide who reads it closely.

Never less than ``label_scan`` recognises: shapes are the same, names are judged by less.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from chirp_migrate.analysis.datasets.dataset_names import DATASET_NAME
from chirp_migrate.syntax.outline import Outline, last_name

#: Words of which one has to be there for a name to be known as a dataset by more than itself.
DATASET_FACTS = re.compile(r"Dataset|Subset|random_split|DataLoader|create_\w*loader|torchvision")

_Loop = ast.For | ast.AsyncFor | ast.comprehension


def may_scan(outline: Outline) -> bool:
    """Whether some loop or comprehension may only use the labels of a dataset, or stacks its samples."""
    facts = DATASET_FACTS.search(outline.text) is not None

    def dataset(node: ast.expr) -> bool:
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return bool(last) and (facts or DATASET_NAME.fullmatch(last) is not None)

    loops: list[ast.For | ast.AsyncFor] = [*outline.find(ast.For), *outline.find(ast.AsyncFor)]
    if any(_is_scan(one, list(one.body), dataset) for one in loops):
        return True
    for clause in outline.find(ast.comprehension):
        node = outline.parents[clause]
        assert isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        code: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        code += [part for one in node.generators for part in (*one.ifs, one.iter)]
        if _is_scan(clause, code, dataset):
            return True
    return any(
        last_name(call.func) == "stack"
        and any(isinstance(one, ast.ListComp) and _reads(one.elt, dataset) for one in call.args)
        for call in outline.find(ast.Call)
    )


def _is_scan(loop: _Loop, code: list[ast.AST], dataset: Callable[[ast.expr], bool]) -> bool:
    target, iterable = loop.target, loop.iter
    if isinstance(iterable, ast.Call) and isinstance(target, ast.Tuple) and len(target.elts) == 2 and iterable.args:
        target, iterable = target.elts[1], iterable.args[0]  # enumerate, under whatever name
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == 2 else []
    names = [one.id for one in parts if isinstance(one, ast.Name)]
    if len(names) == 2 and dataset(iterable):
        return not _uses(code, names[0]) and _uses(code, names[1])
    if not isinstance(target, ast.Name):
        return False
    for node in (inner for part in code for inner in ast.walk(part)):
        if isinstance(node, ast.Subscript) and _is_one(node.slice):
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id == target.id and dataset(iterable):
                return True
            if isinstance(owner, ast.Subscript) and dataset(owner.value):
                return True
        elif isinstance(node, ast.Assign) and any(_is_pair(one) or isinstance(one, ast.Name) for one in node.targets):
            value = node.value
            if isinstance(value, ast.Subscript) and dataset(value.value):
                return True
            if isinstance(value, ast.Name) and value.id == target.id and dataset(iterable):
                return True
    return False


def _reads(element: ast.expr, dataset: Callable[[ast.expr], bool]) -> bool:
    return isinstance(element, ast.Subscript) and any(
        isinstance(one, ast.Name) or (isinstance(one, ast.Subscript) and dataset(one.value)) for one in _owners(element)
    )


def _owners(node: ast.expr) -> Iterator[ast.expr]:
    while isinstance(node, ast.Subscript):
        node = node.value
        yield node


def _is_pair(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _uses(code: list[ast.AST], name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for part in code for one in ast.walk(part))
