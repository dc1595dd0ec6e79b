"""Edits on the argument list of a call that leave the rest of its lines as they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import libcst as cst

from chirp_migrate.edits.layout import is_laid_out
from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import apply_edits
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.module import Module

#: What stands between code and a comment that is set off: it gives way before a line gets too long.
_WIDE_GAP = re.compile(r"(?<=\S) {3,}(?=#)")


def call_text(
    module: Module, style: CodeStyle, callee: str, arguments: Sequence[str], *, indent: str = "", around: int = 0
) -> str:
    """``callee(arguments)``, broken as black does where one line would be longer than the project wants.

    Args:
        module: the text that it becomes part of.
        style: how the project lays out its code.
        callee: what is called.
        arguments: source of each.
        indent: that of the line it begins in.
        around: columns of that line that others take besides.
    """
    longest, newline, inner = style.longest_line(module.text), module.newline, indent + module.tree.default_indent
    line = ", ".join(arguments)
    if len(f"{indent}{callee}({line})") + around <= longest or any("\n" in one or "\r" in one for one in arguments):
        return f"{callee}({line})"
    if len(f"{inner}{line}") <= longest:
        return f"{callee}({newline}{inner}{line}{newline}{indent})"
    return f"{callee}({newline}{''.join(f'{inner}{one},{newline}' for one in arguments)}{indent})"


def remove_arguments(module: Module, call: cst.Call, removed: Collection[int]) -> list[Edit]:
    """Edits that delete the arguments at the given positions, with their commas and same-line comments.

    Comments on lines of their own, and the comments of the arguments that stay, are kept.
    At least the first argument must stay.
    """
    spans = [module.span(argument) for argument in call.args]
    edits: list[Edit] = []
    first = 0
    while first < len(spans):
        if first not in removed:
            first += 1
            continue
        last = first
        while last + 1 < len(spans) and last + 1 in removed:
            last += 1
        if last + 1 < len(spans):
            edits.append(_remove_before(module, spans, first, last))
        else:
            edits.append(_remove_tail(module, call, spans, first, last))
        first = last + 1
    return edits


def _remove_before(module: Module, spans: list[tuple[int, int]], first: int, last: int) -> Edit:
    """The run ``first..last`` is followed by an argument that stays and takes the place of the first."""
    start, end = spans[first][0], spans[last + 1][0]
    between = module.text[spans[last][1] : end]
    line_break = min((p for p in (between.find("\n"), between.find("\r")) if p >= 0), default=-1)
    own_line = between.find("#", line_break) if line_break >= 0 else -1
    if own_line >= 0:
        end = spans[last][1] + own_line
    return Edit(start, end, "")


def _remove_tail(module: Module, call: cst.Call, spans: list[tuple[int, int]], first: int, last: int) -> Edit:
    """The run ``first..last`` ends the argument list."""
    text = module.text
    gap_start, gap_end = spans[first - 1][1], spans[first][0]
    gap = text[gap_start:gap_end]
    close = module.span(call)[1] - 1
    tail = text[spans[last][1] : close]
    has_newline = "\n" in tail or "\r" in tail
    if "#" in gap:
        # Keep the comma and comment of the argument before; remove from the end of that line.
        comment_end = gap.rfind("#")
        stop = min(
            (p for p in (gap.find("\n", comment_end), gap.find("\r", comment_end)) if p >= 0),
            default=len(gap),
        )
        start = gap_start + stop
        if not has_newline:
            return Edit(start, close, module.newline + module.indentation(spans[first][0]))
        return Edit(start, spans[last][1] + _end_of_own_line(tail), "")
    if has_newline and ("\n" in gap or "\r" in gap):
        comma = gap.find(",") + 1
        keep_comma = comma if tail.lstrip(" \t").startswith(",") else 0
        return Edit(gap_start + keep_comma, spans[last][1] + _end_of_own_line(tail), "")
    return Edit(gap_start, spans[last][1], "")


def _end_of_own_line(tail: str) -> int:
    """Length of the part of ``tail`` (comma, spaces, comment) that belongs to the removed argument's line."""
    return min((p for p in (tail.find("\n"), tail.find("\r")) if p >= 0), default=len(tail))


