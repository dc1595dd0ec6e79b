"""Test quickly whether a module may contain a label scan: code that iterates over a dataset only for the labels.

The test reads the syntax tree of ``ast``, which is faster than LibCST. The test accepts all code that the module
``label_scan`` recognises, and some other code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from chirp_migrate.analysis.datasets.dataset_expressions import DATASET_NAME
from chirp_migrate.analysis.known_names import may_name_dataset
from chirp_migrate.syntax.module import walk_tree
from chirp_migrate.syntax.outline import Outline, last_part_of_name
from chirp_migrate.syntax.project import Project

#: Words that may show that a variable is a dataset. In a text without these words, only the name of the variable can
#: show this.
_FACTS = re.compile(r"Dataset|Subset|random_split|DataLoader|create_\w*loader|torchvision")

_Loop = ast.For | ast.comprehension


def contains_dataset_words(text: str, project: Project) -> bool:
    """Return whether a text contains words from which the analysis may infer that a variable is a dataset.

    Examples are ``Dataset``, ``DataLoader`` and the names of the project's dataset classes. A typical name of a
    variable, such as ``train_set``, does not count.
    """
    return _FACTS.search(text) is not None or may_name_dataset(text, project)


def may_scan_labels(outline: Outline, project: Project) -> bool:
    """Return whether a module may contain a loop or comprehension that only uses the labels of a dataset."""
    facts = contains_dataset_words(outline.text, project)

    def dataset(node: ast.expr) -> bool:
        name = last_part_of_name(node)
        return bool(name) and (facts or DATASET_NAME.fullmatch(name) is not None)

    if any(_may_only_collect(loop.body) and _is_scan(loop, loop.body, dataset) for loop in outline.find(ast.For)):
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
    """Return whether statements may only collect values, as in ``labels.append(y)``.

    The result is True for all statements that ``collecting_loops.has_only_collecting_statements`` accepts, and for some
    other statements.
    """
    for one in statements:
        match one:
            case ast.Assign() | ast.AugAssign() | ast.Pass() | ast.Expr(value=ast.Call(func=ast.Attribute(), args=[_])):
                pass
            case ast.If() if _may_only_collect([*one.body, *one.orelse]):
                pass
            case _:
                return False
    return True


def _is_scan(loop: _Loop, code: Sequence[ast.AST], dataset: Callable[[ast.expr], bool]) -> bool:
    """Return whether a loop reads the samples of a dataset, and may use only the second item of each sample."""
    inside = [node for part in code for node in walk_tree(part)]
    read = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    items = [node for node in inside if isinstance(node, ast.Subscript)]
    sources = [loop.iter, *(loop.iter.args if isinstance(loop.iter, ast.Call) else ()), *(one.value for one in items)]
    pairs = [node.elts for node in walk_tree(loop.target) if isinstance(node, ast.Tuple | ast.List)]
    return any(map(dataset, sources)) and (
        any(len(pair) == 2 and last_part_of_name(pair[0]) not in read for pair in pairs)
        or any(isinstance(one.slice, ast.Constant) and one.slice.value == 1 for one in items)
        or any(isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List) for node in inside)
    )
