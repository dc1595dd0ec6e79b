"""CHP007: turn lambdas of datasets and loaders into functions that can be pickled."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from itertools import takewhile

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import variable_reads
from chirp_migrate.analysis.dataflow.rebinding import may_be_patched_elsewhere, new_name_may_clash
from chirp_migrate.analysis.dataflow.worker_escape import (
    WorkerUseFinder,
    may_send_functions_to_workers,
    may_send_lambdas,
)
from chirp_migrate.analysis.datasets.declared_class import may_be_declarable
from chirp_migrate.analysis.datasets.lambda_meaning import has_same_meaning_at_definition, replacement_for_lambda
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.analysis.objects.pickled import ReportedUnpicklableKind
from chirp_migrate.edits import movability
from chirp_migrate.edits import move_definition as move
from chirp_migrate.edits.function_names import function_names_for_lambda
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.edits.moved_function import Defined, MovedFunction
from chirp_migrate.edits.statements import start_of_comments_above
from chirp_migrate.rules.api import (
    Edit,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    find_function,
    function_parameters,
    is_name,
    resolve_node,
    runtime_import,
)
from chirp_migrate.rules.unpicklable import (
    creates_unpicklable,
    may_create_unpicklable,
    unpicklable_matches,
)

#: A comment with ``noqa``, which makes linters accept a lambda that is assigned to a name.
_LINTER_COMMENT = re.compile(r"#\s*noqa(:\s*E731)?")
#: A statement that assigns a lambda to a name.
_LAMBDA_ASSIGNMENT = re.compile(r"\w+\s*=\s*\(?\s*lambda\b")

#: Maps the parameters and body lines of a lambda to the function that replaces the lambda. Equal lambdas share a
#: function.
_SharedFunctions = dict[tuple[str, ...], Defined]


class PicklableFunction(Rule):
    """Rewrites a lambda that is passed to a loader, dataset or transform, only if all these conditions hold:

    - `place-independent`: the lambda contains no code whose result depends on its place. Examples of such code are
      calls of `super`, `dir`, `eval`, `exec`, `locals` and `vars`, the name `__class__`, and names that are private to
      the enclosing class, such as `__scale`. The enclosing function does not call `dir`, `eval`, `exec`, `locals` or
      `vars`. The module has no `__getattr__`. No name in the module contains characters that Python replaces by other
      characters (Unicode normalisation, NFKC).
    - `no-local-helper`: the lambda uses no local function, local class or other lambda, because such a helper would
      have to move first.
    - `bound-once`: each captured name (a variable of an enclosing function) gets its value on every path to the lambda.
      No code deletes the name, and no inner function binds the name again. No `except … as` binds the name. The name
      may get its value in a `with` block only if the context managers provably do not swallow exceptions. The name may
      get its value from a `:=` only if every path evaluates this `:=`.
    - `used-before-rebound`: each captured name keeps its value until the last use of the lambda. The variable of a
      comprehension does not keep its value, because each iteration binds the variable again. If a captured name is
      bound again, the code may use the lambda only as follows. The code may pass the lambda to the call that builds
      a loader. The code may iterate over the loader that holds the lambda, call `len` on this loader and return the
      loader. The code may assign the lambda and the loader to variables, if only later statements of the same block use
      these variables. The code may pass the lambda or the loader to a function of the project that uses its argument
      only in the ways that this condition permits. If a captured name is bound again, a generator in the lambda that
      reads the name must be the argument of a call that consumes the whole generator at once, as in `sum(x * scale for
      x in batch)`. An inner lambda that reads the name must be the argument of a call that runs the inner lambda at
      once, as in `sorted(batch, key=lambda x: x * scale)`.
    - `one-import`: each imported captured name is bound by exactly one import statement, and every path to the lambda
      runs this statement. In the imported module, exactly one statement assigns the name. This statement is not in a
      function, and the module does not call `globals()`. No file replaces the name in that module, or replaces a module
      in `sys.modules`.
    - `not-inspected`: no code uses an attribute of the lambda, or passes the lambda to `inspect`. The analysis traces
      the lambda through all variables, attributes, containers and parameters that may hold the lambda. No file of the
      project sets an attribute on the lambda, or passes the lambda on in a way that the analysis cannot trace. The
      replacement of the lambda is a function of the module, a `partial`, a method, or a class or function of
      `chirpid_patch`. All of these count as replacements that bind values, except a function of the module. If the
      replacement is not a `partial`, no file uses the lambda as a key or set element, or passes the lambda to `id` or
      `hash`. No file contains `isfunction`, `ismethod`, `isroutine`, `FunctionType` or `LambdaType`. No file reads the
      attributes `__name__`, `__qualname__`, `__code__`, `__defaults__` or `__closure__`, except from a class, as in
      `type(x).__name__`. No file checks whether an object is a `MethodType`. If the replacement binds values, no file
      reads the attributes `__doc__`, `__annotations__`, `__kwdefaults__`, `__globals__` or `__module__`, except from a
      class. If the replacement binds values, no file reads the class of the lambda (as `type(f)` does), except in
      `raise` statements. If the replacement is a `partial`, no file checks whether an object is a `partial`.
    - `not-copied`: the replacement binds no values (see `not-inspected`), or no file of the project copies objects
      deeply. Deep copies are calls of `deepcopy`, `asdict`, `astuple`, `AveragedModel` and `pickle.dumps`. A file that
      uses `BaseEstimator` (scikit-learn) or skorch also counts as a file with deep copies, because `clone` copies the
      arguments of an estimator deeply. Copies of `state_dict()` and `parameters()` do not count. In a project with deep
      copies, the rule still moves the lambda if all uses of the lambda are uses that `used-before-rebound` permits, and
      no code returns the lambda.
    - `partial-available`: if the replacement is a `partial`, the name `partial` has no other meaning than
      `functools.partial` at the place of the lambda.
    - `kept-signature`: some defaults must be computed at the old place of the lambda, such as `scale=factor` with a
      local variable `factor`. Then a `partial` binds the value, so the parameter must be keyword-only. The parameter
      may also be positional if the following three conditions hold. The code passes the function only to loader calls
      as `collate_fn` or `worker_init_fn`. No file reads the attributes `collate_fn` and `worker_init_fn` of loaders.
      The function has another parameter for the argument that the loader passes (the samples, or the number of the
      worker).
    - `not-a-method`: a lambda whose replacement binds values must not be a method, because Python passes the object as
      first argument to a method, but not to the replacement. So the lambda is not in the body of a class, and no code
      turns the lambda into a method of an object. No code assigns the lambda to an attribute of a class, or of an
      object that may be a class.
    - `class-not-inspected`: a lambda that uses `self` becomes a method of its class, so no code may inspect this class.
      Neither the class nor a base in the project has a decorator, or a keyword such as `metaclass=`. The modules of
      these classes contain no `__init_subclass__`, `vars`, `dir`, `globals`, `getmembers` or `__dict__`. The analysis
      finds the class that the name of each base refers to. No class of the project has a `__getattribute__`.
    - `method-not-shared`: if the lambda becomes a method, no file reads the method that contains the lambda from a
      class, as in `Class.method`. After such a read, the method could get any object as its `self`. A call such as
      `Base.method(self)` in a subclass is allowed.
    - `no-computed-names`: if the lambda becomes a method, no code sets an attribute of the class under a computed name,
      as in `setattr(self, name, value)`. Such an attribute could hide the method.

    A class or function of `chirpid_patch`, such as `Standardize`, replaces a lambda that does the same. For this
    replacement, each module-level name that the lambda reads must have exactly one assignment in the module, above the
    lambda. No call may pass the argument of the lambda by keyword. `Standardize` has the attributes `mean` and `std`,
    so no file may look up these attributes with `hasattr` or `getattr`.

    A lambda that only calls a function of the project, with constants and captured values, becomes a `partial` of that
    function. The lambda becomes no `partial` if other code may replace the function, or if a call passes a parameter of
    the lambda by keyword. A lambda that the module assigns to a name becomes a function with this name, unless the name
    may get another value. Any other lambda becomes a function whose name describes the work or the purpose of the
    lambda, such as `_add_noise` or `_collate_fn`.

    By default the rule moves a lambda only if a loader that holds the lambda may have workers that are not provably
    forked, or can read whole batches after the rewrite. If the rule finds no loader that holds the lambda, the rule
    moves the lambda only if code in the file of the lambda, or in a file that this file imports, may need workers. The
    code may need workers if it builds a loader that may have workers, or contains `num_workers` or `max_workers` with a
    value that is not 0 or None. Loaders in tests count only for code in tests.
    """

    code = "CHP007"
    name = "lambda-in-loader"
    reason = (
        "Worker processes look a function up by its name in a module. A lambda has no such name, so a dataset or "
        "loader that holds a lambda cannot be pickled. A module-level function can be pickled, and functools.partial "
        "binds the captured values. If a function of the runtime does the same for whole batches, this function "
        "replaces the lambda."
    )
    safety = Safety.SAFE
    stops_workers = True
    trigger = ("lambda",)

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the text names a loader, dataset or transform that may pass a lambda to worker processes."""
        return super().concerns(text, project) and (
            may_send_functions_to_workers(text, project)
            or may_create_unpicklable(text, project, ReportedUnpicklableKind.LAMBDA)
        )

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a lambda of the module may be pickled for workers."""
        return may_send_lambdas(outline, project) or creates_unpicklable(
            outline, project, ReportedUnpicklableKind.LAMBDA
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Turn lambdas that are passed to a loader, a dataset or a transform into functions."""
        destinations = module.once(WorkerUseFinder, project)
        # Do not use the names that CHP012 uses for the local functions that it moves.
        local = [
            (one.name.value.strip("_"), movability.enclosing_function_name(module, one))
            for one in module.find(cst.FunctionDef)
        ]
        taken = {name for title, outer in local for name in (f"_{title}", f"_{outer}_{title}")}
        shared_functions: _SharedFunctions = {}
        seen: list[cst.Lambda] = []
        for node in module.find(cst.Lambda):
            preferred_name = destinations.purpose_of(node)
            if preferred_name is not None:
                seen.append(node)
                try:
                    yield _replace_lambda(module, project, node, preferred_name, taken, shared_functions)
                except NotMovable as reason:
                    message = f"lambda cannot be pickled for workers; not rewritten: {reason}"
                    yield RuleMatch(module.span(node)[0], message)
        reported = [module.span(node)[0] for node in seen]
        for match in unpicklable_matches(module, project, ReportedUnpicklableKind.LAMBDA, reported):
            nodes = (node for node in module.find(cst.Lambda) if module.span(node)[0] == match.offset)
            found = (
                _convert_to_function(module, project, node)
                for node in nodes
                if _is_assigned_once(module, project, node)
            )
            yield next((one for one in found if one is not None), match)


