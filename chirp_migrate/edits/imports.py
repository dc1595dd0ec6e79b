"""Add the imports that rewritten code needs, at places where readers expect imports and where imports cause no errors.

The runtime, ``chirpid_patch``, imports torch. Some modules import torch in a ``try``, an ``if`` or a function, so that
the modules work without torch or load quickly. Such a module gets the import of the runtime next to its import of
torch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import libcst as cst

from chirp_migrate.edits.statements import start_of_comments_above
from chirp_migrate.plans.plan import Edit, Import
from chirp_migrate.source.text import apply_edits_in_span
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.name_resolution import find_names_from_star_imports, import_table, is_bound_to_other_object
from chirp_migrate.syntax.name_uses import is_imported_elsewhere
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted_source, is_docstring, is_name
from chirp_migrate.syntax.scopes import BindingKind

_RUNTIME = "chirpid_patch"
#: Packages that import torch. Below an import of such a package, torch is already loaded, so importing the runtime
#: takes little time.
_NEEDS_TORCH = re.compile(r"(torch\w*|pytorch_lightning|lightning|chirpid_patch|timm|accelerate)(\.|$)")

_TORCH = re.compile(r"torch(\.|$)")

_Statement = cst.Import | cst.ImportFrom


def runtime_import(imported_name: str) -> Import:
    """Return the import of ``imported_name``, such as ``read_labels``, from the runtime package."""
    return (_RUNTIME, imported_name)


def name_bound_by_import(clause: str) -> str:
    """Return the name that an import clause binds (``SpecAugment as Runtime`` binds ``Runtime``)."""
    return clause.split()[-1]


def conflicting_names(module: Module, project: Project, new_imports: Collection[Import]) -> set[str]:
    """Return the names in the imports ``new_imports`` that the top level of the module already binds to another object.

    A name that an ``import *`` from a module of the project binds counts as bound.
    """
    return {
        name_bound_by_import(clause)
        for source, clause in new_imports
        if _current_meanings(module, project, clause) - {_qualified_name(source, clause)}
    }


def names_conflicting_elsewhere(module: Module, project: Project, new_imports: Collection[Import]) -> set[str]:
    """Return the names in ``new_imports`` that files with an ``import *`` from this module bind to another object."""
    table = import_table(project, module.path)
    if not is_imported_elsewhere(project, module, "*"):
        return set()
    return {
        name
        for source, clause in new_imports
        if (name := name_bound_by_import(clause)) not in module.scopes.module.bindings
        and (table is None or table.exports(name))
        and is_bound_to_other_object(project, name, _qualified_name(source, clause), except_in=module.path)
    }


def shadowed_import_names(module: Module, new_imports: Collection[Import], edits: Collection[Edit]) -> set[str]:
    """Return the names in the imports ``new_imports`` that a function or class with new code binds to another object.

    ``edits`` insert the new code, which uses the names.
    """
    return {
        name
        for source, clause in new_imports
        for name in (name_bound_by_import(clause),)
        for scope in module.scopes.local_scopes_binding(name)
        if any(module.absolute(one.qualified) != _qualified_name(source, clause) for one in scope.bindings[name])
        for start, end in (module.span(scope.node),)
        if any(start <= edit.start < end and re.search(rf"\b{name}\b", edit.replacement) for edit in edits)
    }


def import_edits(
    module: Module, new_imports: Collection[Import], import_style: ImportStyle, first_use: int | None = None
) -> list[Edit]:
    """Return edits that import ``new_imports`` at the top level; an empty list if the module already imports all names.

    Args:
        module: the module that needs the imports.
        new_imports: the imports.
        import_style: how the project sorts imports. Existing imports are not sorted again.
        first_use: offset of the first code that uses an imported name. The imports must be above this code.
    """
    edits: list[Edit] = []
    for source in sorted({source for source, _ in new_imports}):
        missing = sorted(clause for origin, clause in new_imports if origin == source and not _is_bound(module, clause))
        existing = _import_from(module, source)
        late = existing is not None and first_use is not None and module.span(existing)[0] > first_use
        if late or import_style.one_name_a_line:
            existing = None
        if missing and existing is not None:
            edits += _with_project_layout(
                module, existing, _extend_import(module, existing, missing, import_style), import_style
            )
        elif missing and source == _RUNTIME and (guarded := _guarded_import(module)) is not None:
            edits += _insert_next_to(module, guarded, _import_line(source, missing), import_style)
        elif missing:
            edits += _new_import_line(module, source, missing, import_style, first_use)
    return edits


def local_import_edits(
    module: Module, name: cst.Name, new_import: Import, import_style: ImportStyle
) -> list[Edit] | None:
    """Return edits that import ``new_import`` next to the imports of ``name``, in a function or a ``__main__`` block.

    The result is ``None`` if the import must be at the top level of the module, in these cases:

    * The module imports ``name`` at the top level, outside of a ``__main__`` block.
    * A function imports ``name``, and the module imports torch at the top level. The runtime then loads quickly.
    * A ``__main__`` block imports ``name``, and the top level already binds the name that ``new_import`` binds.
    """
    variable = module.scopes.lookup(name.value, name)
    if variable is None:
        return None
    statements = [binding.node for binding in variable.bindings if isinstance(binding.node, _Statement)]
    if variable.scope is module.scopes.module:
        are_in_script = len(statements) == len(variable.bindings) and all(
            _is_in_main_block(module, s) for s in statements
        )
        if not are_in_script or _is_bound(module, new_import[1]):
            return None
    elif _loads_torch(module):
        return None
    line = _import_line(new_import[0], [new_import[1]])
    return [
        edit
        for statement in statements
        if not _has_same_import(module, statement, line)
        for edit in _insert_next_to(module, statement, line, import_style)
    ]


def _is_in_main_block(module: Module, statement: cst.CSTNode) -> bool:
    """Return whether a statement is in the block of ``if __name__ == "__main__":`` at the top level."""
    block = module.parents[module.parents[statement]]
    match module.parents.get(block):
        case cst.If(test=test, body=body) as guard if body is block:
            is_guard = any(is_name(one, "__name__") for one in walk_code(test))
            return is_guard and isinstance(module.parents[guard], cst.Module)
    return False


def _qualified_name(source: str, clause: str) -> str:
    return f"{source}.{clause.split()[0]}"


def _current_meanings(module: Module, project: Project, clause: str) -> set[str]:
    """Return the qualified names of all objects to which top-level code binds the name of an import clause.

    For an object that the module itself defines, the result contains an empty string.
    """
    bindings = module.scopes.module.bindings.get(name_bound_by_import(clause), ())
    own = {module.absolute(binding.qualified) if binding.kind is BindingKind.IMPORT else "" for binding in bindings}
    return own | find_names_from_star_imports(project, module, name_bound_by_import(clause))


def _is_bound(module: Module, clause: str) -> bool:
    """Return whether the top level of the module binds the name of an import clause.

    Imports count only if they always run (see :func:`import_always_runs`).
    """
    bindings = module.scopes.module.bindings.get(name_bound_by_import(clause), ())
    return any(
        binding.kind is not BindingKind.IMPORT or import_always_runs(module, binding.node) for binding in bindings
    )


def import_always_runs(module: Module, statement: cst.CSTNode) -> bool:
    """Return whether an import always runs when its module or function runs.

    An import in an ``if`` may not run, such as an import for type checkers or for one operating system. An import of
    the runtime in an ``if`` or ``try`` counts as an import that always runs, because the code that uses the runtime
    needs the same condition. Only an import of the runtime for type checkers does not count.
    """
    if any(source == _RUNTIME for source in _imported_modules(module, statement)):
        return not _is_for_type_checkers(module, statement)
    block = module.parents[module.parents[statement]]
    return isinstance(block, cst.Module) or isinstance(module.parents[block], cst.FunctionDef)


def _import_line(source: str, clauses: list[str]) -> str:
    return f"from {source} import {', '.join(clauses)}"


def _extend_import(
    module: Module, statement: cst.ImportFrom, clauses: list[str], import_style: ImportStyle
) -> Iterator[Edit]:
    """Yield edits that add ``clauses`` to an import.

    If the names of the import are sorted, the names stay sorted. If not, the new names come last.
    """
    aliases = () if isinstance(statement.names, cst.ImportStar) else statement.names
    spans = [module.span(alias.asname.name if alias.asname else alias.name) for alias in aliases]
    starts = [module.span(alias.name)[0] for alias in aliases]
    names = [module.text[start:end] for start, (_, end) in zip(starts, spans, strict=True)]
    ends = [*starts[1:], module.span(statement)[1]]
    own_line = module.newline + re.sub(r"\S", " ", module.text[module.line_start(starts[0]) : starts[0]])
    gap = module.text[spans[0][1] : ends[0]]
    separator = f",{own_line}" if "#" in gap else gap if len(names) > 1 else ", "
    sorted_names = import_style.names_in_order([*names, *clauses])
    if [name for name in sorted_names if name in names] != names:
        sorted_names = [*names, *clauses]
    ahead = list(takewhile(lambda clause: clause not in names, sorted_names))
    if ahead:
        yield Edit(starts[0], starts[0], "".join(clause + separator for clause in ahead))
    for name, (_, end), next_start in zip(names, spans, ends, strict=True):
        rest = sorted_names[sorted_names.index(name) + 1 :]
        following = list(takewhile(lambda clause: clause not in names, rest))
        line, newline, _ = module.text[end:next_start].partition(module.newline)
        if following and newline and "#" in line:
            # The comment of the last name stays on its line, so each new name gets its own line below.
            if "," not in line.partition("#")[0]:
                yield Edit(end, end, ",")
            yield Edit(end + len(line), end + len(line), "".join(f"{own_line}{clause}," for clause in following))
        elif following:
            yield Edit(end, end, "".join(separator + clause for clause in following))


def _with_project_layout(
    module: Module, statement: cst.ImportFrom, edits: Iterable[Edit], import_style: ImportStyle
) -> list[Edit]:
    """Return edits that change an import statement, and give the statement the layout of the project's own tools."""
    edits, (start, end) = list(edits), module.span(statement)
    after = apply_edits_in_span(module.text, (start, end), edits)
    before, new = (text.replace(module.newline, "\n") for text in (module.text[start:end], after))
    written = import_style.reformat_import(before, new).replace("\n", module.newline)
    return edits if written == after else [Edit(start, end, written)]


