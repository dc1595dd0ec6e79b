"""CHP006: move dataset classes out of functions, so that worker processes find them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence, Set

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import variable_reads
from chirp_migrate.analysis.dataflow.constructions import constructor_calls
from chirp_migrate.analysis.dataflow.rebinding import new_name_may_clash
from chirp_migrate.analysis.dataflow.worker_escape import WorkerUseFinder
from chirp_migrate.analysis.datasets.declared_class import may_be_declarable
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.analysis.objects.pickled import ReportedUnpicklableKind
from chirp_migrate.edits import movability
from chirp_migrate.edits import move_definition as move
from chirp_migrate.edits.local_class import KEPT, LocalClass
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.edits.statements import delete_line_range
from chirp_migrate.rules.api import (
    DATASET,
    DATASET_WORDS,
    Edit,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    dataset_class_names,
    function_parameters,
    inherits_from,
    resolve_ast_node,
)
from chirp_migrate.rules.unpicklable import (
    creates_unpicklable,
    may_create_unpicklable,
    unpicklable_matches,
    words_in_unpicklable_code,
)

#: Code that reads ``__name__`` of an object, which may be a class.
_NAMES_OF_CLASSES = r"\.\s*__name__\b|[\"']__name__[\"'](?!\s*:)"


class LocalDatasetClass(Rule):
    """Moves a dataset class out of a function only if all these conditions hold:

    - `only-constructed`: the code outside of the class only calls the class, without ``*`` and ``**``. At each call,
      the class is provably defined. If the class captures values (uses variables of an enclosing function), the rewrite
      adds these values as arguments to each call. Three more conditions then apply. Each captured name must refer to
      the same variable at the call as in the class. The only argument must not be a generator without its own brackets,
      as in `Birds(x for x in data)`. If the class has no `__init__`, the calls must have no arguments.
    - `directly-in-function`: the definition of the class is directly in a function, not in the body of another class.
      The definition is not the only statement of its block, because the block would be empty after the move.
    - `no-decorator`: the class has no decorators and no keywords, such as `metaclass=`.
    - `plain-bases`: each base of the class is a name that is known at module level. Each base is a class of PyTorch or
      torchvision, or a class of the project that inherits from such a class. A base from the project has no decorator,
      no keyword such as `metaclass=` and no ``__init_subclass__``. Its methods have only decorators that store no
      state, such as `@property`. A base from the project defines no method that creates, copies, pickles or inspects
      its objects, such as ``__new__``, ``__deepcopy__``, ``__getstate__`` or ``__getattr__``. The methods of a base
      from the project do not use ``__dict__``, ``__qualname__``, ``vars`` or ``dir``. The class attributes of a base
      from the project are not objects of project classes, because such an object may be a descriptor. The methods of a
      base from the project use `type(self)` only to call this class or to read its attributes.
    - `plain-body`: the body of the class contains methods and constants. All decorators in the body are from Python or
      PyTorch, such as `@property`, and do not register the decorated function elsewhere. Decorators, bases, defaults
      and annotations have the same values at module level as in the function. After the import of the module, no code
      assigns a module-level name that these expressions use. If an expression uses an attribute, such as `data.Base`,
      no code assigns this attribute either.
    - `place-independent`: the class contains no code whose result depends on its place, such as ``eval``, ``vars``,
      ``nonlocal``, ``__dict__`` or ``__qualname__``. The enclosing function does not call ``dir``, ``eval``, ``exec``,
      ``locals`` or ``vars``. The module has no ``__getattr__``.
    - `no-class-state`: the methods of the class do not use ``__dict__``, ``__qualname__``, ``vars`` or ``dir``. These
      methods use `type(self)` only to call this class or to read its attributes, and use the name of the class only for
      ``super`` and to read attributes. No file of the project sets an attribute on the class of an object, as in
      `type(dataset).scale = 2`, or reads `type(dataset).__qualname__`. No file contains ``__subclasses__`` or
      ``__func__``. No file lists the classes of a module with ``getmembers``, or passes `type` to a function. If the
      class captures values, no file uses `type(dataset)` as a key or an argument. If the class captures values, no file
      compares `type(dataset)` with the class of another object, or creates an object with `type(dataset)(…)`. If the
      class captures values, its methods and bases do not create objects with ``type(self)`` or ``cls``.
    - `captured-in-methods`: the class reads captured names (variables of an enclosing function) only in the bodies of
      its methods. For example, the rewritten methods read the value of a captured name `scale` from
      `self._captured_scale`. So each method that reads a captured name has ``self`` as its first parameter, and has no
      decorator. These two conditions do not apply to ``__init__``, which gets the values as arguments, and do not apply
      to imported names.
    - `bound-once`: each captured name (a variable of an enclosing function) gets its value on every path to the class.
      No code deletes the name, and no inner function binds the name again. No ``except … as`` binds the name. The name
      may get its value in a `with` block only if the context managers provably do not swallow exceptions. The name may
      get its value from a `:=` only if every path evaluates this `:=`.
    - `used-before-rebound`: each captured name keeps its value until the last use of the class and its objects. The
      variable of a comprehension does not keep its value, because each iteration binds the variable again. If a
      captured name is bound again, the code may use an object of the class, and a loader with this object, only as
      follows. The code may pass the object to the call that builds a loader. The code may iterate over the object or
      the loader, call `len`, and return the object or the loader. The code may assign the object and the loader to
      variables, if only later statements of the same block use these variables. The code may pass the object or the
      loader to a function of the project that uses its argument only in the ways that this condition permits. If a
      captured name is bound again, the methods use `self` only to read attributes, to call methods, and in calls such
      as `len(self)`. The methods do not store, return or pass on `self` itself or a method of `self`. A generator or
      function in a method that reads the name must be the argument of a call that consumes the whole generator, or
      calls the function, at once, as in `sum(x * scale for x in batch)`. If a captured name is bound again, no base of
      the class belongs to the project.
    - `plain-values`: a captured value is no local function, class or lambda. The name of a captured value does not
      begin with two underscores. If the value is imported, only one import statement binds its name, and the name
      always has the same value (see `one-import` of CHP012).
    - `plain-constructor`: the ``__init__`` of a class that captures names has no ``**`` parameter, and no parameter or
      variable with the name of a captured value. The body of ``__init__`` is not on the line of its ``def``. If the
      class has no ``__init__``, its bases provably have no constructor either. A class that captures names defines no
      method that creates, copies, pickles or inspects its objects, such as ``__new__``, ``__deepcopy__``,
      ``__getstate__`` or ``__getattr__``.
    - `not-copied`: the objects of the class store no captured values, or no file of the project copies objects deeply.
      Deep copies are calls of `deepcopy`, `asdict`, `astuple`, `AveragedModel` and `pickle.dumps`. A file that uses
      `BaseEstimator` (scikit-learn) or skorch also counts as a file with deep copies, because `clone` copies the
      arguments of an estimator deeply. Copies of `state_dict()` and `parameters()` do not count. In a project with deep
      copies, the rule still moves the class if all uses of the class and its objects are uses that
      `used-before-rebound` permits, and no code returns the class or its objects.
    - `attributes-not-listed`: the module of a class that captures names contains no ``vars``, ``dir``, ``globals``,
      ``getmembers`` or ``__dict__``. No file lists the attributes of an object, as `vars(dataset)` does, because the
      list would contain the new attributes with the captured values. Files may list the attributes of `self`, of a
      class and of parsed arguments.
    - `class-name-unused`: no file reads `__qualname__` of the class of an object, as in `type(self).__qualname__`. If
      the class gets another name (see below), no file reads an attribute `__name__`.

    The rule does not move classes of samplers, because samplers stay in the main process.

    The class gets another name if its name is taken at module level, or if pytest would collect a class with this name.
    Objects of a class that captures values get attributes for these values.

    By default the rule moves a class only if a loader that contains an object of the class may have workers that are
    not provably forked, or can read whole batches after the move. If the rule finds no loader with such an object, the
    rule moves the class only if code in the file of the class, or in a file that this file imports, may need workers.
    The code may need workers if it builds a loader that may have workers, or contains `num_workers` or `max_workers`
    with a value that is not 0 or None. Loaders in tests count only for code in tests.
    """

    code = "CHP006"
    name = "local-dataset-class"
    reason = (
        "Worker processes look a class up by its name in a module. A class inside a function has no such name, so the "
        "objects of this class cannot be pickled. A class at module level has such a name. The values that the class "
        "captured become arguments of its constructor."
    )
    safety = Safety.SAFE
    stops_workers = True
    trigger = DATASET_WORDS
    beside = (re.compile(r"class\b(?<=[ \t\f]class)"),)

    def names(self, project: Project) -> Set[str]:
        """Return the names of dataset classes, and words that show which files may contain unpicklable local classes.

        Each file that creates an unpicklable object of a local class contains at least one of these words.
        """
        return dataset_class_names(project) | words_in_unpicklable_code(project, ReportedUnpicklableKind.CLASS)

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the text may contain a local class. A class from a call such as `type(...)` also counts."""
        return super().concerns(text, project) or may_create_unpicklable(text, project, ReportedUnpicklableKind.CLASS)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a local class may be a dataset class, or may have objects that are pickled for workers."""
        return creates_unpicklable(outline, project, ReportedUnpicklableKind.CLASS) or any(
            inherits_from(project, name, DATASET)
            for one in outline.find(ast.ClassDef)
            if any(isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef) for around in outline.ancestors(one))
            for base in one.bases
            for name in resolve_ast_node(project, outline, base)
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Move dataset classes from functions to module level, above the top-level code that contains the function."""
        destinations = module.once(WorkerUseFinder, project)
        taken: set[str] = set()
        seen: list[cst.ClassDef] = []
        for node in module.find(cst.ClassDef):
            if module.enclosing_function(node) is not None and destinations.purpose_of_class(node) is not None:
                seen.append(node)
                try:
                    edits = _edits_of_move(LocalClass(module, project, node), taken)
                except NotMovable as reason:
                    title = node.name.value
                    message = f"local class `{title}` cannot be pickled for workers; not rewritten: {reason}"
                    yield RuleMatch(module.span(node.name)[0], message)
                else:
                    message = f"local class `{node.name.value}` cannot be pickled for workers: moved to module level"
                    place = module.span(node.name)[0]
                    declares = may_be_declarable(module, project, node)
                    gain = loader_gains(project).gain_of_object(module, place, reads_batches=declares)
                    yield RuleMatch(place, message, edits, gain=gain)
        yield from unpicklable_matches(
            module, project, ReportedUnpicklableKind.CLASS, (module.span(one.name)[0] for one in seen)
        )


