"""CHP012: move local functions that datasets and loaders use to module level, where workers can import them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from textwrap import dedent

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import captured_names, variable_reads
from chirp_migrate.analysis.dataflow.worker_escape import (
    DESTINATION_WORDS,
    WorkerUseFinder,
    may_send_functions_to_workers,
    may_send_local_functions,
)
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.analysis.objects.pickled import ReportedUnpicklableKind
from chirp_migrate.edits import movability
from chirp_migrate.edits import move_definition as move
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.edits.moved_function import Defined, MovedFunction
from chirp_migrate.edits.statements import delete_line_range
from chirp_migrate.rules.api import (
    DATASET_WORDS,
    Edit,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dataset_class_names,
)
from chirp_migrate.rules.unpicklable import (
    creates_unpicklable,
    may_create_unpicklable,
    unpicklable_matches,
    words_in_unpicklable_code,
)

#: Decorators that have the same effect at every place in a module. Workers can still find a function with such a
#: decorator by its name.
_HARMLESS = frozenset({"torch.no_grad", "torch.inference_mode", "torch.enable_grad"})

#: Maps the text of a local function to the moved function. Equal local functions share a moved function.
_SharedFunctions = dict[str, Defined]


class LocalFunction(Rule):
    """Rewrites a local function that is passed to a loader, dataset or transform, only if all these conditions hold:

    - `place-independent`: the function contains no code whose result depends on its place. Examples of such code are
      calls of `super`, `dir`, `eval`, `exec`, `locals` and `vars`, the name `__class__`, and names that are private to
      the enclosing class, such as `__scale`. Another example is a `nonlocal` statement for a variable of an enclosing
      function. The enclosing function does not call `dir`, `eval`, `exec`, `locals` or `vars`. The module has no
      `__getattr__`. No name in the module contains characters that Python replaces by other characters (Unicode
      normalisation, NFKC). A function that captures values is not stored in an attribute of a class, because Python
      would bind this function as a method, but would not bind its replacement.
    - `plain-definition`: the function has no decorator except `torch.no_grad`, `torch.enable_grad` and
      `torch.inference_mode`. The function has no type parameters, and no code deletes its name.
    - `no-local-helper`: the function uses no other local function, local class or lambda, because such a helper would
      have to move first.
    - `bound-once`: each captured name (a variable of an enclosing function) gets its value on every path to the
      function. No code deletes the name, and no inner function binds the name again. No `except … as` binds the name.
      The name may get its value in a `with` block only if the context managers provably do not swallow exceptions. The
      name may get its value from a `:=` only if every path evaluates this `:=`.
    - `used-before-rebound`: each captured name keeps its value until the last use of the function. The variable of a
      comprehension does not keep its value, because each iteration binds the variable again. If a captured name is
      bound again, the code may use the function only in a few ways. The code may pass the function to the call that
      builds a loader. The code may iterate over the loader that holds the function, call `len` on this loader and
      return the loader. The code may assign the function and the loader to variables, if only later statements of the
      same block use these variables. The code may pass the function or the loader to a function of the project that
      uses its argument only in the ways that this condition permits. If a captured name is bound again, a generator in
      the function that reads the name must be the argument of a call that consumes the whole generator at once, as in
      `sum(x * scale for x in batch)`. A lambda that reads the name must be the argument of a call that runs the lambda
      at once, as in `sorted(batch, key=lambda x: x * scale)`. If a captured name is bound again, the function is
      neither `async` nor a generator, and contains no `def` that reads the name.
    - `one-import`: each imported captured name is bound by exactly one import statement, and every path to the function
      runs this statement. In the imported module, exactly one statement assigns the name. This statement is not in a
      function, and the module does not call `globals()`. No file replaces the name in that module, or replaces a module
      in `sys.modules`.
    - `not-inspected`: no code uses an attribute of the function, or passes the function to `inspect`. The analysis
      traces the function through all variables, attributes, containers and parameters that may hold the function. No
      file of the project sets an attribute on the function, or passes the function on in a way that the analysis cannot
      trace. The replacement of the function is a module-level function, a `partial` or a method. A `partial` and a
      method bind values. If the replacement is not a `partial`, no file uses the function as a key or set element, or
      passes the function to `id` or `hash`. No file contains `isfunction`, `ismethod`, `isroutine`, `FunctionType` or
      `LambdaType`. No file reads the attributes `__name__`, `__qualname__`, `__code__`, `__defaults__` or
      `__closure__`, except from a class, as in `type(x).__name__`. No file checks whether an object is a `MethodType`.
      If the replacement binds values, no file reads the attributes `__doc__`, `__annotations__`, `__kwdefaults__`,
      `__globals__` or `__module__`, except from a class. If the replacement binds values, no file turns the function
      into a method. Also, no file reads the class of the function (as `type(f)` does), except in `raise` statements. If
      the replacement is a `partial`, no file checks whether an object is a `partial`.
    - `not-copied`: the replacement binds no values (see `not-inspected`), or no file of the project copies objects
      deeply. Deep copies are calls of `deepcopy`, `asdict`, `astuple`, `AveragedModel` and `pickle.dumps`. A file that
      uses `BaseEstimator` (scikit-learn) or skorch also counts as a file with deep copies, because `clone` copies the
      arguments of an estimator deeply. Copies of `state_dict()` and `parameters()` do not count. In a project with deep
      copies, the rule still moves the function if all uses of the function are uses that `used-before-rebound` permits,
      and no code returns the function.
    - `partial-available`: if the replacement is a `partial`, the name `partial` has no other meaning than
      `functools.partial` at the place of the function. A function that calls itself cannot become a `partial` or a
      method, because the moved function cannot read the local name.
    - `kept-signature`: some defaults must be computed at the old place of the function, such as `scale=factor` with a
      local variable `factor`. Then a `partial` binds the value, so the parameter must be keyword-only. The parameter
      may also be positional if the following three conditions hold. The code passes the function only to loader calls
      as `collate_fn` or `worker_init_fn`. No file reads the attributes `collate_fn` and `worker_init_fn` of loaders.
      The function has another parameter for the argument that the loader passes (the samples, or the number of the
      worker).
    - `class-not-inspected`: a function that uses `self` becomes a method of its class, so no code may inspect this
      class. Neither the class nor a base in the project has a decorator, or a keyword such as `metaclass=`. The modules
      of these classes contain no `__init_subclass__`, `vars`, `dir`, `globals`, `getmembers` or `__dict__`. The
      analysis finds the class that the name of each base refers to. No class of the project has a `__getattribute__`.
    - `method-not-shared`: if the function becomes a method, no file reads the method that contains the function from a
      class, as in `Class.method`. After such a read, the method could get any object as its `self`. A call such as
      `Base.method(self)` in a subclass is allowed.
    - `no-computed-names`: if the function becomes a method, no code sets an attribute of the class under a computed
      name, as in `setattr(self, name, value)`. Such an attribute could hide the method.
    - `known-annotations`: Python evaluates the annotations of the function at its new place. So the annotations call no
      function, and the module defines every name in the annotations above the new place. These conditions do not apply
      to a module with `from __future__ import annotations`.

    By default the rule moves a function only if a loader that holds the function may have workers that are not provably
    forked. If the rule finds no loader that holds the function, the rule moves the function only if the file or an
    imported file contains a loader with workers, or sets a number of workers. Loaders in tests count only for code in
    tests.
    """

    code = "CHP012"
    name = "local-function"
    reason = (
        "Worker processes look a function up by its name in a module. A local function has no such name, so a "
        "loader or dataset with a local function cannot be pickled. A module-level function can be pickled, and "
        "functools.partial binds the captured values."
    )
    safety = Safety.SAFE
    stops_workers = True
    trigger = (*DESTINATION_WORDS, *DATASET_WORDS)
    beside = (re.compile(r"def\b(?<=[ \t\f]def)|async\s*\\"),)

    def names(self, project: Project) -> Set[str]:
        """Return the names of dataset classes, and words that show which files may contain unpicklable local functions.

        Each file that creates an unpicklable local function contains at least one of these words.
        """
        return dataset_class_names(project) | words_in_unpicklable_code(project, ReportedUnpicklableKind.FUNCTION)

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the text names a loader, dataset or transform that may pass a function to workers."""
        return super().concerns(text, project) and (
            may_send_functions_to_workers(text, project)
            or may_create_unpicklable(text, project, ReportedUnpicklableKind.FUNCTION)
        )

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a local function of the module may be pickled for workers."""
        return may_send_local_functions(outline, project) or creates_unpicklable(
            outline, project, ReportedUnpicklableKind.FUNCTION
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Move local functions that are passed to a loader, a dataset or a transform."""
        destinations = module.once(WorkerUseFinder, project)
        taken: set[str] = set()
        shared_functions: _SharedFunctions = {}
        seen: list[cst.FunctionDef] = []
        for node in module.find(cst.FunctionDef):
            purpose = destinations.purpose_of_function(node) if _is_local(module, node) else None
            if purpose is not None:
                seen.append(node)
                try:
                    yield _move_function(module, project, node, purpose, taken, shared_functions)
                except NotMovable as reason:
                    found = f"local function `{node.name.value}` cannot be pickled for workers"
                    yield RuleMatch(module.span(node.name)[0], f"{found}; not rewritten: {reason}")
        yield from unpicklable_matches(
            module, project, ReportedUnpicklableKind.FUNCTION, (module.span(one.name)[0] for one in seen)
        )


