"""Parse a Python module with LibCST, and find the exact spans and the qualified names of its nodes.

No code may change the tree of a parsed module. Spans are code-point offsets into the decoded text, so rules can return
:class:`~chirp_migrate.plans.plan.Edit` objects for the original source.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any, Concatenate, ParamSpec, TypeGuard, TypeVar
from weakref import WeakValueDictionary

import libcst as cst

from chirp_migrate.syntax.import_table import absolute_name, qualified_member_name
from chirp_migrate.syntax.scopes import Binding, BindingKind, Scopes
from chirp_migrate.syntax.spans import Statement, TextMismatch, node_spans, statement_spans

_NEWLINE = re.compile(r"\r\n|\r|\n")
_INDENTATION = re.compile(r"[ \t]*")


Node = TypeVar("Node", bound=cst.CSTNode)
_Asked = ParamSpec("_Asked")
_T = TypeVar("_T")

#: Fields of LibCST nodes that contain layout, not code.
_LAYOUT = re.compile(
    r"whitespace|leading_lines|lines_after|header|footer|[lr]par|[lr]bracket|[lr]brace|comma|equal|semicolon|indent"
)
#: Types of the fields of LibCST nodes that contain no nodes.
_TEXTS = (str, str | None, bool)

#: Placeholder values that code assigns to a name if the import of the name fails, as in ``DataLoader = None``.
_PLACEHOLDERS = frozenset({"None", "object", "Any"})


class _CodeFields(dict[type, tuple[str, ...]]):
    """Cache, for each type of ``ast`` node, the names of its fields that may contain code."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        self[kind] = tuple(field for field in kind._fields if field not in _NO_CODE)
        return self[kind]


#: Fields of ``ast`` nodes without code: text, numbers, or nodes that Python shares between all trees.
_NO_CODE = frozenset(
    {"id", "attr", "ctx", "op", "ops", "kind", "level", "module", "conversion", "simple", "type_comment"}
)
CODE_FIELDS = _CodeFields()
#: Largest depth of a tree, in levels of ``ast`` nodes, at which recursion over the tree cannot fail.
_DEEPEST = 600
#: A recursion error for a tree with at most this number of levels is a bug of chirp-migrate, not a problem of the tree.
_DEEP = 100


class UnparsableModule(Exception):
    """Raised for a text that cannot be parsed as Python. The message is the reason."""


def is_deeply_nested(text: str) -> bool:
    """Return whether the syntax of a text may be nested so deeply that recursion over its tree fails."""
    try:
        return _is_deeper(syntax_tree(text), _DEEP)
    except UnparsableModule:
        return True


def _is_deeper(tree: ast.AST, limit: int) -> bool:
    """Return whether a tree has more than ``limit`` levels below its root."""
    level: list[ast.AST] = [tree]
    while level and limit:
        values = [getattr(node, field) for node in level for field in CODE_FIELDS[type(node)]]
        level = [one for value in values if type(value) is list for one in value if isinstance(one, ast.AST)]
        level += [one for one in values if isinstance(one, ast.AST)]
        limit -= 1
    return bool(level)


