"""Check whether a dataset class in a function can move to module level and get its captured values as arguments.

Captured values are the values of variables of the enclosing functions that the class uses.
"""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_reads import may_list_attributes, may_list_attributes_of_any_object
from chirp_migrate.analysis.dataflow.attribute_writes import may_be_assigned_outside_class
from chirp_migrate.analysis.dataflow.class_inspection import find_class_mutation, find_class_used_as_value
from chirp_migrate.analysis.dataflow.closures import CapturedName, captured_names, variable_reads
from chirp_migrate.analysis.dataflow.lifetimes import may_be_deep_copied
from chirp_migrate.analysis.known_names import DATASET, qualified_base_names
from chirp_migrate.edits.movability import (
    check_body_is_movable,
    check_captured_values,
    check_class_is_movable,
    decorators_store_no_state,
)
from chirp_migrate.edits.move_definition import NotMovable, top_level_statement_offset
from chirp_migrate.edits.statements import can_delete_lines_of
from chirp_migrate.syntax.module import Module, find_nodes
from chirp_migrate.syntax.name_resolution import (
    find_class,
    find_function,
    is_defined_in_project,
    is_project_class,
    resolve_node,
)
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import (
    NameRole,
    contains_node,
    find_nodes_in_scope,
    is_name,
    is_super_call,
    methods_of,
    name_role,
    one_line_source,
)

#: Base classes without a constructor.
_BARE = re.compile(
    r"torch\.utils\.data\.((dataset|sampler)\.)?(Dataset|IterableDataset|Sampler)|typing\.Generic|abc\.ABC"
)
_BASES_LIMIT = 8


#: Methods with which a class creates, copies or inspects its objects and their attributes.
_OWN_STATE = re.compile(
    r"__(new|getattr|getattribute|setattr|getstate|setstate|reduce|reduce_ex|copy|deepcopy|getnewargs|getnewargs_ex)__"
)
#: Prefix of attributes for captured values, which are values of variables of the enclosing functions.
KEPT = "_captured_"
#: Attributes that show where a class was defined, or what its objects store.
_TELLING = frozenset({"__dict__", "__qualname__", "__subclasses__"})
#: Functions that return the attributes of an object.
_LISTING = frozenset({"vars", "dir", "getmembers"})
_STORED = (NameRole.BOUND, NameRole.CHANGED, NameRole.DELETED)


