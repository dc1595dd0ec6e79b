"""Index the names in the code of one file.

The index contains bases of classes, names that code assigns, replaces or reads, and keywords of calls.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from chirp_migrate.syntax.module import CODE_FIELDS, UnparsableModule, syntax_tree
from chirp_migrate.syntax.outline import dotted_name, first_name, last_name

#: Functions that replace a name in a module. The module, or its dictionary, is their first argument.
_SETTERS = frozenset({"setattr", "delattr", "setitem", "delitem", "__setattr__", "__setitem__"})
_PATCHES = frozenset({"object", "multiple", "dict"})
#: A text that replaces names in modules contains one of these words, even if the text imports the replacing function
#: under an alias.
_MAY_REPLACE = re.compile(r"patch|setattr|delattr|(?:set|del)item")
#: A dotted path such as ``package.train.DataLoader``. The first group is the last part of the module's name, and the
#: second group is the name in the module.
_PATH = re.compile(r"(?:\S*\.)?(\w+)\.(\w+)")
#: A dotted path with a placeholder for the module's name, such as ``{module}.DataLoader``.
_FORMAT = re.compile(r".*(?:\}|%s)\.(\w+)", re.DOTALL)
_LAST = re.compile(r"\.?(\w+)")
#: Names that never refer to a module.
_OWN = frozenset({"self", "cls"})
#: Code that gets a module at run time, such as ``import_module``.
_FOUND_MODULES = re.compile(r"\b(sys\.modules|import_module|__import__|getmodule|reload)\b")
#: Attributes of a function that determine the effect of a call. Code may assign these attributes or change their items.
FUNCTION_PARTS = ("__defaults__", "__kwdefaults__", "__code__")
_CHANGES = frozenset({"update", "setdefault", "pop", "clear", "__setitem__"})
#: Generic types whose parameters are types, unlike ``Literal``, whose parameters are values.
_GENERICS = frozenset(
    {
        "AsyncIterator", "Callable", "ClassVar", "Collection", "Dict", "Final", "Generator", "Iterable", "Iterator",
        "List", "Mapping", "Optional", "Sequence", "Set", "Tuple", "Type", "Union", "dict", "list", "set", "tuple",
        "type",
    }
)  # fmt: skip
# In a text that is not Python, every string that is a name or a dotted path counts, and also all text that looks like
# an assignment to an attribute.
_QUOTED = re.compile(r"""["'](?:\w+\.)*?(?:(\w+)\.)?(\w+)\\?["']""")
_ASSIGNED = re.compile(r"""(?:\b(\w+)\s*)?\.\s*(\w+)\b[^=\n(]{0,40}=(?!=)|["'](\w+)["']\s*(?:,|\]\s*=(?!=))""")
_CLASS = re.compile(r"\bclass\s+(\w+)")
_CLASS_WITH_BASES = re.compile(r"\bclass\s+(\w+)\s*\(([^()]*)\)\s*:")
_WORD = re.compile(r"\w+")
#: Placeholder for the name of a class if code computes this name.
_COMPUTED = "(computed)"


class Store(NamedTuple):
    """Code that assigns or deletes an attribute.

    Attributes:
        owner: last name of the object, such as ``b`` for ``a.b.name = …``; "" for an object without a name.
        modules: last name of each module to which the object may refer; "" stands for any module.
        initial: whether the code is in ``__init__``, and assigns an attribute of ``self``.
    """

    owner: str
    modules: frozenset[str] = frozenset()
    initial: bool = False


class ComputedStore(NamedTuple):
    """Code that sets attributes with computed names.

    Attributes:
        changed: source of the object.
        around: name of the class that contains the code; None outside of classes.
        restores: whether the code is in ``__setstate__``, which restores attributes of an unpickled object.
    """

    changed: str
    around: str | None
    restores: bool


class _Place(NamedTuple):
    """The code around a node.

    Attributes:
        around: name of the class.
        bases: sources of the bases of the class.
        body: statements of the class.
        own: first parameter of the ``__init__`` of the class, if the node is in this method.
        restores: whether the node is in ``__setstate__``.
        called: the method of a base that the call around the node calls.
    """

    around: str | None = None
    bases: frozenset[str] = frozenset()
    body: Sequence[ast.AST] = ()
    own: str = ""
    restores: bool = False
    called: ast.AST | None = None


class FileIndex:
    """The names in the code of one file.

    Args:
        text: the text of the file. If the text is not Python, only ``bases``, ``stores`` and ``replaced`` contain
            names.

    Attributes:
        is_python: whether the text is Python.
        bound: the names that imports, classes and functions bind. The value for an imported name contains the last part
            of the imported object's name, such as ``b`` for ``import a.b as c``.
        bases: for each word in the bases and arguments of a class, the names of the classes.
        parameters: for each word inside square brackets in these bases and arguments, such as ``T`` in ``class
            A(B[T])``, the names of the classes.
        stores: for each attribute, the code that assigns it, also by ``setattr`` or through ``vars`` or ``__dict__``.
        computed: code that sets attributes with computed names.
        keywords: for each keyword of calls, the first names of the called expressions: ``a`` for ``a.b(key=1)``, and ""
            for an expression that does not begin with a name.
        class_reads: pairs (class name, attribute) for the attributes that code may read from classes; "" means any
            class. A call of a method of a base, as ``Base.method(self)``, does not count.
        reads: names of variables and attributes that code reads, of imported objects, and strings.
        named: each keyword and string, with the variable of :func:`variables_of_literals` that contains it, or "".
        quoted_types: strings that are types in annotations, such as ``"Net"`` in ``list["Net"]``.
        guarded: attributes that code reads in a ``try`` statement that handles AttributeError.
        replaced: names that the file may replace in a module: (last part of the module's name, name, variable).
    """

    def __init__(self, text: str) -> None:
        self.bound: dict[str, set[str]] = defaultdict(set)
        self.bases: dict[str, set[str]] = defaultdict(set)
        self.parameters: dict[str, set[str]] = defaultdict(set)
        self.stores: dict[str, set[Store]] = defaultdict(set)
        self.computed: list[ComputedStore] = []
        self.keywords: dict[str, set[str]] = defaultdict(set)
        self.class_reads: set[tuple[str, str]] = set()
        self.reads: set[str] = set()
        self.named: set[tuple[str, str]] = set()
        self.quoted_types: list[str] = []
        self.guarded: set[str] = set()
        self.replaced: set[tuple[str, str, str]] = set()
        self.is_python = True
        self._may_replace = may_replace(text)
        self._calls: list[ast.Call] = []
        self._targets: list[tuple[ast.Attribute, str]] = []
        try:
            tree = syntax_tree(text)
        except UnparsableModule:
            self.is_python = False
            self._search(text)
            return
        self._variables = variables_of_literals(tree)
        self._visit(tree, _Place())
        for target, own in self._targets:
            initial = isinstance(target.value, ast.Name) and target.value.id == own
            modules = frozenset(_modules_of(target.value, self.bound))
            self.stores[target.attr].add(Store(last_name(target.value), modules, initial))
        for call in self._calls:
            self.replaced.update(self._replaced_by(call))
        del self._variables, self._calls, self._targets

    def reads_name(self, name: str) -> bool:
        """Return whether the file may read a variable called ``name``."""
        return name in self.reads or not self.is_python

    def _search(self, text: str) -> None:
        """Add the names in a text that is not Python."""
        classes = set(_CLASS.findall(text))
        for word in _WORD.findall(text) if classes else ():
            self.bases[word] = classes
        self._search_assignments(text)

    def _search_quoted_code(self, text: str) -> None:
        """Add the names in a string, which other code may run, as with ``exec``."""
        for title, header in _CLASS_WITH_BASES.findall(text):
            for word in _WORD.findall(header):
                self.bases[word].add(title)
        self._search_assignments(text)

    def _search_assignments(self, text: str) -> None:
        for owner, name, quoted in _ASSIGNED.findall(text):
            self.stores[name or quoted].add(Store(owner, frozenset({""})))
        if self._may_replace:
            self.replaced.update((module, name, "") for module, name in _QUOTED.findall(text))

    def _visit(self, node: ast.AST, place: _Place) -> None:
        inner = self._add(node, place) if type(node) in _INDEXED else place
        for field in CODE_FIELDS[type(node)]:
            value = getattr(node, field)
            for child in value if type(value) is list else (value,):
                if isinstance(child, ast.AST):
                    self._visit(child, inner)

    def _add(self, node: ast.AST, place: _Place) -> _Place:
        """Add the names of a node, without the nodes inside it. Returns the place of the nodes inside it."""
        match node:
            case ast.Name(id=name, ctx=context):
                if isinstance(context, ast.Load):
                    self.reads.add(name)
            case ast.Attribute(value=asked, attr=name, ctx=context):
                self.reads.add(name)
                if not isinstance(context, ast.Load):
                    self._targets.append((node, place.own))
                    if name == "__dict__":
                        self._add_computed(asked, place)
                if (title := _class_title(asked)) is not None and node is not place.called:
                    self.class_reads.add((title, name))
            case ast.Constant(value=value):
                if isinstance(value, str):
                    self._add_string(value, self._variables.get(node, ""))
            case ast.Call(func=called, args=given):
                self._add_call(node, place)
                if isinstance(called, ast.Attribute) and given and isinstance(given[0], ast.Name):
                    return place._replace(called=called) if dotted_name(called.value) in place.bases else place
            case ast.keyword(arg=key):
                if key is not None:
                    self.named.add((key, self._variables.get(node, "")))
            case ast.Subscript(value=held, slice=index, ctx=context):
                if not isinstance(context, ast.Load):
                    self._add_item(held, index, place)
            case ast.alias(name=name, asname=asname):
                last = name.rpartition(".")[2]
                self.reads.add(name)
                self.bound[asname or last].add(last)
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                self.quoted_types += _strings_as_types(annotation)
            case ast.ClassDef(name=name, bases=bases, keywords=keywords):
                self.bound.setdefault(name, set())
                self._add_bases(name, (*bases, *(one.value for one in keywords)))
                return _Place(name, frozenset(map(ast.unparse, bases)), node.body, restores=place.restores)
            case ast.FunctionDef(name=name, args=arguments, returns=annotation):
                self.bound.setdefault(name, set())
                self.quoted_types += _strings_as_types(annotation)
                parameters = [*arguments.posonlyargs, *arguments.args] if node in place.body else []
                own = parameters[0].arg if name == "__init__" and parameters else ""
                return place._replace(own=own, restores=place.restores or name == "__setstate__")
            case ast.AsyncFunctionDef(returns=annotation):
                self.quoted_types += _strings_as_types(annotation)
                return place._replace(own="")
            case ast.Lambda():
                return place._replace(own="")
            case ast.Try(body=body, handlers=handlers):
                if any(_handles_missing(one.type) for one in handlers):
                    nodes = (one for statement in body for one in ast.walk(statement))
                    self.guarded.update(one.attr for one in nodes if isinstance(one, ast.Attribute))
        return place

    def _add_string(self, value: str, variable: str) -> None:
        if value.isidentifier():
            self.reads.add(value)
            self.named.add((value, variable))
            return
        self._search_quoted_code(value)
        if self._may_replace:
            if (path := _PATH.fullmatch(value)) is not None:
                self.replaced.add((path[1], path[2], variable))
            elif (path := _FORMAT.fullmatch(value)) is not None:
                self.replaced.add(("", path[1], variable))

    def _add_bases(self, title: str, parts: Iterable[ast.AST]) -> None:
        pending = [(one, self.bases) for one in parts]
        for node, known in pending:
            match node:
                case ast.Name(id=word) | ast.Attribute(attr=word):
                    known[word].add(title)
                case ast.Constant(value=str(text)):  # for example "train.Trainer"
                    for word in _WORD.findall(text):
                        known[word].add(title)
            inside = node.slice if isinstance(node, ast.Subscript) else None
            pending += [(one, self.parameters if one is inside else known) for one in ast.iter_child_nodes(node)]

    def _add_call(self, call: ast.Call, place: _Place) -> None:
        called = call.func
        if call.keywords:
            root = first_name(called)
            for keyword in call.keywords:
                self.keywords[keyword.arg or ""].add(root)
        if self._may_replace and _replaces(called):
            self._calls.append(call)
        match call:
            case ast.Call(func=ast.Name(id="getattr"), args=[asked, ast.Constant(value=str(name)), *_]):
                if (title := _class_title(asked)) is not None:
                    self.class_reads.add((title, name))
            case ast.Call(func=ast.Name(id="type") | ast.Attribute(attr="type"), args=[made, bases, _]):
                self._add_bases(str(made.value) if isinstance(made, ast.Constant) else _COMPUTED, (bases,))
            case ast.Call(func=ast.Name(id="setattr") | ast.Attribute(attr="setattr"), args=[changed, *others]):
                if isinstance(changed, ast.Constant):  # `monkeypatch.setattr("data.limit", 3)`
                    self.stores[str(changed.value).rpartition(".")[2]].add(Store(""))
                elif others and not isinstance(others[0], ast.Starred):
                    self._add_named_store(changed, others[0], place)
                else:
                    self._add_computed(changed, place)
            case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[*changes, name, _]):
                self._add_named_store(changes[0] if changes else ast.Name("self"), name, place)
            case ast.Call(func=ast.Attribute(value=held, attr=change)) if change in _CHANGES:
                if change != "update":
                    self._add_item(held, call.args[0] if call.args else None, place)
                elif isinstance(held, ast.Call) or last_name(held) in ("__dict__", *FUNCTION_PARTS):
                    self._add_item(held, None, place)
                    given = (*call.args, *call.keywords)
                    for part in (part for one in given for part in ast.walk(one)):
                        if (passed := _name_in(part)) is not None:
                            self.stores[passed].add(Store(""))

    def _add_named_store(self, changed: ast.expr, name: ast.expr, place: _Place) -> None:
        """Add a call that sets an attribute of ``changed``. The expression ``name`` is the name of the attribute."""
        if isinstance(name, ast.Constant):
            owner = "self" if first_name(changed) == "self" else last_name(changed)
            self.stores[str(name.value)].add(Store(owner))
        else:
            self._add_computed(changed, place)

    def _add_item(self, held: ast.expr, key: ast.expr | None, place: _Place) -> None:
        """Add code that sets items of ``held``, which may be a dictionary of attributes, such as ``x.__dict__``."""
        if last_name(held) in FUNCTION_PARTS:
            self.stores[last_name(held)].add(Store(""))
        if isinstance(key, ast.Constant) and (isinstance(held, ast.Call) or last_name(held) == "__dict__"):
            self.stores[str(key.value)].add(Store(""))
        elif (owner := _owner_of_attributes(held)) is not None:
            self._add_computed(owner, place)

    def _add_computed(self, changed: ast.expr, place: _Place) -> None:
        self.computed.append(ComputedStore(ast.unparse(changed), place.around, place.restores))

    def _replaced_by(self, call: ast.Call) -> Iterator[tuple[str, str, str]]:
        """Yield the names that a call such as ``monkeypatch.setattr(train, "DataLoader", …)`` may replace."""
        modules, variable = _modules(call, self.bound), self._variables.get(call, "")
        yield from ((module, name, variable) for module in modules or {""} for name in _names_in_call(call))
        if _may_receive_names(call):  # `setattr` with a computed name hardly ever sets a name of a module
            unknown = set() if isinstance(call.func, ast.Name) and call.func.id == "setattr" else {""}
            named = modules or unknown
            yield from ((module, name, variable or holder) for module in named for name, holder in self.named)
            yield from ((module, "", variable) for module in named if module and _computes_name(call))


