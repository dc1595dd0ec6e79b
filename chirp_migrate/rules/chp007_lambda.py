"""CHP007: lambdas that datasets and loaders hold become functions that can be pickled (R-000-1.3)."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import captures, reads_of
from chirp_migrate.analysis.dataflow.onlookers import is_replaced
from chirp_migrate.analysis.dataflow.worker_escape import Destinations, lambdas_may_go, may_have_destinations
from chirp_migrate.analysis.datasets.lambda_meaning import Forwarded, Shipped, instead_of
from chirp_migrate.edits import movability, signatures
from chirp_migrate.edits import move_definition as move
from chirp_migrate.edits.lambda_text import lambda_parameters, returned_lines
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.rules.api import Edit, Module, Outline, Project, Proposal, Rule, Safety, runtime


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

    code = "CHP007"
    name = "lambda-in-loader"
    reason = (
        "A lambda has no name that a worker process could look up, so a dataset or loader that holds one cannot be "
        "pickled. A module-level function can; what the lambda closed over is bound with functools.partial. What is "
        "shipped for whole batches takes the place of a lambda that does the same."
    )
    safety = Safety.SAFE
    trigger = ("lambda",)

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with lambdas, and with words for what may hold them."""
        return super().concerns(text, project) and may_have_destinations(text)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a lambda may go anywhere."""
        return lambdas_may_go(outline, project)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Lift lambdas that reach a loader, a dataset or a transform."""
        destinations = module.once(Destinations, project)
        # The names that local functions take when they move (CHP012).
        local = [
            (one.name.value.strip("_"), movability.outer_name(module, one)) for one in module.find(cst.FunctionDef)
        ]
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
    movability.check_body(module, node)
    imports_again = move.import_lines(module, imported)
    movability.check_values(module, node, captured.values())
    offset = move.function_offset(module, node)
    bound = signatures.bound_defaults(module, node.params, offset)
    named = _named(module, node)
    instead = instead_of(module, project, node)
    scope = module.scopes.scope_of(node)
    reads = [use for name in named for use in reads_of(module, name, scope)]
    movability.check_onlookers(module, project, reads, holds=bool(values or bound or instead))
    match instead:
        case Forwarded(function):
            return Proposal(
                span[0], f"a lambda that only calls `{function}`: passed directly", (Edit(*span, function),)
            )
        case Shipped(source, shipped, does):
            message = f"a lambda that {does}: {shipped} does it for whole batches"
            edits = [Edit(*span, source), *move.left_over_imports(module, span, imported)]
            return Proposal(span[0], message, move.joined(edits), frozenset({runtime(shipped)}))
    own = captured.get("self")
    method = movability.owning_method(module, own) if own is not None else None
    positional = [*node.params.posonly_params, *node.params.params]
    if any(one in bound for one in positional):
        movability.check_calls(module, project, {wish.strip("_"), *named}, len(positional) - len(bound))
    keywords = [one.name for one in values if method is None or one is not own]
    if (keywords or bound or method) and isinstance(scope.node, cst.ClassDef):
        raise NotMovable("in the body of a class it is a method, and a `partial` would not be")
    wishes = [wish, f"_{movability.outer_name(module, node)}{wish}".replace("__", "_")]
    name = (
        movability.method_name(module, project, method, wishes, taken)
        if method
        else move.free_name(module, wishes, taken)
    )
    style, given = project.code_style, signatures.bindings_of(module, bound, keywords)
    line = module.text[module.line_start(span[0]) : span[0]] + module.text[span[1] : module.line_end(span[1] - 1)]
    around = len(line.strip())
    value, imports = signatures.partial_call(module, style, node, f"self.{name}" if method else name, given, around)

    parameters = lambda_parameters(module, node, bound, keywords, "self" if method else "")
    indent = module.indentation(module.span(method)[0]) if method is not None else ""
    inner = indent + module.tree.default_indent
    lines = [*imports_again, *returned_lines(module, node, inner)]
    said = (parameters, *lines)
    shared = None if method else made.get(said) or _existing(module, project, node, said)
    if shared is not None:
        name, place = shared
        value, imports = signatures.partial_call(module, style, node, name, given, around)
    else:
        head = f"{indent}def {name}({parameters}):"
        definition = module.newline.join([head, *(inner + line for line in lines)])
        place = (
            (move.insert_behind(module, method, definition),) if method else move.insert_at(module, offset, definition)
        )
        if method is None:
            made[said] = name, place
    taken.add(f"self.{name}" if method else name)
    what = f"the {'method' if method else 'function'} `{name}`"
    message = f"lambda cannot be pickled for workers: now {what}"
    edits = [Edit(*span, value), *place, *move.left_over_imports(module, span, imported)]
    return Proposal(span[0], message, move.joined(edits), imports)


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


def _named(module: Module, node: cst.Lambda) -> set[str]:
    """Names and attributes that a lambda is assigned to."""
    parent = module.parents[node]
    targets = [one.target for one in parent.targets] if isinstance(parent, cst.Assign) else []
    last = [one.attr if isinstance(one, cst.Attribute) else one for one in targets]
    return {one.value for one in last if isinstance(one, cst.Name)}
