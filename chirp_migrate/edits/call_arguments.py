"""Write the source of new calls, and change an existing call without changing other code on its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from chirp_migrate.edits.layout import is_formatted
from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import NEWLINE, apply_edits_in_span
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.queries import is_in_fstring

#: Limits for arguments that are aligned with the opening bracket: a column, and a share of the line length. Arguments
#: to the right of one of these limits move to new lines.
_FARTHEST, _FARTHEST_SHARE = 50, 0.6
#: A wide gap between code and a comment. The gap may shrink, so its width counts as two spaces.
_WIDE_GAP = re.compile(r"(?<=\S) {3,}(?=#)")


def call_text(
    module: Module, style: CodeStyle, callee: str, arguments: Sequence[str], *, indent: str = "", columns_taken: int = 0
) -> str:
    """Return the source of ``callee(arguments)``.

    A call that is too long for the project's line length is broken into lines as black would break the call.

    Args:
        module: the module that will contain the call.
        style: how the project lays out its code.
        callee: source of the called expression.
        arguments: source of each argument.
        indent: indentation of the line in which the call begins.
        columns_taken: number of columns that other code takes in that line.
    """
    longest, newline, inner = style.longest_line(module.text), module.newline, indent + module.tree.default_indent
    line = ", ".join(arguments)
    if len(f"{indent}{callee}({line})") + columns_taken <= longest or any(
        "\n" in one or "\r" in one for one in arguments
    ):
        return f"{callee}({line})"
    if len(f"{inner}{line}") <= longest:
        return f"{callee}({newline}{inner}{line}{newline}{indent})"
    return f"{callee}({newline}{''.join(f'{inner}{argument},{newline}' for argument in arguments)}{indent})"


class CallEdit:
    """Collects the changes of one call. :meth:`edits` keeps commas, comments, alignment and line lengths correct.

    Args:
        module: the module of the call.
        call: the call to change.
        style: how the project lays out its code; ``None`` permits lines of any length.
    """

    def __init__(self, module: Module, call: cst.Call, style: CodeStyle | None = None) -> None:
        self._module, self._call = module, call
        # Before Python 3.12, an expression in an f-string must be on one line, so do not break it.
        self._style = None if is_in_fstring(module, call) else style
        self._spans = [module.span(argument) for argument in call.args]
        self._callee = ""
        self._named: list[Edit] = []
        self._added: list[str] = []

    def rename(self, callee: str) -> None:
        """Replace the called name by ``callee``."""
        self._callee = callee

    def name(self, position: int, keyword: str) -> None:
        """Pass the argument at ``position`` by keyword."""
        argument, start = self._call.args[position], self._spans[position][0]
        said = argument.keyword
        self._named.append(Edit(*self._module.span(said), keyword) if said else Edit(start, start, f"{keyword}="))

    def add(self, *arguments: str) -> None:
        """Add keyword arguments, each written as ``name=value``."""
        self._added += arguments

    def edits(self) -> tuple[Edit, ...]:
        """Return all edits of the call.

        The edits break the call into new lines if a line would get too long, or start too far to the right.
        """
        start, end = self._module.span(self._call.func)
        renamed = [Edit(start, end, self._callee)] if self._callee else []
        shift = len(self._callee) - (end - start) if renamed else 0
        in_place = self._edits_in_place(renamed, shift)
        return self._with_new_layout(in_place, shift) or self._edits_below_name(renamed, shift) or tuple(in_place)

    def _edits_in_place(self, renamed: Sequence[Edit], shift: int) -> list[Edit]:
        """Return edits that keep the line breaks of the call.

        Lines that are aligned with the first argument move by ``shift`` columns.
        """
        return [*renamed, *self._named, *self._realign_lines(shift), *self._insertion_edits(shift)]

    def _edits_below_name(self, renamed: Sequence[Edit], shift: int) -> tuple[Edit, ...]:
        """Return edits that move the first argument, and the lines aligned with this argument, below the called name.

        The result is empty if these lines would not start far to the right.
        """
        start = self._spans[0][0] if self._spans else 0
        if self._style is None or not self._is_far_right(shift):
            return ()
        inner = self._indents[1]
        return Edit(start, start, self._module.newline + inner), *self._edits_in_place(
            renamed, len(inner) - self._column(0)
        )

    def _is_far_right(self, shift: int) -> bool:
        """Return whether lines that are aligned with the first argument would start far to the right after a shift."""
        assert self._style is not None
        wanted = self._style.longest_line(self._module.text)
        return shift > 0 and self._aligned_column() + shift > min(_FARTHEST, _FARTHEST_SHARE * wanted)

    def _insertion_edits(self, shift: int) -> Iterator[Edit]:
        """Yield the edits that insert new arguments after the last argument, or before a last argument with a comment.

        Args:
            shift: number of columns by which arguments move if they are aligned with the opening parenthesis.
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
            aligned = self._column(last) == self._column(0)
            indent = module.indentation(start)
            is_moved = aligned and not self._opens_line(0)
            separator = f",{module.newline}{' ' * (len(indent) + shift) if is_moved else indent}"
        text = separator.join(self._added)
        if "#" in module.text[end : module.line_end(end)] and self._call.args[last].keyword is not None:
            yield Edit(start, start, text + separator)
        else:
            yield Edit(end, end, separator + text)

    def _column(self, position: int) -> int:
        start = self._spans[position][0]
        return start - self._module.line_start(start)

    def _opens_line(self, position: int) -> bool:
        start = self._spans[position][0]
        return not self._module.text[self._module.line_start(start) : start].strip()

    def _realign_lines(self, shift: int) -> Iterator[Edit]:
        """Yield edits that keep lines aligned with the opening parenthesis, which moves by ``shift`` columns."""
        if not shift or not self._spans or self._opens_line(0):
            return
        column = self._column(0)
        for start, _ in self._spans[1:]:
            line = self._module.line_start(start)
            if self._module.text[line:start] == " " * column:
                yield Edit(line, line, " " * shift) if shift > 0 else Edit(line, line - shift, "")

    def _with_new_layout(self, in_place: Sequence[Edit], shift: int) -> tuple[Edit, ...]:
        """Return the edit that breaks the whole call into new lines, if necessary.

        A new layout is necessary if ``in_place``, the edits that keep the line breaks, would make lines too long or
        move lines far to the right. The result is empty if no new layout is necessary, or if the whole statement is
        formatted later. The result is also empty if the call contains comments, which could lose their place.
        """
        module, style = self._module, self._style
        if style is None or not self._spans or is_formatted(module, style, self._call):
            return ()
        start, end = module.span(self._call)
        first, last = module.line_start(start), module.line_end(end - 1)
        before = module.text[first:last]
        wanted = style.longest_line(module.text)
        longest = max(wanted, *map(len, before.splitlines()))
        lines = _WIDE_GAP.sub("  ", apply_edits_in_span(module.text, (first, last), in_place)).splitlines()
        if (not self._is_far_right(shift) and all(len(line) <= longest for line in lines)) or "#" in module.text[
            start:end
        ]:
            return ()
        groups, filled = list(self._keep_grouping()), list(self._fill_lines(wanted))
        ends = len(module.text[end:last].rstrip())
        # Aligned lines with several arguments become one line if the arguments fit, so that the line breaks are not
        # arbitrary.
        one_each = all(self._opens_line(n) for n in range(1, len(self._spans)))
        is_joined = self._aligned_column() > 0 and not one_each
        joined = [one for one in filled if is_joined and one.rstrip(")").rstrip().count("\n") == 1]
        wishes = [(one, wanted) for one in (*joined, *groups, *filled)]
        for text, limit in (*wishes, *((one, longest) for one in groups)):
            written = (module.text[first:start] + text).splitlines()
            if max(map(len, written)) <= limit and len(written[-1]) + ends <= limit:
                return (Edit(start, end, text),)
        return (Edit(start, end, self._put_one_per_line()),)

    def _aligned_column(self) -> int:
        """Return the column of the first argument if other lines are aligned with this argument, else 0."""
        positions = range(1, len(self._spans))
        aligned = any(self._opens_line(n) and self._column(n) == self._column(0) for n in positions)
        return self._column(0) if aligned and not self._opens_line(0) else 0

    @property
    def _indents(self) -> tuple[str, str]:
        """Return the indentation of the line in which the call begins, and the indentation of its arguments."""
        indent = self._module.indentation(self._module.span(self._call)[0])
        return indent, indent + ("\t" if "\t" in indent else "    ")

    @property
    def _call_head(self) -> str:
        return f"{self._callee or self._module.source(self._call.func).strip()}("

    def _argument_texts(self) -> list[str]:
        """Return the source of each argument, with its new keyword, and of each added argument."""
        named = [[one for one in self._named if start <= one.start < end] for start, end in self._spans]
        pairs = zip(self._spans, named, strict=True)
        return [apply_edits_in_span(self._module.text, span, own) for span, own in pairs] + self._added

    def _move_lines(self, position: int, text: str, column: int) -> str:
        """Return the text of an argument whose first line moves to ``column``; its later lines move to the left, too.

        The later lines begin at least one indent to the right of the arguments. The text is unchanged if it contains
        tabs or a string of several lines.
        """
        first, *others = NEWLINE.split(text)
        is_added = position >= len(self._spans)
        if (
            not others
            or is_added
            or "\t" in text
            or _has_string_of_several_lines(self._module, self._call.args[position])
        ):
            return text
        depth = min((len(one) - len(one.lstrip()) for one in others if one.strip()), default=0)
        shift = min(self._column(position) - column, depth - len(self._indents[1]) - 4)
        if shift <= 0:
            return text
        return self._module.newline.join([first.rstrip(), *(one[shift:].rstrip() for one in others)])

    def _keep_grouping(self) -> Iterator[str]:
        """Yield the source of the call with the arguments below the called name, grouped into the same lines as before.

        If the arguments were aligned with the opening bracket, the closing bracket has the usual position of closing
        brackets in the file.
        """
        if not any(self._opens_line(n) for n in range(1, len(self._spans))):
            return
        (indent, inner), texts = self._indents, self._argument_texts()
        groups: list[list[str]] = []
        for n, text in enumerate(texts):
            if not groups or n >= len(self._spans) or self._opens_line(n):
                groups.append([])
            column = len(inner + "".join(f"{one}, " for one in groups[-1]))
            groups[-1].append(self._move_lines(n, text, column))
        module, close = self._module, self._module.span(self._call)[1] - 1
        tail = module.text[self._spans[-1][1] : close]
        behind = not NEWLINE.search(tail)
        if behind and self._aligned_column() and self._style is not None:
            behind = self._style.closes_behind_arguments(module.text)
        lines = f",{module.newline}{inner}".join(", ".join(group) for group in groups)
        last = "" if behind else f"{',' if ',' in tail else ''}{module.newline}{indent}"
        yield f"{self._call_head}{module.newline}{inner}{lines}{last})"

    def _fill_lines(self, longest: int) -> Iterator[str]:
        """Yield the source of the call with all arguments on one line below the called name.

        If the file closes brackets directly behind the last argument, each line holds as many arguments as fit.
        """
        assert self._style is not None
        module, (indent, inner), texts = self._module, self._indents, self._argument_texts()
        if not self._style.closes_behind_arguments(module.text):
            yield f"{self._call_head}{module.newline}{inner}{', '.join(texts)}{module.newline}{indent})"
            return
        ends = len(module.text[module.span(self._call)[1] : module.line_end(module.span(self._call)[1] - 1)].rstrip())
        lines = [inner]
        for n, text in enumerate(texts):
            room = longest - 1 - (ends if n == len(texts) - 1 else 0)
            if lines[-1] != inner and len(f"{lines[-1]} {text}") > room:
                lines.append(inner)
            text = self._move_lines(n, text, len(lines[-1]) + (lines[-1] != inner))
            lines[-1] += f"{'' if lines[-1] == inner else ' '}{text}{',' if n < len(texts) - 1 else ')'}"
        yield module.newline.join([self._call_head, *lines])

    def _put_one_per_line(self) -> str:
        """Return the source of the call with each argument on its own line."""
        indent, inner = self._indents
        newline = self._module.newline
        texts = [self._move_lines(n, text, len(inner)) for n, text in enumerate(self._argument_texts())]
        return f"{self._call_head}{newline}{''.join(f'{inner}{text},{newline}' for text in texts)}{indent})"


def _has_string_of_several_lines(module: Module, node: cst.CSTNode) -> bool:
    strings = find_nodes(node, cst.SimpleString, cst.FormattedString)
    return any(NEWLINE.search(module.source(one)) for one in strings)