def walk_tree(root: ast.AST) -> list[ast.AST]:
    """Return ``root`` and every node below it in the order of ``ast.walk``, without contexts and operators."""
    found = [root]
    for node in found:  # the list grows while the loop runs
        found += child_nodes(node)
    return found


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below ``node`` in order of the text, without contexts and operators."""
    found: list[ast.AST] = []
    for field in CODE_FIELDS[type(node)]:
        value = getattr(node, field)
        if type(value) is list:
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


#: The trees that any code still holds, by their text. So the analyses share a tree that one of them keeps.
_TREES: WeakValueDictionary[str, ast.Module] = WeakValueDictionary()


@lru_cache(maxsize=4)
def syntax_tree(text: str) -> ast.Module:
    """Parse ``text`` with Python's own parser, which also accepts top-level ``await``, as in notebooks.

    Callers must not change the tree. The function refuses text that is nested too deeply, because LibCST has no limit
    for its recursion.

    Raises:
        UnparsableModule: the text is not valid in the Python version that runs the program, or is nested too deeply.
    """
    tree = _TREES.get(text)
    if tree is None:
        tree = _TREES[text] = _parse(text)
    return tree


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings such as "invalid escape sequence" are about the user's code
            tree = compile(text, "<module>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            if _is_deeper(tree, _DEEPEST):
                raise RecursionError
    except (RecursionError, MemoryError) as error:
        raise UnparsableModule("an expression is nested too deeply to be parsed") from error
    except SyntaxError as error:
        if error.msg.startswith("too many nested"):
            raise UnparsableModule("an expression is nested too deeply to be parsed") from error
        raise UnparsableModule(f"syntax error in line {error.lineno}") from error
    except ValueError as error:
        raise UnparsableModule(f"not Python: {error}") from error
    assert isinstance(tree, ast.Module)
    return tree


def syntax_tree_or_empty(text: str) -> ast.Module:
    """Return :func:`syntax_tree`, or an empty module if the text is not Python, because no code runs such a text."""
    try:
        return syntax_tree(text)
    except UnparsableModule:
        return ast.Module([], [])


class Module:
    """A module under analysis.

    Args:
        path: posix path relative to the root of the project, as in findings.
        text: decoded source with the original newlines.

    Raises:
        UnparsableModule: the text cannot be parsed.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self._analyses: dict[tuple[Any, tuple[Any, ...]], Any] = {}
        self._keeps = True
        self._known_spans: dict[cst.CSTNode, tuple[int, int]] = {}
        self._qualified: dict[cst.CSTNode, set[str]] = {}
        syntax_tree(text)
        try:
            self.tree = cst.parse_module(text)
        except cst.ParserSyntaxError as error:
            raise UnparsableModule(f"syntax that LibCST does not support in line {error.raw_line}") from error
        except (cst.CSTValidationError, TypeError) as error:  # LibCST needs a blank in `return(x if y else z), y`
            raise UnparsableModule("syntax that LibCST does not support") from error
        except RecursionError as error:
            raise UnparsableModule("an expression is nested too deeply to be parsed") from error

    def once(self, analysis: Callable[Concatenate[Module, _Asked], _T], *asked: _Asked.args, **_: _Asked.kwargs) -> _T:
        """Return the result of ``analysis`` for this module, from a cache after the first call.

        Args:
            analysis: a function whose first argument is this module, and whose further arguments are ``asked``.
            asked: the further positional arguments, which must be hashable.
        """
        key = (analysis, asked)
        if key in self._analyses:
            return self._analyses[key]  # type: ignore[no-any-return]
        found = analysis(self, *asked, **_)
        if self._keeps:
            self._analyses[key] = found
        return found

    def drop_cache(self) -> None:
        """Drop all cached results, and stop caching, so that Python can free a module that is no longer needed.

        Cached results refer to the module. Without this call, this reference cycle would keep the module in memory.
        """
        self._analyses.clear()
        self._keeps = False

    @property
    def name(self) -> str:
        """Return the module's dotted name for imports from the project's root (``utils.training_engine``)."""
        return module_name(self.path)

    @property
    def package(self) -> str:
        """Return the dotted name of the package in which relative imports of this module start."""
        return package_name(self.path)

    @cached_property
    def newline(self) -> str:
        """Return the newline at the end of the module's first line; a line feed if no line has a newline."""
        found = _NEWLINE.search(self.text)
        return found.group() if found else "\n"

    @cached_property
    def line_starts(self) -> list[int]:
        """Return the offset of the first code point of every line."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    @cached_property
    def _index(
        self,
    ) -> tuple[dict[cst.CSTNode, cst.CSTNode], dict[type[cst.CSTNode], list[cst.CSTNode]], list[Statement]]:
        statements: list[Statement] = []
        parents: dict[cst.CSTNode, cst.CSTNode] = {}
        by_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = defaultdict(list)
        pending: list[cst.CSTNode] = [self.tree]
        while pending:
            node = pending.pop()
            by_type[type(node)].append(node)
            if _is_statement(type(node)):
                statements.append(node)  # type: ignore[arg-type]
            children = code_children(node)
            for child in children:
                parents[child] = node
            children.reverse()
            pending += children
        return parents, by_type, statements

    @property
    def parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        """Return a mapping from each node of code to its parent."""
        return self._index[0]

    def find(self, *types: type[Node]) -> list[Node]:
        """Return every node of the given types, grouped by type. Nodes of the same type are in source order."""
        by_type = self._index[1]
        return [node for kind in types for node in by_type.get(kind, ())]  # type: ignore[misc]

    def named(self, name: str) -> list[cst.Name]:
        """Return all occurrences of a name in order of the text: variables, attributes, keywords and definitions."""
        return self._by_name.get(name, [])

    @cached_property
    def _by_name(self) -> dict[str, list[cst.Name]]:
        found: dict[str, list[cst.Name]] = defaultdict(list)
        for node in self.find(cst.Name):
            found[node.value].append(node)
        return found

    @cached_property
    def scopes(self) -> Scopes:
        """Return the scopes of this module, for lookups of bindings."""
        return Scopes(self.tree, self.parents, self.find)

    @cached_property
    def _statement_offsets(self) -> dict[cst.CSTNode, tuple[int, int, int]]:
        """Return three offsets of each statement: the start with decorators, the start without decorators, and the end.

        The offsets come from ``ast``. An ``elif`` part has no entry.
        """
        read = zip(self._index[2], _nested_statements(syntax_tree(self.text).body), strict=True)
        return {
            node: self._offsets_of_statement(same) for node, same in read if not isinstance(self.parents[node], cst.If)
        }

    def _offsets_of_statement(self, same: ast.stmt) -> tuple[int, int, int]:
        start = self.offset(same.lineno, same.col_offset)
        end = self.offset(same.end_lineno or 0, same.end_col_offset or 0)
        decorators: list[ast.expr] = getattr(same, "decorator_list", [])
        if not decorators:
            return start, start, end
        line = self.line_starts[decorators[0].lineno - 1]
        return line + len(self.indentation(line)), start, end

    def _is_statement(self, node: cst.CSTNode) -> TypeGuard[Statement]:
        return type(node) is cst.SimpleStatementLine or node in self._statement_offsets

    def _span_from_ast(self, node: cst.CSTNode) -> tuple[int, int] | None:
        """Return the span of a statement or block.

        The result is None for other nodes, and for statements that end with a semicolon.
        """
        first, last = (node.body[0], node.body[-1]) if isinstance(node, cst.IndentedBlock) else (node, node)
        start, end = (
            self._statement_offsets.get(_small_statement(first, 0)),
            self._statement_offsets.get(_small_statement(last, -1)),
        )
        return None if start is None or end is None or self.text[end[2] - 1] == ";" else (start[1], end[2])

    def _spans_by_codegen(self, node: cst.CSTNode) -> Mapping[cst.CSTNode, tuple[int, int]]:
        """Return the spans of all nodes in the statement around ``node``.

        LibCST generates the code of the statement. The span of a node is the position of the node's code in this
        generated code, moved to the offset of the statement.

        If ``node`` is in the header of a compound statement, the result only has the spans in the header. If the
        generated code differs from the text, LibCST generates the code of the whole module instead. The result then has
        the spans of all nodes of the module.
        """
        inside = node
        for around in (node, *self.ancestors(node)):
            if self._is_statement(around):
                start = self._statement_offsets[_small_statement(around, 0)][0]
                found = statement_spans(self.tree, around, inside, self.text, start, self.indentation(start))
                if found is not None:
                    return found
                break
            inside = around
        return node_spans(self.tree, self.text)

    def offset(self, line: int, units: int) -> int:
        """Convert a line and column from an ``ast`` node to an offset in code points.

        Args:
            line: number of the line, from 1.
            units: column in UTF-8 bytes, from 0.
        """
        start = self.line_starts[line - 1]
        before = self.text[start : start + units]
        return start + (units if before.isascii() else len(before.encode()[:units].decode()))

    def statement_start(self, statement: cst.CSTNode) -> int:
        """Return the offset of a statement, or of its first decorator."""
        return self._statement_offsets[_small_statement(statement, 0)][0]

    def statements_at(self, offsets: Iterable[int]) -> list[Statement]:
        """Return the last top-level statement at or before each offset, without duplicates, in order of the text."""
        starts = [self.statement_start(statement) for statement in self.tree.body]
        places = {bisect_right(starts, offset) - 1 for offset in offsets} - {-1}
        return [self.tree.body[place] for place in sorted(places)]

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the offsets ``(start, end)`` of ``node`` without surrounding white space.

        Raises:
            UnparsableModule: the tree does not match the text, or is too deep for recursion.
        """
        if node not in self._known_spans:
            try:
                read = self._span_from_ast(node)
                self._known_spans.update(self._spans_by_codegen(node) if read is None else {node: read})
            except RecursionError as error:
                raise UnparsableModule("an expression is nested too deeply to be parsed") from error
            except TextMismatch as error:
                raise UnparsableModule("LibCST cannot reproduce the text of this file") from error
        return self._known_spans[node]

    def source(self, node: cst.CSTNode) -> str:
        """Return the source text of ``node``, including the parentheses that belong to the node."""
        return self.tree.code_for_node(node)

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset, both counted from 1."""
        line = bisect_right(self.line_starts, offset) - 1
        return line + 1, offset - self.line_starts[line] + 1

    def line_start(self, offset: int) -> int:
        """Return the offset at which the line that contains ``offset`` begins."""
        return self.line_starts[bisect_right(self.line_starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Return the offset after the newline of the line that contains ``offset`` (or the end of the text)."""
        line = bisect_right(self.line_starts, offset)
        return self.line_starts[line] if line < len(self.line_starts) else len(self.text)

    def lines_inside(self, start: int, end: int) -> list[int]:
        """Return the offsets between ``start`` and ``end`` at which lines begin."""
        return self.line_starts[bisect_right(self.line_starts, start) : bisect_left(self.line_starts, end)]

    def indentation(self, offset: int) -> str:
        """Return the leading white space of the line that contains ``offset``."""
        match = _INDENTATION.match(self.text, self.line_start(offset))
        return match.group() if match else ""

    def qualified_names(self, node: cst.CSTNode) -> set[str]:
        """Return the possible qualified names of ``node``; callers must not change the set.

        Relative imports are made absolute. A name that this module defines gets the module's own dotted name as a
        prefix. If only an ``import *`` can have bound the name, the result has one qualified name for each module with
        such an import.
        """
        if node not in self._qualified:
            self._qualified[node] = self._names_for(node)
        return self._qualified[node]

    def _names_for(self, node: cst.CSTNode) -> set[str]:
        path = _dotted_path(node)
        if path is None:
            return set()
        name, _, rest = path.partition(".")
        found = self.scopes.lookup(name, node)
        if found is None and self.scopes.is_builtin(name):
            return {f"builtins.{path}"}
        if found is None:
            return {self.absolute(qualified_member_name(source, path)) for source, _ in self._stars}
        scope, bindings = found
        names = {
            self.absolute(f"{binding.qualified}.{rest}" if rest else binding.qualified)
            for binding in bindings
            if binding.kind is BindingKind.IMPORT
        }
        local = [
            one for one in bindings if one.kind is not BindingKind.IMPORT and not (names and self._is_placeholder(one))
        ]
        if local:
            names.add(f"{self.name}.{scope.prefix}{path}")
        return names

    def _is_placeholder(self, binding: Binding) -> bool:
        """Return whether a binding only assigns a placeholder after a failed import (``DataLoader = None``)."""
        match self.parents.get(binding.node):
            case cst.Assign(value=cst.Name(value=value)):
                return value in _PLACEHOLDERS
        return False

    @property
    def _stars(self) -> list[tuple[str, cst.ImportFrom]]:
        return [star for star in self.scopes.stars if not _lacks_loading_names(star[0])]

    def names_from_later_stars(self, node: cst.CSTNode) -> set[str]:
        """Return the qualified names that ``node`` may get from a later ``import *``.

        Such an ``import *`` is below all other bindings of the name, and may rebind the name.
        """
        path = _dotted_path(node)
        if path is None or not self.scopes.stars:
            return set()
        found = self.scopes.lookup(path.partition(".")[0], node)
        if found is None or found.scope is not self.scopes.module:
            return set()
        last = max(self.span(binding.node)[0] for binding in found.bindings)
        later = (source for source, star in self._stars if self.span(star)[0] > last)
        return {self.absolute(qualified_member_name(source, path)) for source in later}

    def absolute(self, name: str) -> str:
        """Resolve the leading dots of a relative import against this module's package."""
        return absolute_name(name, self.package)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the ancestors of ``node``, from its parent to the module."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def enclosing_function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the innermost function definition around ``node``; None outside of functions."""
        return next((a for a in self.ancestors(node) if isinstance(a, cst.FunctionDef)), None)

    def enclosing_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Return the innermost class definition around ``node``; None outside of classes."""
        return next((a for a in self.ancestors(node) if isinstance(a, cst.ClassDef)), None)

    def enclosing_scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the innermost function, lambda, class or module around ``node``."""
        kinds = (cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.Module)
        return next(a for a in self.ancestors(node) if isinstance(a, kinds))

    def top_level_statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the statement of the module body that contains ``node``."""
        current = node
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, cst.Module):
                break
            current = ancestor
        return current


def _small_statement(statement: cst.CSTNode, place: int) -> cst.CSTNode:
    """Return the small statement at index ``place`` if ``statement`` is a line such as ``a = 1; b = 2``.

    Otherwise, the result is ``statement`` itself.
    """
    return statement.body[place] if isinstance(statement, cst.SimpleStatementLine) else statement


def _nested_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements in order of the text, each followed by the statements in its blocks."""
    for one in body:
        yield one
        for name in ("body", "handlers", "cases", "orelse", "finalbody"):
            for inner in getattr(one, name, ()):
                yield from _nested_statements([inner] if isinstance(inner, ast.stmt) else inner.body)