def _replace_lambda(
    module: Module,
    project: Project,
    node: cst.Lambda,
    preferred_name: str,
    taken: set[str],
    shared_functions: _SharedFunctions,
) -> RuleMatch:
    """Return the finding for a lambda, with the edits that replace the lambda by a function.

    The function adds the name of the new function to ``taken``, so that no other function gets this name. The new
    function also goes into ``shared_functions``, so that equal lambdas share one function.
    """
    span, scope = module.span(node), module.scopes.scope_of(node)
    moved = MovedFunction(module, project, node, move.offset_for_new_function(module, node))
    moved.check()
    named = _assigned_names(module, node)
    runtime_object = replacement_for_lambda(module, project, node)
    reads = [use for name in named for use in variable_reads(module, name, scope)]
    moved.check_indistinguishable([node, *reads], replaced=runtime_object is not None)
    if runtime_object is None and _is_assigned_once(module, project, node):
        return _define_in_place(module, project, node)
    left_over = move.remove_repeated_imports(module, span, moved.imports)
    if runtime_object is not None:
        message = f"this lambda {runtime_object.does}; `{runtime_object.name}` does the same for whole batches"
        edits = move.merge_overlapping_removals(
            [move.replace_expression(module, node, runtime_object.source), *left_over]
        )
        gain = loader_gains(project).gain_of_object(module, span[0], reads_batches=True)
        return RuleMatch(span[0], message, edits, frozenset({runtime_import(runtime_object.name)}), gain=gain)
    bound = _find_called_function(module, project, node, moved)
    if bound is not None:
        moved.check_indistinguishable([node, *reads], by_partial=True)
        value, imports = moved.partial_of(*bound, around=_columns_of_other_code(module, project, span))
        message = f"lambda cannot be pickled for workers; replaced by a `partial` of `{bound[0]}`"
        edits = move.merge_overlapping_removals([move.replace_expression(module, node, value), *left_over])
        return RuleMatch(span[0], message, edits, imports, gain=loader_gains(project).gain_of_object(module, span[0]))
    moved.check_callers([node, *reads])
    if moved.is_changed and isinstance(scope.node, cst.ClassDef):
        raise NotMovable("Python binds a lambda in the body of a class as a method, but would not bind the replacement")
    preferred_names = function_names_for_lambda(module, node, preferred_name)
    name = moved.free_name(preferred_names, taken)
    inner = moved.indent + module.tree.default_indent
    parameters, *lines = parameters_and_lines = (
        moved.parameter_text(),
        *moved.import_lines,
        *_body_lines(module, node, inner),
    )
    shared = (
        None
        if moved.method
        else shared_functions.get(parameters_and_lines)
        or _find_equal_function(module, project, node, preferred_names, parameters_and_lines)
    )
    if shared is None:
        head = f"{moved.indent}def {name}({parameters}):"
        shared = name, moved.definition_edits(module.newline.join([head, *(inner + line for line in lines)]))
        if moved.method is None:
            shared_functions[parameters_and_lines] = shared
    name, place = shared
    value, imports = moved.value(name, _columns_of_other_code(module, project, span))
    taken.add(moved.expression_for(name))
    what = f"the {'method' if moved.method else 'function'} `{name}`"
    message = f"lambda cannot be pickled for workers; replaced by {what}"
    edits = move.merge_overlapping_removals([move.replace_expression(module, node, value), *place, *left_over])
    owner = module.enclosing_class(node)
    declares = owner is not None and may_be_declarable(module, project, owner)
    gain = loader_gains(project).gain_of_object(module, span[0], reads_batches=declares)
    return RuleMatch(span[0], message, edits, imports, gain=gain)