class LocalClass:
    """A class that is defined inside a function.

    Attributes:
        values: the variables of enclosing functions that the class uses, except imported names.
        imports: the names that enclosing functions import and the class uses.
        methods: the methods of the class, in order.
        init: the method ``__init__`` of the class; None if the class has no such method.
    """

    def __init__(self, module: Module, project: Project, node: cst.ClassDef) -> None:
        self.module, self.project, self.node = module, project, node
        self.scope = module.scopes.scope_of(node)
        self.title = node.name.value
        captured = captured_names(module, node.body)
        captured.pop(self.title, None)
        self.imports = [one for one in captured.values() if one.is_import]
        self.values = [one for one in captured.values() if not one.is_import]
        self.methods = [statement for statement in node.body.body if isinstance(statement, cst.FunctionDef)]
        self.init = next((method for method in self.methods if method.name.value == "__init__"), None)

    def method_of(self, read: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the method whose body contains a node; None if the node is in no method."""
        around = set(self.module.ancestors(read))
        return next((method for method in self.methods if method.body in around), None)

    def indent_of(self, method: cst.FunctionDef) -> str:
        """Return the indentation of a method after the class has moved."""
        own, old = (self.module.indentation(self.module.span(one)[0]) for one in (method, self.node))
        return own.removeprefix(old)

    def check(self) -> None:
        """Check that the class can move, and that its objects keep the captured values.

        Raises:
            NotMovable: the class cannot move; the message gives the reason.
        """
        node, module = self.node, self.module
        if not isinstance(self.scope.node, cst.FunctionDef):
            raise NotMovable("the class is defined in the body of another class")
        if not can_delete_lines_of(module, node):
            raise NotMovable("the class is the only statement of its block, which would be empty after the move")
        if node.decorators or node.keywords:
            raise NotMovable("the class has a decorator, or keyword arguments such as `metaclass`")
        check_body_is_movable(module, node)
        self._check_class_state()
        for name in captured_names(module, *(base.value for base in node.bases)):
            raise NotMovable(f"the base class `{name}` is a local name of the function")
        for one in (*self.values, *self.imports):
            if re.fullmatch(r"__\w*[^\W_]", one.name):
                raise NotMovable(f"Python would mangle the name `{one.name}` inside a class")
            self._check_reads(one)
        check_captured_values(module, self.project, node, (*self.values, *self.imports))
        check_class_is_movable(module, self.project, node, top_level_statement_offset(module, node))
        if KEPT in module.source(node):
            raise NotMovable(
                f"the rewrite would add attributes whose names begin with `{KEPT}`, and the class already contains "
                "this text"
            )
        if not all(
            _is_plain(self.project, base, may_construct=not self.values)
            for base in qualified_base_names(module, self.project, node)
        ):
            raise NotMovable(
                "the base class may store state on its subclasses, or inspect the attributes of its objects"
            )
        if self.values:
            self._check_constructor()
            if may_list_attributes(module):
                raise NotMovable(
                    "the rewrite would add attributes to objects of the class, and the module lists attributes (as "
                    "`vars` or `dir` does)"
                )
            if may_list_attributes_of_any_object(self.project):
                raise NotMovable(
                    "the rewrite would add attributes to objects of the class, and the project lists attributes of "
                    "objects (as `vars` or `dir` does)"
                )
            if may_be_deep_copied(module, self.project, node):
                raise NotMovable(
                    "a deep copy of an object that contains an instance of the class would also copy the captured "
                    "values"
                )

    def _check_class_state(self) -> None:
        """Check that the project does not depend on separate classes.

        Before the move, each call of the enclosing function creates a new class. After the move, all calls use the same
        class.

        Raises:
            NotMovable: code may notice that all calls use the same class.
        """
        for read in variable_reads(self.module, self.title, self.scope):
            parent = self.module.parents[read]
            of_super = isinstance(parent, cst.Arg) and is_super_call(self.module.parents[parent])
            if contains_node(self.module, self.node, read) and not (of_super or isinstance(parent, cst.Attribute)):
                raise NotMovable("the class uses its own name, and not only to call `super` or to read an attribute")
        if self.project.search(r"\b__subclasses__\b", "__subclasses__"):
            raise NotMovable("the project lists the subclasses of a class (`__subclasses__`)")
        if self.project.search(r"\bgetmembers\s*\((?:[^()]|\([^()]*\))*\bisclass\b", "isclass"):
            raise NotMovable("the project lists the classes of a module (`getmembers`)")
        if self.project.search(
            r"(?:\bcls|\bself\s*\.\s*__class__|\btype\(self\))\s*\.\s*__qualname__\b", "__qualname__"
        ):
            raise NotMovable("the project reads where classes are defined (`__qualname__`)")
        # Without captured values, all calls of the enclosing function create equal classes, unless code changes one of
        # these classes.
        if self.values and (place := find_class_used_as_value(self.project)) is not None:
            raise NotMovable(f"the project distinguishes objects by their class ({place})")
        if not self.values and (place := find_class_mutation(self.project)) is not None:
            raise NotMovable(f"the project may read or set attributes of the class of an object ({place})")
        if (code := find_use_of_class_object(self.module, self.node, may_construct=not self.values)) is not None:
            raise NotMovable(
                f"`{code}` in the class depends on the class object, and after the move all calls of the enclosing "
                "function would share one class object"
            )
        for one in find_nodes(self.node, cst.Attribute):
            if is_name(one.value, self.title) and name_role(self.module, one) in _STORED:
                source = self.module.source(one)
                raise NotMovable(
                    f"`{source}` in the class depends on the class object, and after the move all calls of the "
                    "enclosing function would share one class object"
                )

    def _check_constructor(self) -> None:
        """Check that the constructor can take the captured values, and that each object keeps these values."""
        if any(_OWN_STATE.fullmatch(method.name.value) for method in self.methods):
            raise NotMovable(
                "the class has a method such as `__new__`, `__reduce__` or `__setattr__`, which may lose captured "
                "values"
            )
        if self.init is None:
            if not _has_no_constructor(self.module, self.project, self.node):
                raise NotMovable(
                    "the rewrite would add an `__init__`, which would hide the constructor of the base class"
                )
        elif not isinstance(self.init.body, cst.IndentedBlock):
            raise NotMovable("the body of `__init__` is on the line of its `def`")
        elif self.module.scopes.names_bound(self.init, nested=True) & {value.name for value in self.values}:
            raise NotMovable("`__init__` binds a parameter or local variable with the name of a captured variable")

    def _check_reads(self, captured: CapturedName) -> None:
        """Check that the class reads captured names only in methods with ``self``."""
        for read in captured.reads:
            method = self.method_of(read)
            if method is None:
                raise NotMovable(f"the class uses the local name `{read.value}` outside the bodies of its methods")
            if captured.is_import or method is self.init:
                continue
            own = self.module.scopes.lookup("self", read)
            first = method.params.params[:1]
            if method.decorators or own is None or [one.node for one in own[1]] != list(first):
                raise NotMovable(f"the local name `{read.value}` is used where `self` is not available")


def find_use_of_class_object(module: Module, node: cst.ClassDef, *, may_construct: bool) -> str | None:
    """Return code in a local class that may behave differently if a class at module level replaces the local class.

    Such code may compare the class with another class, or store state on the class. The result is None if the class has
    no such code. Reads of attributes of ``type(self)``, or of the first parameter of a class method, do not count.

    Args:
        module: the module of the class.
        node: the class.
        may_construct: whether the code may also call ``type(self)`` or ``cls``, the first parameter of a class method.
            Callers pass False for a class that captures values, because such a call would have to pass these values.
    """
    for one in find_nodes(node, cst.Attribute, cst.Call, cst.Name):
        if isinstance(one, cst.Attribute) and one.attr.value in _TELLING:
            return one_line_source(module, one)
        if isinstance(one, cst.Call) and is_name(one.func, *_LISTING):
            return one_line_source(module, one)
        around = module.parents[one]
        is_member = isinstance(around, cst.Attribute) and around.value is one
        is_stored = is_member and name_role(module, around) in _STORED
        is_called = isinstance(around, cst.Call) and around.func is one
        match one:
            case cst.Call(func=cst.Name(value="type"), args=[cst.Arg(value=owner)]):
                is_own = _is_first_parameter(module, owner)
            case cst.Attribute(value=owner, attr=cst.Name(value="__class__")):
                is_own = _is_first_parameter(module, owner)
            case cst.Name(value="__class__") if name_role(module, one) is not NameRole.LABEL:
                is_own = True
            case cst.Name() if _is_first_parameter(module, one, of_class=True):
                is_own = True
            case _:
                continue
        if is_stored or (is_own and not (is_called and may_construct) and not is_member):
            return one_line_source(module, one if isinstance(around, cst.Arg) else around)  # an `Arg` has the comma
    return None


def _is_first_parameter(module: Module, node: cst.BaseExpression, *, of_class: bool = False) -> bool:
    """Return whether an expression is the first parameter of a method; with ``of_class``, only of a class method."""
    if not isinstance(node, cst.Name) or name_role(module, node) is not NameRole.READ:
        return False
    found = module.scopes.lookup(node.value, node)
    method = found.scope.node if found is not None else None
    if not isinstance(method, cst.FunctionDef) or not isinstance(module.scopes.scope_of(method).node, cst.ClassDef):
        return False
    is_on_class = any(is_name(one.decorator, "classmethod") for one in method.decorators)
    first = [*method.params.posonly_params, *method.params.params][:1]
    is_first = any(one.name.value == node.value for one in first)
    return is_first and (is_on_class or method.name.value == "__new__" or not of_class)


def _has_no_constructor(module: Module, project: Project, node: cst.ClassDef, depth: int = 0) -> bool:
    """Return whether all base classes of a class provably have no constructor."""
    for base in node.bases:
        names = resolve_node(project, module, base.value)
        if not names or not all(_BARE.fullmatch(name) or _is_without(project, name, depth) for name in names):
            return False
    return True


def _is_without(project: Project, qualified: str, depth: int) -> bool:
    """Return whether a class of the project provably has no constructor, and inherits none."""
    found = find_class(project, qualified) if depth < _BASES_LIMIT else None
    if found is None or may_be_assigned_outside_class(project, "__init__"):
        return False
    module, node = found
    return "__init__" not in module.source(node) and _has_no_constructor(module, project, node, depth + 1)


def _is_plain(project: Project, qualified: str, *, may_construct: bool, depth: int = 0) -> bool:
    """Return whether a base class treats a class at module level as it treats the local class.

    The base class must neither store nor inspect its subclasses. The base class also must not define methods that
    create, copy or inspect objects or their attributes, such as ``__setattr__``.
    """
    if DATASET.fullmatch(qualified) or _BARE.fullmatch(qualified):
        return True
    found = find_class(project, qualified)
    if found is None or found[1].keywords or found[1].decorators or depth >= _BASES_LIMIT:
        return False
    module, node = found
    methods = methods_of(node)
    if any(_OWN_STATE.fullmatch(method) for method in methods) or "__init_subclass__" in methods:
        return False
    if find_use_of_class_object(module, node, may_construct=may_construct) is not None or not decorators_store_no_state(
        module, project, node
    ):
        return False
    if KEPT in module.source(node) or not _has_plain_members(module, project, node):
        return False
    return all(
        _is_plain(project, name, may_construct=may_construct, depth=depth + 1)
        for name in qualified_base_names(module, project, node)
    )


def _has_plain_members(module: Module, project: Project, node: cst.ClassDef) -> bool:
    """Return False if a class attribute may be a descriptor, else True.

    If code reads a descriptor, Python passes the class to the descriptor. So the descriptor may behave differently for
    a class at module level. Only an object of a class of the project counts as a possible descriptor. Literals, objects
    that a library creates, and functions and classes of the project do not count.
    """
    for statement in (
        *find_nodes_in_scope(node, cst.Assign),
        *find_nodes_in_scope(node, cst.AnnAssign),
        *find_nodes_in_scope(node, cst.NamedExpr),
    ):
        value = getattr(statement, "value", None)
        calls = [] if value is None else find_nodes(value, cst.Call)
        if any(_gives_own_object(module, project, call.func, is_called=True) for call in calls):
            return False
        if isinstance(value, cst.Name | cst.Attribute) and _gives_own_object(module, project, value, is_called=False):
            return False
    return True


def _gives_own_object(module: Module, project: Project, node: cst.BaseExpression, *, is_called: bool) -> bool:
    """Return whether an expression may be an object of a class of the project.

    If ``is_called`` is True, the function checks the object that a call of the expression returns.
    """
    names = resolve_node(project, module, node)
    if is_called:
        return not names or any(is_defined_in_project(project, one) for one in names)
    return any(
        is_defined_in_project(project, name)
        and not is_project_class(project, name)
        and find_function(project, name) is None
        for name in names
    )
