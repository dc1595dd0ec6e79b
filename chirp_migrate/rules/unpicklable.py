"""Messages of several rules about unpicklable objects in datasets and loaders with workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Set

from chirp_migrate.analysis.objects.pickled import ObjectSort, UnpicklableObject, unpicklable
from chirp_migrate.rules.api import Module, Outline, Project
from chirp_migrate.rules.base import Proposal

__all__ = [
    "has_word",
    "makes_unpicklable",
    "names_unpicklable",
    "unpicklable_proposals",
    "unpicklable_words",
]

_WORD = re.compile(r"\w+")
_OPENING = re.compile(r"[\s(]*")


def unpicklable_words(project: Project, sort: ObjectSort) -> frozenset[str]:
    """Return words; every file that creates such an object contains at least one of them."""
    return unpicklable(project).words(sort)


def names_unpicklable(text: str, project: Project, sort: ObjectSort) -> bool:
    """Return whether a text may create such an object."""
    return has_word(text, unpicklable_words(project, sort))


def has_word(text: str, words: Set[str]) -> bool:
    """Return whether one of ``words`` is a whole word of a text."""
    return bool(words) and not words.isdisjoint(_WORD.findall(text))


def makes_unpicklable(outline: Outline, project: Project, sort: ObjectSort) -> bool:
    """Return whether a module creates such an object."""
    return bool(unpicklable(project).in_file(outline.path, sort))


def unpicklable_proposals(
    module: Module, project: Project, sort: ObjectSort, reported: Iterable[int] = ()
) -> Iterator[Proposal]:
    """Report such objects, except at places that a rule has already reported."""
    known = {_bare(module, offset) for offset in reported}
    for offset, found in unpicklable(project).places(module, sort):
        if _bare(module, offset) not in known:
            yield Proposal(offset, _message(found))


def _bare(module: Module, offset: int) -> int:
    """Return the offset after opening brackets, which may or may not belong to an expression."""
    match = _OPENING.match(module.text, offset)
    return match.end() if match else offset


def _message(found: UnpicklableObject) -> str:
    node = found.place.node
    name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
    match found.sort:
        case ObjectSort.LAMBDA:
            what, remedy = "lambda", "Use a module-level function, or `functools.partial`"
        case ObjectSort.FUNCTION:
            what, remedy = f"local function `{name}`", "Move the function to module level, or use `functools.partial`"
        case ObjectSort.CLASS:
            what = f"local class `{name}`" if name else "class that is made in a function"
            remedy = "Move the class to module level"
        case ObjectSort.STATE:
            assert found.kind is not None
            what, happens, remedy = found.kind.value
            if found.attribute:
                return f"`self.{found.attribute}` ({what} made in `__init__`) {happens}. With workers, {remedy}"
            return f"{what} in {found.holder} {happens}. With workers, {remedy}"
    return f"{what} in {found.holder} cannot be pickled for workers. {remedy}"
