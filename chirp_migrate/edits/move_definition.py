"""Move definitions to another place in the module: find a free name, the new place, and the new text."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import CapturedName, variable_reads
from chirp_migrate.edits.statements import delete_line_range, start_of_comments_above
from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import apply_edits_in_span
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import is_docstring, is_printed_by_fstring, lines_in_strings
from chirp_migrate.syntax.scopes import BindingKind

#: Length limit for the names of moved definitions, in characters.
_LONGEST_NAME = 40
#: Top-level packages whose imports have no side effects.
_QUIET = sys.stdlib_module_names | {"numpy", "torch"}


class NotMovable(Exception):
    """Raised if a definition cannot be moved. The message is the reason, without a full stop."""


def first_unused_name(module: Module, candidates: Sequence[str], taken: Collection[str] = ()) -> str:
    """Return the first name in ``candidates`` that the module does not contain as a word.

    If the module contains all names, the result is the first name with a number appended. Names with more than 40
    characters are skipped. If all names are too long, the function shortens the last name: it removes words directly
    before the last word.
    """
    candidates = [wish for wish in candidates if len(wish) <= _LONGEST_NAME] or [_shorten_name(candidates[-1])]
    words = {*re.findall(r"\w+", module.text), *taken}
    found = next((wish for wish in candidates if wish not in words), None)
    number = 2
    while found is None:
        numbered = f"{candidates[0]}_{number}"
        found, number = (None if numbered in words else numbered), number + 1
    return found


def _shorten_name(name: str) -> str:
    words = name.split("_")
    while len(words) > 3 and len("_".join(words)) > _LONGEST_NAME:
        del words[-2]
    return "_".join(words)


def top_level_statement_offset(module: Module, node: cst.CSTNode) -> int:
    """Return the start offset of the top-level statement around ``node``.

    The decorators of the statement, and the comments directly above, belong to the statement.
    """
    return _start_with_comments(module, module.top_level_statement(node))


def offset_for_new_function(module: Module, node: cst.CSTNode) -> int:
    """Return the offset at which a rewrite inserts a new function that the code at ``node`` will use.

    The new function is inserted above the top-level definition that contains ``node``. For code outside of definitions,
    the function is inserted below the last definition or import above ``node``. In a notebook, the function is inserted
    above the statement, in the same cell.
    """
    statement = module.top_level_statement(node)
    if isinstance(statement, cst.FunctionDef | cst.ClassDef) or module.path.endswith(".ipynb"):
        return _start_with_comments(module, statement)
    body: list[cst.CSTNode] = list(module.tree.body)
    at = body.index(statement)
    while at and not _defines_or_imports(body[at - 1]):
        at -= 1
    return _start_with_comments(module, body[at] if at else statement)


def _defines_or_imports(statement: cst.CSTNode) -> bool:
    """Return whether a statement is a definition, an import, or an ``if`` or ``try`` with imports in its body."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return True
    guarded = isinstance(statement, cst.If | cst.Try) and isinstance(statement.body, cst.IndentedBlock)
    lines: Sequence[cst.CSTNode] = statement.body.body if guarded else (statement,)  # type: ignore[attr-defined]
    smalls = (small for line in lines if isinstance(line, cst.SimpleStatementLine) for small in line.body)
    return any(isinstance(one, cst.Import | cst.ImportFrom) for one in smalls)


def _start_with_comments(module: Module, statement: cst.CSTNode) -> int:
    return start_of_comments_above(module, module.line_start(module.statement_start(statement)), "")


def insert_definition(module: Module, offset: int, definition: str) -> tuple[Edit, ...]:
    """Return edits that insert ``definition``, with two blank lines around it, between top-level statements.

    ``offset`` must be the start of a line. A separate edit adds the blank lines above the definition. For several
    definitions at the same offset, these edits are equal, so the blank lines are added only once.
    """
    above = module.text[:offset].replace("\r\n", "\n").replace("\r", "\n").replace("\f", "")
    missing = 3 - (len(above) - len(above.rstrip("\n"))) if above.strip() else 0
    lead = module.newline * missing if not module.path.endswith(".ipynb") else ""
    edits = (Edit(offset, offset, lead), Edit(offset, offset, definition.rstrip("\r\n") + module.newline * 3))
    return edits if lead else edits[1:]


def definition_range(module: Module, node: cst.FunctionDef | cst.ClassDef) -> tuple[int, int]:
    """Return start and end of the lines of a definition, with comments directly above and at the end of the body."""
    first = module.statement_start(node)
    indent = module.indentation(first)
    start = start_of_comments_above(module, module.line_start(first), indent)
    end = at = module.line_end(module.span(node)[1] - 1)
    while at < len(module.text):
        following = module.line_end(at)
        line = module.text[at:following]
        if line.strip():
            if not line.lstrip().startswith("#") or len(module.indentation(at)) <= len(indent):
                break
            end = following
        at = following
    return start, end


