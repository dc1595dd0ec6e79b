"""One parsed Python module: its tree, exact source spans and resolved names.

LibCST finds; nothing here changes code. Spans are code-point offsets into the decoded text, so that rules
can propose :class:`~chirp_migrate.plan.Edit` objects that are spliced into the original source.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import TypeVar

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    MetadataWrapper,
    PositionProvider,
    QualifiedNameProvider,
    QualifiedNameSource,
)

_NEWLINE = re.compile(r"\r\n|\r|\n")


Node = TypeVar("Node", bound=cst.CSTNode)

#: Fields of LibCST nodes that hold layout, not code.
_LAYOUT = re.compile(
    r"whitespace|leading_lines|lines_after|header|footer|[lr]par|[lr]bracket|[lr]brace|comma|equal|semicolon|indent"
)


class UnparsableModule(Exception):
    """The text is not Python that LibCST reads and reproduces; the message says where and why."""


class Module:
    """A module under analysis.

    Args:
        path: posix path relative to the root of the backend, as findings name it.
        text: decoded source, newlines untranslated.

    Raises:
        UnparsableModule: on a syntax error, or when the tree does not reproduce the text exactly.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        # A form feed alone on its line is white space to Python, but LibCST drops it: same length, same lines.
        parsed = re.sub(r"(?m)^\f(?=[\r\n])", " ", text)
        try:
            tree = cst.parse_module(parsed)
        except cst.ParserSyntaxError as error:
            raise UnparsableModule(f"syntax error in line {error.raw_line}") from error
        except RecursionError as error:
            raise UnparsableModule("expressions nested too deeply to be read") from error
        if tree.code != parsed:
            raise UnparsableModule("LibCST does not reproduce this file exactly, so it is left alone")
        self._wrapper = MetadataWrapper(tree, unsafe_skip_copy=True)
        self.tree = self._wrapper.module

    @property
    def name(self) -> str:
        """Dotted module name as the backend imports it from its root (``utils.training_engine``)."""
        parts = list(PurePosixPath(self.path).with_suffix("").parts)
        if parts and parts[-1] == "__init__":
            parts.pop()
        return ".".join(parts)

    @property
    def package(self) -> str:
        """Dotted name of the package that relative imports of this module start from."""
        if PurePosixPath(self.path).name == "__init__.py":
            return self.name
        return self.name.rpartition(".")[0]

    @cached_property
    def newline(self) -> str:
        """The newline this module's first line ends with (``\\n`` when it has a single line)."""
        found = _NEWLINE.search(self.text)
        return found.group() if found else "\n"

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of the first code point of every line."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    @cached_property
    def _index(self) -> tuple[dict[cst.CSTNode, cst.CSTNode], dict[type[cst.CSTNode], list[cst.CSTNode]]]:
        parents: dict[cst.CSTNode, cst.CSTNode] = {}
        by_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = {}
        for node in walk(self.tree):
            by_type.setdefault(type(node), []).append(node)
            for child in code_children(node):
                parents[child] = node
        return parents, by_type

    @property
    def parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        """Parent of every node that is code."""
        return self._index[0]

    def find(self, *types: type[Node]) -> list[Node]:
        """Every node of the given types, in order of the text for each type."""
        by_type = self._index[1]
        return [node for one in types for node in by_type.get(one, ())]  # type: ignore[misc]

    @cached_property
    def _positions(self) -> Mapping[cst.CSTNode, object]:
        return self._wrapper.resolve(PositionProvider)

    @cached_property
    def _qualified(self) -> Mapping[cst.CSTNode, object]:
        return self._wrapper.resolve(QualifiedNameProvider)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Offsets ``(start, end)`` of ``node`` without surrounding white space."""
        code_range = self._positions[node]
        start, end = code_range.start, code_range.end  # type: ignore[attr-defined]
        starts = self.line_starts
        return starts[start.line - 1] + start.column, starts[end.line - 1] + end.column

    def source(self, node: cst.CSTNode) -> str:
        """Source text of ``node``, its own parentheses included."""
        return self.tree.code_for_node(node)

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and column of an offset."""
        line = bisect_right(self.line_starts, offset) - 1
        return line + 1, offset - self.line_starts[line] + 1

    def line_start(self, offset: int) -> int:
        """Offset at which the line holding ``offset`` begins."""
        return self.line_starts[bisect_right(self.line_starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Offset just behind the newline of the line holding ``offset`` (or the end of the text)."""
        line = bisect_right(self.line_starts, offset)
        return self.line_starts[line] if line < len(self.line_starts) else len(self.text)

    def indentation(self, offset: int) -> str:
        """Leading white space of the line holding ``offset``."""
        match = re.match(r"[ \t]*", self.text[self.line_start(offset) :])
        return match.group() if match else ""

    def qualified_names(self, node: cst.CSTNode) -> set[str]:
        """Fully qualified names ``node`` may stand for, relative imports made absolute.

        Names defined in this module come back prefixed with the module's own dotted name.
        """
        names: set[str] = set()
        found = self._qualified.get(node, ())
        if callable(found):
            found = found()
        for qualified in found:  # type: ignore[attr-defined]
            if qualified.source is QualifiedNameSource.LOCAL:
                names.add(f"{self.name}.{qualified.name}")
            elif qualified.source is QualifiedNameSource.BUILTIN:
                names.add(qualified.name)
            else:
                names.add(self.absolute(qualified.name))
        return names

    def absolute(self, name: str) -> str:
        """Resolve leading dots of a relative import against this module's package."""
        bare = name.lstrip(".")
        dots = len(name) - len(bare)
        if not dots:
            return name
        package = self.package.split(".") if self.package else []
        base = package[: len(package) - (dots - 1)] if dots > 1 else package
        return ".".join([*base, bare]) if bare else ".".join(base)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Parents of ``node`` from the nearest to the module."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def enclosing_function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Innermost function definition around ``node``."""
        return next((a for a in self.ancestors(node) if isinstance(a, cst.FunctionDef)), None)

    def enclosing_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Innermost class definition around ``node``."""
        return next((a for a in self.ancestors(node) if isinstance(a, cst.ClassDef)), None)

    def top_level_statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Statement of the module body that holds ``node``."""
        current = node
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, cst.Module):
                break
            current = ancestor
        return current


@cache
def _code_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(name for name in kind.__dataclass_fields__ if not _LAYOUT.search(name))


def code_children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Child nodes in order of the text, white space, commas and brackets left out."""
    for name in _code_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, cst.CSTNode))


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """``node`` and every node of code below it, in order of the text."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending += reversed(list(code_children(current)))


def matching(node: cst.CSTNode, matcher: m.BaseMatcherNode) -> list[cst.CSTNode]:
    """Nodes at or below ``node`` that match, in order of the text.

    What ``libcst.matchers.findall`` gives, without building a visitor and without looking at layout.
    """
    options = matcher.options if isinstance(matcher, m.OneOf) else (matcher,)
    by_kind = {type(option).__name__: [o for o in options if type(o) is type(option)] for option in options}
    return [
        one
        for one in walk(node)
        if type(one).__name__ in by_kind and any(m.matches(one, o) for o in by_kind[type(one).__name__])
    ]