@cache
def module_name(path: str) -> str:
    """Return the dotted name of the module at a path relative to the root.

    The name of a notebook keeps the suffix ``.ipynb``, so no code can import it.
    """
    pure = PurePosixPath(path)
    parts = list(pure.parts if pure.suffix == ".ipynb" else pure.with_suffix("").parts)
    return ".".join(parts[:-1] if parts and parts[-1] == "__init__" else parts)


@cache
def package_name(path: str) -> str:
    """Return the dotted name of the package in which relative imports of the module at ``path`` start."""
    return ".".join(PurePosixPath(path).parent.parts)


def _dotted_path(node: cst.CSTNode) -> str | None:
    """Return the dotted path of a name or attribute, or the name of a definition; ``None`` for other nodes.

    For a call ``a.b(c)`` or a subscript ``a.b[c]``, the result is ``a.b``.
    """
    if isinstance(node, cst.Call):
        node = node.func
    while isinstance(node, cst.Subscript):
        node = node.value
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        return node.name.value
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    return ".".join([node.value, *reversed(parts)]) if isinstance(node, cst.Name) else None


def _lacks_loading_names(source: str) -> bool:
    """Return whether ``import *`` from the module ``source`` provably binds no class or function for data loading."""
    first = source.partition(".")[0]
    return first in sys.stdlib_module_names or source in ("torch", "torch.nn", "torch.nn.functional", "numpy")