def _new_import_line(
    module: Module, source: str, clauses: list[str], import_style: ImportStyle, first_use: int | None
) -> list[Edit]:
    """Return edits that add an import as a new line.

    If possible, the line is inserted at its sorted place. If not, the line follows the import of ``DataLoader`` or
    torch, or the imports of the same isort section, such as the third-party imports.
    """
    line = import_style.format_import(_import_line(source, clauses)).replace("\n", module.newline)
    body = module.tree.body
    run = _import_positions(module, source)
    if not run:
        if body and is_docstring(body[0]):
            return [_insert_line_after(module, body[0], module.newline + line)]
        offset = module.line_start(module.span(body[0])[0]) if body else len(module.text)
        return [Edit(offset, offset, f"{line}{module.newline}")]
    imports = _imports_in(module, body)
    below = _loader_import(module, imports, run, first_use) if source == _RUNTIME else None
    if below is None or import_style.is_configured:
        edits = _insert_sorted(module, body[run[0]], body[run[-1]], _import_line(source, clauses), import_style)
        if edits is not None:
            return edits
    if below is not None:
        return [_insert_line_after(module, below, line)]
    section = import_style.section(source)
    alike = [n for n in run if n in imports and {*map(import_style.section, imports[n])} == {section}]
    if not alike and source != _RUNTIME:
        start = start_of_comments_above(module, module.line_start(module.span(body[run[0]])[0]), "")
        return [Edit(start, start, f"{line}{module.newline}{module.newline}")]
    return [_insert_line_after(module, body[(alike or run)[-1]], line)]


