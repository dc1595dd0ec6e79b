"""Check whether a definition can move out of its enclosing functions and classes to module level.

At module level, a definition runs when the module is imported. Its bases, decorators, defaults and annotations must
have the same values during this import as at the old place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_reads import may_list_attributes
from chirp_migrate.analysis.dataflow.capture_timing import is_always_assigned_before, why_captured_values_change
from chirp_migrate.analysis.dataflow.closures import CapturedName
from chirp_migrate.analysis.dataflow.rebinding import (
    import_always_binds_same_object,
    is_dotted_name_bound_once,
    may_be_patched_elsewhere,
    new_name_may_clash,
)
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.syntax.module import Module, find_nodes, walk_code
from chirp_migrate.syntax.name_resolution import resolve_node
from chirp_migrate.syntax.name_uses import is_imported_elsewhere
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    dotted_source,
    find_name_inspecting_call,
    function_parameters,
    is_name,
    is_read,
    methods_of,
)
from chirp_migrate.syntax.scopes import Binding, BindingKind, Scope, Variable

#: Names whose value, or whose result if called, depends on the enclosing function or on the enclosing class.
_OF_FUNCTION = frozenset({"dir", "eval", "exec", "locals", "vars"})
_OF_CLASS = frozenset({"super", "__class__"})
#: Files in which pytest looks for tests.
_TESTS = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
#: Decorators that only return a method, and store no state that all objects of a moved class would share.
_DECORATORS = re.compile(
    r"builtins\.(property|staticmethod|classmethod)|functools\.(cached_property|wraps)|(abc|typing|typing_extensions)\..+"
    r"|torch\.(no_grad|enable_grad|inference_mode|jit\.(ignore|unused|export))|.+\.(setter|getter|deleter)"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CONSTANTS = (cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)


def check_body_is_movable(module: Module, node: cst.FunctionDef | cst.Lambda | cst.ClassDef) -> None:
    """Check that a function or class behaves the same at another place if the names that it reads keep their values.

    For example, ``super()`` behaves differently outside the enclosing class. A call of ``locals()`` in the enclosing
    function would no longer return the definition.

    Raises:
        NotMovable: some code depends on the place of the definition.
    """
    if (respelled := module.once(_normalized_name)) is not None:
        raise NotMovable(
            f"Python reads the name `{respelled}` as `{unicodedata.normalize('NFKC', respelled)}`, which the rewrite "
            "does not support"
        )
    if "__getattr__" in module.scopes.module.bindings:
        raise NotMovable("the module's `__getattr__` may provide names that the module does not define")
    outer = module.enclosing_function(node)
    if outer is not None and (word := find_name_inspecting_call(module, outer)) is not None:
        raise NotMovable(f"`{word}` in the enclosing function may read the local names of the enclosing function")
    if (
        isinstance(node, cst.FunctionDef | cst.ClassDef)
        and re.fullmatch(r"__\w*(?<!__)|_+", node.name.value)
        and module.enclosing_class(node) is not None
    ):
        raise NotMovable(f"Python mangles the name `{node.name.value}` inside the enclosing class")
    for one in walk_code(node.body):
        if isinstance(one, cst.Nonlocal):
            for item in one.names:
                owner = module.scopes.lookup(item.name.value, one)
                if owner is None or node not in (owner.scope.node, *module.ancestors(owner.scope.node)):
                    raise NotMovable(f"the definition rebinds `{item.name.value}` of the enclosing function")
        elif isinstance(one, cst.Name) and one.value in (_OF_FUNCTION | _OF_CLASS):
            is_moved = one.value in _OF_CLASS and _class_that_moves(module, one, node) is not None
            called = isinstance(module.parents[one], cst.Call) or one.value == "__class__"
            if called and not is_moved and module.scopes.lookup(one.value, one) is None:
                raise NotMovable(f"the rewrite would move this code to a place where `{one.value}` has another result")
        elif isinstance(one, cst.Name) and re.fullmatch(r"__\w*(?<!__)", one.value):
            around = module.enclosing_class(one)
            if around is not None and around is not _class_that_moves(module, one, node):
                raise NotMovable(f"Python mangles the name `{one.value}` only inside the enclosing class")


def _normalized_name(module: Module) -> str | None:
    """Return a name in the module that Python normalises to another spelling; None without such a name."""
    if module.text.isascii():
        return None
    names = (one.value for one in module.find(cst.Name))
    return next((name for name in names if name != unicodedata.normalize("NFKC", name)), None)


def _class_that_moves(module: Module, name: cst.CSTNode, node: cst.CSTNode) -> cst.ClassDef | None:
    """Return the class around ``name`` if this class moves together with ``node``, else None.

    A class moves with ``node`` if the class is ``node`` itself, or is inside ``node``.
    """
    owner = module.enclosing_class(name)
    return owner if owner is not None and node in (owner, *module.ancestors(owner)) else None


def check_captured_values(
    module: Module, project: Project, node: cst.CSTNode, captured: Iterable[CapturedName]
) -> None:
    """Check that captured values do not change after the definition of ``node``, and can be sent to another process.

    Raises:
        NotMovable: a value may change later, or cannot be sent to another process.
    """
    captured = list(captured)
    for one in captured:
        for kind in (_local_kind(module, binding) for binding in one.bindings):
            if kind is not None:
                raise NotMovable(f"the definition uses the {kind} `{one.name}`, which would have to move first")
        sources = [binding.qualified for binding in one.bindings if binding.kind is BindingKind.IMPORT]
        if not all(import_always_binds_same_object(module, project, source) for source in sources):
            raise NotMovable(f"the imported name `{one.name}` may get another value later")
    problem = why_captured_values_change(module, project, node, captured)
    if problem is not None:
        raise NotMovable(problem)


def _local_kind(module: Module, binding: Binding) -> str | None:
    """Return the kind of an unpicklable definition that a name is bound to, such as "lambda"; None for other values."""
    match module.parents.get(binding.node) if isinstance(binding.node, cst.AssignTarget) else binding.node:
        case cst.FunctionDef():
            return "local function"
        case cst.ClassDef():
            return "local class"
        case cst.Assign(value=value) | cst.AnnAssign(value=value) | cst.NamedExpr(value=value):
            return "lambda" if isinstance(value, cst.Lambda) else None
    return None


def has_same_value_at(module: Module, project: Project, expression: cst.BaseExpression | None, offset: int) -> bool:
    """Return whether an expression would have the same value at ``offset``, during the import of the module."""
    if expression is None or isinstance(expression, _CONSTANTS) or is_name(expression, "None", "True", "False"):
        return True
    if isinstance(expression, cst.UnaryOperation):
        return has_same_value_at(module, project, expression.expression, offset)
    if isinstance(expression, cst.Tuple):
        return all(has_same_value_at(module, project, element.value, offset) for element in expression.elements)
    path = dotted_source(expression) or ""
    first, dot, _ = path.partition(".")
    owner = module.scopes.lookup(first, expression)
    if owner is None:
        return not dot and module.scopes.is_builtin(first)
    scope, places = owner
    # During the import, an attribute may have a different value. Only modules of other packages have all their
    # attributes.
    fixed = not dot or (
        places[0].kind is BindingKind.IMPORT and not _belongs_to_project(module, project, places[0].qualified)
    )
    return (
        fixed
        and isinstance(scope.node, cst.Module)
        and is_dotted_name_bound_once(module, project, path, places, offset)
    )


def _belongs_to_project(module: Module, project: Project, qualified: str) -> bool:
    """Return whether a qualified name belongs to a module of the project.

    During an import, such a module may be only partly imported, so that the name has no value yet.
    """
    return qualified.startswith(".") or project.module_paths.has_package(module.absolute(qualified).partition(".")[0])


def check_annotations(module: Module, node: cst.FunctionDef, offset: int) -> None:
    """Check that the annotations of a function can be evaluated at ``offset`` of the module.

    Raises:
        NotMovable: an annotation uses a name that has no value at ``offset``, or calls a function.
    """
    if any(_postpones_annotations(statement) for statement in module.find(cst.ImportFrom)):
        return
    annotations = [node.returns, *(one.annotation for one in function_parameters(node).values())]
    written = [annotation for annotation in annotations if annotation is not None]
    if any(find_nodes(one, cst.Call) for one in written):
        raise NotMovable("the annotations call a function, which would run at another time after the move")
    for name, owner in _names_read(module, *written):
        if owner is None:
            known = module.scopes.is_builtin(name) or bool(module.scopes.stars)
        else:
            places = [module.span(binding.node)[0] for binding in owner.bindings]
            known = isinstance(owner.scope.node, cst.Module) and min(places) < offset
        if not known:
            raise NotMovable(
                f"the annotations use `{name}`, which the module does not define above the place to which the "
                "definition would move"
            )


def _postpones_annotations(statement: cst.ImportFrom) -> bool:
    aliases = () if isinstance(statement.names, cst.ImportStar) else statement.names
    return is_name(statement.module, "__future__") and any(is_name(alias.name, "annotations") for alias in aliases)


def _names_read(module: Module, *expressions: cst.CSTNode) -> Iterator[tuple[str, Variable | None]]:
    """Yield pairs: a name that the expressions read, and the :class:`.Variable` to which the name refers.

    The variable is None if the module does not bind the name.
    """
    for name in (name for expression in expressions for name in find_nodes(expression, cst.Name)):
        if is_read(module, name):
            yield name.value, module.scopes.lookup(name.value, name)


def check_class_is_movable(module: Module, project: Project, node: cst.ClassDef, offset: int) -> None:
    """Check that a class can be created at ``offset`` of the module, during import.

    The class body may only define methods and constants. The bases of the class, and the decorators, defaults and
    annotations of its methods, must already have their values at ``offset``. If two modules of the project import each
    other, one of the modules is only partly imported when the other module runs. So attributes of such modules may have
    no value yet.

    Raises:
        NotMovable: during the import, a value may be missing or different.
    """
    for base in node.bases:
        if not isinstance(base.value, cst.Name | cst.Attribute | cst.Subscript):
            raise NotMovable("the base class is an expression that would run when the module is imported")
        _check_names_are_defined(module, project, base.value, offset)
    for statement in node.body.body:
        if isinstance(statement, cst.FunctionDef):
            for decorator in statement.decorators:
                _check_names_are_defined(module, project, decorator.decorator, offset)
                _check_decorator(module, project, decorator.decorator, offset)
            check_annotations(module, statement, offset)
            for name, parameter in function_parameters(statement).items():
                if not has_same_value_at(module, project, parameter.default, offset):
                    raise NotMovable(
                        f"the default of `{name}` would be evaluated at import, and may then have another value"
                    )
        elif not _is_constant(module, project, statement, offset):
            raise NotMovable("the class body contains code other than methods, and this code would run at import")


def _check_decorator(module: Module, project: Project, node: cst.BaseExpression, offset: int) -> None:
    """Check that a decorator of a method has no effect on anything except the method.

    After the move, any other effect would occur only once, and not in each call of the enclosing function.
    """
    given = node.args if isinstance(node, cst.Call) else ()
    called = node.func if isinstance(node, cst.Call) else node
    known = all(_DECORATORS.fullmatch(name) for name in resolve_node(project, module, called))
    if not known or not all(has_same_value_at(module, project, one.value, offset) for one in given):
        raise NotMovable(
            "a decorator in the class may store state, which all calls of the enclosing function would share after "
            "the move"
        )


def decorators_store_no_state(module: Module, project: Project, node: cst.ClassDef) -> bool:
    """Return whether the decorators of a class's methods store no state."""
    decorators = (one.decorator for method in methods_of(node).values() for one in method.decorators)
    called = (one.func if isinstance(one, cst.Call) else one for one in decorators)
    names = (resolve_node(project, module, one) for one in called)
    return all(found and all(map(_DECORATORS.fullmatch, found)) for found in names)


