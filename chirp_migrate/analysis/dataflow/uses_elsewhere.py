"""Find uses of classes, functions and attributes in all files of a backend, mostly by searches for their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from chirp_migrate.analysis.known_names import qualified_base_names
from chirp_migrate.syntax.file_index import ComputedStore, FileIndex, Store
from chirp_migrate.syntax.module import Module, UnparsableModule
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.project_files import answered_once
from chirp_migrate.syntax.scopes import Binding


def is_passed_as_keyword(project: Project, parameter: str) -> bool:
    """Return whether a call passes the keyword argument ``parameter=`` to code of the project."""
    keyword = re.compile(rf"[(,]\s*{re.escape(parameter)}\s*=(?!=)")
    return any(
        not _is_foreign(project, path, called)
        for path, _ in project.matching(keyword, parameter)
        for called in project.index(path).keywords.get(parameter, ())
    )


def _is_foreign(project: Project, path: str, called: str) -> bool:
    """Return whether the file at ``path`` imports the name ``called`` from outside the backend."""
    table = project.table(path)
    if not called or table is None or table.defines(called):
        return False
    sources = table.imports.get(called, set())
    return bool(sources) and not any(project.has_package(source.partition(".")[0]) for source in sources)


#: Words in code that may evaluate quoted types, such as ``"Net"``, with the names of another module.
_TYPE_LOOKUPS = ("get_type_hints", "globalns", "update_forward_refs", "model_rebuild", "_types_namespace")
#: Code with which a module may set its own top-level names.
_OWN_NAMES = re.compile(r"\bglobals\s*\(")
#: Words in code that can assign an attribute whose name is a string.
_BY_NAME = ("setattr", "__setattr__", "vars", "__dict__")


def is_assigned_later(project: Project, attribute: str) -> bool:
    """Return whether code assigns to ``attribute`` of any object, except by ``self.attribute = …`` in ``__init__``.

    Code that sets attributes with computed names, as in ``setattr(x, name, y)``, also counts.
    """
    return any(index.computed for index in project.indexes(*_BY_NAME)) or any(
        not store.initial for store in _stores(project, attribute)
    )


def _stores(project: Project, attribute: str) -> Iterator[Store]:
    return (store for index in project.indexes(attribute) for store in index.stores.get(attribute, ()))


#: Names that are typical of parsed arguments, settings and models, but not of datasets.
_SETTINGS = re.compile(r"(.*\.)?(args|opts?|options|namespace|\w*(config|cfg|params?|settings|model|module|net))")


def may_set_computed_attributes(module: Module, project: Project, class_definition: cst.ClassDef) -> bool:
    """Return whether any file of the project may set attributes with computed names on objects of a class.

    Code that sets such attributes on ``self`` counts if the code is in the class itself. If the class has bases or
    subclasses in the project, such code counts in every class. Code that sets such attributes on another object than
    ``self`` also counts, unless the name of the object is typical of arguments, settings or models.
    """
    title = None if has_bases_or_subclasses(module, project, class_definition) else class_definition.name.value
    return any(
        _SETTINGS.fullmatch(one.changed) is None if one.changed != "self" else one.around in (title or one.around, None)
        for one in _computed_stores(project)
    )


def _computed_stores(project: Project) -> Iterator[ComputedStore]:
    """Yield the code that sets attributes with computed names, without code that restores attributes."""
    return (one for index in project.indexes(*_BY_NAME) for one in index.computed if not one.restores)


def has_bases_or_subclasses(module: Module, project: Project, class_definition: cst.ClassDef) -> bool:
    """Return whether a class inherits from another class of the project, or has a subclass in the project."""
    if any(project.is_class(base) for base in qualified_base_names(module, project, class_definition)):
        return True
    title = class_definition.name.value
    # Rules add import statements with aliases that begin with this word. No class inherits from these aliases.
    aliases = (alias for alias in project.aliases(title) if not alias.startswith("WorkerSafe"))
    return bool(project.subclasses(title, *aliases, parameters=True))


def may_call_method_with_foreign_self(
    module: Module, project: Project, class_definition: cst.ClassDef, method: str
) -> bool:
    """Return whether code may call ``Class.method(x)`` with an object ``x`` of another class.

    A call such as ``Base.method(self)`` in a class that inherits from ``Base`` does not count.
    """
    title = class_definition.name.value
    titles = (
        None if has_bases_or_subclasses(module, project, class_definition) else {"", title, *project.aliases(title)}
    )
    asked = re.compile(rf"""\.\s*{re.escape(method)}\b|["']{re.escape(method)}["']""")
    return any(
        name == method and (titles is None or class_ in titles)
        for path, _ in project.matching(asked, method)
        for class_, name in project.index(path).class_reads
    )


def may_access_attribute_outside_class(project: Project, attribute: str) -> bool:
    """Return whether code may read or set ``attribute`` on any object but ``self``."""
    name = re.escape(attribute)
    return project.search(rf"""\b{name}\b(?<=\.{name})(?<!\bself\.{name})|["']{name}["']""", attribute)


def is_named_in_strings(module: Module, project: Project, name: str) -> bool:
    """Return whether other code may read a top-level name of ``module`` by a string.

    The result is True if a string or a configuration file contains ``module.name``, or if ``getattr`` is called with
    the name. For the name of a class, the result is also True if a string or a setting ends with the name. A quoted
    type, as in ``x: "Net"``, does not count in a file that binds the name, unless code may evaluate quoted types with
    the names of another module.
    """
    owner, last = re.escape(module.name.rpartition(".")[2]), re.escape(name)
    paths = rf"""\b{owner}\.{last}\\?["']""" if owner else rf"""\.{last}\\?["']"""
    asked = re.compile(rf"""{paths}|getattr\s*\([^,()]*,\s*["']{last}["']""")
    # Every match of the full pattern ends with a match of this pattern. `re` is faster for patterns that begin with #
    # plain characters.
    ending = re.compile(rf"""{last}\\?["']""")
    if any(asked.search(text) for _, text in project.matching(ending, name)):
        return True
    is_class = name[:1].isupper()
    ends = re.compile(rf"""{last}(?<=["'.]{last})["']""")
    may_look_up_types = is_class and any(True for _ in project.paths_containing(*_TYPE_LOOKUPS))
    if is_class and any(
        path == module.path or may_look_up_types or _has_match_outside_types(project.index(path), text, name, ends)
        for path, text in project.matching(ends, name)
    ):
        return True
    value = rf"""|[:=,\[-][ \t]*["']?{last}["']?[ \t]*(?:[,\]}}#\r\n]|\Z)""" if is_class else ""
    return project.settings_match(re.compile(rf"\b{owner}\.{last}\b{value}"))


def _has_match_outside_types(index: FileIndex, text: str, name: str, pattern: re.Pattern[str]) -> bool:
    """Return whether ``pattern`` matches in a text, except in the quoted type ``"name"`` of an annotation."""
    return name not in index.bound or len(pattern.findall(text)) > index.quoted_types.count(name)


def has_dynamic_attribute_read(project: Project, *attributes: str) -> bool:
    """Return whether any file reads one of ``attributes`` with ``hasattr`` or ``getattr``."""
    names = "|".join(map(re.escape, attributes))
    asked = r"(?:has|get)attr\b"
    return project.search(rf"""{asked}(?:(?!{asked})[^\r\n])*["'](?:{names})["']""", "hasattr", "getattr")


def has_guarded_attribute_read(project: Project, *attributes: str) -> bool:
    """Return whether any file reads one of ``attributes`` in a ``try`` statement that handles AttributeError."""
    return any(not index.guarded.isdisjoint(attributes) for index in project.indexes(*attributes))


@answered_once
def may_be_assigned_outside(project: Project, attribute: str) -> bool:
    """Return whether any code may assign to ``attribute`` of any object but ``self``."""
    return any(store.owner != "self" for store in _stores(project, attribute))


def may_be_patched_elsewhere(module: Module, project: Project, dotted_name: str) -> bool:
    """Return whether other code may assign to ``dotted_name``.

    ``dotted_name`` is a top-level name of ``module``, or an attribute of such a name. Any code that assigns to an
    attribute with the last name of ``dotted_name`` counts, unless the object is ``self``.
    """
    return _may_be_patched(project, module.name, dotted_name)


def _may_be_patched(project: Project, module: str, dotted_name: str) -> bool:
    owner, first, last = module.rpartition(".")[2], dotted_name.partition(".")[0], dotted_name.rpartition(".")[2]
    return (
        project.is_replaced(owner, first)
        or may_be_assigned_outside(project, last)
        or (first != last and any(not store.modules.isdisjoint({owner, ""}) for store in _stores(project, first)))
    )


#: Code that sets module-level names by computed strings, as in ``globals()[name] = value``.
_SETS_GLOBALS = r"""\bglobals\s*\(\s*\)\s*(?:\.\s*(?:update|setdefault|__setitem__)\b|\|=|\[[^\]"']*\]\s*=(?!=))"""


def may_be_set_by_called_function(project: Project, name: str) -> bool:
    """Return whether a call may pass ``name`` to code of the project that sets names of a module.

    The result is True if a call contains the name, as a keyword or as a string, and any code of the project sets
    attributes or global variables with computed names.
    """
    last = re.escape(name)
    given = re.compile(rf"""[(,]\s*{last}\s*=(?!=)|[(,]\s*["']{last}["']\s*[,)]""")
    is_given = any(
        name == word and (not variable or project.reads_variable(variable))
        for path, _ in project.matching(given, name)
        for word, variable in project.index(path).named
    )
    return is_given and (project.search(_SETS_GLOBALS, "globals") or any(True for _ in _computed_stores(project)))


#: Code that replaces imported modules.
_REPLACES_MODULES = (
    r"""(?:dict|setitem|delitem)\s*\(\s*["']?sys\.modules\b|\bdel\s+sys\.modules\b"""
    r"|\bsys\.modules\s*(?:\[[^\]\n]*\]\s*=(?!=)|\.\s*(?:update|pop|setdefault|clear)\b)"
)


def import_always_binds_same_object(module: Module, project: Project, qualified: str) -> bool:
    """Return whether an import of ``qualified`` in ``module`` binds the same object at any time of a program run."""
    qualified = module.absolute(qualified)
    owner, _, last = qualified.rpartition(".")
    if (owner and _may_be_patched(project, owner, last)) or project.search(_REPLACES_MODULES, "modules"):
        return False
    return all(
        not name or _is_bound_once(project, path, name) for path, name in project.located(module.path, qualified)
    )


def _is_bound_once(project: Project, path: str, name: str) -> bool:
    """Return whether the module at ``path`` binds a top-level name by exactly one statement, during its import."""
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
    """Return whether code of a module may list the attributes of objects, classes or modules."""
    return _LISTING.search(module.text) is not None


#: Code that lists the attributes of an object, except of ``self``, of a class, and of parsed arguments.
_LISTING_OBJECT = (
    r"\b(?:vars|getmembers)\s*\(\s*(?!self\b|cls\b|\w*(?:args|opts?|options)\s*\))\w"
    r"|(?<!\bself)(?<!\bcls)\.\s*__dict__\b"
)


def may_list_attributes_of_any_object(project: Project) -> bool:
    """Return whether code of the project may list the attributes of an object other than ``self``."""
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
    return bool(project.meanings_from_elsewhere(module, name))


def is_dotted_name_bound_once(
    module: Module, project: Project, dotted_name: str, bindings: Sequence[Binding], offset: int
) -> bool:
    """Return whether the dotted name ``dotted_name`` always refers to the same object.

    The result is True if two conditions hold:

    * Only one statement assigns the first name of ``dotted_name``. The statement is at the top level of the module,
      above ``offset``.
    * No code assigns to ``dotted_name``.
    """
    top = module.top_level_statement(bindings[0].node)
    once = len(bindings) == 1 and (top is bindings[0].node or isinstance(top, cst.SimpleStatementLine))
    return (
        once
        and module.span(top)[1] <= offset
        and _OWN_NAMES.search(module.text) is None
        and not may_be_patched_elsewhere(module, project, dotted_name)
    )
