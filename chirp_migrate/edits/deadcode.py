"""Remove imports and variables that a rewrite has made unused.

Imports and variables that were unused before the rewrite stay. The module parses code with the standard library's
``ast``, and compares names only by their spelling. If the module cannot decide whether code is used, the code stays.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, takewhile

from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.text import SOURCE_LINE, apply_edits, apply_edits_in_span
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.outline import Outline

#: Names of functions whose calls have no side effects. Only the spelling counts, because this module cannot look up
#: names in the project.
_PURE_CALLS = re.compile(r"min|max|int|bool|len|str|[\w.]+\.get")
_WORD = re.compile(r"\w+")
#: Pattern of the rest of a line after the last name of an import, if the closing bracket is on a later line.
_REST_OF_CLAUSE = re.compile(r"[ \t]*(?:,[ \t]*)?(#[^\r\n]*)?(?=\r?\n)")
#: Modules that ``import torch`` already imports. The next constant lists the names that ``import *`` from these modules
#: binds.
_DATA = frozenset({"torch.utils.data", "torch.utils.data.dataloader"})
_GIVEN_BY_STAR = frozenset({
    "BatchSampler", "ChainDataset", "ConcatDataset", "DFIterDataPipe", "DataChunk", "DataLoader", "Dataset",
    "DistributedSampler", "IterDataPipe", "IterableDataset", "MapDataPipe", "RandomSampler", "Sampler",
    "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
    "_DatasetKind", "argument_validation", "default_collate", "default_convert", "functional_datapipe",
    "get_worker_info", "guaranteed_datapipes_determinism", "non_deterministic", "random_split",
    "runtime_validation", "runtime_validation_disabled",
})  # fmt: skip
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class _Binding:
    scope: str
    name: str


@dataclass
class _DeadStatement:
    statement: ast.stmt
    alias: ast.alias | None
    block: list[ast.stmt]


def remove_newly_unused_names(
    before: str, after: str, is_public: Callable[[str], bool], import_style: ImportStyle
) -> Iterator[list[Edit]]:
    """Yield edits that remove imports and variables that are unused in ``after`` but were used in ``before``.

    A removal may make further names unused, so the function yields several lists of edits. The positions in a list
    refer to the text after the edits of all earlier lists.

    Args:
        before: source text of the module before the rewrite.
        after: source text of the module after the rewrite.
        is_public: function that returns whether another file may import a top-level name from this module. Names for
            which the function returns True stay.
        import_style: how the project sorts and wraps imports.
    """
    only_imports = False
    while not only_imports:
        # Only a name that occurs less often than before the rewrite can have become unused.
        names = frozenset(Counter(_WORD.findall(before)) - Counter(_WORD.findall(after)))
        known = _module_names(before).bound(names) if names else {}
        idle = _module_names(before).unused(names) if known else {}
        dead = {
            binding: places
            for binding, places in (_module_names(after).unused(names) if known else {}).items()
            if binding in known and binding not in idle and not (binding.scope == "" and is_public(binding.name))
        }
        if names:
            dead = _without_idle_submodules(before, dead)
            dead |= _needless_imports(before, after, is_public)
        edits = _removal_edits(after, dead, import_style)
        if not edits:
            return
        yield edits
        after = apply_edits(after, edits)
        only_imports = all(place.alias is not None for places in dead.values() for place in places)


def _without_idle_submodules(
    before: str, dead: dict[_Binding, list[_DeadStatement]]
) -> dict[_Binding, list[_DeadStatement]]:
    """Return ``dead`` without each ``import a.b`` whose path ``a.b`` the text ``before`` does not read.

    The file keeps such a statement, because it was unused before the rewrite. A file that keeps ``import a.b`` also
    keeps ``import a``, because both statements bind the name ``a``. The argument ``dead`` is a dictionary: name →
    statements to remove that bind this name.
    """
    read, found = _module_names(before).paths, dict(dead)
    for binding, places in dead.items():
        aliases = [place.alias for place in places if isinstance(place.statement, ast.Import)]
        modules = {one.name for one in aliases if one is not None and one.asname is None and "." in one.name}
        if modules - read:
            found[binding] = [one for one in places if one.alias is not None and one.alias.name in modules & read]
    return {binding: places for binding, places in found.items() if places}


def _needless_imports(
    before: str, after: str, is_public: Callable[[str], bool]
) -> dict[_Binding, list[_DeadStatement]]:
    """Return the top-level imports of ``torch.utils.data`` that the new text no longer needs.

    Such an import is ``import torch.utils.data`` next to ``import torch``, or ``from torch.utils.data import *``.
    """
    was, now = _module_names(before), _module_names(after)
    found = {
        _Binding("", path): places
        for path, places in now.submodules.items()
        if path in _DATA and path in was.paths and path not in now.paths and not now.names_in_strings(path)
    }
    given = _GIVEN_BY_STAR & was.unbound_names
    if given and not given & now.unbound_names and not any(map(is_public, _GIVEN_BY_STAR)):
        stars = [place for place in now.stars if isinstance(place.statement, ast.ImportFrom)]
        places = [place for place in stars if getattr(place.statement, "module", "") in _DATA]
        if places and not (now.reads_computed_names or any(map(now.names_in_strings, given))):
            found[_Binding("", "*")] = places
    return found


def removable_import_names(text: str) -> set[str]:
    """Return the names that top-level imports bind and that :func:`remove_newly_unused_names` may remove."""
    names = _module_names(text)
    return {binding.name for binding in names.bindings if not binding.scope} | (
        _GIVEN_BY_STAR if names.stars else set()
    )


class _ModuleNames:
    """Find the names that a module binds and reads in each scope.

    A scope is written as ``.function.inner``; "" stands for the top level of the module.
    """

    def __init__(self, text: str) -> None:
        self._outline = Outline("", text)
        self._names_loaded: dict[str, set[str]] = {}

    @cached_property
    def bindings(self) -> dict[_Binding, list[_DeadStatement]]:
        """Return the statements that bind each name: imports, and in functions also variables and inner functions."""
        found: dict[_Binding, list[_DeadStatement]] = {}
        for statement in self._outline.find(ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef):
            around = self._enclosing_definitions(statement)
            if around and isinstance(around[0], ast.ClassDef):
                continue
            scope, block = self._scope(around), self._blocks[statement]
            match statement:
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    for alias in aliases:
                        name = alias.asname or alias.name.partition(".")[0]
                        found.setdefault(_Binding(scope, name), []).append(_DeadStatement(statement, alias, block))
                case ast.Assign(targets=[ast.Name(id=name)]) if scope:
                    found.setdefault(_Binding(scope, name), []).append(_DeadStatement(statement, None, block))
                case ast.FunctionDef(name=name, decorator_list=[]) if scope:
                    found.setdefault(_Binding(scope, name), []).append(_DeadStatement(statement, None, block))
        return found

    def bound(self, names: Collection[str]) -> dict[_Binding, list[_DeadStatement]]:
        """Return the statements that bind ``names``, except statements with side effects."""
        named = {one: places for one, places in self.bindings.items() if one.name in names}
        pure = {one: [place for place in places if _is_pure(place.statement)] for one, places in named.items()}
        return {one: places for one, places in pure.items() if places}

    def unused(self, names: Collection[str]) -> dict[_Binding, list[_DeadStatement]]:
        """Return the statements that bind ``names``, but only for names that no code reads."""
        bound = self.bound(names).items()
        return {
            one: places
            for one, places in bound
            if one.name not in self._names_read_in(one.scope)
            and not (
                self._may_be_read_by_string(one) if one.scope == "" else "locals" in self._names_read_in(one.scope)
            )
        }

    @cached_property
    def submodules(self) -> dict[str, list[_DeadStatement]]:
        """Return a dictionary: module ``a.b`` → top-level statements ``import a.b``.

        The dictionary contains a module only if the file also has ``import a``.
        """
        body = self._outline.tree.body
        plain = [(one, alias) for one in body if isinstance(one, ast.Import) for alias in one.names if not alias.asname]
        packages = {alias.name for _, alias in plain}
        found: dict[str, list[_DeadStatement]] = {}
        for statement, alias in plain:
            if "." in alias.name and alias.name.partition(".")[0] in packages:
                found.setdefault(alias.name, []).append(_DeadStatement(statement, alias, body))
        return found

    @cached_property
    def stars(self) -> list[_DeadStatement]:
        """Return the top-level statements ``from module import *``."""
        body = self._outline.tree.body
        froms = (one for one in body if isinstance(one, ast.ImportFrom))
        return [_DeadStatement(one, alias, body) for one in froms for alias in one.names if alias.name == "*"]

    @cached_property
    def paths(self) -> frozenset[str]:
        """Return the dotted paths that code reads, such as ``a.b.c``, and all their prefixes, such as ``a.b``."""
        found = set[str]()
        for attribute in self._outline.find(ast.Attribute):
            parts: list[str] = []
            node: ast.expr = attribute
            while isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            if isinstance(node, ast.Name):
                words = [node.id, *reversed(parts)]
                found.update(".".join(words[:end]) for end in range(2, len(words) + 1))
        return frozenset(found)

    @cached_property
    def unbound_names(self) -> frozenset[str]:
        """Return the names that code reads, but that no import, no definition and no variable of a function binds."""
        bound = {one.name for one in self.bindings} | {one.name for one in self._outline.functions}
        bound |= {one.name for one in self._outline.find(ast.ClassDef)}
        return frozenset(self._names_read_in("") - bound)

    def names_in_strings(self, path: str) -> bool:
        """Return whether a string contains the dotted ``path``, and is code that reads the first name of this path."""
        return any(path in text and path.partition(".")[0] in _read_in_string(text) for text in self._strings)

    def _may_be_read_by_string(self, binding: _Binding) -> bool:
        """Return whether code in a string may read a top-level name.

        Such a string is a quoted type, a doctest, code for ``eval``, or a string that the program computes.
        """
        return self.names_in_strings(binding.name) or self.reads_computed_names

    @cached_property
    def reads_computed_names(self) -> bool:
        """Return whether the module may read its top-level names with strings that the program computes.

        Such code calls ``globals``, or calls ``eval`` or ``exec`` with an argument that is not a constant. At module or
        class level, code may also call ``locals``, ``vars`` or ``dir`` without an argument.
        """
        calls = (one for one in self._outline.find(ast.Call) if self._reads_any_name(one))
        return any(isinstance(one.func, ast.Name) and one.func.id not in self._own_names for one in calls)

    def _reads_any_name(self, call: ast.Call) -> bool:
        match call:
            case ast.Call(func=ast.Name(id="globals")):
                return True
            case ast.Call(func=ast.Name(id="eval" | "exec"), args=[code, *_]):
                return not isinstance(code, ast.Constant)
            case ast.Call(func=ast.Name(id="locals" | "vars" | "dir"), args=[]):
                return not self._is_in_function(call)
        return False

    @cached_property
    def _own_names(self) -> frozenset[str]:
        """Return the names that imports, assignments and functions bind, in any scope, except names of methods."""
        parents = self._outline.parents
        found = {one.name for one in self._outline.functions if not isinstance(parents[one], ast.ClassDef)}
        found |= {one.id for one in self._outline.find(ast.Name) if isinstance(one.ctx, ast.Store)}
        return frozenset(found | {one.name for one in self.bindings})

    def _is_in_function(self, node: ast.AST) -> bool:
        """Return whether a node is in the body of a function or lambda. Defaults and decorators are not in the body."""
        inner = node
        for around in self._outline.ancestors(node):
            match around:
                case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) if inner in body:
                    return True
                case ast.Lambda(body=body) if inner is body:
                    return True
            inner = around
        return False

    @cached_property
    def _strings(self) -> list[str]:
        return [one.value for one in self._outline.find(ast.Constant) if isinstance(one.value, str)]

    def _names_read_in(self, scope: str) -> set[str]:
        """Return the names that are read in a scope and in the scopes inside it."""
        if scope not in self._names_loaded:
            tree, inside = self._outline.tree, self._outline.inside
            functions = (
                one for one in self._outline.functions if self._scope((one, *self._enclosing_definitions(one))) == scope
            )
            read = (_names_loaded([function, *inside(function)]) for function in functions)
            self._names_loaded[scope] = (
                set().union(*read) if scope else _names_loaded(inside(tree)) | _exported_names(tree)
            )
        return self._names_loaded[scope]

    def _enclosing_definitions(self, node: ast.AST) -> list[_Definition]:
        return [ancestor for ancestor in self._outline.ancestors(node) if isinstance(ancestor, _DEFINITIONS)]

    def _scope(self, around: Sequence[_Definition]) -> str:
        return "".join(f".{one.name}" for one in reversed(around))

    @cached_property
    def _blocks(self) -> dict[ast.AST, list[ast.stmt]]:
        """Return a dictionary: statement → list of all statements in the block of this statement."""
        tree = self._outline.tree
        nodes = (tree, *self._outline.inside(tree))
        fields = (value for node in nodes for _, value in ast.iter_fields(node) if isinstance(value, list))
        return {one: field for field in fields for one in field if isinstance(one, ast.stmt)}


@lru_cache(maxsize=4)
def _module_names(text: str) -> _ModuleNames:
    return _ModuleNames(text)


def _names_loaded(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names that syntax nodes read, and all words in string annotations."""
    found: set[str] = set()
    annotations: list[ast.expr | None] = []
    for one in nodes:
        match one:
            case ast.Name(ctx=ast.Load() | ast.Del()):
                found.add(one.id)
            case ast.Global() | ast.Nonlocal():
                found.update(one.names)
            case ast.AugAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                annotations.append(annotation)
            case ast.FunctionDef(returns=annotation) | ast.AsyncFunctionDef(returns=annotation):
                annotations.append(annotation)
    for constant in (part for one in annotations if one is not None for part in ast.walk(one)):
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
            found.update(_WORD.findall(constant.value))
    return found