def _loader_import(
    module: Module, imports: Mapping[int, list[str]], run: Sequence[int], first_use: int | None
) -> cst.CSTNode | None:
    """Return the import below which the import of the runtime is inserted.

    The candidates are the imports at the positions ``run``.

    The first choice is an import of ``DataLoader`` from torch or from a package that needs torch. The next choices are
    another import from ``torch.utils``, the first import of torch, and an import of ``DataLoader`` from elsewhere. If
    further imports of torch follow directly, the result is the last of these imports.
    """
    body = module.tree.body
    places = [n for n in run if n in imports and (first_use is None or module.span(body[n])[1] <= first_use)]
    loaders = [
        n for n in places if any(one.evaluated_name == "DataLoader" for one in find_nodes(body[n], cst.ImportAlias))
    ]
    data = [n for n in places if any(one.startswith("torch.utils") for one in imports[n])]
    torch = [n for n in places if any(map(_NEEDS_TORCH.match, imports[n]))]
    found = next(iter((*(n for n in loaders if n in torch), *data, *torch, *loaders)), None)
    return None if found is None else _last_torch_import(body, {n: imports[n] for n in places}, found)


def _import_from(module: Module, source: str) -> cst.ImportFrom | None:
    """Return the top-level statement that imports names from ``source`` and always runs."""
    for statement in module.find(cst.ImportFrom):
        if isinstance(statement.names, cst.ImportStar) or statement.relative or statement.module is None:
            continue
        is_top_level = module.scopes.scope_of(statement) is module.scopes.module
        if is_top_level and module.source(statement.module) == source and import_always_runs(module, statement):
            return statement
    return None