def _columns_of_other_code(module: Module, project: Project, span: tuple[int, int]) -> int:
    """Return how many characters of other code are on the lines of a span.

    Callers keep the new line short enough for this other code.

    The result is 0 if a line of the span is already longer than the project permits.
    """
    lines = module.text[module.line_start(span[0]) : module.line_end(span[1] - 1)].splitlines()
    if max(map(len, lines)) > project.code_style.longest_line(module.text):
        return 0
    beside = module.text[module.line_start(span[0]) : span[0]] + module.text[span[1] : module.line_end(span[1] - 1)]
    return len(beside.strip())


def _find_called_function(
    module: Module, project: Project, node: cst.Lambda, moved: MovedFunction
) -> tuple[str, list[str]] | None:
    """Return the name of the function that a lambda only calls, and the arguments that a ``partial`` must bind.

    The lambda must pass its parameters on in their order. All other arguments of the call must be constants or captured
    values. The result is None if other code may replace the function, or if a call may pass an argument of the lambda
    by keyword.
    """
    call, own = node.body, [one.name.value for one in node.params.params]
    is_plain = own == list(function_parameters(node)) and all(one.default is None for one in node.params.params)
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name) or not own or not is_plain:
        return None
    names = resolve_node(project, module, call.func)
    found = find_function(project, next(iter(names))) if len(names) == 1 else None
    if found is None or moved.method is not None or not has_same_meaning_at_definition(module, project, node):
        return None
    owner, function = found
    given = function.params
    if function.decorators or function.asynchronous or may_be_patched_elsewhere(owner, project, function.name.value):
        return None
    positional = [one.name.value for one in (*given.posonly_params, *given.params)]
    passed: list[str] = []
    values: list[tuple[str, cst.BaseExpression]] = []
    for position, argument in enumerate(call.args):
        keyword = argument.keyword.value if argument.keyword is not None else ""
        if is_name(argument.value, *own) and not keyword and not argument.star:
            passed.append(module.source(argument.value))
            continue
        if argument.star or not _is_bindable(argument.value, moved.captives):
            return None
        if passed and not keyword:  # `partial` must bind an argument after the lambda's own parameters by name
            if not len(given.posonly_params) <= position < len(positional):
                return None
            keyword = positional[position]
        values.append((keyword, argument.value))
    first = sum(not keyword for keyword, _ in values)
    filled = positional[first : first + len(own)]
    if passed != own or not values or len(filled) < len(own) or {*filled} & {keyword for keyword, _ in values}:
        return None
    texts = [f"{keyword}={module.source(value).strip()}".lstrip("=") for keyword, value in values]
    return call.func.value, texts


