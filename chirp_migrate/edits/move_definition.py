"""Definitions on their way to another place of the module: a free name, the place, and the text that moves."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import Capture, reads_of
from chirp_migrate.edits.statements import lines_deletion
from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import edited
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import is_docstring
from chirp_migrate.syntax.scopes import Kind

#: Longer names of what moves would fill its lines.
_LONGEST_NAME = 40
#: Modules that only define something.
_QUIET = sys.stdlib_module_names | {"numpy", "torch"}


class NotMovable(Exception):
    """A definition cannot be moved; the message is the reason, as a clause."""


def free_name(module: Module, wishes: Sequence[str], taken: Collection[str] = ()) -> str:
    """The first of ``wishes`` that the module does not use as a word, or the last one with a number behind it.

    Wishes that are too long to read are passed over, or lose words in the middle.
    """
    wishes = [wish for wish in wishes if len(wish) <= _LONGEST_NAME] or [_shortened(wishes[-1])]
    words = {*re.findall(r"\w+", module.text), *taken}
    found = next((wish for wish in wishes if wish not in words), None)
    number = 2
    while found is None:
        numbered = f"{wishes[-1]}_{number}"
        found, number = (None if numbered in words else numbered), number + 1
    return found


def _shortened(name: str) -> str:
    words = name.split("_")
    while len(words) > 3 and len("_".join(words)) > _LONGEST_NAME:
        del words[-2]
    return "_".join(words)


def insertion_offset(module: Module, node: cst.CSTNode) -> int:
    """Start of the line above the top-level statement that holds ``node``, its decorators and its comments."""
    return _above(module, module.top_level_statement(node))


def function_offset(module: Module, node: cst.CSTNode) -> int:
    """Where a function for ``node`` goes: above the definition that holds it; in a script behind the last definition
    or import above it, and in a notebook above the statement, in whose cell it has to be.
    """
    statement = module.top_level_statement(node)
    if isinstance(statement, cst.FunctionDef | cst.ClassDef) or module.path.endswith(".ipynb"):
        return _above(module, statement)
    body: list[cst.CSTNode] = list(module.tree.body)
    at = body.index(statement)
    while at and not _defines_or_imports(body[at - 1]):
        at -= 1
    return _above(module, body[at] if at else statement)


def _defines_or_imports(statement: cst.CSTNode) -> bool:
    """Whether functions may stand behind a statement: after definitions, and after imports, guarded ones too."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return True
    guarded = isinstance(statement, cst.If | cst.Try) and isinstance(statement.body, cst.IndentedBlock)
    lines: Sequence[cst.CSTNode] = statement.body.body if guarded else (statement,)  # type: ignore[attr-defined]
    smalls = (small for line in lines if isinstance(line, cst.SimpleStatementLine) for small in line.body)
    return any(isinstance(one, cst.Import | cst.ImportFrom) for one in smalls)


def _above(module: Module, statement: cst.CSTNode) -> int:
    decorators = statement.decorators if isinstance(statement, cst.FunctionDef | cst.ClassDef) else ()
    return _with_comments(module, module.line_start(module.span(decorators[0] if decorators else statement)[0]), "")


def insert_at(module: Module, offset: int, definition: str) -> tuple[Edit, ...]:
    """Insert ``definition`` at the start of a line between top-level statements, with two blank lines around it.

    Definitions that go to one place share the edit for the lines above the first.
    """
    above = module.text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    missing = 3 - (len(above) - len(above.rstrip("\n"))) if above.strip() else 0
    lead = module.newline * missing if not module.path.endswith(".ipynb") else ""
    edits = (Edit(offset, offset, lead), Edit(offset, offset, definition.rstrip("\r\n") + module.newline * 3))
    return edits if lead else edits[1:]


def definition_range(module: Module, node: cst.FunctionDef | cst.ClassDef) -> tuple[int, int]:
    """Lines of a definition, the comments straight above it and those at the end of its body included."""
    first = module.span(node.decorators[0] if node.decorators else node)[0]
    indent = module.indentation(first)
    start = _with_comments(module, module.line_start(first), indent)
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


def _with_comments(module: Module, offset: int, indent: str) -> int:
    """Start of the comment lines straight above ``offset``; comments that open the file are about the file."""
    above = offset
    while above > 0 and module.text.startswith(f"{indent}#", module.line_start(above - 1)):
        above = module.line_start(above - 1)
    return above if above > 0 else offset


