"""The import that rewritten code needs, added where a reader would look for it."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst
import libcst.matchers as m

from chirp_migrate.module import Module
from chirp_migrate.plan import Edit

#: An import that rewritten code needs: module, and the clause behind ``import`` (``name`` or ``name as other``).
Import = tuple[str, str]


def runtime(clause: str) -> Import:
    """A name from the runtime package."""
    return ("chirpid_patch", clause)


def bound_name(clause: str) -> str:
    """The name an import clause binds (``SpecAugment as Shipped`` binds ``Shipped``)."""
    return clause.split()[-1]


def conflicting(module: Module, needed: Collection[Import]) -> set[str]:
    """Names of ``needed`` that already mean something else at the top level of the module."""
    ours = {(source, clause) for source in {n[0] for n in needed} for clause in _imported(module, source)}
    taken: set[str] = set()
    for statement in module.tree.body:
        if isinstance(statement, cst.ClassDef | cst.FunctionDef):
            taken.add(statement.name.value)
        elif isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, cst.ImportFrom) and not isinstance(small.names, cst.ImportStar):
                    taken |= {alias.evaluated_alias or alias.evaluated_name for alias in small.names}
                elif isinstance(small, cst.Assign):
                    taken |= {t.target.value for t in small.targets if isinstance(t.target, cst.Name)}
    return {bound_name(n[1]) for n in needed if n not in ours and bound_name(n[1]) in taken}


def import_edits(module: Module, needed: Collection[Import]) -> list[Edit]:
    """Edits that make ``needed`` available; none when it all is."""
    edits: list[Edit] = []
    lines: list[str] = []
    for source in sorted({n[0] for n in needed}):
        present = _imported(module, source)
        missing = sorted(n[1] for n in needed if n[0] == source and n[1] not in present)
        existing = _import_from(module, source)
        if missing and existing is not None:
            last = existing.names[-1]  # type: ignore[index]
            end = module.span(last.asname.name if last.asname is not None else last.name)[1]
            edits.append(Edit(end, end, "".join(f", {clause}" for clause in missing)))
        elif missing:
            lines.append(_line(module, source, missing))
    if lines:
        offset, lead = _place(module)
        edits.append(Edit(offset, offset, lead + "".join(lines)))
    return edits


def _line(module: Module, source: str, clauses: list[str]) -> str:
    line = f"from {source} import {', '.join(clauses)}"
    if len(line) > 100:
        line = f"from {source} import (" + "".join(f"{module.newline}    {c}," for c in clauses) + module.newline + ")"
    return line + module.newline


def _import_from(module: Module, source: str) -> cst.ImportFrom | None:
    for statement in module.tree.body:
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.ImportFrom) and not small.relative and small.module is not None:
                if isinstance(small.names, cst.ImportStar) or module.source(small.module) != source:
                    continue
                return small
    return None


def _imported(module: Module, source: str) -> list[str]:
    found = _import_from(module, source)
    if found is None or isinstance(found.names, cst.ImportStar):
        return []
    return [
        f"{alias.evaluated_name} as {alias.evaluated_alias}" if alias.asname is not None else alias.evaluated_name
        for alias in found.names
    ]


def _place(module: Module) -> tuple[int, str]:
    """Offset for new import lines and the white space before them: behind the leading imports, or the docstring."""
    last_import: cst.CSTNode | None = None
    docstring: cst.CSTNode | None = None
    for statement in module.tree.body:
        if isinstance(statement, cst.SimpleStatementLine):
            first = statement.body[0]
            if all(isinstance(small, cst.Import | cst.ImportFrom) for small in statement.body):
                last_import = statement
                continue
            if (
                last_import is None
                and docstring is None
                and m.matches(first, m.Expr(m.SimpleString() | m.ConcatenatedString()))
            ):
                docstring = statement
                continue
        break
    anchor = last_import or docstring
    if anchor is None:
        start = module.span(module.tree.body[0])[0] if module.tree.body else len(module.text)
        return module.line_start(start), ""
    end = module.line_end(module.span(anchor)[1])
    lead = "" if module.text[:end].endswith(("\n", "\r")) else module.newline
    return end, lead + (module.newline if anchor is docstring else "")
