"""CHP007: lambdas that datasets and loaders hold become functions that can be pickled (R-000-1.3)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.closures import captures, reads_of
from chirp_migrate.dataset_names import dotted
from chirp_migrate.destinations import Destinations, may_have_destinations
from chirp_migrate.imports import runtime
from chirp_migrate.lambda_meaning import shipped_meaning
from chirp_migrate.lifting import (
    NotMovable,
    free_name,
    import_lines,
    in_string,
    insert_above,
    insert_behind,
    insertion_offset,
    joined,
    left_over_imports,
    whole_span,
)
from chirp_migrate.module import Module
from chirp_migrate.movability import (
    LOOKS_AT_FUNCTIONS,
    check_body,
    check_calls,
    check_values,
    method_name,
    outer_name,
    owning_method,
)
from chirp_migrate.names import Kind
from chirp_migrate.origins import backend_holds
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.signatures import bindings_of, bound_defaults, parameter_edits, partial_call
from chirp_migrate.source import apply_edits

#: Copies of an object with all it holds; those of models, their state and settings hold no lambda of a dataset's.
_COPIES = (
    r"\b(deepcopy|copy\.copy)\((?!\s*[\w.]*(state_dict\(\)|\w*model\w*|\w*net|\w*config\w*|\w*params?|\w*weights)\s*[,)])"
    r"|__(deep)?copy__"
)


class PicklableFunction(Rule):
    code: ClassVar[str] = "CHP007"
    name: ClassVar[str] = "lambda-in-loader"
    reason: ClassVar[str] = (
        "A lambda has no name that a worker process could look up, so a dataset or loader that holds one cannot be "
        "pickled. A module-level function can; what the lambda closed over is bound with functools.partial. What is "
        "shipped for whole batches takes the place of a lambda that does the same."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("lambda",)

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with lambdas, and with words for what may hold them."""
        return super().concerns(text, project) and may_have_destinations(text)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Lift lambdas that reach a loader, a dataset or a transform."""
        destinations = Destinations(module, project)
        # The names that local functions take when they move (CHP012).
        local = [(one.name.value.strip("_"), outer_name(module, one)) for one in module.find(cst.FunctionDef)]
        taken = {name for title, outer in local for name in (f"_{title}", f"_{outer}_{title}")}
        for node in module.find(cst.Lambda):
            wish = destinations.of(node)
            if wish is not None:
                try:
                    yield _lift(module, project, node, f"_{wish.strip('_')}", taken)
                except NotMovable as reason:
                    message = f"this lambda cannot go to worker processes, but {reason}; make it a function by hand"
                    yield Proposal(module.span(node)[0], message)


def _lift(module: Module, project: Project, node: cst.Lambda, wish: str, taken: set[str]) -> Proposal:
    """Make a function of a lambda; its name is added to ``taken``."""
    span = module.span(node)
    captured = captures(module, node.body)
    values = [one for one in captured.values() if not one.is_import]
    imported = [one for one in captured.values() if one.is_import]
    check_body(module, node)
    check_values(module, node, values)
    if backend_holds(project, LOOKS_AT_FUNCTIONS):
        raise NotMovable("the backend asks functions for their names or code")
    forwarded = _forwarded(module, node)
    if forwarded is not None:
        message = f"a lambda that only calls `{forwarded}`: passed directly"
        return Proposal(span[0], message, (Edit(*span, forwarded),))
    bound = bound_defaults(module, node.params, insertion_offset(module, node))
    shipped = shipped_meaning(module, project, node)
    if shipped is not None:
        message = f"a lambda that {shipped.does}: {shipped.name} does it for whole batches"
        edits = [Edit(*module.span(shipped.node), shipped.source), *left_over_imports(module, span, imported)]
        return Proposal(span[0], message, joined(edits), frozenset({runtime(shipped.name)}))
    own = captured.get("self")
    method = owning_method(module, own) if own is not None else None
    if own is not None and backend_holds(project, _COPIES):
        raise NotMovable("a copy of its object goes on with the lambda of the original, and not with a method of it")
    check_calls(module, _uses(module, node), len(_positional(node)) - len(bound))
    keywords = [one.name for one in values if method is None or one is not own]
    wishes = [wish, f"_{outer_name(module, node)}{wish}".replace("__", "_")]
    name = method_name(module, project, method, wishes, taken) if method else free_name(module, wishes, taken)
    value, imports = partial_call(
        module, node, f"self.{name}" if method else name, bindings_of(module, bound, keywords)
    )

    start = module.text.index("lambda", span[0]) + len("lambda")
    if isinstance(node.whitespace_after_lambda, cst.BaseParenthesizableWhitespace):
        start += len(module.tree.code_for_node(node.whitespace_after_lambda))
    edits = parameter_edits(module, node.params, start, bound, keywords, "self" if method else "")
    moved = (Edit(one.start - start, one.end - start, one.replacement) for one in edits)
    parameters = apply_edits(module.text[start : max(start, module.span(node.params)[1])], moved)
    indent = module.indentation(module.span(method)[0]) if method is not None else ""
    inner = indent + module.tree.default_indent
    lines = [
        *import_lines(module, imported),
        *_returned(module, node, inner),
    ]
    definition = module.newline.join([f"{indent}def {name}({parameters}):", *(inner + line for line in lines)])
    place = insert_behind(module, method, definition) if method is not None else insert_above(module, node, definition)
    taken.add(f"self.{name}" if method else name)
    what = f"the {'method' if method else 'function'} {name}"
    message = f"a lambda cannot go to worker processes: it becomes {what}"
    edits = [Edit(*span, value), place, *left_over_imports(module, span, imported)]
    return Proposal(span[0], message, joined(edits), imports)


def _positional(node: cst.Lambda) -> list[cst.Param]:
    return [*node.params.posonly_params, *node.params.params]


def _uses(module: Module, node: cst.Lambda) -> list[cst.Name]:
    """Where the name that a lambda is assigned to is read."""
    parent = module.parents[node]
    if not isinstance(parent, cst.Assign):
        return []
    named = [one.target.value for one in parent.targets if isinstance(one.target, cst.Name)]
    scope = module.scopes.scope_of(node)
    return [use for name in named for use in reads_of(module, name, scope)]


def _forwarded(module: Module, node: cst.Lambda) -> str | None:
    """``f`` for ``lambda a, b: f(a, b)``, where ``f`` is surely the same when the lambda is made."""
    parameters, body = node.params, node.body
    names = [one.name.value for one in parameters.params]
    plain = m.matches(parameters, m.Parameters(params=[m.ZeroOrMore(m.Param(default=None))], kwonly_params=[]))
    others = parameters.posonly_params or isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg
    if not isinstance(body, cst.Call) or not plain or others:
        return None
    given = [
        one.value.value for one in body.args if isinstance(one.value, cst.Name) and not one.star and not one.keyword
    ]
    path = dotted(body.func)
    if given != names or len(body.args) != len(names) or path is None or path.partition(".")[0] in names:
        return None
    owner = module.scopes.lookup(path.partition(".")[0], body.func)
    if owner is None:
        return path if "." not in path and module.scopes.is_builtin(path) else None
    scope, places = owner
    if isinstance(scope.node, cst.Module):
        early = module.enclosing_function(node) is not None or module.span(places[0].node)[0] < module.span(node)[0]
        if len(places) != 1 or not early:
            return None
    is_import = all(one.kind is Kind.IMPORT for one in places)
    return path if "." not in path or is_import or _is_method(module, node, path) else None


def _is_method(module: Module, node: cst.Lambda, path: str) -> bool:
    """Whether ``path`` is ``self.name`` for a method of the class around, which nothing there replaces."""
    owner, (first, _, name) = module.enclosing_class(node), path.partition(".")
    body = owner.body.body if owner is not None else ()
    methods = [one for one in body if isinstance(one, cst.FunctionDef) and one.name.value == name]
    stores = m.AssignTarget(m.Attribute(m.Name("self"), m.Name(name)))
    return (
        first == "self"
        and len(methods) == 1
        and not methods[0].decorators
        and not any(m.matches(one, stores) for one in module.find(cst.AssignTarget))
    )


def _returned(module: Module, node: cst.Lambda, indent: str) -> list[str]:
    """Lines of the function: comments in front of the lambda's body, and its ``return``."""
    comments = [line.strip() for line in module.tree.code_for_node(node.colon).splitlines()[:-1]]
    comments = [line.lstrip(": ") for line in comments if "#" in line]
    body = _moved_body(module, node, indent)
    try:
        block = ast.parse(f"def f():\n{indent}return {body}").body[0]
        alone = isinstance(block, ast.FunctionDef) and len(block.body) == 1
    except SyntaxError:
        alone = False
    return [*comments, f"return {body}" if alone else f"return ({body})"]


def _moved_body(module: Module, node: cst.Lambda, indent: str) -> str:
    """The body as written, its further lines moved with the first one; strings of several lines are kept."""
    start, end = whole_span(module, node.body)
    lines = [at for at in module.line_starts if start < at < end and not in_string(module, at)]
    widths = {at: len(module.indentation(at)) for at in lines if "\t" not in module.indentation(at)}
    column = start - module.line_start(start)
    if not widths:
        return module.text[start:end]
    if min(widths.values()) > column:
        shift = len(f"{indent}return ") - column
    else:
        shift = len(indent) - min(*widths.values(), len(module.indentation(start)))
    edits = [Edit(at - start, at + width - start, " " * max(0, width + shift)) for at, width in widths.items()]
    return apply_edits(module.text[start:end], edits)
