"""Find uses of classes, functions and attributes in all files of a project, mostly by searches for their names."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.known_names import qualified_base_names
from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree
from chirp_migrate.syntax.name_resolution import (
    find_names_from_star_imports,
    import_table,
    is_project_class,
    locate_import,
)
from chirp_migrate.syntax.name_uses import find_aliases, find_subclasses, is_patched, is_variable_read
from chirp_migrate.syntax.patched_names import modules_with_assignment, variables_of_literals
from chirp_migrate.syntax.project import Project, cached_until_text_changes
from chirp_migrate.syntax.scopes import Binding


def _has_subclass(project: Project, class_name: str) -> bool:
    """Return whether any class may inherit from a class called ``class_name``, or from an alias of this class."""
    # Import statements that rules add use aliases that begin with this word. These aliases have no subclasses.
    titles = [
        class_name,
        *sorted(alias for alias in find_aliases(project, class_name) if not alias.startswith("WorkerSafe")),
    ]
    names = rf"\b(?:{'|'.join(map(re.escape, titles))})\b"
    made = rf"\btype\((?:(?!\btype\()[^)])*,\s*\((?:(?!,\s*\(|\btype\()[^)])*{names}"
    return bool(find_subclasses(project, *titles, with_type_arguments=True)) or project.search(made, *titles)


def is_passed_as_keyword(project: Project, parameter: str) -> bool:
    """Return whether a call passes the keyword argument ``parameter=`` to code of the project."""
    keyword = re.compile(rf"[(,]\s*{re.escape(parameter)}\s*=(?!=)")
    return any(
        not _is_foreign(project, path, called)
        for path, text in project.matching(keyword, parameter)
        for called in _callees_by_keyword(text).get(parameter, ())
    )


@lru_cache(maxsize=1024)
def _callees_by_keyword(text: str) -> Mapping[str, frozenset[str]]:
    """Return, for each keyword in the calls of a text, the first names of the called expressions.

    For ``a.b(key=1)``, the keyword is ``key``, and the first name is ``a``. The first name is "" if the called
    expression does not begin with a name.
    """
    called: dict[str, set[str]] = defaultdict(set)
    for call in ast.walk(_tree(text)):
        if isinstance(call, ast.Call):
            root = call.func
            while isinstance(root, ast.Attribute):
                root = root.value
            for keyword in call.keywords:
                called[keyword.arg or ""].add(root.id if isinstance(root, ast.Name) else "")
    return {keyword: frozenset(names) for keyword, names in called.items()}


def _tree(text: str) -> ast.Module:
    try:
        return syntax_tree(text)
    except UnparsableModule:
        return ast.Module([], [])


def _is_foreign(project: Project, path: str, called: str) -> bool:
    """Return whether the file at ``path`` imports the name ``called`` from outside the project."""
    table = import_table(project, path)
    if not called or table is None or table.defines(called):
        return False
    sources = table.imports.get(called, set())
    return bool(sources) and not any(project.module_paths.has_package(source.partition(".")[0]) for source in sources)


#: Generic types whose parameters are types. (Those of ``Literal`` are values.)
_GENERICS = frozenset(
    {
        "AsyncIterator", "Callable", "ClassVar", "Collection", "Dict", "Final", "Generator", "Iterable", "Iterator",
        "List", "Mapping", "Optional", "Sequence", "Set", "Tuple", "Type", "Union", "dict", "list", "set", "tuple",
        "type",
    }
)  # fmt: skip
#: Words of code that may look up quoted types in the names of another module.
_TYPE_LOOKUPS = ("get_type_hints", "globalns", "update_forward_refs", "model_rebuild", "_types_namespace")
#: The ends of lines in Python source.
_NEWLINE = re.compile(r"\r\n?|\n")
#: Code with which a module may set its own top-level names.
_OWN_NAMES = re.compile(r"\bglobals\s*\(")
#: Words in code that can assign an attribute whose name is a string.
_BY_NAME = ("setattr", "__setattr__", "vars", "__dict__")


def is_assigned_later(project: Project, attribute: str) -> bool:
    """Return whether code assigns to ``attribute`` of any object, except by ``self.attribute = …`` in ``__init__``.

    Code that sets attributes with computed names counts, too.
    """
    name = re.escape(attribute)
    by_name = (
        rf"""(?:\bsetattr|__setattr__)\s*\((?:(?!setattr)[^,])*,(?!\s*["'](?!{name}["'])\w+["']\s*,)"""
        r"|(?:\bvars\s*\([^()]*\)|__dict__)\s*(?:\[|=(?!=)|\|=|\.\s*(?:update|setdefault|pop|clear)\b)"
    )
    return project.search(by_name, *_BY_NAME) or any(
        _assigns_later(_tree(text), attribute) for _, text in project.matching(re.compile(rf"\.\s*{name}\b"), attribute)
    )


def _assigns_later(tree: ast.AST, attribute: str, own: str = "") -> bool:
    """Return whether code assigns to ``attribute`` of any object but ``own``, the first parameter of ``__init__``."""
    for node in ast.iter_child_nodes(tree):
        inner = own
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            is_init = isinstance(node, ast.FunctionDef) and node.name == "__init__" and isinstance(tree, ast.ClassDef)
            parameters = [*node.args.posonlyargs, *node.args.args] if isinstance(node, ast.FunctionDef) else []
            inner = parameters[0].arg if is_init and parameters else ""
        if _assigns(node, attribute, own) or _assigns_later(node, attribute, inner):
            return True
    return False


def _assigns(node: ast.AST, attribute: str, own: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != attribute or isinstance(node.ctx, ast.Load):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == own)


#: Names that are typical of parsed arguments, settings and models, but not of datasets.
_SETTINGS = re.compile(r"(.*\.)?(args|opts?|options|namespace|\w*(config|cfg|params?|settings|model|module|net))")


def may_set_computed_attributes(module: Module, project: Project, class_definition: cst.ClassDef) -> bool:
    """Return whether any file of the project may set attributes with computed names on objects of a class.

    An example is ``setattr(self, name, value)``. Code in the class that sets such attributes on ``self`` counts. If the
    class has bases or subclasses in the project, such code in every class counts. Code that sets such attributes on any
    other object counts, too, unless the name of the object is typical of arguments, settings or models, such as
    ``args`` or ``config``.
    """
    title = None if has_bases_or_subclasses(module, project, class_definition) else class_definition.name.value
    return any(
        _SETTINGS.fullmatch(changed) is None if changed != "self" else around in (title or around, None)
        for changed, around in _set_by_computed_names(project)
    )


@cached_until_text_changes
def _set_by_computed_names(project: Project) -> list[tuple[str, str | None]]:
    """Return pairs (object, class) for code that sets attributes with computed names.

    The first item is the source code of the object, such as ``self``. The second item is the name of the class that
    contains the code, or None.
    """
    return [
        (ast.unparse(changed), around)
        for path in project.paths_containing(*_BY_NAME)
        for changed, around in _find_set_by_computed_names(_tree(project.text(path)), None)
    ]


def has_bases_or_subclasses(module: Module, project: Project, class_definition: cst.ClassDef) -> bool:
    """Return whether a class inherits from another class of the project, or has a subclass in the project."""
    if any(is_project_class(project, base) for base in qualified_base_names(module, project, class_definition)):
        return True
    return _has_subclass(project, class_definition.name.value)


def may_call_method_with_foreign_self(
    module: Module, project: Project, class_definition: cst.ClassDef, method: str
) -> bool:
    """Return whether code may call ``Class.method(x)`` with an object ``x`` of another class.

    A call such as ``Base.method(self)`` in a class that inherits from ``Base`` does not count.
    """
    title = class_definition.name.value
    titles = (
        None
        if has_bases_or_subclasses(module, project, class_definition)
        else {"", title, *find_aliases(project, title)}
    )
    asked = re.compile(rf"""\.\s*{re.escape(method)}\b|["']{re.escape(method)}["']""")
    return any(
        name == method and (titles is None or class_ in titles)
        for _, text in project.matching(asked, method)
        for class_, name in _read_from_classes(text)
    )


@lru_cache(maxsize=1024)
def _read_from_classes(text: str) -> frozenset[tuple[str, str]]:
    """Return pairs (class name, attribute) for the attributes that code may read from classes; "" means any class."""
    return frozenset(_find_reads_from_classes(_tree(text), ()))


def _find_reads_from_classes(tree: ast.AST, bases: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the result of :func:`_read_from_classes` for a part of a file.

    ``bases`` contains the bases of the class that contains the part. Calls of methods of these bases do not count.
    """
    for node in ast.iter_child_nodes(tree):
        inner = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else bases
        of_base = _base_methods_called(node, bases)
        match node:
            case (
                ast.Call(func=ast.Name(id="getattr"), args=[asked, ast.Constant(value=str(name)), *_])
                | ast.Attribute(value=asked, attr=name)
            ) if (title := _class_title(asked)) is not None:
                yield title, name
        if of_base is None:
            yield from _find_reads_from_classes(node, inner)
        else:
            others = (part for part in ast.iter_child_nodes(node) if part is not of_base)
            yield from (one for part in others for one in _find_reads_from_classes(part, bases))


def _base_methods_called(node: ast.AST, bases: Sequence[str]) -> ast.expr | None:
    """Return ``Base.method`` if ``node`` is ``Base.method(self, …)`` and ``Base`` is one of ``bases``; else None."""
    match node:
        case ast.Call(func=ast.Attribute(value=asked) as called, args=[ast.Name(), *_]) if ast.unparse(asked) in bases:
            return called
    return None


def _class_title(asked: ast.expr) -> str | None:
    """Return the name of the class that an expression refers to.

    The result is "" if the expression may be any class, as for ``cls``, and ``None`` if the expression is not a class.
    """
    match asked:
        case ast.Name(id="cls") | ast.Attribute(attr="__class__") | ast.Call(func=ast.Name(id="type")):
            return ""
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.lstrip("_")[:1].isupper():
            return name
    return None


def _find_set_by_computed_names(tree: ast.AST, around: str | None) -> Iterator[tuple[ast.expr, str | None]]:
    """Yield each object on which code sets attributes with computed names, and the class that contains the code.

    Code in ``__setstate__`` does not count, because it restores attributes that existed before.
    """
    for node in ast.iter_child_nodes(tree):
        if (changed := _object_with_computed_names(node)) is not None:
            yield changed, around
        if not isinstance(node, ast.FunctionDef) or node.name != "__setstate__":
            yield from _find_set_by_computed_names(node, node.name if isinstance(node, ast.ClassDef) else around)


def _object_with_computed_names(node: ast.AST) -> ast.expr | None:
    """Return the object on which ``node`` sets attributes with computed names; None for any other node."""
    match node:
        case ast.Call(func=ast.Name(id="setattr"), args=[changed, name, _]):
            return None if isinstance(name, ast.Constant) else changed
        case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[*changes, name, _]):
            own = changes[0] if changes else ast.Name("self")
            return None if isinstance(name, ast.Constant) else own
        case ast.Call(func=ast.Attribute(value=held, attr="update" | "setdefault" | "__setitem__")):
            return _owner_of_attributes(held)
        case ast.Subscript(value=held, slice=name, ctx=ast.Store()):
            return None if isinstance(name, ast.Constant) else _owner_of_attributes(held)
        case ast.Attribute(value=changed, attr="__dict__", ctx=ast.Store()):
            return changed
    return None


def _owner_of_attributes(held: ast.expr) -> ast.expr | None:
    """Return ``x`` for ``x.__dict__`` and ``vars(x)``; None for other expressions."""
    match held:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return owner
    return None


def may_access_attribute_outside_class(project: Project, attribute: str) -> bool:
    """Return whether code may read or set ``attribute`` on any object but ``self``."""
    name = re.escape(attribute)
    return project.search(rf"""\b{name}\b(?<=\.{name})(?<!\bself\.{name})|["']{name}["']""", attribute)


def is_named_in_strings(module: Module, project: Project, name: str) -> bool:
    """Return whether other code may read a top-level name of ``module`` by a string.

    The result is True if a string or a configuration file contains ``module.name``, or if ``getattr`` is called with
    the name. For the name of a class, the result is also True if a string or a value in a configuration file ends with
    the name. An annotation in quotes, such as ``"Net"``, does not count if the annotation is in another file, and this
    file imports or defines the name. This exception does not apply if code of the project may evaluate annotations.
    """
    owner, last = re.escape(module.name.rpartition(".")[2]), re.escape(name)
    paths = rf"""\b{owner}\.{last}\\?["']""" if owner else rf"""\.{last}\\?["']"""
    asked = re.compile(rf"""{paths}|getattr\s*\([^,()]*,\s*["']{last}["']""")
    # Every match of `asked` ends with a match of this pattern. `re` is faster for patterns that begin with plain
    # characters.
    ending = re.compile(rf"""{last}\\?["']""")
    if any(asked.search(text) for _, text in project.matching(ending, name)):
        return True
    is_class = name[:1].isupper()
    ends = re.compile(rf"""{last}(?<=["'.]{last})["']""")
    may_look_up_types = is_class and any(True for _ in project.paths_containing(*_TYPE_LOOKUPS))
    if is_class and any(
        path == module.path or may_look_up_types or _has_match_outside_types(text, name, ends)
        for path, text in project.matching(ends, name)
    ):
        return True
    value = rf"""|[:=,\[-][ \t]*["']?{last}["']?[ \t]*(?:[,\]}}#\r\n]|\Z)""" if is_class else ""
    return project.settings_match(re.compile(rf"\b{owner}\.{last}\b{value}"))


def _has_match_outside_types(text: str, name: str, pattern: re.Pattern[str]) -> bool:
    """Return whether ``pattern`` matches in a text, except in the quoted type ``"name"`` of an annotation."""
    types = [source for quoted, source in _quoted_types(text) if quoted == name and _binds(text, name)]
    return len(pattern.findall(text)) > sum(len(pattern.findall(one)) for one in types)


def _binds(text: str, name: str) -> bool:
    """Return whether a file imports ``name``, or defines a class with this name."""
    return any(
        (isinstance(node, ast.alias) and name == (node.asname or node.name))
        or (isinstance(node, ast.ClassDef) and node.name == name)
        for node in ast.walk(_tree(text))
    )


@lru_cache(maxsize=1024)
def _quoted_types(text: str) -> tuple[tuple[str, str], ...]:
    """Return each string that is a type in an annotation, such as ``"Net"`` in ``list["Net"]``, with its source."""
    annotations: list[ast.expr | None] = []
    for node in ast.walk(_tree(text)):
        match node:
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                annotations.append(annotation)
            case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
                annotations.append(returns)
    quoted = [one for annotation in annotations if annotation is not None for one in _strings_as_types(annotation)]
    lines = [line.encode() for line in _NEWLINE.split(text)] if quoted else []
    return tuple(
        (str(one.value), lines[one.lineno - 1][one.col_offset : one.end_col_offset].decode(errors="replace"))
        for one in quoted
        if one.lineno == one.end_lineno
    )


def _strings_as_types(annotation: ast.expr) -> Iterator[ast.Constant]:
    match annotation:
        case ast.Constant(value=str()):
            yield annotation
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from (*_strings_as_types(left), *_strings_as_types(right))
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            yield from (one for element in elements for one in _strings_as_types(element))
        case ast.Subscript(value=ast.Name(id=generic) | ast.Attribute(attr=generic), slice=inner):
            if generic in _GENERICS:
                yield from _strings_as_types(inner)


def has_dynamic_attribute_read(project: Project, *attributes: str) -> bool:
    """Return whether any file reads one of ``attributes`` with ``hasattr`` or ``getattr``."""
    names = "|".join(map(re.escape, attributes))
    asked = r"(?:has|get)attr\b"
    return project.search(rf"""{asked}(?:(?!{asked})[^\r\n])*["'](?:{names})["']""", "hasattr", "getattr")


_HANDLERS = re.compile(r"\bexcept\b")


def has_guarded_attribute_read(project: Project, *attributes: str) -> bool:
    """Return whether any file reads one of ``attributes`` in a ``try`` statement that handles AttributeError."""
    return any(
        any(isinstance(one, ast.Attribute) and one.attr in attributes for part in node.body for one in ast.walk(part))
        for _, text in project.matching(_HANDLERS, "except")
        for node in _tries_for_missing(text)
    )


@lru_cache(maxsize=256)
def _tries_for_missing(text: str) -> tuple[ast.Try, ...]:
    return tuple(
        node
        for node in ast.walk(_tree(text))
        if isinstance(node, ast.Try) and any(_handles_missing(one.type) for one in node.handlers)
    )


def _handles_missing(caught: ast.expr | None) -> bool:
    names = {one.id for one in ast.walk(caught) if isinstance(one, ast.Name)} if caught is not None else {"Exception"}
    return not names.isdisjoint({"AttributeError", "Exception", "BaseException"})


def _outside_assignments(attribute: str) -> re.Pattern[str]:
    """Return a regular expression for assignments, also by ``setattr``, to ``attribute`` of any object but ``self``."""
    name = re.escape(attribute)
    not_own = rf"(?<!\bself\.{name})"
    item = rf"""\s*\[\s*["']{name}["']\s*\]\s*=(?!=)"""
    updated = rf"\s*\.\s*update\s*\((?:(?!\bupdate\b)[^)])*\b{name}\b"
    # Each pattern begins with a fixed character, so that `re` skips most of a text quickly.
    return re.compile(
        "|".join(
            (
                rf"\.{name}{not_own}\s*(?:[-+*/@%&|^]|//|\*\*)?=(?!=)",
                rf"\n(?=[\w., \t]*=(?!=))[\w., \t]*\.{name}{not_own}[ \t]*,",
                *(rf"{word}(?<!\w{word})\s+[\w.]*\.{name}{not_own}\b" for word in ("for", "as", "del")),
                rf"""setattr(?<![\w.]setattr)\s*\((?!self\b)(?:(?!setattr)[^,])*,\s*["']{name}["']""",
                *(rf"{end}{way}" for end in (r"\)", "_") for way in (item, updated)),
            )
        )
    )


@cached_until_text_changes
def may_be_assigned_outside_class(project: Project, attribute: str) -> bool:
    """Return whether any code may assign to ``attribute`` of any object but ``self``.

    An annotation does not count as an assignment. For example, ``loader: torch.utils.data.DataLoader = None`` does not
    assign to ``DataLoader``.
    """
    assigned = _outside_assignments(attribute)
    return any(assigned.search(_without_annotations(text)) for _, text in project.matching(assigned, attribute))


def _without_annotations(text: str) -> str:
    """Return code with ``_`` in place of each annotation of a parameter or variable.

    A text that is not Python is returned unchanged.
    """
    try:
        nodes = list(ast.walk(syntax_tree(text)))
    except UnparsableModule:
        return text
    code = text.encode()
    starts = [0, *itertools.accumulate(map(len, code.splitlines(keepends=True)))]
    given = [one.annotation for one in nodes if isinstance(one, ast.arg | ast.AnnAssign) and one.annotation is not None]
    for node in sorted(given, key=lambda one: (one.lineno, one.col_offset), reverse=True):
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        code = code[: starts[node.lineno - 1] + node.col_offset] + b"_" + code[last:]
    return code.decode()


def may_be_patched_elsewhere(module: Module, project: Project, dotted_name: str) -> bool:
    """Return whether other code may assign to ``dotted_name``.

    ``dotted_name`` is a top-level name of ``module``, or an attribute of such a name. Any code that assigns to an
    attribute with the last name of ``dotted_name`` counts, unless the object is ``self``.
    """
    owner, first, last = module.name.rpartition(".")[2], dotted_name.partition(".")[0], dotted_name.rpartition(".")[2]
    return (
        is_patched(project, owner, first)
        or may_be_assigned_outside_class(project, last)
        or (first != last and _is_assigned_in(project, owner, first))
    )


#: Code that sets module-level names by computed strings, as in ``globals()[name] = value``.
_SETS_GLOBALS = r"""\bglobals\s*\(\s*\)\s*(?:\.\s*(?:update|setdefault|__setitem__)\b|\|=|\[[^\]"']*\]\s*=(?!=))"""


def may_be_set_by_called_function(project: Project, name: str) -> bool:
    """Return whether a call may pass ``name`` to code of the project that assigns to a variable with this name.

    The result is True if two conditions hold: a call contains the name as a keyword or string, and any code of the
    project sets attributes or global variables with computed names, as in ``globals()[key] = value``.
    """
    last = re.escape(name)
    given = re.compile(rf"""[(,]\s*{last}\s*=(?!=)|[(,]\s*["']{last}["']\s*[,)]""")
    return any(_mentions_name(project, text, name) for _, text in project.matching(given, name)) and (
        project.search(_SETS_GLOBALS, "globals") or bool(_set_by_computed_names(project))
    )


def _mentions_name(project: Project, text: str, name: str) -> bool:
    """Return whether code contains the name as a keyword or string.

    A string in a literal does not count if the literal is assigned to a variable that no code reads.
    """
    variables = variables_of_literals(_tree(text))
    return any(
        node not in variables or is_variable_read(project, variables[node])
        for node in ast.walk(_tree(text))
        if (isinstance(node, ast.keyword) and node.arg == name)
        or (isinstance(node, ast.Constant) and node.value == name)
    )


def _is_assigned_in(project: Project, module: str, name: str) -> bool:
    """Return whether a file assigns to ``name`` in a module called ``module``, as in ``train.data = …``."""
    return any(
        not {module, ""}.isdisjoint(modules_with_assignment(text, name))
        for _, text in project.matching(_outside_assignments(name), name)
    )


#: Code that replaces imported modules.
_REPLACES_MODULES = (
    r"""(?:dict|setitem|delitem)\s*\(\s*["']?sys\.modules\b|\bdel\s+sys\.modules\b"""
    r"|\bsys\.modules\s*(?:\[[^\]\n]*\]\s*=(?!=)|\.\s*(?:update|pop|setdefault|clear)\b)"
)


def import_always_binds_same_object(module: Module, project: Project, qualified: str) -> bool:
    """Return whether an import of ``qualified`` in ``module`` binds the same object whenever the import runs."""
    qualified = module.absolute(qualified)
    owner, _, last = qualified.rpartition(".")
    is_set = owner and (
        is_patched(project, owner.rpartition(".")[2], last) or may_be_assigned_outside_class(project, last)
    )
    if is_set or project.search(_REPLACES_MODULES, "modules"):
        return False
    return all(
        not name or _is_bound_once(project, path, name) for path, name in locate_import(project, module.path, qualified)
    )


def _is_bound_once(project: Project, path: str, name: str) -> bool:
    """Return whether exactly one statement of the module at ``path`` binds a top-level name.

    The result is False if this statement is in a function, or if the module may set its names by ``globals()``.
    """
    try:
        home = project.module(path)
    except UnparsableModule:
        return False
    bindings = home.scopes.module.bindings.get(name, ())
    is_once = len(bindings) == 1 and home.enclosing_function(bindings[0].node) is None
    return is_once and _OWN_NAMES.search(home.text) is None


#: Code that can list the attributes of an object, or the names of a class or module.
_LISTING = re.compile(r"\b(?:vars|dir|globals|getmembers)\s*\(|\b__dict__\b|\b__init_subclass__\b")


def may_list_attributes(module: Module) -> bool:
    """Return whether code of a module may list the attributes of objects, classes or modules, as ``dir(x)`` does."""
    return _LISTING.search(module.text) is not None


#: Code that lists the attributes of an object, except of ``self``, of a class, and of parsed arguments.
_LISTING_OBJECT = (
    r"\b(?:vars|getmembers)\s*\(\s*(?!self\b|cls\b|\w*(?:args|opts?|options)\s*\))\w"
    r"|(?<!\bself)(?<!\bcls)\.\s*__dict__\b"
)


def may_list_attributes_of_any_object(project: Project) -> bool:
    """Return whether code of the project may list the attributes of an object, as ``vars(x)`` does.

    The objects ``self`` and ``cls`` do not count. In calls such as ``vars(args)``, objects with parsed arguments do not
    count either.
    """
    return project.search(_LISTING_OBJECT, "vars", "getmembers", "__dict__")


def new_name_may_clash(module: Module, project: Project, name: str) -> bool:
    """Return whether other code may set or look up ``name`` in ``module``, where a rewrite would add this name.

    An ``import *`` that may bind the name also counts, and so does a submodule with the same name.
    """
    if may_be_patched_elsewhere(module, project, name) or project.search(
        rf"""["'.]{re.escape(name)}["'](?!\s*:)""", name
    ):
        return True
    if module.scopes.stars and not name.startswith("_"):
        return True
    return bool(find_names_from_star_imports(project, module, name))


def is_dotted_name_bound_once(
    module: Module, project: Project, dotted_name: str, bindings: Sequence[Binding], offset: int
) -> bool:
    """Return whether the dotted name ``dotted_name`` always refers to the same object.

    The result is True if three conditions hold:

    * Only one statement binds the first name of ``dotted_name``. The statement is at the top level of the module, above
      ``offset``.
    * No other code assigns to ``dotted_name``.
    * The module does not call ``globals()``, by which the module could rebind the name.

    Args:
        module: the module.
        project: the project that contains the module.
        dotted_name: a name of the module, or an attribute of such a name, such as ``np.mean``.
        bindings: all bindings of the first name of ``dotted_name``.
        offset: offset in the text of the module at which the name must be bound.
    """
    top = module.top_level_statement(bindings[0].node)
    once = len(bindings) == 1 and (top is bindings[0].node or isinstance(top, cst.SimpleStatementLine))
    return (
        once
        and module.span(top)[1] <= offset
        and _OWN_NAMES.search(module.text) is None
        and not may_be_patched_elsewhere(module, project, dotted_name)
    )
