"""What a class at the top of a module evaluates when the module is imported, and whether it is all there by then."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.dataflow.capture_timing import has_value
from chirp_migrate.analysis.dataflow.closures import Capture
from chirp_migrate.analysis.dataflow.onlookers import is_replaced
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.edits.signatures import check_annotations, is_ours, stays
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, is_docstring, is_read
from chirp_migrate.syntax.scopes import Kind

#: Decorators that make another method, and keep nothing that classes of several calls would share.
_DECORATORS = re.compile(
    r"builtins\.(property|staticmethod|classmethod)|functools\.(cached_property|wraps)|(abc|typing|typing_extensions)\..+"
    r"|torch\.(no_grad|enable_grad|inference_mode|jit\.(ignore|unused|export))|.+\.(setter|getter|deleter)"
)


def check_class(module: Module, project: Project, node: cst.ClassDef, offset: int) -> None:
    """See that a class can be made at ``offset`` of the module, when that is imported.

    Its body may only define methods and constants; its bases, and what its methods have for decorators, defaults and
    annotations, must be known there. An attribute of a module of the backend may not be: modules that import each
    other are imported half at first.

    Raises:
        NotMovable: something is not known then, or might be something else.
    """
    for base in node.bases:
        if not isinstance(base.value, cst.Name | cst.Attribute | cst.Subscript):
            raise NotMovable("its base class would be made when the module is imported")
        _check_known(module, project, base.value, offset)
    for statement in node.body.body:
        if isinstance(statement, cst.FunctionDef):
            for decorator in statement.decorators:
                _check_known(module, project, decorator.decorator, offset)
                _check_decorator(module, project, decorator.decorator, offset)
            check_annotations(module, statement, offset)
            every = (*statement.params.posonly_params, *statement.params.params, *statement.params.kwonly_params)
            for parameter in every:
                if not stays(module, project, parameter.default, offset):
                    raise NotMovable(
                        f"the default of `{parameter.name.value}` would be made when the module is imported"
                    )
        elif not _does_nothing(statement) and not _is_constant(module, project, statement, offset):
            raise NotMovable("its body does more than define methods, and would when the module is imported")


def _check_decorator(module: Module, project: Project, node: cst.BaseExpression, offset: int) -> None:
    """See that a decorator only changes the method: others may do more, then once instead of in each call."""
    given = node.args if isinstance(node, cst.Call) else ()
    called = node.func if isinstance(node, cst.Call) else node
    known = all(_DECORATORS.fullmatch(name) for name in project.resolved_names(module, called))
    if not known or not all(stays(module, project, one.value, offset) for one in given):
        raise NotMovable("a decorator in it may keep something, for all calls when it is at module level")


def _does_nothing(statement: cst.CSTNode) -> bool:
    match statement:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Ellipsis())]):
            return True
    return is_docstring(statement)


def _is_constant(module: Module, project: Project, statement: cst.CSTNode, offset: int) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    for small in statement.body:
        if isinstance(small, cst.Pass):
            continue
        if not isinstance(small, cst.Assign | cst.AnnAssign) or not stays(module, project, small.value, offset):
            return False
        if isinstance(small, cst.AnnAssign):
            return False
    return True


def _check_known(module: Module, project: Project, expression: cst.BaseExpression, offset: int) -> None:
    for name in walk(expression):
        if not isinstance(name, cst.Name) or not is_read(module, name):
            continue
        owner = module.scopes.lookup(name.value, name)
        if owner is None:
            if not module.scopes.is_builtin(name.value) and not module.scopes.stars:
                raise NotMovable(f"the module does not define `{name.value}`")
            continue
        if not isinstance(owner[0].node, cst.Module):
            continue  # of the function: told of elsewhere
        imported = {one.qualified for one in owner[1]}
        # Imported again, it is the same; otherwise what stands further down may make it another.
        decisive = min if len(imported) == 1 and imported != {""} else max
        if decisive(module.span(one.node)[0] for one in owner[1]) >= offset:
            raise NotMovable(f"`{name.value}` is defined further down in the module")
        if not has_value(module, module.top_level_statement(expression), Capture(name.value, *owner)):
            raise NotMovable(f"`{name.value}` may not be defined when the module is imported")
        path = dotted(expression) or name.value
        if is_replaced(module, project, path):
            raise NotMovable(f"other code gives `{path}` a value after the module is imported")
        is_attribute = path.startswith(f"{name.value}.")
        if is_attribute and any(
            one.kind is Kind.IMPORT and is_ours(module, project, one.qualified) for one in owner[1]
        ):
            raise NotMovable(f"`{path}` may not be defined yet when the module is imported")
