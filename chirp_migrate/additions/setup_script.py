"""Read the lists of dependencies that ``setup.py`` passes to ``setup(…)``, and add entries to these lists.

The script is parsed and never executed. A list is found if it is a literal in the call, or if it is the only value of a
variable. A list can be extended only if the variable has no other use. The exception is a dictionary of extras: the
script may also read all its lists (``extras["all"] = sum(extras.values(), [])``).
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["setup_call_arguments", "with_entry", "without_entry"]

#: Modules whose function ``setup`` describes a distribution.
_SETUPTOOLS = ("setuptools", "distutils.core")
#: The text between the last entry of a list and its bracket: a comma, and a comment on the same line.
_LIST_END = re.compile(r"(?P<comma>[ \t]*,|)(?P<comment>[ \t]*#[^\r\n]*|)(?:\s|#[^\r\n]*(?![^\r\n]))*")


def setup_call_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of ``setup(…)`` that are literals, or names to which the script assigns one literal.

    Of a dictionary such as ``extras_require``, the result contains the entries with such values.
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


def _literals(node: ast.expr, tree: ast.AST) -> Iterator[Any]:
    """Yield the value of a literal. For a dictionary, yield a dictionary of the entries whose values are literals."""
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
    """Return the only value that a script assigns to a name; return any other expression unchanged."""
    if not isinstance(node, ast.Name):
        return node
    assigned = (one for one in ast.walk(tree) if isinstance(one, ast.Assign))
    values = [
        one.value for one in assigned for target in one.targets if isinstance(target, ast.Name) and target.id == node.id
    ]
    return values[0] if len(values) == 1 else node


def with_entry(
    text: str, entry: str, is_wanted: Callable[[Sequence[str]], bool], *, is_main: bool, longest: int
) -> str:
    """Return a ``setup.py`` in which lists of dependencies have one more entry at their end.

    The lists keep their quotes, commas, comments and lines. A list on one line gets a line for each entry if its line
    would become too long.

    Args:
        text: the script.
        entry: the requirement to add, without quotes.
        is_wanted: decides from the entries of a list whether the list gets the new entry.
        is_main: whether ``install_requires`` gets the entry, and not the lists in ``extras_require``.
        longest: the longest permitted line, in columns.

    Raises:
        ValueError: the script is not valid, no wanted list is a plain literal, or a list cannot be extended reliably.
    """
    lists = _lists(text)
    chosen = [number for number, one in enumerate(lists) if one.is_main == is_main and is_wanted(one.entries)]
    if not chosen:
        raise ValueError("the list with torch is not a plain list of strings that only `setup` uses")
    after = _extend(text, chosen, entry, longest)
    expected = [[*one.entries, entry] if number in chosen else [*one.entries] for number, one in enumerate(lists)]
    if [[*one.entries] for one in _lists(after)] != expected:
        raise ValueError("the list of dependencies has a form that chirp-migrate cannot parse")
    return after


def without_entry(text: str, is_added: Callable[[str], bool]) -> str:
    """Return a ``setup.py`` without the entries that :func:`with_entry` added at the end of lists.

    The text is unchanged if its lists cannot be shortened reliably.

    Args:
        text: the script.
        is_added: decides whether an entry was added.
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
        is_main: whether the list is ``install_requires`` and not an extra.
        entries: its entries.
        spans: start and end of each entry.
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
        ValueError: the text is not Python, or it does not contain exactly one call of ``setup``.
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
    """Return whether an expression names the function ``setup`` of setuptools."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in _SETUPTOOLS:
            names |= {one.asname or one.name for one in node.names if one.name == "setup"}
        elif isinstance(node, ast.Import):
            names |= {f"{one.asname or one.name}.setup" for one in node.names if one.name in _SETUPTOOLS}
    return ast.unparse(function) in names


def _only_value(node: ast.expr, tree: ast.Module) -> ast.expr:
    """Return the value of a variable of the module that is assigned once and read once, by ``node``.

    Code may also add keys to a dictionary, and read all its values. Any other expression is returned unchanged.
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
    """Yield the uses of a dictionary that add a key, or that read all values."""
    if not isinstance(value, ast.Dict):
        return
    keys = [getattr(one, "value", None) for one in value.keys]
    for one in ast.walk(tree):
        match one:
            case ast.Subscript(value=ast.Name(id=used) as use, slice=ast.Constant(value=key), ctx=ast.Store()):
                if used == name and key not in keys:
                    yield use
            case ast.Call(func=ast.Attribute(value=ast.Name(id=used) as use, attr="values"), args=[], keywords=[]):
                if used == name:
                    yield use


def _literal(text: str, node: ast.List | ast.Tuple, is_main: bool) -> Iterator[_Literal]:
    """Yield a list if all its entries are plain strings, and if brackets surround it."""
    entries = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(line: int, column: int) -> int:
        """Return the position in the text for a line, which starts at 1, and a column in bytes."""
        start = starts[line - 1] + (line == 1 and text.startswith("\ufeff"))
        return start + len(text[start:].split("\n", 1)[0].encode()[:column].decode())

    start, end = (position(node.lineno, node.col_offset), position(node.end_lineno or 0, node.end_col_offset or 0))
    spans = [
        (position(one.lineno, one.col_offset), position(one.end_lineno or 0, one.end_col_offset or 0))
        for one in node.elts
    ]
    if entries and len(entries) == len(node.elts) and text[start] in "[(" and start < spans[0][0]:
        yield _Literal(is_main, tuple(entries), tuple(spans), start, end - 1)


def _extend(text: str, chosen: Sequence[int], entry: str, longest: int) -> str:
    """Return a script in which the lists with these numbers have one more entry."""
    for number in chosen:
        text = _extended(text, _lists(text)[number], entry, longest)
    return text


def _extended(text: str, given: _Literal, entry: str, longest: int) -> str:
    """Return a script in which a list has one more entry, on its own line if the last entry has its own line."""
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
        if len(after[line:].split("\n", 1)[0].rstrip()) <= longest or "\n" in text[given.start : given.end]:
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
    """Return a script in which a list lacks its last entry: the reverse of :func:`_extended`."""
    (_, last), (start, end) = given.spans[-2:]
    lines = text[last:start].rpartition("\n")
    if not lines[1]:
        return text[:last] + text[end:]
    comma = _LIST_END.fullmatch(text, end, given.end)
    if comma is not None and comma["comma"]:
        return text[:last] + lines[0].removesuffix("\r") + text[comma.end("comma") :]
    return text[:last] + lines[0].removesuffix("\r").replace(",", "", 1) + text[end:]