def may_replace(text: str) -> bool:
    """Return whether a text may replace names of other modules, as tests do."""
    return _MAY_REPLACE.search(text) is not None


#: Types of the nodes that contain names of an index.
_INDEXED = frozenset(
    {
        ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.keyword, ast.Subscript, ast.alias, ast.arg, ast.AnnAssign,
        ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try,
    }
)  # fmt: skip


def variables_of_literals(tree: ast.Module) -> dict[ast.AST, str]:
    """Return, for each node in a literal container that a module-level variable gets, the name of the variable."""
    found: dict[ast.AST, str] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.List() | ast.Tuple() | ast.Set() | ast.Dict() as value
            ):
                found |= dict.fromkeys(ast.walk(value), name)
    return found


def _strings_as_types(annotation: ast.expr | None) -> Iterator[str]:
    match annotation:
        case ast.Constant(value=str(name)):
            yield name
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from (*_strings_as_types(left), *_strings_as_types(right))
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            yield from (one for element in elements for one in _strings_as_types(element))
        case ast.Subscript(value=ast.Name(id=generic) | ast.Attribute(attr=generic), slice=inner):
            if generic in _GENERICS:
                yield from _strings_as_types(inner)


def _handles_missing(caught: ast.expr | None) -> bool:
    names = {one.id for one in ast.walk(caught) if isinstance(one, ast.Name)} if caught is not None else {"Exception"}
    return not names.isdisjoint({"AttributeError", "Exception", "BaseException"})


