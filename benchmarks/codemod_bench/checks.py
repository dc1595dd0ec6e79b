"""What must hold for a migrated tree, checked without the tool's own machinery."""

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
    """What was found wrong, each as one line of text; all empty is as it should be.

    Attributes:
        uncompilable: changed files that no longer compile.
        undefined: names that are undefined now and were not.
        redefined: top-level functions and classes that are now defined twice.
        unexplained: changed lines of the original that no finding of the run points at.
        lost_comments: comments that are gone.
        untidy: imports, names and definitions that pyflakes now calls unused; a matter of taste, not of right.
    """

    uncompilable: list[str] = field(default_factory=list)
    undefined: list[str] = field(default_factory=list)
    redefined: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    lost_comments: list[str] = field(default_factory=list)
    untidy: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Take over what was found elsewhere."""
        for name, found in vars(other).items():
            getattr(self, name).extend(found)


def snapshot(root: Path) -> dict[str, bytes]:
    """The bytes of every file below ``root``, the tool's own journal left out."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".chirp-migrate" not in path.relative_to(root).parts
    }


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """Files that differ, are gone or are new."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def check_file(path: str, before: bytes, after: bytes, lines: Collection[int]) -> Findings:
    """Check one rewritten Python file.

    Args:
        path: what to call it.
        before: its original bytes.
        after: its bytes now.
        lines: lines of the original that the run said it rewrote something at.
    """
    found = Findings()
    old, new = _parsed(before), _parsed(after)
    if old is None:
        found.unexplained.append(f"{path}: rewritten, but it was no Python before")
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
    """What there is more of afterwards."""
    return sorted((after - before).elements())


def _flakes(tree: ast.Module, kinds: tuple[type[messages.Message], ...]) -> Counter[str]:
    found = checker.Checker(tree).messages
    return Counter(one.message % one.message_args for one in found if isinstance(one, kinds))


def _doubled(tree: ast.Module) -> Counter[str]:
    """Names that several definitions at the top level share, where the later ones hide the first."""
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
    """1-based lines of the original that changed although no finding of the run is about them.

    A line may change when it belongs to a statement in which a finding lies, to an import, or to a statement that
    names a function or class with a finding; such a definition takes the comments above it along. Whole statements
    may go, since what a rewrite makes dead is removed.
    Blank lines are nobody's.
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
    """Lines of a definition and of the comments directly above it."""
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
    """Lines of a simple statement, or of the head of a compound one."""
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
    """Differences by line, the equal beginning and end left out, which is what takes the time."""
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle = SequenceMatcher(None, old[start : len(old) - end], new[start : len(new) - end], autojunk=False)
    for tag, i1, i2, j1, j2 in middle.get_opcodes():
        yield tag, i1 + start, i2 + start, j1 + start, j2 + start