def _is_local(module: Module, node: cst.FunctionDef) -> bool:
    scope = module.scopes.scope_of(node)
    return isinstance(scope.node, cst.FunctionDef) and scope.elsewhere.get(node.name.value) is not cst.Global


def _text_of_definition(module: Module, node: cst.FunctionDef) -> str:
    """Return the text of a definition without its indentation, so that equal functions have equal texts."""
    start, end = move.definition_range(module, node)
    return dedent(module.text[start:end])


def _move_function(
    module: Module,
    project: Project,
    node: cst.FunctionDef,
    purpose: str,
    taken: set[str],
    shared_functions: _SharedFunctions,
) -> RuleMatch:
    """Return the finding with the edits that move the function.

    The function adds the new name to ``taken``, so that no other function gets this name. The name, and the edits that
    define the moved function, also go into ``shared_functions``, so that equal functions share one definition.

    Raises:
        NotMovable: the function cannot be moved; the message gives the reason.
    """
    title = node.name.value
    moved = MovedFunction(module, project, node, move.top_level_statement_offset(module, node))
    uses = variable_reads(module, title, module.scopes.scope_of(node))
    _check_definition(moved, node, uses)
    moved.check()
    movability.check_annotations(module, node, moved.place)
    moved.check_callers(uses)
    moved.check_indistinguishable(uses)
    removes_local = _is_only_definition(module, node, uses) and not moved.is_changed
    if moved.is_recursive and not removes_local:
        raise NotMovable("the function calls itself by its local name, and would not find this name from module level")
    defaults = [module.source(one) for one in moved.bound]
    # Equal functions share a moved function only if both keep, or both lose, their local name.
    key = "\n".join(
        [str(removes_local), _text_of_definition(module, node), *defaults, *moved.captives, *moved.import_lines]
    )
    shared = shared_functions.get(key) if moved.method is None and not moved.is_recursive else None
    name = _choose_name(moved, node, removes_local, taken) if shared is None else shared[0]
    start, end = move.definition_range(module, node)
    renamed = [Edit(*module.span(use), name) for use in uses if removes_local and name != title]
    inside = [
        Edit(*module.span(node.name), name),
        *moved.parameters(),
        *move.insert_lines_after_docstring(module, node, moved.indent, moved.import_lines),
        *(edit for edit in renamed if start <= edit.start < end),
    ]
    text = move.reindent_source(module, project, (start, end), moved.indent, inside)
    place = moved.definition_edits(text) if shared is None else shared[1]
    if moved.method is None:
        shared_functions[key] = name, place
    value, imports = moved.value(name, len(f"{title} = "))
    outer_indentation = module.indentation(module.span(node)[0])
    assignment_in_place = Edit(start, end, f"{outer_indentation}{title} = {value}{module.newline}")
    edits = [edit for edit in renamed if not start <= edit.start < end]
    edits += [*place, *move.remove_repeated_imports(module, (start, end), moved.imports)]
    edits.append(delete_line_range(module, start, end) if removes_local else assignment_in_place)
    taken.add(moved.expression_for(name))
    what = f"the method `{name}`" if moved.method else f"the module-level function `{name}`"
    message = f"local function `{title}` cannot be pickled for workers; replaced by {what}"
    place_of_name = module.span(node.name)[0]
    gain = loader_gains(project).gain_of_object(module, place_of_name)
    return RuleMatch(place_of_name, message, move.merge_overlapping_removals(edits), imports, gain=gain)


