"""Find the place in a text after which no code uses an object.

The analysis traces only a few kinds of uses of an object. Code may pass the object to a loader call, iterate over it,
call ``len`` on it, or store it in a local variable for the following statements of the same block. Code may also pass
the object to a function of the project that uses the object only in these ways. Uses of a PyTorch loader or dataset
that contains the object count as uses of the object. Any other use may keep the object for an unknown time, and ends
the analysis with :class:`UntraceableLifetime`.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

import libcst as cst

from chirp_migrate.analysis.dataflow.closures import variable_reads
from chirp_migrate.analysis.dataflow.rebinding import may_be_patched_elsewhere
from chirp_migrate.analysis.dataflow.value_flow import (
    AttributeRead,
    CallArgument,
    CalledValue,
    ConditionalOperand,
    IteratedValue,
    ReturnValue,
    ValueAssignment,
    next_use_of_value,
)
from chirp_migrate.analysis.known_names import (
    DATASET,
    FACTORY_METHOD,
    LOADER,
    PLAIN_DECORATOR,
    PROGRESS,
    is_call_of,
    join_name_patterns,
    resolves_to,
)
from chirp_migrate.syntax.module import Module, UnparsableModule, syntax_tree, walk_tree
from chirp_migrate.syntax.name_resolution import find_function, resolve_node
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import contains_node, find_nodes_in_scope, one_line_source
from chirp_migrate.syntax.scopes import Scope

#: Calls whose result refers to the arguments of the call. Such a call stores the arguments in no other object.
_HOLDERS = join_name_patterns(
    *(LOADER, FACTORY_METHOD, DATASET, PROGRESS),
    r"builtins\.(enumerate|filter|iter|map|reversed|zip)|itertools\.(chain|islice)",
)
#: Calls that do not store their first argument, and whose result does not refer to the argument.
_CONSUMERS = re.compile(r"builtins\.(all|any|isinstance|len|list|next|set|sorted|sum|tuple)")
#: Attributes of a loader that refer to the dataset. A sampler of PyTorch refers to its dataset, too.
_HOLDING = frozenset({"dataset", "sampler", "batch_sampler"})
#: Attributes of a loader that are numbers.
_NUMBERS = frozenset({"batch_size", "drop_last", "num_workers"})
#: Methods of samplers and progress bars whose result does not refer to the sampler or progress bar.
_SETTERS = frozenset({"set_epoch", "set_description", "set_description_str", "set_postfix", "set_postfix_str"})
#: Functions, classes and methods that copy an object together with all objects in it.
_COPYING = frozenset({"deepcopy", "asdict", "astuple", "AveragedModel", "__deepcopy__"})
#: Modules whose function ``dumps`` copies an object together with all objects in it.
_PICKLING = frozenset({"pickle", "cloudpickle", "dill"})
#: Words in code with estimators of scikit-learn. A clone of an estimator has deep copies of the estimator's parameters.
_CLONED = ("BaseEstimator", "skorch")
_COPY_WORDS = (*sorted(_COPYING), "dumps", *_CLONED)
_COPIES = re.compile("|".join(_COPY_WORDS))
#: Methods of a model whose result cannot refer to a loader.
_TENSORS_ONLY = frozenset({"state_dict", "parameters", "named_parameters"})
_LAZY = cst.GeneratorExp
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
#: Largest depth of calls, from one function of the project to another, that the analysis follows.
_CALLS_LIMIT = 4
#: Largest number of characters of code in a message.
_LONGEST_CODE = 60


class UntraceableLifetime(Exception):
    """Raised if code may keep an object for longer than the analysis can trace. The message shows the code."""


def offset_after_last_use(module: Module, project: Project, creation: cst.CSTNode) -> int:
    """Return the offset in the text after which no code uses an object.

    If the code at ``creation`` runs again, the code creates another object. The uses of the other object do not count.

    Args:
        module: the module.
        project: the project that contains the module.
        creation: the expression that creates the object, or the definition of a function or class. For a class, uses of
            its objects count as uses of the class.

    Raises:
        UntraceableLifetime: code may keep the object for an unknown time.
    """
    return _UseAnalysis(module, project).last_use_of_made(creation)


def may_be_deep_copied(module: Module, project: Project, creation: cst.CSTNode) -> bool:
    """Return whether code may make a deep copy of an object, or of a loader that contains the object.

    The code ``creation`` creates the object.

    The result is False if no code makes deep copies. If code makes deep copies, the result is True in two cases: a
    function returns the object, or the uses of the object cannot be traced (see :func:`offset_after_last_use`).
    """
    if not any(_copies_deeply(text) for _, text in project.matching(_COPIES, *_COPY_WORDS)):
        return False
    try:
        _UseAnalysis(module, project, may_return=False, in_order=False).last_use_of_made(creation)
    except UntraceableLifetime:
        return True
    return False


@lru_cache(maxsize=1024)
def _copies_deeply(text: str) -> bool:
    """Return whether code may make deep copies of objects.

    A copy of a model's state does not count, as in ``deepcopy(model.state_dict())``.
    """
    try:
        tree = syntax_tree(text)
    except UnparsableModule:
        return True
    harmless: set[ast.AST] = set()
    for node in walk_tree(tree):
        match node:
            case ast.Call(func=called, args=[ast.Call(func=ast.Attribute(attr=given))]) if given in _TENSORS_ONLY:
                harmless.add(called)
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _COPYING and node not in harmless:
                return True
            case ast.Attribute(value=ast.Name(id=module), attr="dumps") if module in _PICKLING:
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name.split(".")[0] in _CLONED:
                return True
            case ast.ImportFrom(module=module, names=names):
                if (module or "").startswith("skorch") or any(
                    (one.name in _COPYING and one.asname) or (module in _PICKLING and one.name == "dumps")
                    for one in names
                ):
                    return True
            case ast.FunctionDef(name=name) | ast.Constant(value=str(name)) if name in _COPYING:
                return True
    return False


class _UseAnalysis:
    """Trace the uses of values in one module.

    Args:
        module: the module.
        project: the project that contains the module.
        may_return: whether the function around the object may return the object. False means that a ``return`` of the
            object ends the analysis with :class:`UntraceableLifetime`.
        in_order: whether each use must be in a later statement than the creation of the object. False permits uses
            anywhere in the function. For example, a parameter has its value from the start of the function.
        of_function: whether the object is a function. A function has no attributes such as ``sampler``. So code that
            reads such an attribute reads it from a loader that contains the function, and the analysis can continue.
        depth: number of nested calls that the analysis has followed. If ``f`` passes the object to ``g``, the depth is
            0 in ``f`` and 1 in ``g``.
    """

    def __init__(
        self,
        module: Module,
        project: Project,
        *,
        may_return: bool = True,
        in_order: bool = True,
        of_function: bool = False,
        depth: int = 0,
    ) -> None:
        self._module, self._project, self._may_return = module, project, may_return
        self._in_order, self._of_function, self._depth = in_order, of_function, depth
        self._traced: set[tuple[str, cst.CSTNode]] = set()

    def last_use_of_made(self, made: cst.CSTNode) -> int:
        """Return the offset after the last use of an object, which the code ``made`` creates."""
        self._of_function = isinstance(made, cst.FunctionDef | cst.Lambda)
        if isinstance(made, cst.FunctionDef | cst.ClassDef):
            return self.last_use_of_variable(made.name, made)
        return self.last_use_of_value(made)

    def last_use_of_value(self, node: cst.CSTNode) -> int:
        """Return the offset after the last use of an expression's value."""
        module, parent = self._module, self._module.parents[node]
        match next_use_of_value(module, node):
            case ConditionalOperand(whole):
                return self.last_use_of_value(whole)
            case IteratedValue(cst.For() as loop):
                return module.span(loop)[1]
            case IteratedValue(clause):
                around = next(one for one in module.ancestors(clause) if isinstance(one, _COMPREHENSIONS))
                return self.last_use_of_value(around) if isinstance(around, _LAZY) else module.span(around)[1]
            case CallArgument(argument, call) if not argument.star:
                return self._last_use_of_argument(argument, call)
            case AttributeRead(attribute) if attribute.attr.value in (_HOLDING if self._of_function else {"dataset"}):
                return self.last_use_of_value(attribute)
            case AttributeRead(attribute) if self._of_function and attribute.attr.value in _NUMBERS:
                return module.span(attribute)[1]
            case AttributeRead(attribute) if self._of_function and attribute.attr.value in _SETTERS:
                method_call = module.parents[attribute]
                if isinstance(method_call, cst.Call) and method_call.func is attribute:
                    return module.span(method_call)[1]
            case ValueAssignment((cst.Name() as name,), cst.Assign() | cst.AnnAssign() as statement):
                return self.last_use_of_variable(name, statement)
            case ReturnValue(statement) if self._may_return and not _has_finally(module, statement):
                return module.span(statement)[1]
            case None if isinstance(parent, cst.Expr | cst.Del):
                return module.span(parent)[1]
        raise UntraceableLifetime(self._shorten_code(node))

    def last_use_of_variable(self, name: cst.Name, made: cst.CSTNode) -> int:
        """Return the offset after the last use of the value that the code ``made`` gives to a variable.

        With ``in_order`` (see the class), each use must be in a later statement of the same block. Then the program
        always creates the value before the use.
        """
        module, scope = self._module, self._module.scopes.scope_of(name)
        line = enclosing_statement(module, made)
        block = module.parents[line]
        if not isinstance(scope.node, cst.FunctionDef) or name.value in scope.elsewhere:
            raise UntraceableLifetime(self._shorten_code(made))
        after = module.span(made)[1]
        if not self._in_order:
            if (name.value, scope.node) in self._traced:  # `loader = tqdm(loader)`
                return after
            self._traced.add((name.value, scope.node))
        following = (
            [one for one in block.body if module.span(one)[1] > after] if isinstance(block, cst.IndentedBlock) else []
        )
        end = after
        for read in variable_reads(module, name.value, scope):
            if isinstance(made, cst.ClassDef) and contains_node(module, made, read):
                continue
            place = next((one for one in following if contains_node(module, one, read)), None)
            is_in_order = place is not None and module.span(read)[0] >= after
            if not self._is_evaluated_in(read, scope) or (self._in_order and not is_in_order):
                raise UntraceableLifetime(self._shorten_code(read))
            end = max(end, module.span(place or read)[1], self._last_use_after_read(read, made))
        return end

    def _last_use_after_read(self, read: cst.Name, made: cst.CSTNode) -> int:
        if not isinstance(made, cst.ClassDef):
            return self.last_use_of_value(read)
        match next_use_of_value(self._module, read):
            case CalledValue(call):
                return self.last_use_of_value(call)
        raise UntraceableLifetime(self._shorten_code(read))

    def _last_use_of_argument(self, argument: cst.Arg, call: cst.Call) -> int:
        module, project = self._module, self._project
        if is_call_of(module, call, _HOLDERS, project):
            return self.last_use_of_value(call)
        is_consumed = argument is call.args[0] and is_call_of(module, call, _CONSUMERS, project)
        if not is_consumed and not self._does_not_keep(argument, call):
            raise UntraceableLifetime(self._shorten_code(call))
        return module.span(call)[1]

    def _does_not_keep(self, argument: cst.Arg, call: cst.Call) -> bool:
        """Return whether a call provably calls a function of the project that keeps no reference to ``argument``."""
        names = resolve_node(self._project, self._module, call.func)
        found = find_function(self._project, next(iter(names))) if len(names) == 1 else None
        if found is None or self._depth == _CALLS_LIMIT:
            return False
        home, function = found
        title = function.name.value
        is_plain = all(resolves_to(home, one.decorator, PLAIN_DECORATOR) for one in function.decorators)
        once = len(home.scopes.module.bindings.get(title, ())) == 1 and not may_be_patched_elsewhere(
            home, self._project, title
        )
        suspends = function.asynchronous is not None or bool(find_nodes_in_scope(function, cst.Yield))
        parameter = _parameter(function, call, argument)
        if not is_plain or not once or suspends or parameter is None:
            return False
        scope = home.scopes.scope_of(parameter)
        uses = _UseAnalysis(
            home,
            self._project,
            may_return=False,
            in_order=False,
            of_function=self._of_function,
            depth=self._depth + 1,
        )
        try:
            for read in variable_reads(home, parameter.value, scope):
                if not uses._is_evaluated_in(read, scope):
                    return False
                uses.last_use_of_value(read)
        except UntraceableLifetime:
            return False
        return True

    def _is_evaluated_in(self, read: cst.Name, scope: Scope) -> bool:
        """Return whether a read runs during the call of the function ``scope``.

        A read in an inner function or a generator expression may run after the call.
        """
        found: Scope | None = self._module.scopes.scope_of(read)
        while found is not None and found is not scope:
            if not isinstance(found.node, _COMPREHENSIONS) or isinstance(found.node, _LAZY):
                return False
            found = found.parent
        return found is scope

    def _shorten_code(self, node: cst.CSTNode) -> str:
        """Return the shortened code of a call, or of the statement around any other node, in one line."""
        code = one_line_source(
            self._module, node if isinstance(node, cst.Call) else enclosing_statement(self._module, node)
        )
        return code if len(code) <= _LONGEST_CODE else f"{code[: _LONGEST_CODE - 2]} …"


def enclosing_statement(module: Module, node: cst.CSTNode) -> cst.CSTNode:
    """Return the innermost statement that contains a node: a line of simple statements, or a compound statement."""
    kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
    return next(one for one in (node, *module.ancestors(node)) if isinstance(one, kinds))


def _parameter(function: cst.FunctionDef, call: cst.Call, argument: cst.Arg) -> cst.Name | None:
    """Return the parameter that receives an argument; ``None`` if the parameter is unknown, as after ``*``."""
    given = function.params
    if argument.keyword is not None:
        named = (*given.params, *given.kwonly_params)
        return next((one.name for one in named if one.name.value == argument.keyword.value), None)
    position = next(number for number, one in enumerate(call.args) if one is argument)
    positional = (*given.posonly_params, *given.params)
    if any(one.star for one in call.args[:position]) or position >= len(positional):
        return None
    return positional[position].name


def _has_finally(module: Module, statement: cst.CSTNode) -> bool:
    """Return whether Python runs a ``finally`` block between a ``return`` statement and the end of the function."""
    for around in module.ancestors(statement):
        if isinstance(around, cst.FunctionDef | cst.Lambda):
            return False
        if isinstance(around, cst.Try | cst.TryStar) and around.finalbody is not None:
            return True
    return False