def _edits_of_move(local: LocalClass, taken: set[str]) -> tuple[Edit, ...]:
    """Return the edits that move a local class to module level.

    The function adds the new name of the class to ``taken``, so that no other class gets this name.
    """
    module, node, title = local.module, local.node, local.title
    local.check()
    calls = constructor_calls(module, node, title)
    if calls is None:
        raise NotMovable(
            "the rule needs code that only calls the class, after the definition of the class, and without `*` or "
            "`**` in the calls"
        )
    namesakes = [one for one in module.find(cst.ClassDef) if one.name.value == title and one is not node]
    is_free = not namesakes and movability.is_unused_outside_scope(module, local.project, title, local.scope)
    wish = f"_{title}" if title.startswith("Test") or module.scopes.stars else title
    unfree = {wish} if new_name_may_clash(module, local.project, wish) else set()
    name = title if is_free else move.first_unused_name(module, [wish], unfree.union(taken))
    if name != title and local.project.search(_NAMES_OF_CLASSES, "__name__"):
        raise NotMovable(
            f"at module level, the class would need another name than `{title}`, and the project reads names of "
            "classes (`__name__`)"
        )
    taken.add(name)
    start, end = move.definition_range(module, node)
    reads = variable_reads(module, title, local.scope) if name != title else []
    own = [read for read in reads if start <= module.span(read)[0] < end]
    inside = [
        *(Edit(*module.span(one), name) for one in (node.name, *own)),
        *_store_arguments(local),
        *_repeat_imports(local),
    ]
    text = move.reindent_source(module, local.project, (start, end), "", inside)
    edits = [
        delete_line_range(module, start, end),
        *move.insert_definition(module, move.top_level_statement_offset(module, node), text),
    ]
    edits += move.remove_repeated_imports(module, (start, end), local.imports)
    for call in calls:
        edits += _edits_of_construction(local, call, name)
    return move.merge_overlapping_removals(edits)


