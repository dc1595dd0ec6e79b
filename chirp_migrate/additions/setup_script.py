"""Read the lists of dependencies that ``setup.py`` passes to ``setup(…)``, and add entries to these lists.

The script is parsed, and never executed. The module finds a list if the list is a literal in the call of ``setup``. The
module also finds a list if the call passes a variable, and the list is the only value of the variable. The module
extends the list of a variable only if the script does not use the variable elsewhere. If the variable is a dictionary
of extras, the script may also read all its lists and add keys, as in ``extras["all"] = sum(extras.values(), [])``.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: Modules from which a script imports the function ``setup``.
_SETUPTOOLS = ("setuptools", "distutils.core")
#: Pattern of expressions that combine the entries of several lists.
_ALL_ENTRIES = r"sum\(lists, \[\]\)|(itertools\.)?chain(\(\*lists|\.from_iterable\(lists)\)"
_JOINS_LISTS = re.compile(
    rf"((list|tuple|set|sorted)\()*({_ALL_ENTRIES}|[\[{{(](\w+) for (\w+) in lists for \6 in \7[\]}})])\)*"
)
#: Pattern of the text between the last entry of a list and its closing bracket: a comma, comments and white space.
_LIST_END = re.compile(r"(?P<comma>[ \t]*,|)(?P<comment>[ \t]*#[^\r\n]*|)(?:\s|#[^\r\n]*(?![^\r\n]))*")


def setup_call_arguments(text: str) -> dict[str, Any]:
    """Return the keyword arguments of ``setup(…)`` that are literals, or variables whose only value is a literal.

    For a dictionary such as ``extras_require``, the result contains only the entries whose values are literals.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) != "setup":
            continue
        for keyword in call.keywords:
            if keyword.arg is not None:
                found.update((keyword.arg, value) for value in _literals(keyword.value, tree))
    return found


def dependency_lists(text: str) -> list[list[Any]]:
    """Return the entries of each dependency list in ``setup.py``: first ``install_requires``, then each extra."""
    given = setup_call_arguments(text)
    extras = given.get("extras_require")
    lists = [given.get("install_requires"), *(extras.values() if isinstance(extras, dict) else ())]
    return [list(one) if isinstance(one, list | tuple) else [] for one in lists]


def _literals(node: ast.expr, tree: ast.AST) -> Iterator[Any]:
    """Yield the value of an expression if the value is a literal.

    The result has at most one item. For a dictionary, the item contains only the entries whose values are literals.
    """
    value = _value_of(node, tree)
    if isinstance(value, ast.Dict):
        yield {
            key.value: literal
            for key, one in zip(value.keys, value.values, strict=True)
            if isinstance(key, ast.Constant)
            for literal in _literals(one, tree)
        }
        return
    with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        yield ast.literal_eval(value)


def _value_of(node: ast.expr, tree: ast.AST) -> ast.expr:
    """Return the only value that a script assigns to the variable ``node``.

    If ``node`` is no variable, or a variable with several values, the result is ``node`` itself.
    """
    if not isinstance(node, ast.Name):
        return node
    assigned = (one for one in ast.walk(tree) if isinstance(one, ast.Assign))
    values = [
        one.value for one in assigned for target in one.targets if isinstance(target, ast.Name) and target.id == node.id
    ]
    return values[0] if len(values) == 1 else node


def append_dependency_entry(
    text: str, entry: str, is_wanted: Callable[[Sequence[str]], bool], *, is_main: bool, line_length: int
) -> str:
    """Return a ``setup.py`` in which some lists of dependencies have a new last entry.

    The lists keep their quotes, commas, comments and line breaks. If the line of a list would become too long, each
    entry gets its own line.

    Args:
        text: the script.
        entry: the requirement to add, without quotes.
        is_wanted: function that receives the entries of a list, and returns whether the list gets the new entry.
        is_main: whether to extend ``install_requires``; False extends lists in ``extras_require``.
        line_length: the longest permitted line, in columns.

    Raises:
        ValueError: the script is not valid Python or does not call ``setup`` exactly once, or the edit would not add
            exactly the new entries.
    """
    lists = _lists(text)
    chosen = [number for number, one in enumerate(lists) if one.is_main == is_main and is_wanted(one.entries)]
    after = text
    for number in chosen:
        after = _extended(after, _lists(after)[number], entry, line_length)
    expected = [[*one.entries, entry] if number in chosen else [*one.entries] for number, one in enumerate(lists)]
    if [[*one.entries] for one in _lists(after)] != expected:
        raise ValueError("the list of dependencies has a form that chirp-migrate cannot parse")
    return after


