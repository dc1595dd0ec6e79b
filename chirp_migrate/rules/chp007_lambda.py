"""CHP007: lambdas that datasets and loaders hold become functions that can be pickled (R-000-1.3)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.analysis.dataflow.closures import captures, is_variable, reads_of
from chirp_migrate.analysis.dataflow.onlookers import is_assigned, is_quoted, is_replaced, passed_by_name
from chirp_migrate.analysis.dataflow.worker_escape import Destinations, may_have_destinations
from chirp_migrate.analysis.datasets.lambda_meaning import shipped_meaning
from chirp_migrate.edits.imports import runtime
from chirp_migrate.edits.movability import (
    check_body,
    check_calls,
    check_onlookers,
    check_values,
    method_name,
    outer_name,
    owning_method,
)
from chirp_migrate.edits.move_definition import (
    NotMovable,
    free_name,
    function_offset,
    import_lines,
    in_string,
    insert_at,
    insert_behind,
    joined,
    left_over_imports,
    whole_span,
)
from chirp_migrate.edits.signatures import bindings_of, bound_defaults, parameter_edits, partial_call
from chirp_migrate.plans.plan import Edit, Safety
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.source.text import apply_edits
from chirp_migrate.syntax.module import Module, walk
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import dotted
from chirp_migrate.syntax.scopes import Kind


class PicklableFunction(Rule):
    """Requires, of a lambda that goes to a loader, a dataset or a transform:

    - `own-scope`: nothing in it depends on where it stands: no call of `dir`, `eval`, `exec`, `locals`, `vars` or
      `super`, no `__class__`, no name that is private to the class around.
    - `no-local-helper`: it uses no local function, class or lambda: those would have to move first.
    - `bound-once`: each name that it takes from the functions around has its value before it on every way there, gets
      no other one after it, is not deleted, not rebound by an inner function and not the name of an exception.
    - `same-turn`: if such a name gets its value in a loop, nothing keeps the lambda beyond the turn; and it is not the
      variable of a comprehension.
    - `one-import`: such a name that is imported there is so in one way only, and on every way there.
    - `not-looked-at`: no attribute of it is used, and no file of the project has `.__name__` (but of a class),
      `__qualname__`, `__code__`, `__defaults__`, `__closure__`, `isfunction`, `isroutine`, `FunctionType` or
      `LambdaType`.
    - `not-copied`: if values are bound to what takes its place, no file of the project has a `deepcopy` of anything but
      what is called a model, its state, weights, parameters or configuration: the values would be copied as well.
    - `room-for-values`: then `partial` is `functools.partial` there, and it has no `**` that would take them.
    - `default-by-name`: a parameter whose default is made where it stands may be given by its name, and nothing that is
      called as it is gives that parameter by position.
    - `not-a-method`: if values are bound, it does not stand in the body of a class.

    What is shipped, or the one function that it calls, takes its place if every name of the module in it gets its value
    once, above it, and no call passes an argument by the name of its parameter.
    """

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
        destinations = module.once(Destinations, project)
        # The names that local functions take when they move (CHP012).
        local = [(one.name.value.strip("_"), outer_name(module, one)) for one in module.find(cst.FunctionDef)]
        taken = {name for title, outer in local for name in (f"_{title}", f"_{outer}_{title}")}
        made: dict[tuple[str, ...], _Made] = {}
        for node in module.find(cst.Lambda):
            wish = destinations.of(node)
            if wish is not None:
                try:
                    yield _lift(module, project, node, f"_{wish.strip('_')}", taken, made)
                except NotMovable as reason:
                    message = f"lambda cannot be pickled for workers; make it a module-level function by hand: {reason}"
                    yield Proposal(module.span(node)[0], message)


#: The name of a function of the module, and the edits that define it.
_Made = tuple[str, tuple[Edit, ...]]


def _lift(
    module: Module, project: Project, node: cst.Lambda, wish: str, taken: set[str], made: dict[tuple[str, ...], _Made]
) -> Proposal:
    """Make a function of a lambda; its name is added to ``taken``, and for those that say the same to ``made``."""
    span = module.span(node)
    captured = captures(module, node.body)
    values = [one for one in captured.values() if not one.is_import]
    imported = [one for one in captured.values() if one.is_import]
    check_body(module, node)
    imports_again = import_lines(module, imported)
    check_values(module, node, captured.values())
    offset = function_offset(module, node)
    bound = bound_defaults(module, node.params, offset)
    named = _named(module, node)
    early = _means_the_same_early(module, project, node)
    forwarded = _forwarded(module, project, node) if early else None
    shipped = shipped_meaning(module, project, node) if early else None
    meant = module.scopes.lookup(shipped.name, node) if shipped is not None else None
    if meant is not None and not isinstance(meant[0].node, cst.Module):
        shipped = None
    check_onlookers(module, project, _reads(module, node, named), holds=bool(values or bound or forwarded or shipped))
    if forwarded is not None:
        message = f"a lambda that only calls `{forwarded}`: passed directly"
        return Proposal(span[0], message, (Edit(*span, forwarded),))
    if shipped is not None:
        message = f"a lambda that {shipped.does}: {shipped.name} does it for whole batches"
        edits = [Edit(*span, shipped.source), *left_over_imports(module, span, imported)]
        return Proposal(span[0], message, joined(edits), frozenset({runtime(shipped.name)}))
    own = captured.get("self")
    method = owning_method(module, own) if own is not None else None
    if any(one in bound for one in _positional(node)):
        check_calls(module, project, {wish.strip("_"), *named}, len(_positional(node)) - len(bound))
    keywords = [one.name for one in values if method is None or one is not own]
    if (keywords or bound or method) and isinstance(module.scopes.scope_of(node).node, cst.ClassDef):
        raise NotMovable("in the body of a class it is a method, and a `partial` would not be")
    wishes = [wish, f"_{outer_name(module, node)}{wish}".replace("__", "_")]
    name = method_name(module, project, method, wishes, taken) if method else free_name(module, wishes, taken)
    style, given = project.code_style, bindings_of(module, bound, keywords)
    line = module.text[module.line_start(span[0]) : span[0]] + module.text[span[1] : module.line_end(span[1] - 1)]
    around = len(line.strip())
    value, imports = partial_call(module, style, node, f"self.{name}" if method else name, given, around)

    start = module.text.index("lambda", span[0]) + len("lambda")
    if isinstance(node.whitespace_after_lambda, cst.BaseParenthesizableWhitespace):
        start += len(module.tree.code_for_node(node.whitespace_after_lambda))
    edits = parameter_edits(module, node.params, start, bound, keywords, "self" if method else "")
    moved = (Edit(one.start - start, one.end - start, one.replacement) for one in edits)
    parameters = apply_edits(module.text[start : max(start, module.span(node.params)[1])], moved)
    indent = module.indentation(module.span(method)[0]) if method is not None else ""
    inner = indent + module.tree.default_indent
    lines = [
        *imports_again,
        *_returned(module, node, inner),
    ]
    said = (parameters, *lines)
    shared = None if method else made.get(said) or _existing(module, project, node, said)
    if shared is not None:
        name, place = shared
        value, imports = partial_call(module, style, node, name, given, around)
    else:
        head = f"{indent}def {name}({parameters}):"
        definition = module.newline.join([head, *(inner + line for line in lines)])
        place = (insert_behind(module, method, definition),) if method else insert_at(module, offset, definition)
        if method is None:
            made[said] = name, place
    taken.add(f"self.{name}" if method else name)
    what = f"the {'method' if method else 'function'} `{name}`"
    message = f"lambda cannot be pickled for workers: now {what}"
    edits = [Edit(*span, value), *place, *left_over_imports(module, span, imported)]
    return Proposal(span[0], message, joined(edits), imports)


def _existing(module: Module, project: Project, node: cst.Lambda, said: tuple[str, ...]) -> _Made | None:
    """A function above that says the same, which may be an earlier rewrite's; the edit, which changes nothing, makes
    this rewrite depend on that one.
    """
    parameters, *lines = said
    top = module.span(module.top_level_statement(node))[0]
    for one in module.tree.body:
        if not isinstance(one, cst.FunctionDef) or module.span(one)[0] >= top:
            continue
        name, (start, end) = one.name.value, module.span(one)
        body = [module.tree.default_indent + line for line in lines]
        owner = module.scopes.lookup(name, node)
        is_meant = owner is not None and owner[0] is module.scopes.module and len(owner[1]) == 1
        same = module.text[start:end].rstrip() == module.newline.join([f"def {name}({parameters}):", *body])
        if same and is_meant and not is_replaced(module, project, name):
            return name, (Edit(start + 1, start + 1, ""),)
    return None


def _positional(node: cst.Lambda) -> list[cst.Param]:
    return [*node.params.posonly_params, *node.params.params]


def _named(module: Module, node: cst.Lambda) -> set[str]:
    """Names and attributes that a lambda is assigned to."""
    parent = module.parents[node]
    targets = [one.target for one in parent.targets] if isinstance(parent, cst.Assign) else []
    last = [one.attr if isinstance(one, cst.Attribute) else one for one in targets]
    return {one.value for one in last if isinstance(one, cst.Name)}


def _reads(module: Module, node: cst.Lambda, names: set[str]) -> list[cst.Name]:
    """Where the variables of these names are read."""
    scope = module.scopes.scope_of(node)
    return [use for name in names for use in reads_of(module, name, scope)]


def _means_the_same_early(module: Module, project: Project, node: cst.Lambda) -> bool:
    """Whether every name in the lambda means where it stands what it will mean when it is called, by position."""
    if isinstance(module.scopes.scope_of(node).node, cst.ClassDef):
        return False
    if any(passed_by_name(project, one.name.value) for one in _positional(node)):
        return False
    names = (one for one in walk(node.body) if isinstance(one, cst.Name) and is_variable(module, one))
    return all(_is_settled(module, project, node, one.value, one) for one in names)


def _is_settled(module: Module, project: Project, node: cst.Lambda, name: str, use: cst.Name) -> bool:
    """Whether a name of the module gets its value once, above; others are checked before."""
    owner = module.scopes.lookup(name, use)
    if owner is None or not isinstance(owner[0].node, cst.Module):
        return owner is not None or module.scopes.is_builtin(name)
    (place, *more) = owner[1]
    top = module.top_level_statement(place.node)
    once = not more and (top is place.node or isinstance(top, cst.SimpleStatementLine))
    return once and module.span(top)[1] <= module.span(node)[0] and not is_replaced(module, project, name)


def _forwarded(module: Module, project: Project, node: cst.Lambda) -> str | None:
    """``f`` for ``lambda a, b: f(a, b)``; of attributes only those of modules, and methods, that nothing replaces."""
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
    if "." not in path:
        return path
    owner, last = module.scopes.lookup(path.partition(".")[0], body.func), path.rpartition(".")[2]
    is_import = owner is not None and all(one.kind is Kind.IMPORT for one in owner[1])
    fixed = not is_assigned(project, last) and not is_quoted(project, last)
    return path if fixed and (is_import or _is_method(module, node, path)) else None


def _is_method(module: Module, node: cst.Lambda, path: str) -> bool:
    """Whether ``path`` is ``self.name`` for a method of the class around."""
    owner, (first, _, name) = module.enclosing_class(node), path.partition(".")
    body = owner.body.body if owner is not None else ()
    methods = [one for one in body if isinstance(one, cst.FunctionDef) and one.name.value == name]
    return first == "self" and len(methods) == 1 and not methods[0].decorators


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