def merge_overlapping_removals(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return ``edits`` with each group of overlapping removals joined to one removal.

    The removals of two adjacent definitions overlap in the blank lines between the definitions.
    """
    found: list[Edit] = []
    for edit in sorted(edits, key=lambda one: (one.start, one.end)):
        if found and edit.start < found[-1].end and not edit.replacement and not found[-1].replacement:
            last = found.pop()
            edit = Edit(last.start, max(last.end, edit.end), "")
        found.append(edit)
    return tuple(found)


def reindent_source(
    module: Module, project: Project, span: tuple[int, int], indent: str, edits: Iterable[Edit] = ()
) -> str:
    """Return the lines in ``span`` with the indentation ``indent``, and with ``edits`` applied.

    The offsets of ``edits`` refer to the module. Lines that begin inside a string keep their indentation. Docstrings
    are indented like the code, because ``inspect.cleandoc`` and Python 3.13 remove this indentation. Before Python
    3.13, ``__doc__`` contains the indentation. So if the project reads ``__doc__``, docstrings keep their indentation.

    Raises:
        NotMovable: the lines would not be valid Python with the new indentation, or an f-string such as ``f"{x=}"``
            prints the source of code that ``edits`` would change.
    """
    start, end = span
    edits = list(edits)
    if any(is_printed_by_fstring(module, one.start, one.end) for one in edits):
        raise NotMovable("an f-string with `=` prints code that the rewrite would change")
    old = module.indentation(start)
    width = len(old.expandtabs())
    moving = set() if project.search(r"\b__doc__\b", "__doc__") else _docstring_lines(module, span, old)
    held = module.once(lines_in_strings) - moving
    for at in (one for one in (start, *module.lines_inside(start, end)) if one not in held):
        line = module.text[at : module.line_end(at)]
        if not line.strip() or any(one.start < at < one.end for one in edits):
            continue
        if line.startswith(old):
            edits.append(Edit(at, at + len(old), indent))
        elif (further := len(module.indentation(at).expandtabs()) - width) >= 0:  # another mix of tabs and spaces
            edits.append(Edit(at, at + len(module.indentation(at)), indent + " " * further))
    text = apply_edits_in_span(module.text, (start, end), edits)
    try:
        ast.parse("if True:\n" + text if indent else text)
    except SyntaxError:
        raise NotMovable("the lines of the definition would not be valid Python with another indentation") from None
    return text


def return_expression_source(module: Module, node: cst.BaseExpression, indent: str) -> str:
    """Return the source of an expression for a line that begins with ``indent`` and ``return``.

    The later lines of the expression move by as many columns as the first line. Lines that begin inside a string do not
    move.
    """
    start, end = span_with_parentheses(module, node)
    lines = [at for at in module.lines_inside(start, end) if at not in module.once(lines_in_strings)]
    widths = {at: len(module.indentation(at).expandtabs()) for at in lines}
    column = len(module.text[module.line_start(start) : start].expandtabs())
    if not widths:
        return module.text[start:end]
    if min(widths.values()) > column:
        shift = len(f"{indent}return ".expandtabs()) - column
    else:
        shift = len(indent.expandtabs()) - min(*widths.values(), len(module.indentation(start).expandtabs()))
    edits = (
        Edit(at, at + len(module.indentation(at)), _indentation_of_width(indent, max(0, width + shift)))
        for at, width in widths.items()
    )
    return apply_edits_in_span(module.text, (start, end), edits)


def _indentation_of_width(indent: str, width: int) -> str:
    """Return an indentation of ``width`` columns.

    The indentation begins with ``indent``. If ``indent`` has more columns, the result contains only spaces.
    """
    rest = width - len(indent.expandtabs())
    return indent + " " * rest if rest >= 0 else " " * width


def span_with_parentheses(module: Module, node: cst.CSTNode) -> tuple[int, int]:
    """Return start and end of an expression, including the parentheses around it."""
    start, end = module.span(node)
    left, right = getattr(node, "lpar", ()), getattr(node, "rpar", ())
    return module.span(left[0])[0] if left else start, module.span(right[-1])[1] if right else end


def replace_expression(module: Module, node: cst.BaseExpression, text: str) -> Edit:
    """Return the edit that replaces an expression, and the parentheses around it, by ``text``.

    The edit keeps parentheses that contain a comment or a line end.
    """
    start, end = module.span(node)
    for left, right in zip(reversed(node.lpar), node.rpar, strict=True):
        before, after = module.span(left)[0], module.span(right)[1]
        between = module.text[before + 1 : start] + module.text[end : after - 1]
        if between.strip(" \t"):  # a comment or a line end
            return Edit(start, end, text)
        start, end = before, after
    # Add a space if only a removed bracket separated the expression from a word, as in `return(lambda x: x)`.
    apart = (" " if re.match(r"\w", module.text[start - 1 : start]) else "") + text
    return Edit(start, end, apart + (" " if re.match(r"\w\w", text[-1:] + module.text[end : end + 1]) else ""))


def _docstring_lines(module: Module, span: tuple[int, int], indent: str) -> set[int]:
    """Return the start offsets of the lines of docstrings in ``span``, except the first line of each docstring.

    A docstring counts only if all these lines are blank or begin with ``indent``.
    """
    found: set[int] = set()
    for node in module.find(cst.FunctionDef, cst.ClassDef):
        match next(iter(node.body.body), None):
            case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString())]) as first if (
                span[0] <= module.span(node)[0] < span[1]
            ):
                lines = module.lines_inside(*module.span(first))
                texts = [module.text[at : module.line_end(at)] for at in lines]
                if all(not text.strip() or text.startswith(indent) for text in texts):
                    found.update(lines)
    return found


def insert_lines_after_docstring(
    module: Module, node: cst.FunctionDef, indent: str, lines: Sequence[str]
) -> Iterator[Edit]:
    """Yield the edit that inserts lines after a function's docstring; ``indent`` is the function's new indentation."""
    if not lines:
        return
    body = node.body.body
    first = body[1] if is_docstring(body[0]) and len(body) > 1 else body[0]
    if not isinstance(node.body, cst.IndentedBlock):
        start = module.span(body[0])[0]
        before = len(module.text[:start].rstrip(" \t"))
        inner = module.newline + indent + module.tree.default_indent
        imports = "".join(f"{inner}{line}" for line in (*lines, ""))
        match body:
            case [cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString() as docstring), after, *_]:
                yield Edit(before, start, inner)
                yield Edit(module.span(docstring)[1], module.span(after)[0], imports)
            case _:
                yield Edit(before, start, imports)
        return
    offset = module.line_start(module.statement_start(first))
    old = module.indentation(offset)
    start = start_of_comments_above(module, offset, old)
    new = indent + old.removeprefix(module.indentation(module.span(node)[0]))
    yield Edit(start, start, "".join(f"{new}{line}{module.newline}" for line in lines))


def import_lines(module: Module, captured: Iterable[CapturedName]) -> list[str]:
    """Return import statements for the captured names that enclosing functions import.

    Raises:
        NotMovable: several different statements bind such a name.
    """
    lines: list[str] = []
    for one in captured:
        if any(binding.kind is not BindingKind.IMPORT for binding in one.bindings):
            raise NotMovable(f"`{one.name}` is imported in one place and assigned in another")
        found = {line for binding in one.bindings for line in _import_lines(module, binding.node, one.name)}
        if len(found) > 1 and not all(re.fullmatch(rf"import {one.name}(\.\w+)*", line) for line in found):
            raise NotMovable(f"different import statements bind the name `{one.name}`")
        lines += sorted(found)
    return lines


def remove_repeated_imports(module: Module, span: tuple[int, int], captured: Iterable[CapturedName]) -> Iterator[Edit]:
    """Yield edits that remove imports from enclosing functions if only the lines in ``span`` use the imported names.

    The lines in ``span`` are the definition that moves. The moved definition contains a copy of each import that it
    uses. If importing a module may have side effects, the import of the module stays.
    """
    for one in captured:
        statement = one.bindings[0].node
        line = module.parents[statement]
        block = module.parents[line]
        uses = (module.span(use)[0] for use in variable_reads(module, one.name, one.scope))
        if (
            one.bindings[0].qualified.partition(".")[0] in _QUIET
            and len(one.bindings) == len(getattr(statement, "names", ())) == 1
            and isinstance(line, cst.SimpleStatementLine)
            and isinstance(block, cst.IndentedBlock)
            and len(line.body) == 1
            and len(block.body) > 2
            and all(span[0] <= use < span[1] for use in uses)
            and not line.trailing_whitespace.comment
        ):
            start, end = module.span(line)
            yield delete_line_range(module, module.line_start(start), module.line_end(end - 1))


def _import_lines(module: Module, statement: cst.CSTNode, name: str) -> set[str]:
    match statement:
        case cst.ImportFrom(names=[*aliases], module=named):
            source = "." * len(statement.relative) + ("" if named is None else module.source(named))
            lead = f"from {source} import"
        case cst.Import(names=aliases):
            lead = "import"
        case _:
            return set()
    return {
        f"{lead} {one.evaluated_name}{'' if one.asname is None else f' as {name}'}"
        for one in aliases
        if (one.evaluated_alias or one.evaluated_name.partition(".")[0]) == name
    }