def _check_definition(moved: MovedFunction, node: cst.FunctionDef, uses: Iterable[cst.Name]) -> None:
    module = moved.module
    for one in node.decorators:
        call = one.decorator if isinstance(one.decorator, cst.Call) else cst.Call(one.decorator)
        names = module.qualified_names(call.func)
        same = all(movability.has_same_value_at(module, moved.project, given.value, moved.place) for given in call.args)
        if not names or not names <= _HARMLESS or captured_names(module, one) or not same:
            raise NotMovable("the function has a decorator")
    if node.type_parameters is not None:
        raise NotMovable("the function has type parameters")
    if any(isinstance(module.parents[use], cst.Del) for use in uses):
        raise NotMovable("the code deletes the name of the function")


def _is_only_definition(module: Module, node: cst.FunctionDef, uses: Iterable[cst.Name]) -> bool:
    """Return whether ``node`` is the only definition of its name in its function, and is above every use of the name.

    The result is False if ``node`` is in an inner block, such as an ``if``.
    """
    scope, start = module.scopes.scope_of(node), module.span(node)[0]
    is_only = len(scope.bindings[node.name.value]) == 1 and module.parents[module.parents[node]] is scope.node
    return is_only and all(module.span(use)[0] > start for use in uses)


def _choose_name(moved: MovedFunction, node: cst.FunctionDef, removes_local: bool, taken: set[str]) -> str:
    module, title = moved.module, node.name.value
    text = _text_of_definition(module, node)
    same = (function for function in module.find(cst.FunctionDef) if function.name.value == title)
    namesakes = [one for one in same if _text_of_definition(module, one) != text]
    is_free = removes_local and title not in taken and not namesakes
    if is_free and movability.is_unused_outside_scope(module, moved.project, title, module.scopes.scope_of(node)):
        return title
    bare = title.strip("_")
    preferred_names = [f"_{bare}"] if not any(_is_local(module, namesake) for namesake in namesakes) else []
    return moved.free_name([*preferred_names, f"_{movability.enclosing_function_name(module, node)}_{bare}"], taken)