def _is_bindable(value: cst.BaseExpression, captives: Collection[str]) -> bool:
    """Return whether an expression is a constant, or one of the captured names in ``captives``."""
    constants = cst.Integer | cst.Float | cst.SimpleString
    return isinstance(value, constants) or is_name(value, "None", "True", "False", *captives)


def _is_assigned_once(module: Module, project: Project, node: cst.Lambda) -> bool:
    """Return whether a top-level statement assigns a lambda to a name, and no other code binds this name."""
    match module.parents[node]:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]) as statement:
            line = module.parents[statement]
            is_alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
            bindings = module.scopes.module.bindings.get(name, ())
            is_top = isinstance(module.parents.get(line), cst.Module) and not module.scopes.stars
            return is_alone and is_top and len(bindings) == 1 and not may_be_patched_elsewhere(module, project, name)
    return False


def _convert_to_function(module: Module, project: Project, node: cst.Lambda) -> RuleMatch | None:
    """Return the finding for ``name = lambda …`` at module level, with the edits that define a function ``name``.

    The result is ``None`` if other code may notice the difference between the lambda and the function.
    """
    moved = MovedFunction(module, project, node, move.offset_for_new_function(module, node))
    named = _assigned_names(module, node)
    reads = [use for name in named for use in variable_reads(module, name, module.scopes.module)]
    try:
        moved.check()
        moved.check_indistinguishable([node, *reads])
    except NotMovable:
        return None
    return _define_in_place(module, project, node)