def _is_constant(module: Module, project: Project, statement: cst.CSTNode, offset: int) -> bool:
    """Return whether a statement in a class has no effect, or assigns a value that would be the same at ``offset``."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    for small in statement.body:
        match small:
            case cst.Pass() | cst.Expr(value=cst.Ellipsis() | cst.SimpleString() | cst.ConcatenatedString()):
                continue
            case cst.Assign(value=value) if has_same_value_at(module, project, value, offset):
                continue
        return False
    return True


def _check_names_are_defined(module: Module, project: Project, expression: cst.BaseExpression, offset: int) -> None:
    for name, owner in _names_read(module, expression):
        if owner is None:
            if not module.scopes.is_builtin(name) and not module.scopes.stars:
                raise NotMovable(f"the module does not define `{name}`")
            continue
        if not isinstance(owner.scope.node, cst.Module):
            continue  # a local name of the function, which another check reports
        imported = {binding.qualified for binding in owner.bindings}
        # If all bindings are the same import, the name has its value from the first binding on. In all other cases, a
        # later binding may change the value.
        decisive = min if len(imported) == 1 and imported != {""} else max
        if decisive(module.span(binding.node)[0] for binding in owner.bindings) >= offset:
            raise NotMovable(f"`{name}` is defined below the new place of the definition")
        if not is_always_assigned_before(module, module.top_level_statement(expression), owner):
            raise NotMovable(f"`{name}` may not be defined when the module is imported")
        path = dotted_source(expression) or name
        if may_be_patched_elsewhere(module, project, path):
            raise NotMovable(f"other code assigns `{path}` after the import of the module")
        ours = any(
            one.kind is BindingKind.IMPORT and _belongs_to_project(module, project, one.qualified)
            for one in owner.bindings
        )
        if path.startswith(f"{name}.") and ours:
            raise NotMovable(f"`{path}` may not be defined yet when the module is imported")


def enclosing_function_name(module: Module, node: cst.CSTNode) -> str:
    """Return the name of the function around a node, from which rewrites build names for moved definitions.

    For a method whose name begins with two underscores, such as ``__init__``, return the name of its class instead, in
    lower case.
    """
    function = module.enclosing_function(node)
    name = function.name.value if function is not None else ""
    owner = module.enclosing_class(function) if function is not None else None
    return (snake_case(owner.name.value) if owner is not None and name.startswith("__") else name).strip("_")


def snake_case(name: str) -> str:
    """Return a name such as ``BirdSet`` as ``bird_set``."""
    return _CAMEL.sub("_", name).lower()


def is_unused_outside_scope(module: Module, project: Project, name: str, scope: Scope) -> bool:
    """Return whether a name of a function's ``scope`` is neither bound nor read outside of that scope.

    Such a name is free at module level. The result is False for a name that pytest would collect as a test.
    """
    if re.match("test|Test", name) and _TESTS.search(module.path) is not None:
        return False
    outer = scope.parent
    while outer is not None:
        if name in outer.bindings:
            return False
        outer = outer.parent
    reads = (one for one in module.named(name) if is_read(module, one))
    used = any(module.scopes.lookup(name, read) is None for read in reads)
    elsewhere = (
        any(is_imported_elsewhere(project, module, one) for one in (name, "*"))
        or new_name_may_clash(module, project, name)
        or may_list_attributes(module)
    )
    return not used and not module.scopes.is_builtin(name) and not elsewhere
