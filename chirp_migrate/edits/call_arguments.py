"""Write the source of new calls, and change existing calls without changing other code on the same lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import libcst as cst

from chirp_migrate.edits.layout import is_formatted
from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import NEWLINE, apply_edits_in_span
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import is_in_fstring, lines_in_strings


def call_text(
    module: Module,
    code_style: CodeStyle,
    callee: str,
    arguments: Sequence[str],
    *,
    indent: str = "",
    columns_taken: int = 0,
) -> str:
    """Return the source of ``callee(arguments)``.

    If the call is too long for the project's line length, the result has several lines, in the layout of black.

    Args:
        module: the module that will contain the call.
        code_style: how the project lays out its code.
        callee: source of the called expression.
        arguments: source of each argument.
        indent: indentation of the line in which the call begins.
        columns_taken: number of columns that other code needs in the first line of the call.
    """
    longest, newline, inner = code_style.longest_line(module.text), module.newline, indent + module.tree.default_indent
    line = ", ".join(arguments)
    if len(f"{indent}{callee}({line})") + columns_taken <= longest or any(
        "\n" in one or "\r" in one for one in arguments
    ):
        return f"{callee}({line})"
    if len(f"{inner}{line}") <= longest:
        return f"{callee}({newline}{inner}{line}{newline}{indent})"
    return f"{callee}({newline}{''.join(f'{inner}{argument},{newline}' for argument in arguments)}{indent})"


class CallEdit:
    """Collect the changes of one call, and convert the changes to edits (see :meth:`edits`).

    Args:
        module: the module of the call.
        call: the call to change.
        code_style: how the project lays out its code; ``None`` means that lines may have any length.
    """

    def __init__(self, module: Module, call: cst.Call, code_style: CodeStyle | None = None) -> None:
        self._module, self._call = module, call
        # Before Python 3.12, an expression in an f-string must be on one line, so do not split the call into lines.
        self._style = None if is_in_fstring(module, call) else code_style
        self._spans = [module.span(argument) for argument in call.args]
        self._callee = ""
        self._named: list[Edit] = []
        self._added: list[str] = []

    def rename(self, callee: str) -> None:
        """Replace the called expression by ``callee``."""
        self._callee = callee

    def name(self, position: int, keyword: str) -> None:
        """Pass the positional argument at index ``position`` as the keyword argument ``keyword``."""
        argument, start = self._call.args[position], self._spans[position][0]
        said = argument.keyword
        self._named.append(Edit(*self._module.span(said), keyword) if said else Edit(start, start, f"{keyword}="))

    def add(self, *arguments: str) -> None:
        """Add keyword arguments, each written as ``name=value``."""
        self._added += arguments

    def edits(self) -> tuple[Edit, ...]:
        """Return all edits of the call. The edits keep commas, comments, alignment and line lengths correct.

        The call keeps its line breaks, with two exceptions:

        * If the called name changes, and later lines of the call are aligned with the first argument, all arguments
          move to the lines below the name.
        * If lines would get too long, the whole call gets black's layout.
        """
        renamed = [Edit(*self._module.span(self._call.func), self._callee)] if self._callee else []
        in_place = [*renamed, *self._named, *self._lines_moved_below(), *self._insertion_edits()]
        return tuple(self._black_layout(in_place) or in_place)

    @cached_property
    def _moved_lines(self) -> dict[int, Edit]:
        """Return a dictionary: start offset of a line of the call → edit that moves this line to the left.

        The edits are needed if the first argument moves to the line below the called name. A line moves if it begins at
        or to the right of the first argument. All lines move by the same number of columns. Lines that begin inside a
        string are omitted, because a move would change the value of the string. The result is empty if the called name
        stays, or if the first argument is at the start of a line.
        """
        module = self._module
        if self._style is None or not self._callee or not self._spans or self._opens_line(0):
            return {}
        start, end = self._spans[0][0], module.span(self._call)[1]
        before = module.text[module.line_start(start) : start]
        column, moved = len(before.expandtabs()), {}
        for line in module.lines_inside(start, end):
            indent = module.indentation(line)
            further = len(indent.expandtabs()) - column
            if further < 0 or line in module.once(lines_in_strings):
                continue
            if "\t" in before + indent:
                moved[line] = Edit(line, line + len(indent), self._inner_indent + " " * further)
            else:
                moved[line] = Edit(line, line + max(column - len(self._inner_indent), 0), "")
        return moved

    @property
    def _inner_indent(self) -> str:
        """Return the indentation of arguments on the lines below the called name."""
        indent = self._module.indentation(self._module.span(self._call)[0])
        return indent + ("\t" if "\t" in indent else "    ")

    def _lines_moved_below(self) -> Iterator[Edit]:
        """Yield edits that move the first argument, and the lines aligned with this argument, below the called name.

        All these lines move by the same number of columns, so that code and comments stay aligned with one another. A
        closing bracket on its own line gets the indentation of the line in which the call begins.
        """
        if not self._moved_lines:
            return
        module, start, close = self._module, self._spans[0][0], self._module.span(self._call)[1] - 1
        line_of_close = module.line_start(close)
        has_own_line = not module.text[line_of_close:close].strip()
        yield Edit(start, start, module.newline + self._inner_indent)
        for line, edit in self._moved_lines.items():
            if not (has_own_line and line == line_of_close):
                yield edit
        if has_own_line:
            yield Edit(line_of_close, close, module.indentation(module.span(self._call)[0]))

    def _insertion_edits(self) -> Iterator[Edit]:
        """Yield edits that insert the new arguments after the last argument.

        If the last argument is a keyword argument with a comment on its line, the new arguments come before the last
        argument. So the comment stays next to the last argument.
        """
        if not self._added:
            return
        if not self._spans:
            end = self._module.span(self._call)[1] - 1
            yield Edit(end, end, ", ".join(self._added))
            return
        module, last = self._module, len(self._spans) - 1
        start, end = self._spans[last]
        separator = ", "
        if self._opens_line(last):
            line, indent = module.line_start(start), module.indentation(start)
            moved = self._moved_lines.get(line)
            if moved is not None:
                indent = moved.replacement + indent[moved.end - line :]
            separator = f",{module.newline}{indent}"
        text = separator.join(self._added)
        if "#" in module.text[end : module.line_end(end)] and self._call.args[last].keyword is not None:
            yield Edit(start, start, text + separator)
        else:
            yield Edit(end, end, separator + text)

    def _opens_line(self, position: int) -> bool:
        start = self._spans[position][0]
        return not self._module.text[self._module.line_start(start) : start].strip()

    def _black_layout(self, in_place: Sequence[Edit]) -> tuple[Edit, ...]:
        """Return the edit that writes the whole call in black's layout if the edits ``in_place`` make lines too long.

        The result is empty if the statement has the layout of the project's formatter before the edits, because a later
        step formats such statements again (see :func:`.formatting_edits`). The result is also empty if the call
        contains comments or an argument of several lines, because the new layout would move such comments and arguments
        to other lines.
        """
        module, style = self._module, self._style
        if style is None or is_formatted(module, style, self._call):
            return ()
        start, end = module.span(self._call)
        first, last = module.line_start(start), module.line_end(end - 1)
        longest = max(style.longest_line(module.text), *map(len, module.text[first:last].splitlines()))
        if all(len(line) <= longest for line in apply_edits_in_span(module.text, (first, last), in_place).splitlines()):
            return ()
        named = [[one for one in self._named if start <= one.start < end] for start, end in self._spans]
        pairs = zip(self._spans, named, strict=True)
        arguments = [apply_edits_in_span(module.text, span, own) for span, own in pairs] + self._added
        if "#" in module.text[start:end] or any(NEWLINE.search(argument) for argument in arguments):
            return ()
        callee = self._callee or module.source(self._call.func).strip()
        others = len(module.text[first:start].lstrip()) + len(module.text[end:last].rstrip())
        indent = module.indentation(start)
        return (Edit(start, end, call_text(module, style, callee, arguments, indent=indent, columns_taken=others)),)
