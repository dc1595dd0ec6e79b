"""Find out whether a name of a module may refer to another object while the program runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_writes import (
    is_assigned_in_module,
    may_be_assigned_outside_class,
    objects_with_computed_attributes,
)
from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree_or_empty, walk_tree
from chirp_migrate.syntax.name_resolution import find_names_from_star_imports, locate_import
from chirp_migrate.syntax.name_uses import is_patched, is_variable_read
from chirp_migrate.syntax.patched_names import variables_of_literals
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.scopes import Binding

#: Code with which a module may set its own top-level names.
_OWN_NAMES = re.compile(r"\bglobals\s*\(")
#: Code that sets module-level names by computed strings, as in ``globals()[name] = value``.
_SETS_GLOBALS = r"""\bglobals\s*\(\s*\)\s*(?:\.\s*(?:update|setdefault|__setitem__)\b|\|=|\[[^\]"']*\]\s*=(?!=))"""
#: Code that replaces imported modules.
_REPLACES_MODULES = (
    r"""(?:dict|setitem|delitem)\s*\(\s*["']?sys\.modules\b|\bdel\s+sys\.modules\b"""
    r"|\bsys\.modules\s*(?:\[[^\]\n]*\]\s*=(?!=)|\.\s*(?:update|pop|setdefault|clear)\b)"
)


def may_be_patched_elsewhere(module: Module, project: Project, dotted_name: str) -> bool:
    """Return whether other code may assign to ``dotted_name``.

    ``dotted_name`` is a top-level name of ``module``, or an attribute of such a name. Any code that assigns to an
    attribute with the last name of ``dotted_name`` counts, unless the object is ``self``.
    """
    owner, first, last = module.name.rpartition(".")[2], dotted_name.partition(".")[0], dotted_name.rpartition(".")[2]
    return (
        is_patched(project, owner, first)
        or may_be_assigned_outside_class(project, last)
        or (first != last and is_assigned_in_module(project, owner, first))
    )


def may_be_set_by_called_function(project: Project, name: str) -> bool:
    """Return whether a call may pass ``name`` to code of the project that assigns to a variable with this name.

    The result is True if two conditions hold: a call contains the name as a keyword or string, and any code of the
    project sets attributes or global variables with computed names, as in ``globals()[key] = value``.
    """
    last = re.escape(name)
    given = re.compile(rf"""[(,]\s*{last}\s*=(?!=)|[(,]\s*["']{last}["']\s*[,)]""")
    return any(_mentions_name(project, text, name) for _, text in project.matching(given, name)) and (
        project.search(_SETS_GLOBALS, "globals") or bool(objects_with_computed_attributes(project))
    )


def _mentions_name(project: Project, text: str, name: str) -> bool:
    """Return whether code contains the name as a keyword or string.

    A string in a literal does not count if the literal is assigned to a variable that no code reads.
    """
    variables = variables_of_literals(syntax_tree_or_empty(text))
    return any(
        node not in variables or is_variable_read(project, variables[node])
        for node in walk_tree(syntax_tree_or_empty(text))
        if (isinstance(node, ast.keyword) and node.arg == name)
        or (isinstance(node, ast.Constant) and node.value == name)
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