def _imports_in(module: Module, body: Sequence[cst.CSTNode]) -> dict[int, list[str]]:
    """Return the positions of import statements in a block, each with the modules that the statement imports from."""
    return {
        position: [source for small in statement.body for source in _imported_modules(module, small)]
        for position, statement in enumerate(body)
        if isinstance(statement, cst.SimpleStatementLine)
        and all(isinstance(small, _Statement) for small in statement.body)
    }


def _imported_modules(module: Module, statement: cst.CSTNode) -> list[str]:
    match statement:
        case cst.Import(names=aliases):
            return [alias.evaluated_name for alias in aliases]
        case cst.ImportFrom(module=named):
            return ["." * len(statement.relative) + (module.source(named) if named is not None else "")]
    return []


def _loads_torch(module: Module) -> bool:
    imports = _imports_in(module, module.tree.body).values()
    return any(_NEEDS_TORCH.match(source) for sources in imports for source in sources)


def _guarded_import(module: Module) -> cst.CSTNode | None:
    """Return the first import of torch if the module imports torch only under a condition; else None."""
    if _loads_torch(module):
        return None
    for statement in sorted(module.find(cst.Import, cst.ImportFrom), key=lambda statement: module.span(statement)[0]):
        if module.scopes.scope_of(statement) is not module.scopes.module or _is_for_type_checkers(module, statement):
            continue
        if any(_NEEDS_TORCH.match(source) for source in _imported_modules(module, statement)):
            return statement
    return None


def _is_for_type_checkers(module: Module, statement: cst.CSTNode) -> bool:
    guards = (ancestor for ancestor in module.ancestors(statement) if isinstance(ancestor, cst.If))
    return any("TYPE_CHECKING" in module.source(guard.test) for guard in guards)


def _insert_next_to(module: Module, statement: cst.CSTNode, line: str, import_style: ImportStyle) -> list[Edit]:
    """Return edits that insert ``line`` at its sorted place if the project sorts imports, else below ``statement``."""
    parent = module.parents[statement]
    if not isinstance(parent, cst.SimpleStatementLine) or parent.body[-1] is not statement:
        end = module.span(statement)[1]
        return [Edit(end, end, f"; {line}")]
    body: Sequence[cst.CSTNode] = getattr(module.parents[parent], "body", (parent,))
    imports = _imports_in(module, body)
    run = _neighbouring_imports(imports, body.index(parent))
    edits = (
        _insert_sorted(module, body[run[0]], body[run[-1]], line, import_style) if import_style.is_configured else None
    )
    return (
        [_insert_line_after(module, _last_torch_import(body, imports, body.index(parent)), line)]
        if edits is None
        else edits
    )