def remove_dependency_entry(text: str, is_added: Callable[[str], bool]) -> str:
    """Return a ``setup.py`` without the entries that :func:`append_dependency_entry` added at the end of lists.

    The text is unchanged if the edit would not remove exactly these entries. An entry that is the only entry of a list
    stays.

    Args:
        text: the script.
        is_added: function that gets an entry, and returns whether :func:`append_dependency_entry` added the entry.
    """
    try:
        lists = _lists(text)
        chosen = [number for number, one in enumerate(lists) if len(one.entries) > 1 and is_added(one.entries[-1])]
        after = text
        for number in chosen:
            after = _shortened(after, _lists(after)[number])
        kept = [[*one.entries[:-1]] if number in chosen else [*one.entries] for number, one in enumerate(lists)]
        return after if [[*one.entries] for one in _lists(after)] == kept else text
    except ValueError:
        return text


@dataclass(frozen=True)
class _Literal:
    """A list or tuple of strings in a script, with positions in its text.

    Attributes:
        is_main: whether the list is ``install_requires``; False for an extra in ``extras_require``.
        entries: the strings in the list.
        spans: start and end position of each entry.
        start: position of the opening bracket.
        end: position of the closing bracket.
    """

    is_main: bool
    entries: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    start: int
    end: int


def _lists(text: str) -> list[_Literal]:
    """Return the lists of dependencies that a script passes to ``setup`` and uses nowhere else.

    Raises:
        ValueError: the text is not valid Python, or does not contain exactly one call of ``setup``.
    """
    body = text.removeprefix("\ufeff")
    try:
        tree = ast.parse(body)
    except SyntaxError:
        raise ValueError("the file is not valid Python") from None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_setup(node.func, tree)]
    if len(calls) != 1 or "\r" in body.replace("\r\n", ""):
        raise ValueError("the file does not call `setup` of setuptools exactly once")
    found: list[_Literal] = []
    for keyword in calls[0].keywords:
        if keyword.arg not in ("install_requires", "extras_require"):
            continue
        given = _only_value(keyword.value, tree)
        extras = given.values if isinstance(given, ast.Dict) else []
        for node in [given] if keyword.arg == "install_requires" else [_only_value(one, tree) for one in extras]:
            if isinstance(node, ast.List | ast.Tuple):
                found += _literal(text, node, keyword.arg == "install_requires")
    return found


def _is_setup(function: ast.expr, tree: ast.Module) -> bool:
    """Return whether an expression, such as ``setup`` or ``setuptools.setup``, refers to setuptools' function."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in _SETUPTOOLS:
            names |= {one.asname or one.name for one in node.names if one.name == "setup"}
        elif isinstance(node, ast.Import):
            names |= {f"{one.asname or one.name}.setup" for one in node.names if one.name in _SETUPTOOLS}
    return ast.unparse(function) in names


def _only_value(node: ast.expr, tree: ast.Module) -> ast.expr:
    """Return the value of ``node`` if this variable is assigned once, passed to ``setup``, and used nowhere else.

    If the value is a dictionary, the script may also add keys and read all values. For a variable with several
    assignments or other uses, the result is ``node`` itself.
    """
    if not isinstance(node, ast.Name):
        return node
    keys = ("id", "arg", "name", "asname")
    uses = [one for one in ast.walk(tree) if any(getattr(one, key, None) == node.id for key in keys)]
    values = [
        one.value
        for one in tree.body
        if isinstance(one, ast.Assign) and [ast.unparse(target) for target in one.targets] == [node.id]
    ]
    if len(values) != 1:
        return node
    harmless = list(_harmless_uses(node.id, values[0], tree))
    others = [one for one in uses if not isinstance(one, ast.keyword) and one not in harmless]
    return values[0] if len(others) == 2 else node


def _harmless_uses(name: str, value: ast.expr, tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the uses of the dictionary ``name`` in statements such as ``extras["all"] = sum(extras.values(), [])``.

    Such a statement only adds a key that combines the existing lists, so the lists can still be extended.
    """
    if not isinstance(value, ast.Dict) or not all(isinstance(one, ast.Constant) for one in value.keys):
        return
    keys = [one.value for one in value.keys if isinstance(one, ast.Constant)]
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=used), slice=ast.Constant(value=key))], value=joined
            ) if used == name and key not in keys:
                if _JOINS_LISTS.fullmatch(ast.unparse(joined).replace(f"{name}.values()", "lists")):
                    yield from (one for one in ast.walk(statement) if isinstance(one, ast.Name) and one.id == name)