def insert_arguments(
    module: Module, call: cst.Call, texts: Sequence[str], kept: Collection[int], shift: int = 0
) -> Edit:
    """Edit that adds keyword arguments behind the last argument that stays.

    Where a comment follows that argument they go before it instead, so that the comment stays with its argument.

    Args:
        module: the text.
        call: a call in it.
        texts: the arguments.
        kept: positions of the arguments that stay.
        shift: by how many columns arguments move that are aligned with the opening parenthesis.
    """
    last = max(kept)
    start, end = module.span(call.args[last])
    separator = ", "
    if _opens_line(module, call.args[last]):
        aligned = _column(module, start) == _column(module, module.span(call.args[0])[0])
        indent = module.indentation(start)
        is_moved = aligned and not _opens_line(module, call.args[0])
        separator = f",{module.newline}{' ' * (len(indent) + shift) if is_moved else indent}"
    text = separator.join(texts)
    line_rest = module.text[end : module.line_end(end)]
    if "#" in line_rest and call.args[last].keyword is not None:
        return Edit(start, start, text + separator)
    return Edit(end, end, separator + text)


def _column(module: Module, offset: int) -> int:
    return offset - module.line_start(offset)


def _opens_line(module: Module, argument: cst.Arg) -> bool:
    start = module.span(argument)[0]
    return not module.text[module.line_start(start) : start].strip()


def realign(module: Module, call: cst.Call, shift: int, removed: Collection[int]) -> list[Edit]:
    """Edits that keep continuation lines aligned with the opening parenthesis when it moves by ``shift`` columns."""
    if not call.args:
        return []
    column = _column(module, module.span(call.args[0])[0])
    if _opens_line(module, call.args[0]):
        return []
    edits: list[Edit] = []
    for position, argument in enumerate(call.args[1:], start=1):
        start = module.span(argument)[0]
        line = module.line_start(start)
        aligned = start - line == column and module.text[line:start] == " " * column
        # An argument behind removed ones takes their place; a removed one only holds its line for such a successor.
        stays = position not in removed or any(p not in removed for p in range(position, len(call.args)))
        if aligned and stays and position - 1 not in removed:
            edits.append(Edit(line, line, " " * shift) if shift > 0 else Edit(line, line - shift, ""))
    return edits


def one_per_line(
    module: Module,
    call: cst.Call,
    callee: str,
    renames: Sequence[Edit],
    kept: Collection[int],
    added: Sequence[str],
    in_place: Sequence[Edit],
    style: CodeStyle,
) -> list[Edit] | None:
    """The call with one argument a line, when editing it in place would make its lines too long.

    ``None`` when the lines stay short enough, when its statement will be laid out as a whole, or when the call holds
    comments, which have their place in its layout.
    """
    if is_laid_out(module, style, call):
        return None
    start, end = module.span(call)
    first, last = module.line_start(start), module.line_end(end - 1)
    before = module.text[first:last]
    longest = max(style.longest_line(module.text), *(len(line) for line in before.splitlines()))
    shifted = [Edit(e.start - first, e.end - first, e.replacement) for e in in_place]
    lines = _WIDE_GAP.sub("  ", apply_edits(before, shifted)).splitlines()
    if all(len(line) <= longest for line in lines) or "#" in module.text[start:end]:
        return None
    indent = module.indentation(start)
    inner = indent + ("\t" if "\t" in indent else "    ")
    texts = []
    for position in sorted(kept):
        a, b = module.span(call.args[position])
        own = [Edit(e.start - a, e.end - a, e.replacement) for e in renames if a <= e.start and e.end <= b]
        texts.append(apply_edits(module.text[a:b], own))
    body = "".join(f"{inner}{text},{module.newline}" for text in (*texts, *added))
    return [Edit(start, end, f"{callee}({module.newline}{body}{indent})")]