def _edits_of_construction(local: LocalClass, call: cst.Call, name: str) -> Iterator[Edit]:
    """Yield the edits of a constructor call: the new name of the class, and the captured values as arguments."""
    module = local.module
    if name != local.title:
        yield Edit(*module.span(call.func), name)
    for one in local.values:
        owner = module.scopes.lookup(one.name, call)
        if owner is None or owner.scope is not one.scope:
            raise NotMovable(f"a constructor call cannot read the variable `{one.name}` that the class captures")
    if local.values:
        last = call.args[-1] if call.args else None
        if last is not None and isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
            raise NotMovable("a constructor call passes a generator expression without parentheses")
        if last is not None and local.init is None:
            raise NotMovable(
                "code passes arguments to the inherited `__init__`, which the new `__init__` of the class would not "
                "accept"
            )
        end = module.span(call)[1] - 1
        lead = ", " if last is not None and not isinstance(last.comma, cst.Comma) else ""
        yield Edit(end, end, lead + ", ".join(f"{value.name}={value.name}" for value in local.values))


def _store_arguments(local: LocalClass) -> Iterator[Edit]:
    """Yield edits that store captured values on ``self`` in the constructor, and read these values in the methods."""
    module, init, names = local.module, local.init, [value.name for value in local.values]
    for one in local.values:
        for read in one.reads:
            if local.method_of(read) is not init:
                yield Edit(*module.span(read), f"self.{KEPT}{one.name}")
    if not names:
        return
    keeping = [f"self.{KEPT}{name} = {name}" for name in names]
    if init is not None:
        yield _keyword_parameters(module, init, names)
        yield from move.insert_lines_after_docstring(module, init, local.indent_of(init), keeping)
        return
    first, step = move.definition_range(module, local.methods[0])[0], local.indent_of(local.methods[0])
    inner = step + module.tree.default_indent
    lines = [f"{step}def __init__(self, *, {', '.join(names)}):", *(inner + line for line in keeping), ""]
    yield Edit(first, first, "".join(line + module.newline for line in lines))