@cache
def _code_fields(kind: type[cst.CSTNode]) -> Callable[[cst.CSTNode], tuple[Any, ...]]:
    """Return a function that reads the fields with code from a node of this type, in order of the text."""
    names = [one.name for one in fields(kind) if not _LAYOUT.search(one.name) and one.type not in _TEXTS]
    if not names:
        return lambda node: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda node: (read(node),)


@cache
def _is_statement(kind: type[cst.CSTNode]) -> bool:
    return issubclass(kind, cst.BaseSmallStatement | cst.BaseCompoundStatement)


class _NodeTypes(dict[type, bool]):
    """Cache whether objects of a type are LibCST nodes, because ``isinstance`` with an abstract class is slow."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, cst.CSTNode)
        return self[kind]


_IS_NODE = _NodeTypes()


def code_children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the child nodes in order of the text, without white space, commas and brackets."""
    children: list[cst.CSTNode] = []
    for value in _code_fields(type(node))(node):
        kind = type(value)
        if _IS_NODE[kind]:
            children.append(value)
        elif kind is tuple or kind is list:
            children += value
    return children


def walk_code(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield ``node`` and every node of code below it, in order of the text."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending += reversed(code_children(current))


def find_nodes(node: cst.CSTNode, *types: type[Node]) -> list[Node]:
    """Return every node of exactly these types at or below ``node``, in order of the text."""
    return [one for one in walk_code(node) if type(one) in types]  # type: ignore[misc]
