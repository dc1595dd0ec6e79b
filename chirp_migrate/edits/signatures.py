"""Parameters of a function that moves: what it captured becomes keyword-only, what its defaults took is bound."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.onlookers import is_settled
from chirp_migrate.edits.move_definition import NotMovable, whole_span
from chirp_migrate.plans.plan import Edit
from chirp_migrate.syntax.module import Module, find_in, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted, is_name, is_read
from chirp_migrate.syntax.scopes import Kind

_CONSTANTS = (cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)


def stays(module: Module, project: Project, default: cst.BaseExpression | None, offset: int) -> bool:
    """Whether a default is the same thing when it is evaluated at ``offset`` of the module, on import, instead."""
    if default is None or isinstance(default, _CONSTANTS) or is_name(default, "None", "True", "False"):
        return True
    if isinstance(default, cst.UnaryOperation):
        return stays(module, project, default.expression, offset)
    if isinstance(default, cst.Tuple):
        return all(stays(module, project, one.value, offset) for one in default.elements)
    path = dotted(default) or ""
    first, dot, _ = path.partition(".")
    owner = module.scopes.lookup(first, default)
    if owner is None:
        return not dot and module.scopes.is_builtin(first)
    scope, places = owner
    # An attribute may have another value by then, but for those of other packages' modules.
    fixed = not dot or (places[0].kind is Kind.IMPORT and not is_ours(module, project, places[0].qualified))
    return fixed and isinstance(scope.node, cst.Module) and is_settled(module, project, path, places, offset)


def is_ours(module: Module, project: Project, qualified: str) -> bool:
    """Whether an import is one of the project's own: such a module may not be imported to its end by then."""
    return qualified.startswith(".") or project.has_package(module.absolute(qualified).partition(".")[0])


def check_annotations(module: Module, node: cst.FunctionDef, offset: int) -> None:
    """See that the annotations of a function can be evaluated at ``offset`` of the module.

    Raises:
        NotMovable: they use a name that has no value there.
    """
    if any(_postpones_annotations(one) for one in module.find(cst.ImportFrom)):
        return
    own = [node.returns, *(part for part in _pieces(node.params) if isinstance(part, cst.Param))]
    found = [one.annotation if isinstance(one, cst.Param) else one for one in own]
    if any(find_in(one, cst.Call) for one in found if one is not None):
        raise NotMovable("its annotations call something")
    for name in (name for one in found if one is not None for name in walk(one)):
        if not isinstance(name, cst.Name) or not is_read(module, name):
            continue
        owner = module.scopes.lookup(name.value, name)
        if owner is None:
            known = module.scopes.is_builtin(name.value) or bool(module.scopes.stars)
        else:
            places = [module.span(one.node)[0] for one in owner[1]]
            known = isinstance(owner[0].node, cst.Module) and min(places) < offset
        if not known:
            raise NotMovable(f"its annotations use `{name.value}`, which the module does not define above it")


def _postpones_annotations(statement: cst.ImportFrom) -> bool:
    aliases = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return is_name(statement.module, "__future__") and any(is_name(one.name, "annotations") for one in aliases)


def parameters_offset(module: Module, node: cst.FunctionDef | cst.Lambda) -> int:
    """Where the parameters start: behind the opening parenthesis, or ``lambda``, and the white space there."""
    code = module.tree.code_for_node
    if isinstance(node, cst.Lambda):
        space = node.whitespace_after_lambda
        after = code(space) if isinstance(space, cst.BaseParenthesizableWhitespace) else ""
        return module.text.index("lambda", module.span(node)[0]) + len(f"lambda{after}")
    before = code(node.whitespace_after_name) + "(" + code(node.whitespace_before_params)
    return module.span(node.name)[1] + len(before)


def parameter_edits(
    module: Module,
    node: cst.FunctionDef | cst.Lambda,
    bound: Sequence[cst.Param],
    added: Sequence[str],
    first: str = "",
) -> list[Edit]:
    """Edits that drop the defaults of ``bound``, append keyword-only ``added`` and put ``first`` in front.

    Args:
        module: the module.
        node: the function.
        bound: parameters that lose their default.
        added: names of new keyword-only parameters.
        first: a new first parameter.

    Raises:
        NotMovable: any keyword may be given already.
    """
    parameters, start = node.params, parameters_offset(module, node)
    if added and parameters.star_kwarg is not None:
        raise NotMovable("its `**` parameter would take the values that are bound to it")
    pieces = _pieces(parameters)
    edits = [Edit(start, start, first + (", " if pieces else ""))] if first else []
    for one in bound:
        named = one.annotation.annotation if one.annotation is not None else one.name
        edits.append(Edit(_end(module, named), _end(module, one.default or named), ""))
    if added:
        keyword_only = parameters.kwonly_params or isinstance(parameters.star_arg, cst.Param)
        words = [*(() if keyword_only else ("*",)), *added]
        end = _end(module, pieces[-1]) if pieces else start
        edits.append(Edit(end, end, (", " if pieces or first else "") + ", ".join(words)))
    return edits


def _end(module: Module, node: cst.CSTNode) -> int:
    """Offset behind a parameter or expression, its own parentheses included, without comma and comments."""
    if isinstance(node, cst.ParamSlash):
        return module.span(node)[0] + 1
    if isinstance(node, cst.Param):
        annotation = node.annotation.annotation if node.annotation is not None else None
        return _end(module, node.default or annotation or node.name)
    return whole_span(module, node)[1]


def _pieces(parameters: cst.Parameters) -> list[cst.Param | cst.ParamStar | cst.ParamSlash]:
    """Everything between the parentheses, in order of the text."""
    star, slash, rest = parameters.star_arg, parameters.posonly_ind, parameters.star_kwarg
    return [
        *parameters.posonly_params,
        *([slash] if isinstance(slash, cst.ParamSlash) else []),
        *parameters.params,
        *([star] if isinstance(star, cst.Param | cst.ParamStar) else []),
        *parameters.kwonly_params,
        *([rest] if rest is not None else []),
    ]
