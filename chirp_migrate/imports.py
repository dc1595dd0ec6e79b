"""The import that rewritten code needs, added where a reader would look for it and where it can do no harm.

The runtime imports torch. Where a module imports torch in a ``try``, an ``if`` or a function, so that it works or loads
quickly without, the runtime is imported there too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator

import libcst as cst
import libcst.matchers as m

from chirp_migrate.module import Module
from chirp_migrate.names import Kind
from chirp_migrate.plan import Edit, Import

_RUNTIME = "chirpid_patch"
#: Packages that need torch: once they are imported, importing the runtime costs nothing and cannot fail for torch.
_NEEDS_TORCH = re.compile(r"(torch\w*|pytorch_lightning|lightning|chirpid_patch|timm|accelerate)(\.|$)")

_Statement = cst.Import | cst.ImportFrom


def runtime(clause: str) -> Import:
    """A name from the runtime package."""
    return (_RUNTIME, clause)


def bound_name(clause: str) -> str:
    """The name an import clause binds (``SpecAugment as Shipped`` binds ``Shipped``)."""
    return clause.split()[-1]


def conflicting(module: Module, needed: Collection[Import]) -> set[str]:
    """Names of ``needed`` that already mean something else at the top level of the module."""
    return {bound_name(one[1]) for one in needed if _meanings(module, one) - {_qualified(one)}}


def import_edits(module: Module, needed: Collection[Import], first_use: int | None = None) -> list[Edit]:
    """Edits that make ``needed`` available at the top level; none when it all is.

    Args:
        module: where it is needed.
        needed: the imports.
        first_use: offset of the first place that needs one of them; an import below is no use to it.
    """
    edits: list[Edit] = []
    lines: list[tuple[int, str]] = []
    for source in sorted({one[0] for one in needed}):
        missing = sorted(one[1] for one in needed if one[0] == source and not _meanings(module, one))
        existing = _import_from(module, source)
        if existing is not None and first_use is not None and module.span(existing)[0] > first_use:
            existing = None
        if missing and existing is not None:
            last = existing.names[-1]  # type: ignore[index]
            end = module.span(last.asname.name if last.asname is not None else last.name)[1]
            edits.append(Edit(end, end, "".join(f", {clause}" for clause in missing)))
        elif missing and source == _RUNTIME and (guarded := _guarded_import(module)) is not None:
            edits.append(_beside(module, guarded, _line(module, source, missing)))
        elif missing:
            offset, lead, tail = _place(module) if source == _RUNTIME else _standard_place(module)
            lines.append((offset, f"{lead}{_line(module, source, missing)}{module.newline}{tail}"))
    return [*edits, *(Edit(offset, offset, line) for offset, line in lines)]


def local_import_edits(module: Module, name: cst.Name, needed: Import) -> list[Edit] | None:
    """Edits that import ``needed`` beside the function-level imports that ``name`` comes from.

    ``None`` when it belongs at the top level: ``name`` comes from there, or the module needs torch to load anyway.
    """
    found = module.scopes.lookup(name.value, name)
    if found is None or found[0] is module.scopes.module or _loads_torch(module):
        return None
    statements = [one.node for one in found[1] if isinstance(one.node, _Statement)]
    line = _line(module, needed[0], [needed[1]])
    return [_beside(module, one, line) for one in statements if not _has_neighbour(module, one, line)]


def _qualified(needed: Import) -> str:
    return f"{needed[0]}.{needed[1].split()[0]}"


def _meanings(module: Module, needed: Import) -> set[str]:
    """What the name that ``needed`` would bind stands for at the top level now; an empty string for own code."""
    bindings = module.scopes.module.bindings.get(bound_name(needed[1]), ())
    return {module.absolute(one.qualified) if one.kind is Kind.IMPORT else "" for one in bindings}


def _line(module: Module, source: str, clauses: list[str]) -> str:
    line = f"from {source} import {', '.join(clauses)}"
    if len(line) > 100:
        line = f"from {source} import (" + "".join(f"{module.newline}    {c}," for c in clauses) + module.newline + ")"
    return line


def _import_from(module: Module, source: str) -> cst.ImportFrom | None:
    """The top-level statement that takes names from ``source``; it may stand where torch may be missing."""
    for statement in module.find(cst.ImportFrom):
        if isinstance(statement.names, cst.ImportStar) or statement.relative or statement.module is None:
            continue
        if module.scopes.scope_of(statement) is module.scopes.module and module.source(statement.module) == source:
            return statement
    return None


def _top_level_imports(module: Module) -> Iterator[tuple[int, list[str]]]:
    """Position in the body of each statement that only imports, and the modules it imports from."""
    for position, statement in enumerate(module.tree.body):
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        if all(isinstance(small, _Statement) for small in statement.body):
            yield position, [source for small in statement.body for source in _sources(module, small)]


def _sources(module: Module, statement: cst.CSTNode) -> list[str]:
    if isinstance(statement, cst.Import):
        return [alias.evaluated_name for alias in statement.names]
    assert isinstance(statement, cst.ImportFrom)
    dots = "." * len(statement.relative)
    return [dots + (module.source(statement.module) if statement.module is not None else "")]


def _loads_torch(module: Module) -> bool:
    return any(_NEEDS_TORCH.match(source) for _, sources in _top_level_imports(module) for source in sources)


def _guarded_import(module: Module) -> cst.CSTNode | None:
    """The first import of torch, where the module imports it only under some condition."""
    if _loads_torch(module):
        return None
    for statement in sorted(module.find(cst.Import, cst.ImportFrom), key=lambda one: module.span(one)[0]):
        if module.scopes.scope_of(statement) is not module.scopes.module or _is_for_checkers(module, statement):
            continue
        if any(_NEEDS_TORCH.match(source) for source in _sources(module, statement)):
            return statement
    return None


def _is_for_checkers(module: Module, statement: cst.CSTNode) -> bool:
    guards = (one for one in module.ancestors(statement) if isinstance(one, cst.If))
    return any("TYPE_CHECKING" in module.source(guard.test) for guard in guards)


def _beside(module: Module, statement: cst.CSTNode, line: str) -> Edit:
    """``line`` behind an import statement, on a line of its own where the statement has one."""
    parent = module.parents[statement]
    end = module.span(statement)[1]
    if isinstance(parent, cst.SimpleStatementLine):
        behind = module.line_end(module.span(parent)[1] - 1)
        lead = "" if module.text[:behind].endswith(("\n", "\r")) else module.newline
        return Edit(behind, behind, f"{lead}{module.indentation(module.span(parent)[0])}{line}{module.newline}")
    return Edit(end, end, f"; {line}")


def _has_neighbour(module: Module, statement: cst.CSTNode, line: str) -> bool:
    """Whether the block of ``statement`` imports the same already."""
    block = module.parents[module.parents[statement]]
    return any(
        module.source(small).strip() == line
        for other in getattr(block, "body", ())
        if isinstance(other, cst.SimpleStatementLine)
        for small in other.body
    )


def _place(module: Module) -> tuple[int, str, str]:
    """Offset for a line that imports the runtime, and the white space before and behind it.

    Behind the run of imports in which torch is first imported, or the first run: what a module sets up before it
    imports torch stays before it. Behind a top-level change of ``sys.path``, which the runtime may need to be found.
    """
    body = module.tree.body
    imports = dict(_top_level_imports(module))
    torch = [position for position, sources in imports.items() if any(map(_NEEDS_TORCH.match, sources))]
    start = torch[0] if torch else next(iter(imports), -1)
    paths = [p for p, one in enumerate(body) if isinstance(one, cst.SimpleStatementLine) and _changes_path(one)]
    if start >= 0 and paths and paths[-1] > start:
        start = paths[-1] + 1 if paths[-1] + 1 in imports else paths[-1]
    while start >= 0 and start + 1 in imports:
        start += 1
    return _top(module) if start < 0 else _behind(module, body[start])


def _standard_place(module: Module) -> tuple[int, str, str]:
    """The same for a module of the standard library: behind the others of the first run of imports, or above it."""
    imports = dict(_top_level_imports(module))
    start = next(iter(imports), -1)
    if start < 0:
        return _top(module)
    last, position = None, start
    while position in imports:
        if all(source.partition(".")[0] in sys.stdlib_module_names for source in imports[position]):
            last = position
        position += 1
    if last is not None:
        return _behind(module, module.tree.body[last])
    return module.line_start(module.span(module.tree.body[start])[0]), "", module.newline


def _behind(module: Module, statement: cst.CSTNode) -> tuple[int, str, str]:
    end = module.line_end(module.span(statement)[1])
    return end, "" if module.text[:end].endswith(("\n", "\r")) else module.newline, ""


def _top(module: Module) -> tuple[int, str, str]:
    """Where the first import of a module goes: behind its docstring."""
    body = module.tree.body
    if body and m.matches(body[0], _DOCSTRING):
        offset, lead, _ = _behind(module, body[0])
        return offset, lead + module.newline, ""
    offset = module.line_start(module.span(body[0])[0]) if body else len(module.text)
    return offset, "", ""


_DOCSTRING = m.SimpleStatementLine([m.Expr(m.SimpleString() | m.ConcatenatedString())])
_CHANGES_PATH = m.Attribute(m.Name("sys"), m.Name("path"))


def _changes_path(statement: cst.SimpleStatementLine) -> bool:
    return any(
        isinstance(small, cst.Expr | cst.Assign | cst.AugAssign) and m.findall(small, _CHANGES_PATH)
        for small in statement.body
    )