def _literal(text: str, node: ast.List | ast.Tuple, is_main: bool) -> Iterator[_Literal]:
    """Yield ``node`` with its positions if all entries are plain strings. A tuple without brackets is skipped."""
    entries = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(line: int, column: int) -> int:
        """Return the index of a character in the text, for a line (from 1) and a column (in bytes, from 0)."""
        start = starts[line - 1] + (line == 1 and text.startswith("\ufeff"))
        return start + len(text[start:].split("\n", 1)[0].encode()[:column].decode())

    start, end = (position(node.lineno, node.col_offset), position(node.end_lineno or 0, node.end_col_offset or 0))
    spans = [
        (position(one.lineno, one.col_offset), position(one.end_lineno or 0, one.end_col_offset or 0))
        for one in node.elts
    ]
    if entries and len(entries) == len(node.elts) and text[start] in "[(" and start < spans[0][0]:
        yield _Literal(is_main, tuple(entries), tuple(spans), start, end - 1)


def _extended(text: str, given: _Literal, entry: str, line_length: int) -> str:
    """Return a script in which a list has a new last entry.

    If the previous entry is on its own line, the new entry also gets its own line.
    """
    start, last = given.spans[-1]
    ended = _LIST_END.fullmatch(text, last, given.end)
    if ended is None:
        raise ValueError("the list of dependencies has a form that chirp-migrate cannot parse")
    quotes = [text[one] for one, _ in given.spans if text[one] in "'\""]
    mark = "'" if 2 * quotes.count("'") > len(quotes) else '"'
    line = text.rfind("\n", 0, start) + 1
    newline = "\r\n" if "\r\n" in text else "\n"
    if text[line:start].strip():
        after = f"{text[:last]}, {mark}{entry}{mark}{text[last:]}"
        if len(after[line:].split("\n", 1)[0].rstrip()) <= line_length or "\n" in text[given.start : given.end]:
            return after
        indent = re.match(r"[ \t]*", text[line:])[0]  # type: ignore[index]
        inner = indent + ("\t" if "\t" in indent else "    ")
        entries = [*(text[slice(*one)] for one in given.spans), f"{mark}{entry}{mark}"]
        lines = "".join(f"{newline}{inner}{one}," for one in entries)
        return f"{text[: given.start + 1]}{lines}{newline}{indent}{text[given.end :]}"
    kept = f"{text[:last]}{ended['comma'] or ','}{ended['comment']}"
    own = f"{text[line:start]}{mark}{entry}{mark}{',' if ended['comma'] else ''}"
    return f"{kept}{newline}{own}{text[ended.end('comment') :]}"


def _shortened(text: str, given: _Literal) -> str:
    """Return a script without the last entry of a list: the reverse of :func:`_extended`."""
    (_, last), (start, end) = given.spans[-2:]
    lines = text[last:start].rpartition("\n")
    if not lines[1]:
        return text[:last] + text[end:]
    comma = _LIST_END.fullmatch(text, end, given.end)
    if comma is not None and comma["comma"]:
        return text[:last] + lines[0].removesuffix("\r") + text[comma.end("comma") :]
    return text[:last] + lines[0].removesuffix("\r").replace(",", "", 1) + text[end:]