def _keyword_parameters(module: Module, function: cst.FunctionDef, names: Sequence[str]) -> Edit:
    """Return the edit that adds keyword-only parameters after the existing parameters."""
    own = function.params
    if own.star_kwarg is not None:
        raise NotMovable(
            "`__init__` has a `**` parameter, which may already receive arguments with the names of the captured values"
        )
    pieces = (*own.posonly_params, own.posonly_ind, *own.params, own.star_arg, *own.kwonly_params)
    end = module.span(own)[0]
    for piece in pieces:
        if isinstance(piece, cst.ParamSlash):
            end = module.span(piece)[0] + 1
        elif isinstance(piece, cst.Param):
            annotation = piece.annotation.annotation if piece.annotation is not None else None
            end = move.span_with_parentheses(module, piece.default or annotation or piece.name)[1]
    takes_more = own.kwonly_params or isinstance(own.star_arg, cst.Param)
    words = ", ".join(names if takes_more else ["*", *names])
    return Edit(end, end, f", {words}" if function_parameters(function) else words)


def _repeat_imports(local: LocalClass) -> Iterator[Edit]:
    """Yield edits that add the imports of the enclosing function to the methods that use the imported names."""
    for method in local.methods:
        used = [one for one in local.imports if any(local.method_of(read) is method for read in one.reads)]
        lines = move.import_lines(local.module, used)
        yield from move.insert_lines_after_docstring(local.module, method, local.indent_of(method), lines)
