"""Find the objects in datasets and loaders that cannot be pickled for workers, and write messages about them.

Four rules use these functions, each for one sort of object: lambdas, local functions, local classes, or state such as
open files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Set

from chirp_migrate.analysis.objects.pickled import ReportedUnpicklableKind, UnpicklableObject, find_unpicklable_objects
from chirp_migrate.rules.api import Module, Outline, Project
from chirp_migrate.rules.base import RuleMatch

_WORD = re.compile(r"\w+")
_OPENING = re.compile(r"[\s(]*")


def words_in_unpicklable_code(project: Project, kind: ReportedUnpicklableKind) -> frozenset[str]:
    """Return words for a search for files that create unpicklable objects of ``kind``.

    Each of these files contains at least one of the words.
    """
    return find_unpicklable_objects(project).words(kind)


def may_create_unpicklable(text: str, project: Project, kind: ReportedUnpicklableKind) -> bool:
    """Return whether a source text may create an unpicklable object of ``kind``, such as a lambda."""
    return has_word(text, words_in_unpicklable_code(project, kind))


def has_word(text: str, words: Set[str]) -> bool:
    """Return whether a text contains one of ``words`` as a whole word."""
    return bool(words) and not words.isdisjoint(_WORD.findall(text))


def creates_unpicklable(outline: Outline, project: Project, kind: ReportedUnpicklableKind) -> bool:
    """Return whether a module creates an unpicklable object of ``kind``, such as a lambda."""
    return bool(find_unpicklable_objects(project).objects_in_file(outline.path, kind))


def unpicklable_matches(
    module: Module, project: Project, kind: ReportedUnpicklableKind, reported_offsets: Iterable[int] = ()
) -> Iterator[RuleMatch]:
    """Yield a finding for each unpicklable object of ``kind``, except at ``reported_offsets``."""
    known = {_skip_opening_brackets(module, offset) for offset in reported_offsets}
    for offset, found in find_unpicklable_objects(project).remaining_objects(module, kind):
        if _skip_opening_brackets(module, offset) not in known:
            yield RuleMatch(offset, _message_for_object(found))


def _skip_opening_brackets(module: Module, offset: int) -> int:
    """Return the first offset after any spaces and opening brackets.

    For ``x`` and for ``(x)``, the result is the offset of ``x``.
    """
    match = _OPENING.match(module.text, offset)
    return match.end() if match else offset


def _message_for_object(found: UnpicklableObject) -> str:
    node = found.place.node
    name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
    match found.reported_kind:
        case ReportedUnpicklableKind.LAMBDA:
            what, remedy = "lambda", "Use a module-level function, or `functools.partial`"
        case ReportedUnpicklableKind.FUNCTION:
            what, remedy = f"local function `{name}`", "Move the function to module level, or use `functools.partial`"
        case ReportedUnpicklableKind.CLASS:
            what = f"local class `{name}`" if name else "class that is made in a function"
            remedy = "Move the class to module level"
        case ReportedUnpicklableKind.STATE:
            assert found.kind is not None
            what, happens, remedy = found.kind.value
            if found.attribute:
                return f"`self.{found.attribute}` ({what} made in `__init__`) {happens}. With workers, {remedy}"
            return f"{what} in {found.holder} {happens}. With workers, {remedy}"
    return f"{what} in {found.holder} cannot be pickled for workers. {remedy}"
