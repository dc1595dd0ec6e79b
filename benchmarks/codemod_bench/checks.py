"""Check a migrated tree without using the code of the tool."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from pyflakes import checker, messages

_UNDEFINED = (messages.UndefinedName, messages.UndefinedLocal, messages.UndefinedExport)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_UNTIDY = (messages.UnusedImport, messages.RedefinedWhileUnused, messages.UnusedVariable)


@dataclass
class Findings:
    """The problems of a migrated tree, each as one line of text.

    Attributes:
        uncompilable: changed files that no longer compile.
        undefined: names that are undefined only after the migration.
        redefined: functions and classes at the top level that are defined twice after the migration.
        unexplained: changed lines of the original on which the run has no finding.
        lost_comments: comments that were removed.
        untidy: imports, names and definitions that pyflakes reports as unused only after the migration.
    """

    uncompilable: list[str] = field(default_factory=list)
    undefined: list[str] = field(default_factory=list)
    redefined: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    lost_comments: list[str] = field(default_factory=list)
    untidy: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Add other findings to these."""
        for name, found in vars(other).items():
            getattr(self, name).extend(found)


def snapshot(root: Path) -> dict[str, bytes]:
    """Return the bytes of every file below ``root``, except the journal of the tool."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".chirp-migrate" not in path.relative_to(root).parts
    }


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """Return the files that differ, were removed or were added."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def check_file(path: str, before: bytes, after: bytes, lines: Collection[int]) -> Findings:
    """Check one rewritten Python file.

    Args:
        path: name of the file for messages.
        before: original bytes of the file.
        after: bytes of the file after the migration.
        lines: lines of the original that the run reports as rewritten.
    """
    found = Findings()
    old, new = _parsed(before), _parsed(after)
    if old is None:
        found.unexplained.append(f"{path}: rewritten, although the original file is not valid Python")
        return found
    if new is None:
        found.uncompilable.append(path)
        return found
    found.undefined += [f"{path}: {one}" for one in _more(_flakes(old, _UNDEFINED), _flakes(new, _UNDEFINED))]
    found.untidy += [f"{path}: {one}" for one in _more(_flakes(old, _UNTIDY), _flakes(new, _UNTIDY))]
    found.redefined += [f"{path}: {one}" for one in _more(_doubled(old), _doubled(new))]
    found.unexplained += [f"{path}:{line}" for line in unexplained_lines(before, after, lines)]
    found.lost_comments += [f"{path}: {one}" for one in _more(_comments(after), _comments(before))]
    return found


def _parsed(text: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<file>", "exec", dont_inherit=True)
            return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _more(before: Counter[str], after: Counter[str]) -> list[str]:
    """Return the entries that are more frequent afterwards."""
    return sorted((after - before).elements())


def _flakes(tree: ast.Module, kinds: tuple[type[messages.Message], ...]) -> Counter[str]:
    found = checker.Checker(tree).messages
    return Counter(one.message % one.message_args for one in found if isinstance(one, kinds))


def _doubled(tree: ast.Module) -> Counter[str]:
    """Return the names that several definitions at the top level have, so that the last one hides the others."""
    plain = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
    names = Counter(node.name for node in plain if not node.decorator_list)
    return Counter({name: number - 1 for name, number in names.items() if number > 1})


def _comments(text: bytes) -> Counter[str]:
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return Counter()
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def unexplained_lines(before: bytes, after: bytes, lines: Collection[int]) -> list[int]:
    """Return the changed lines of the original, from 1, on which the run has no finding.

    A line may change if it belongs to a statement with a finding, to an import, or to a statement that names a function
    or class with a finding. A definition with a finding may move with the comments above it. Whole statements may be
    removed, because a rewrite removes dead code. Blank lines may change.
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    statements = [node for node in ast.walk(ast.parse(before)) if isinstance(node, ast.stmt)]
    told = set(lines)
    moved = [node for node in statements if isinstance(node, _DEFINITIONS) and told & set(_own_lines(node))]
    names = {node.name for node in moved}
    allowed = {line for node in moved for line in _with_comments(node, old)}
    deletable = {line for node in statements for line in (_all_lines(node) if _is_whole(node) else _own_lines(node))}
    mentioning = {line for node in statements for line in _own_lines(node) if names and _mentions(node, names)}
    for node in statements:
        own = set(_own_lines(node))
        if isinstance(node, ast.Import | ast.ImportFrom) or own & (told | mentioning):
            allowed |= own
    wrong: list[int] = []
    for tag, i1, i2, _, _ in _opcodes(old, new):
        if tag == "equal" or tag == "insert":
            continue
        for line in range(i1 + 1, i2 + 1):
            gone = tag == "delete" and line in deletable
            if line not in allowed and not gone and old[line - 1].strip():
                wrong.append(line)
    return wrong


def _with_comments(node: ast.stmt, lines: list[bytes]) -> range:
    """Return the lines of a definition and of the comments directly above it."""
    span = _all_lines(node)
    start = span.start
    while start > 1 and lines[start - 2].lstrip().startswith(b"#"):
        start -= 1
    return range(start, span.stop)


def _is_whole(node: ast.stmt) -> bool:
    return isinstance(node, _DEFINITIONS) or not hasattr(node, "body")


def _mentions(node: ast.stmt, names: Collection[str]) -> bool:
    own = set(_own_lines(node))
    return any(isinstance(one, ast.Name) and one.id in names and one.lineno in own for one in ast.walk(node))


def _all_lines(node: ast.stmt) -> range:
    return range(_first_line(node), (node.end_lineno or node.lineno) + 1)


def _own_lines(node: ast.stmt) -> Iterable[int]:
    """Return the lines of a simple statement, or of the head of a compound statement."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return _all_lines(node)
    first = body[0]
    start = first.pattern.lineno if isinstance(first, ast.match_case) else _first_line(first)
    return range(_first_line(node), max(start, node.lineno + 1))


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _opcodes(old: list[bytes], new: list[bytes]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the differences by line; equal lines at the beginning and end are skipped to save time."""
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle = SequenceMatcher(None, old[start : len(old) - end], new[start : len(new) - end], autojunk=False)
    for tag, i1, i2, j1, j2 in middle.get_opcodes():
        yield tag, i1 + start, i2 + start, j1 + start, j2 + start