def joined(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """``edits`` with removals that overlap, because both take the blank lines between them, made one."""
    found: list[Edit] = []
    for edit in sorted(edits, key=lambda one: (one.start, one.end)):
        if found and edit.start < found[-1].end and not edit.replacement and not found[-1].replacement:
            last = found.pop()
            edit = Edit(last.start, max(last.end, edit.end), "")
        found.append(edit)
    return tuple(found)


def moved(module: Module, span: tuple[int, int], indent: str, edits: Iterable[Edit] = ()) -> str:
    """Text of the lines in ``span`` at another indentation, with ``edits`` (in offsets of the module) applied.

    The insides of strings of several lines stay as they are; docstrings move with the code, as ``inspect.cleandoc``
    and Python 3.13 read them.

    Raises:
        NotMovable: the lines cannot be moved as a block.
    """
    start, end = span
    edits = list(edits)
    old = module.indentation(start)
    strings = [module.span(one) for one in module.find(cst.SimpleString, cst.FormattedString)]
    documented = _docstring_lines(module, span, old)
    at = start
    while at < end:
        line = module.text[at : module.line_end(at)]
        held = at not in documented and any(first < at < last for first, last in strings)
        held = held or any(one.start < at < one.end for one in edits)
        if line.strip() and line.startswith(old) and not held:
            edits.append(Edit(at, at + len(old), indent))
        at = module.line_end(at)
    text = edited(module.text, (start, end), edits)
    try:
        ast.parse("if True:\n" + text if indent else text)
    except SyntaxError:
        raise NotMovable("its lines cannot be moved as a block") from None
    return text


def whole_span(module: Module, node: cst.CSTNode) -> tuple[int, int]:
    """Offsets of an expression with its own parentheses."""
    start, end = module.span(node)
    left, right = getattr(node, "lpar", ()), getattr(node, "rpar", ())
    return module.span(left[0])[0] if left else start, module.span(right[-1])[1] if right else end


def in_string(module: Module, offset: int) -> bool:
    """Whether the line that starts at ``offset`` starts inside a string."""
    return any(
        start < offset < end for start, end in map(module.span, module.find(cst.SimpleString, cst.FormattedString))
    )


def _docstring_lines(module: Module, span: tuple[int, int], indent: str) -> set[int]:
    """Starts of lines in the docstrings within ``span`` that are indented like the code around them."""
    found: set[int] = set()
    for node in module.find(cst.FunctionDef, cst.ClassDef):
        first = node.body.body[0] if isinstance(node.body, cst.IndentedBlock) and node.body.body else None
        if first is None or not span[0] <= module.span(node)[0] < span[1]:
            continue
        match first:
            case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString())]):
                start, end = module.span(first)
                lines = [at for at in module.line_starts if start < at < end]
                texts = [module.text[at : module.line_end(at)] for at in lines]
                if all(not text.strip() or text.startswith(indent) for text in texts):
                    found.update(lines)
    return found


def import_edits(module: Module, node: cst.FunctionDef, indent: str, lines: Iterable[str]) -> list[Edit]:
    """Put import lines at the start of a function whose definition moves to indentation ``indent``."""
    lines = list(lines)
    if not lines:
        return []
    if not isinstance(node.body, cst.IndentedBlock):
        start = module.span(node.body.body[0])[0]
        return [Edit(start, start, "".join(f"{line}; " for line in lines))]
    first = statement_after_docstring(node)
    decorators = first.decorators if isinstance(first, cst.FunctionDef | cst.ClassDef) else ()
    offset = module.line_start(module.span(decorators[0] if decorators else first)[0])
    inner = module.indentation(offset)
    start = _with_comments(module, offset, inner)
    inner = indent + inner.removeprefix(module.indentation(module.span(node)[0]))
    return [Edit(start, start, "".join(f"{inner}{line}{module.newline}" for line in lines))]


def statement_after_docstring(function: cst.FunctionDef) -> cst.CSTNode:
    """First statement of a function that is not its docstring (the docstring when there is nothing else)."""
    body = list(function.body.body)
    return body[1] if is_docstring(body[0]) and len(body) > 1 else body[0]


def import_lines(module: Module, captured: Iterable[Capture]) -> list[str]:
    """Statements that import again what functions around have imported.

    Raises:
        NotMovable: a name is not imported by one statement alone.
    """
    lines: list[str] = []
    for one in captured:
        if any(binding.kind is not Kind.IMPORT for binding in one.bindings):
            raise NotMovable(f"`{one.name}` is imported in one place and assigned in another")
        found = {line for binding in one.bindings for line in _import_lines(module, binding.node, one.name)}
        if len(found) > 1 and not all(re.fullmatch(rf"import {one.name}(\.\w+)*", line) for line in found):
            raise NotMovable(f"`{one.name}` is imported in different ways")
        lines += sorted(found)
    return lines


def left_over_imports(module: Module, span: tuple[int, int], captured: Iterable[Capture]) -> Iterator[Edit]:
    """Edits that remove imports of the functions around which only the lines in ``span`` use, and now repeat.

    Modules that may do something when they are imported do it where they did.
    """
    for one in captured:
        statement = one.bindings[0].node
        line = module.parents[statement]
        block = module.parents[line]
        uses = (module.span(use)[0] for use in reads_of(module, one.name, one.scope))
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
            yield lines_deletion(module, module.line_start(start), module.line_end(end - 1))


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