def _last_torch_import(body: Sequence[cst.CSTNode], imports: Mapping[int, list[str]], position: int) -> cst.CSTNode:
    """Return the import at ``position`` of a block.

    If imports of torch directly follow this import, the result is the last of these imports.
    """
    following = position + 1
    while all(map(_TORCH.match, imports.get(following, ["-"]))) and not getattr(body[following], "leading_lines", ()):
        position, following = following, following + 1
    return body[position]


def _insert_sorted(
    module: Module, first: cst.CSTNode, last: cst.CSTNode, line: str, import_style: ImportStyle
) -> list[Edit] | None:
    """Return edits that insert ``line`` where isort would put it; None if the imports are not sorted."""
    start, stop = module.line_start(module.span(first)[0]), module.line_end(module.span(last)[1] - 1)
    indent = module.indentation(start)
    lines = module.text[start:stop].splitlines(keepends=True)
    imports = "".join(text.removeprefix(indent) for text in lines)
    insertions = import_style.insertions(imports, line)
    if insertions is None or not imports.endswith(("\n", "\r")):
        return None
    edits = []
    for edit in insertions:
        offset = start + sum(map(len, lines[: len(imports[: edit.start].splitlines())]))
        added = edit.replacement.splitlines(keepends=True)
        new = "".join(indent + text if text.strip() else text for text in added)
        edits.append(Edit(offset, offset, new))
    return edits


def _has_same_import(module: Module, statement: cst.CSTNode, line: str) -> bool:
    """Return whether the block of ``statement`` already contains the import ``line``."""
    block = module.parents[module.parents[statement]]
    return any(
        module.source(small).strip() == line
        for neighbour in getattr(block, "body", ())
        if isinstance(neighbour, cst.SimpleStatementLine)
        for small in neighbour.body
    )


def _import_positions(module: Module, source: str) -> Sequence[int]:
    """Return the positions of the consecutive imports among which an import from ``source`` is inserted.

    The positions are indices of statements in the module. The result is the first group of consecutive imports, or
    empty if the module has no imports. If ``source`` is the runtime, the result is the group with the first import of
    torch, because a module may have to run code before it imports torch. If the module changes ``sys.path`` below this
    group, Python may need the change to find the runtime. The result is then the group of imports directly below the
    change. If no import is directly below the change, the result is the position of the change itself.
    """
    imports = _imports_in(module, module.tree.body)
    start = next(iter(imports), -1)
    if source != _RUNTIME:
        return _neighbouring_imports(imports, start)
    torch = (position for position, sources in imports.items() if any(map(_NEEDS_TORCH.match, sources)))
    start = next(torch, start)
    paths = [n for n, statement in enumerate(module.tree.body) if _changes_sys_path(statement)]
    if start >= 0 and paths and paths[-1] > start:
        if paths[-1] + 1 not in imports:
            return [paths[-1]]
        start = paths[-1] + 1
    return _neighbouring_imports(imports, start)


def _neighbouring_imports(imports: Mapping[int, list[str]], start: int) -> Sequence[int]:
    if start < 0:
        return ()
    first = last = start
    while first - 1 in imports:
        first -= 1
    while last + 1 in imports:
        last += 1
    return range(first, last + 1)


def _insert_line_after(module: Module, statement: cst.CSTNode, line: str) -> Edit:
    """Return the edit that inserts ``line`` as a new line below a statement, with the same indentation."""
    start, end = module.span(statement)
    after = module.line_end(end)
    lead = "" if module.text[:after].endswith(("\n", "\r")) else module.newline
    return Edit(after, after, f"{lead}{module.indentation(start)}{line}{module.newline}")


def _changes_sys_path(statement: cst.CSTNode) -> bool:
    smalls = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    changing = (small for small in smalls if isinstance(small, cst.Expr | cst.Assign | cst.AugAssign))
    return any(dotted_source(part) == "sys.path" for small in changing for part in walk_code(small))
