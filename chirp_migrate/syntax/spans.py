"""Find the span of every node of a LibCST tree: the offsets in the text at which the node starts and ends.

LibCST's nodes have no positions. So the module generates code for the tree, and records where the code of each node
starts and ends. The generated code is not always equal to the text, because LibCST drops some form feeds, blanks and
trailing lines. If generated code and text differ in white space, the module ignores white space to convert the recorded
offsets to offsets in the text.

The module extends ``CodegenState``, a class of LibCST that generates code and is not public. LibCST's own position
provider extends the class in the same way, but takes four times as long.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate

import libcst as cst
from libcst._nodes.internal import CodegenState

_BLANK = re.compile(r"\s+")

#: Compound statements with an expression in the header, such as the condition of an ``if``.
_HEADED = (cst.FunctionDef, cst.ClassDef, cst.With, cst.For, cst.While, cst.If)
#: A marker that replaces the block of a statement. The generated code before the marker is the header of the statement.
_NO_BLOCK = cst.SimpleStatementSuite((), leading_whitespace=cst.SimpleWhitespace(""))

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement | cst.BaseSmallStatement


class TextMismatch(ValueError):
    """Raised if the code of a tree and the text differ in more than white space."""


def node_spans(tree: cst.Module, text: str) -> Mapping[cst.CSTNode, tuple[int, int]]:
    """Return the offsets ``(start, end)`` of every node in ``text``, without the white space around the node.

    Raises:
        TextMismatch: ``tree`` is not a tree of ``text``.
    """
    state = _SpanState(tree.default_indent, tree.default_newline)
    tree._codegen(state)
    written = "".join(state.tokens)
    if written == text:
        return state.spans
    starts, ends = _match_offsets(written, text)
    # A span may extend beyond the end of the text, because LibCST adds a missing newline at the end.
    last = len(written)
    return {node: (starts[min(start, last)], ends[min(end, last)]) for node, (start, end) in state.spans.items()}


def statement_spans(
    tree: cst.Module, statement: Statement, part: cst.CSTNode, text: str, start: int, indentation: str
) -> Mapping[cst.CSTNode, tuple[int, int]] | None:
    """Return the offsets of every node in one statement of a module; None if the generated code differs from the text.

    Args:
        tree: the module.
        statement: a statement of the module.
        part: the node whose offsets the caller needs: the statement itself, or a part of the statement such as a
            condition. For a part in the header of a compound statement, the result only has the nodes in the header.
        text: the text from which ``tree`` was parsed.
        start: offset at which the statement itself begins, without the comments above it.
        indentation: leading white space of the statement's line.
    """
    state = _SpanState(tree.default_indent, tree.default_newline)
    state.increase_indent(indentation)
    head = _statement_header(statement, part)
    (head or statement)._codegen(state)
    above, end = 0, sys.maxsize if head is None else state.spans[_NO_BLOCK][0]
    if not isinstance(statement, cst.BaseSmallStatement):
        above = sum(state.spans[line][1] - state.spans[line][0] for line in statement.leading_lines) + len(indentation)
    if not text.startswith("".join(state.tokens)[above:end], start):
        return None
    shift = start - above
    return {node: (shift + first, shift + last) for node, (first, last) in state.spans.items() if last <= end}


def _statement_header(statement: Statement, part: cst.CSTNode) -> cst.BaseCompoundStatement | None:
    """Return the statement without its blocks if the node ``part`` is in the header of the statement; else None."""
    if not isinstance(statement, _HEADED):
        return None
    blocks = {name: getattr(statement, name) for name in ("body", "orelse") if hasattr(statement, name)}
    if part is statement or any(part is one for one in blocks.values()):
        return None
    return statement.with_changes(**{name: _NO_BLOCK if name == "body" else None for name in blocks})


def _match_offsets(written: str, text: str) -> tuple[list[int], list[int]]:
    """Convert each offset in the generated code ``written`` to an offset in the original ``text``.

    The first list of the result converts offsets at which nodes start, and the second list offsets at which nodes end.
    The lists differ for offsets in white space: a start moves forward to the next character that is not white space,
    and an end moves back to the end of the previous character that is not white space.

    Raises:
        TextMismatch: the two texts differ in more than white space.
    """
    if _BLANK.sub("", written) != _BLANK.sub("", text):
        raise TextMismatch
    solid = [offset for offset, character in enumerate(text) if not character.isspace()]
    before = [0, *accumulate(not character.isspace() for character in written)]
    starts = [solid[count] if count < len(solid) else len(text) for count in before]
    ends = [solid[count - 1] + 1 if count else 0 for count in before]
    return starts, ends


class _SpanState(CodegenState):
    """Generate the code of a tree, and record where each node starts and ends."""

    def __init__(self, default_indent: str, default_newline: str) -> None:
        super().__init__(default_indent, default_newline)
        self.spans: dict[cst.CSTNode, tuple[int, int]] = {}
        self._offset = 0
        self._starts: list[int] = []

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self._offset += len(value)

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._starts.append(self._offset)

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.spans.setdefault(node, (self._starts.pop(), self._offset))

    @contextmanager
    def record_syntactic_position(
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> Iterator[None]:
        start = self._offset
        yield
        first = start if start_node is None else self.spans[start_node][0]
        self.spans[node] = (first, self._offset if end_node is None else self.spans[end_node][1])