@lru_cache(maxsize=256)
def _read_in_string(text: str) -> frozenset[str]:
    """Return the names that code in a string reads. The code is the whole string, or the examples of a doctest.

    The result is empty if the string is not code. A single word counts only if it begins with a capital letter, because
    such a word may name a class. Other single words are mostly keys of dictionaries.
    """
    if _WORD.fullmatch(text) is not None:
        return frozenset({text} if text[:1].isupper() else ())
    examples = [line for line in map(str.lstrip, text.splitlines()) if line.startswith((">>>", "..."))]
    found = {word for line in examples for word in _WORD.findall(line)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(found)
    found |= _names_loaded(list(ast.walk(tree)))
    quoted = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(found.union(*(_WORD.findall(one) for one in quoted if one != text)))


def _exported_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            names |= {n.value for n in ast.walk(statement) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return names


def _is_pure(statement: ast.stmt) -> bool:
    return not isinstance(statement, ast.Assign) or not any(
        isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr)
        or (isinstance(node, ast.Call) and not _PURE_CALLS.fullmatch(ast.unparse(node.func)))
        for node in ast.walk(statement.value)
    )


def _removal_edits(text: str, dead: dict[_Binding, list[_DeadStatement]], import_style: ImportStyle) -> list[Edit]:
    lines = SOURCE_LINE.findall(text)
    starts = [0, *accumulate(map(len, lines))]

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    by_statement: dict[ast.stmt, list[_DeadStatement]] = {}
    for place in (place for places in dead.values() for place in places):
        by_statement.setdefault(place.statement, []).append(place)
    edits: list[Edit] = []
    gone: Counter[int] = Counter()
    for statement, places in by_statement.items():
        block, aliases = places[0].block, [place.alias for place in places]
        start = offset(statement.lineno, statement.col_offset)
        end = offset(statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
        if isinstance(statement, ast.Import | ast.ImportFrom) and len(aliases) < len(statement.names):
            removals = _alias_removals(text, statement.names, aliases, offset)
            written = _shorten_import(text[start:end], apply_edits_in_span(text, (start, end), removals), import_style)
            edits += removals if written is None else [Edit(start, end, written)]
            continue
        if gone[id(block)] + 1 >= len(block):
            continue  # a block must contain at least one statement
        line_start = starts[statement.lineno - 1]
        line_end = starts[statement.end_lineno or statement.lineno]
        tail = text[end:line_end]
        if text[line_start:start].strip() or tail.strip().startswith(";"):
            continue  # another statement is on the same line
        gone[id(block)] += 1
        comment = tail.lstrip()
        if comment:
            edits.append(Edit(start, end + len(tail) - len(comment), ""))
            continue
        if isinstance(statement, ast.FunctionDef):
            following = lines[statement.end_lineno or statement.lineno :]
            line_end += sum(map(len, takewhile(str.isspace, following)))
        elif (
            statement.lineno > 1 and not lines[statement.lineno - 2].strip() and _is_followed_by_blank(lines, statement)
        ):
            line_start = starts[statement.lineno - 2]  # remove one of the two blank lines around a removed import
        edits.append(Edit(line_start, line_end, ""))
    return edits


def _is_followed_by_blank(lines: list[str], statement: ast.stmt) -> bool:
    """Return whether a statement is an import, and the next line is blank."""
    following = statement.end_lineno or statement.lineno
    is_import = isinstance(statement, ast.Import | ast.ImportFrom)
    return is_import and following < len(lines) and not lines[following].strip()


def _shorten_import(statement: str, after: str, import_style: ImportStyle) -> str | None:
    """Return the source of a multi-line import in the project's layout, after names were removed from the import.

    The result is None if the import keeps its layout.
    """
    if "\n" not in statement or "#" in statement:
        return None
    written = import_style.reformat_import(statement, after)
    return None if written == after else written


def _alias_removals(
    text: str,
    names: Sequence[ast.alias],
    gone: Collection[ast.alias | None],
    offset: Callable[[int, int], int],
) -> list[Edit]:
    """Return edits that remove names from an import, each with the comment on its line.

    Comments above the remaining names stay.
    """
    spans = [(offset(a.lineno, a.col_offset), offset(a.end_lineno or a.lineno, a.end_col_offset or 0)) for a in names]
    last = max(position for position, alias in enumerate(names) if alias not in gone)
    edits = []
    for position in (position for position, alias in enumerate(names[:last]) if alias in gone):
        (start, end), (following, _) = spans[position], spans[position + 1]
        line, _, below = text[end:following].partition("\n")
        stays = following if "#" not in below else end + len(line) + 1 + len(below) - len(below.lstrip())
        edits.append(Edit(start, stays, ""))
    if last + 1 < len(names):
        start, end = spans[last][1], spans[-1][1]
        line, newline, _ = text[start : spans[last + 1][0]].partition("\n")
        if newline and "#" in line:  # keep the comment of the name that is now the last one
            rest = _REST_OF_CLAUSE.match(text, end)
            start = start + len(line.rstrip("\r")) if rest is not None else spans[last + 1][0]
            end = rest.end() if rest is not None else end
        edits.append(Edit(start, end, ""))
    return edits