def _define_in_place(module: Module, project: Project, node: cst.Lambda) -> RuleMatch:
    """Return the finding with the edits that rewrite ``name = lambda x: …`` as ``def name(x): …``.

    The edits also put two blank lines around the function.
    """
    statement = module.parents[node]
    (name,) = _assigned_names(module, node)
    start, end = module.span(statement)
    inner, newline = module.tree.default_indent, module.newline
    lines = [f"def {name}({module.source(node.params).strip()}):"]
    lines += [inner + line for line in _body_lines(module, node, inner)]
    rest = module.text[end : module.line_end(end - 1)]
    if _LINTER_COMMENT.fullmatch(rest.strip()):
        end += len(rest.rstrip())
    above = start_of_comments_above(module, module.line_start(start), "")
    edits = [Edit(start, end, newline.join(lines))]
    message = f"lambda `{name}` cannot be pickled for workers; replaced by the function `{name}`"
    gain = loader_gains(project).gain_of_object(module, module.span(node)[0])
    if module.path.endswith(".ipynb"):
        return RuleMatch(module.span(node)[0], message, tuple(edits), gain=gain)
    if above > 0:
        edits.insert(
            0,
            Edit(
                above, above, newline * max(0, 2 - _count_leading_blanks(reversed(_lines_in_range(module, 0, above))))
            ),
        )
    below = module.line_end(end - 1)
    following = next((line for line in _lines_in_range(module, below, len(module.text)) if line.strip()), "")
    if (
        following
        and not following.startswith(("def ", "class ", "async ", "@"))
        and not _LAMBDA_ASSIGNMENT.match(following)
    ):
        blank = _count_leading_blanks(_lines_in_range(module, below, len(module.text)))
        edits.append(Edit(below, below, newline * max(0, 2 - blank)))
    kept = tuple(one for one in edits if one.replacement)
    return RuleMatch(module.span(node)[0], message, kept, gain=gain)