def _class_title(asked: ast.expr) -> str | None:
    """Return the name if an expression is a class; "" for any class, such as ``cls``; ``None`` if it is no class."""
    match asked:
        case ast.Name(id="cls") | ast.Attribute(attr="__class__") | ast.Call(func=ast.Name(id="type")):
            return ""
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.lstrip("_")[:1].isupper():
            return name
    return None


def _owner_of_attributes(held: ast.expr) -> ast.expr | None:
    """Return ``x`` for ``x.__dict__`` and ``vars(x)``; None for other expressions."""
    match held:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return owner
    return None


def _name_in(node: ast.AST) -> str | None:
    match node:
        case ast.keyword(arg=name) | ast.Constant(value=str(name)) | ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _replaces(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute) and function.attr in _PATCHES:
        return last_name(function.value) == "patch"
    return last_name(function) == "patch" or last_name(function) in _SETTERS


def _modules(call: ast.Call, known: dict[str, set[str]]) -> set[str]:
    """Return the last name of each module to which a call's first argument may refer; an empty set if unknown."""
    target = call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "target"), None)
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return {target.value.removesuffix(".__dict__").rpartition(".")[2]}
    return _modules_of((target and _owner_of_attributes(target)) or target, known)


def _modules_of(target: ast.expr | None, known: dict[str, set[str]]) -> set[str]:
    match target:
        case ast.Name(id="__name__"):  # `target` is the module of this file, whose name is unknown
            return {""}
        case ast.Name(id=name) if name in known or name in _OWN:
            return {name, *known.get(name, ())}
        case ast.Attribute(attr=name) if first_name(target) in known:
            return {name}
        case ast.JoinedStr() | ast.BinOp():
            return {""}
        case ast.expr() if _FOUND_MODULES.search(ast.unparse(target)) is not None:
            return {""}
    return set()


def _may_receive_names(call: ast.Call) -> bool:
    """Return whether the names that a call replaces may come from strings elsewhere in the file."""
    named = (one.value for one in call.keywords if one.arg in (None, "attribute", "values"))
    return any(not isinstance(one, ast.Constant | ast.Dict) for one in (*call.args[1:2], *named))


def _computes_name(call: ast.Call) -> bool:
    """Return whether the second argument of a call, which is the name to replace, is a computed string."""
    return any(isinstance(one, ast.BinOp | ast.JoinedStr | ast.Call) for one in call.args[1:2])


def _names_in_call(call: ast.Call) -> Iterator[str]:
    """Yield names that a call may replace: its keywords, and each string in its arguments that is a name."""
    for node in ast.walk(call):
        match node:
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if (found := _LAST.fullmatch(text)) is not None:
                yield found[1]