def _lines_in_range(module: Module, start: int, end: int) -> list[str]:
    return module.text[start:end].splitlines()


def _count_leading_blanks(lines: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda line: not line.strip(), lines))


def _body_lines(module: Module, node: cst.Lambda, indent: str) -> list[str]:
    """Return the lines of the function's body: the comments in front of the lambda's body, and a ``return``."""
    comments = [line.strip() for line in module.tree.code_for_node(node.colon).splitlines()[:-1]]
    comments = [line.lstrip(": ") for line in comments if "#" in line]
    body = move.return_expression_source(module, node.body, indent)
    try:
        block = ast.parse(f"def f():\n{indent}return {body}").body[0]
        alone = isinstance(block, ast.FunctionDef) and len(block.body) == 1
    except SyntaxError:
        alone = False
    return [*comments, f"return {body}" if alone else f"return ({body})"]


def _find_equal_function(
    module: Module,
    project: Project,
    node: cst.Lambda,
    preferred_names: Collection[str],
    parameters_and_lines: tuple[str, ...],
) -> Defined | None:
    """Return the function that an earlier rewrite created for an equal lambda, above this lambda; else None.

    The result is the name of the function, and an edit that changes nothing. This edit marks that the new rewrite
    depends on the earlier rewrite. Only functions with a name in ``preferred_names`` are considered. The rule did not
    create functions with other names, and other code may patch such functions.
    """
    parameters, *lines = parameters_and_lines
    top = module.span(module.top_level_statement(node))[0]
    for one in module.tree.body:
        if not isinstance(one, cst.FunctionDef) or one.name.value not in preferred_names or module.span(one)[0] >= top:
            continue
        name, (start, end) = one.name.value, module.span(one)
        body = [module.tree.default_indent + line for line in lines]
        owner = module.scopes.lookup(name, node)
        is_meant = owner is not None and owner.scope is module.scopes.module and len(owner.bindings) == 1
        same = module.text[start:end].rstrip() == module.newline.join([f"def {name}({parameters}):", *body])
        if same and is_meant and not new_name_may_clash(module, project, name):
            return name, (Edit(start + 1, start + 1, ""),)
    return None


def _assigned_names(module: Module, node: cst.Lambda) -> set[str]:
    """Return the names of the variables and attributes to which a statement assigns a lambda."""
    parent = module.parents[node]
    targets = [one.target for one in parent.targets] if isinstance(parent, cst.Assign) else []
    last = [one.attr if isinstance(one, cst.Attribute) else one for one in targets]
    return {one.value for one in last if isinstance(one, cst.Name)}
