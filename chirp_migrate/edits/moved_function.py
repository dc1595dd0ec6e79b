"""Move functions and lambdas out of enclosing functions.

A top-level function, a method or a ``partial`` replaces each moved function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import libcst as cst

from chirp_migrate.analysis.dataflow.attribute_reads import (
    has_dynamic_attribute_read,
    may_access_attribute_outside_class,
    may_call_method_with_foreign_self,
    may_list_attributes,
)
from chirp_migrate.analysis.dataflow.attribute_writes import may_set_computed_attributes
from chirp_migrate.analysis.dataflow.closures import CapturedName, captured_names
from chirp_migrate.analysis.dataflow.function_flow import FunctionUseKind, find_function_uses
from chirp_migrate.analysis.dataflow.function_inspection import CODE, DETAILS, find_read_of_function_attribute
from chirp_migrate.analysis.dataflow.lifetimes import may_be_deep_copied
from chirp_migrate.analysis.dataflow.rebinding import may_be_patched_elsewhere, new_name_may_clash
from chirp_migrate.analysis.dataflow.related_classes import has_bases_or_subclasses
from chirp_migrate.analysis.dataflow.value_flow import (
    AttributeRead,
    CallArgument,
    ConditionalOperand,
    DictEntry,
    ValueAssignment,
    next_use_of_value,
)
from chirp_migrate.analysis.known_names import (
    DATASET,
    FACTORY_METHOD,
    TORCH_LOADER,
    is_call_of,
    join_name_patterns,
    qualified_base_names,
)
from chirp_migrate.edits import move_definition as move
from chirp_migrate.edits.call_arguments import call_text
from chirp_migrate.edits.imports import import_always_runs
from chirp_migrate.edits.movability import (
    check_body_is_movable,
    check_captured_values,
    enclosing_function_name,
    has_same_value_at,
)
from chirp_migrate.edits.move_definition import NotMovable
from chirp_migrate.plans.plan import Edit, Import
from chirp_migrate.source.text import apply_edits_in_span
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.name_resolution import (
    find_class,
    find_names_from_star_imports,
    is_defined_in_project,
    resolve_node,
)
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import function_parameters, is_name
from chirp_migrate.syntax.scopes import Variable

#: A pair: the name of a new function of the module, and the edits that define the function.
Defined = tuple[str, tuple[Edit, ...]]

#: Code that distinguishes ``partial`` objects from functions, such as ``isinstance(x, partial)``. The first argument of
#: ``isinstance`` may contain brackets.
_TELLS_PARTIALS = (
    r"\bisinstance\s*\([^;]{0,200}?[,|][\s(]*(?:\w+\.)*partial\b(?!\s*\()"
    r"|(?:\btype\([^()]*\)|__class__)\s*(?:[!=]=|\b(?:is|is\s+not|in|not\s+in)\b)[^\n]{0,200}\bpartial\b"
    r"|\bcase\s+(?:\w+\.)*partial\("
)
#: Arguments of a loader that are functions, and that PyTorch calls with one argument. Other code may read these
#: arguments as attributes of the loader.
_CALLED_BY_LOADERS = ("collate_fn", "worker_init_fn")
_ASKED_OF_LOADERS = r"""\.\s*({0})\b(?!\s*=[^=])|["']({0})["'](?!\s*:|\s*\]\s*=[^=])""".format(
    "|".join(_CALLED_BY_LOADERS)
)
_LOADER_CALL = join_name_patterns(TORCH_LOADER, FACTORY_METHOD)
#: Base classes without private methods.
_PLAIN_BASE = join_name_patterns(DATASET, r"builtins\.object|abc\.ABC|typing\.(Generic|Protocol)")
#: Maximum number of levels of base classes that are checked.
_BASES_LIMIT = 8


class MovedFunction:
    """A function or lambda inside a function, and its replacement: a function of the module, or a method.

    Attributes:
        place: offset in the module at which the new function is inserted.
        captured_variables: the variables of enclosing functions that the function uses.
        imports: the captured variables that are imported names.
        import_lines: import statements for the names in ``imports``. The new function contains these statements. The
            method ``check`` sets this attribute.
        is_recursive: whether the function calls itself.
        method: the method whose ``self`` the function uses, so that the function also becomes a method. None if the
            function uses no ``self``.
        captives: names of captured variables whose values a ``partial`` binds to the new function.
        bound: parameters whose default values the ``partial`` also binds, because the defaults must be evaluated at the
            old place. The method ``check`` sets this attribute.
        indent: indentation of the new definition.
    """

    def __init__(self, module: Module, project: Project, node: cst.FunctionDef | cst.Lambda, place: int) -> None:
        self.module, self.project, self.node, self.place = module, project, node, place
        captured = captured_names(module, node.body)
        self.is_recursive = isinstance(node, cst.FunctionDef) and captured.pop(node.name.value, None) is not None
        self.captured_variables = list(captured.values())
        self.imports = [capture for capture in self.captured_variables if capture.is_import]
        self.import_lines: list[str] = []
        self.method = _owning_method(module, captured["self"]) if "self" in captured else None
        own = {"self"} if self.method is not None else ()
        self.captives = [
            capture.name for capture in self.captured_variables if not capture.is_import and capture.name not in own
        ]
        self.bound: list[cst.Param] = []
        self.indent = "" if self.method is None else module.indentation(module.span(self.method)[0])

    @property
    def is_changed(self) -> bool:
        """Return whether the replacement is a ``partial`` or a method, and not a plain function."""
        return bool(self.captives or self.bound or self.method)

    def check(self) -> None:
        """Check that the function can be moved.

        Raises:
            NotMovable: the function cannot be moved; the message gives the reason.
        """
        check_body_is_movable(self.module, self.node)
        self.import_lines = move.import_lines(self.module, self.imports)
        check_captured_values(self.module, self.project, self.node, self.captured_variables)
        if self.method is not None and not self._may_add_method():
            raise NotMovable(
                "the rewrite would add a method, but the class, a base class or a metaclass may contain code that "
                "inspects the methods"
            )
        if self.method is not None and self._may_get_other_objects(self.method):
            name = self.method.name.value
            raise NotMovable(
                f"the rewrite would make the function a method, and `{name}` may be called with an object of another "
                "class as `self`"
            )
        self.bound = self._bound_defaults()

    def _may_get_other_objects(self, method: cst.FunctionDef) -> bool:
        owner = self.module.enclosing_class(method)
        return owner is None or may_call_method_with_foreign_self(self.module, self.project, owner, method.name.value)

    def _may_add_method(self) -> bool:
        """Return whether no code inspects the methods of the enclosing class, so that no code notices a new method."""
        owner = self.module.enclosing_class(self.method or self.node)
        if self.project.search(r"\bdef\s+__getattribute__\b", "__getattribute__"):
            return False
        return owner is not None and _names_are_not_inspected(self.module, self.project, owner)

    def _bound_defaults(self) -> list[cst.Param]:
        """Return the parameters whose defaults must be evaluated at the old place of the function.

        In the new function, these parameters have no default, so they must come before all parameters with a default.
        So the result also includes every earlier parameter that has a default.
        """
        given = self.node.params
        defaulted = [parameter for parameter in (*given.posonly_params, *given.params) if parameter.default is not None]
        moving = [n for n, one in enumerate(defaulted) if not self._default_stays(one)]
        taken = defaulted[: moving[-1] + 1] if moving else []
        if any(one in given.posonly_params for one in taken):
            raise NotMovable(
                "the function has a positional-only parameter with a default, which the rewrite would evaluate at "
                "another place"
            )
        return taken + [parameter for parameter in given.kwonly_params if not self._default_stays(parameter)]

    def _default_stays(self, parameter: cst.Param) -> bool:
        return has_same_value_at(self.module, self.project, parameter.default, self.place)

    def check_callers(self, uses: Iterable[cst.CSTNode]) -> None:
        """Check that no caller can pass a bound parameter by position. A ``partial`` does not accept such a call.

        Args:
            uses: the definition of the function, and the code that reads its name.

        Raises:
            NotMovable: a caller may pass a bound parameter by position.
        """
        positional = self.node.params.params
        bound = [one for one in positional if one in self.bound]
        takes_one = len(self.node.params.posonly_params) + len(positional) > len(bound)
        if not bound or (takes_one and self._only_loaders_call(uses)):
            return
        name = bound[0].name.value
        raise NotMovable(
            f"the rewrite would bind the default of `{name}` with `partial`, which breaks calls that pass `{name}` by "
            f"position; make `{name}` keyword-only"
        )

    def _only_loaders_call(self, uses: Iterable[cst.CSTNode]) -> bool:
        asked = self.project.search(_ASKED_OF_LOADERS, *_CALLED_BY_LOADERS)
        return not asked and all(map(self._is_given_to_loader, uses))

    def _is_given_to_loader(self, use: cst.CSTNode) -> bool:
        match next_use_of_value(self.module, use):
            case ConditionalOperand(whole):
                return self._is_given_to_loader(whole)
            case ValueAssignment((cst.Name(),), _):
                return True  # the reads of the assigned name are also in `uses`, and checked there
            case CallArgument(cst.Arg(keyword=cst.Name(value=keyword)), call):
                return keyword in _CALLED_BY_LOADERS and is_call_of(self.module, call, _LOADER_CALL, self.project)
        return False

    def check_indistinguishable(
        self,
        uses: Iterable[cst.CSTNode],
        *,
        replaced: bool = False,
        by_partial: bool = False,
    ) -> None:
        """Check that no code can distinguish the function from its replacement.

        Args:
            uses: the definition of the function, and the code that reads its name.
            replaced: whether an existing function or object replaces the function, so that no code moves.
            by_partial: whether the replacement is a ``partial`` although the function captures no variable. The default
                False means that only a function with captured variables or bound defaults becomes a ``partial``.

        Raises:
            NotMovable: some code may notice the difference.
        """
        uses = list(uses)
        holds = replaced or by_partial or self.is_changed
        if any(isinstance(next_use_of_value(self.module, use), AttributeRead) for use in uses):
            raise NotMovable("the code uses attributes of the function")
        if any(self._is_inspected(use) for use in uses):
            raise NotMovable("the project reads the function with `inspect`")
        if (place := find_read_of_function_attribute(self.project, CODE)) is not None:
            raise NotMovable(f"the project reads an attribute of functions such as `__name__` or `__code__` ({place})")
        if holds and (place := find_read_of_function_attribute(self.project, DETAILS)) is not None:
            raise NotMovable(f"the project reads function attributes that the replacement does not have ({place})")
        found_uses = find_function_uses(self.module, self.project, self.node)
        if (place := found_uses.get(FunctionUseKind.LOST)) is not None:
            raise NotMovable(f"the project uses the function in a way that cannot be traced ({place})")
        if (place := found_uses.get(FunctionUseKind.ATTRIBUTE)) is not None:
            raise NotMovable(f"the project may set attributes on the function ({place})")
        if (
            (by_partial or self.captives or self.bound)
            and not replaced
            and (
                self.project.search(_TELLS_PARTIALS, "partial")
                or has_dynamic_attribute_read(self.project, "func", "keywords")
            )
        ):
            raise NotMovable("the project checks for `partial` objects, and the rewrite would create one")
        if holds and any(self._may_be_method(use) for use in uses):
            raise NotMovable(
                "an attribute of a class stores the function, so Python binds the function as a method; Python would "
                "not bind the replacement"
            )
        if holds and (place := found_uses.get(FunctionUseKind.METHOD)) is not None:
            raise NotMovable(
                f"the project may store the function in a class ({place}), so Python may bind the function as a "
                "method; Python would not bind the replacement"
            )
        if holds and (place := found_uses.get(FunctionUseKind.CLASS)) is not None:
            raise NotMovable(f"the project checks the class of the function ({place})")
        is_new_object = (by_partial or self.captives or self.bound) and not replaced and self.method is None
        if not is_new_object and (place := found_uses.get(FunctionUseKind.KEY)) is not None:
            raise NotMovable(f"the project may use the function as a key or in a set, or read its `id()` ({place})")
        if holds and may_be_deep_copied(self.module, self.project, self.node):
            raise NotMovable("a deep copy of an object that contains the function would also copy the captured values")

    def _is_inspected(self, use: cst.CSTNode) -> bool:
        match next_use_of_value(self.module, use):
            case CallArgument(_, call):
                return any(name.startswith("inspect.") for name in self.module.qualified_names(call.func))
        return False

    def _may_be_method(self, use: cst.CSTNode) -> bool:
        """Return whether a use of the function may store the function in a class.

        Python would then pass ``self`` as first argument.
        """
        module, step = self.module, next_use_of_value(self.module, use)
        match step:
            case ConditionalOperand(whole):
                return self._may_be_method(whole)
            case ValueAssignment(targets):
                owners = (target.value for target in targets if isinstance(target, cst.Attribute))
                names = (target for target in targets if isinstance(target, cst.Name))
                in_class = any(isinstance(module.scopes.scope_of(name).node, cst.ClassDef) for name in names)
                return in_class or any(map(self._may_be_class, owners))
            case DictEntry(_, display):
                match next_use_of_value(module, display):
                    case CallArgument(_, cst.Call(func=cst.Name(value="type"))):
                        return True
            case CallArgument(argument, cst.Call(func=cst.Name(value="setattr"), args=[owner, _, given])):
                return given is argument and self._may_be_class(owner.value)
        return False

    def _may_be_class(self, owner: cst.BaseExpression) -> bool:
        """Return whether ``owner`` may be a class in an assignment of the function to an attribute of ``owner``.

        If ``owner`` is unknown, the result is False only if the function has exactly one positional parameter, which is
        not named ``self``, and no ``*args``. As a method, such a function would get ``self`` as its only argument.
        """
        module = self.module
        match owner:
            case cst.Call(func=called):
                return is_name(called, "type")
            case cst.Name(value="cls") | cst.Attribute(attr=cst.Name(value="__class__")):
                return True
            case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)) if name[0].isupper():
                return True
            case cst.Name(value=name):
                found = module.scopes.lookup(name, owner)
                if found is not None and name == "self" and _owning_method(module, found) is not None:
                    return False
        given = self.node.params
        positional = [*given.posonly_params, *given.params]
        return len(positional) != 1 or positional[0].name.value == "self" or isinstance(given.star_arg, cst.Param)

    def free_name(self, wishes: list[str], taken: Collection[str]) -> str:
        """Return a free name for the new function, or for the new method.

        The name of a new method must also be free in the bases and subclasses of the class.

        Args:
            wishes: the preferred names, the best name first.
            taken: further names that are not free. For a method, only entries of the form ``self.NAME`` count.

        Raises:
            NotMovable: code sets attributes with computed names, so no name is provably free.
        """
        owner = None if self.method is None else self.module.enclosing_class(self.method)
        project = self.project
        if owner is None:
            set_elsewhere = {wish for wish in wishes if new_name_may_clash(self.module, project, wish)}
            return move.first_unused_name(self.module, wishes, set_elsewhere.union(taken))
        if may_set_computed_attributes(self.module, project, owner):
            raise NotMovable(
                "the rewrite would make the function a method, and code that sets attributes under computed names (as "
                "in `setattr(self, name, value)`) may hide the method"
            )
        if _may_inherit_private_methods(self.module, project, owner):
            around = f"_{enclosing_function_name(self.module, self.node)}_"
            wishes = [one if one.startswith(around) else around + one.lstrip("_") for one in wishes]
        related = has_bases_or_subclasses(self.module, project, owner)
        used = {one.removeprefix("self.") for one in taken if one.startswith("self.")}
        name = move.first_unused_name(self.module, wishes, used)
        while may_access_attribute_outside_class(project, name) or (related and project.search(rf"\b{name}\b", name)):
            used.add(name)
            name = move.first_unused_name(self.module, wishes, used)
        return name

    def expression_for(self, name: str) -> str:
        """Return the expression, ``name`` or ``self.name``, by which the old place refers to the new function."""
        return name if self.method is None else f"self.{name}"

    def value(self, name: str, around: int) -> tuple[str, frozenset[Import]]:
        """Return the source of the expression that replaces the function, and the import that this expression needs.

        Args:
            name: name of the new function or method.
            around: number of columns that other code needs in the line of the expression.

        Raises:
            NotMovable: the expression needs ``partial``, but the name ``partial`` is bound to another object at this
                place.
        """
        module = self.module
        spans = [(one.name.value, move.span_with_parentheses(module, one.default)) for one in self.bound if one.default]
        values = [*self.captives, *(f"{keyword}={module.text[start:end]}" for keyword, (start, end) in spans)]
        return (
            self.partial_of(self.expression_for(name), values, around)
            if values
            else (self.expression_for(name), frozenset())
        )

    def partial_of(self, function: str, values: Sequence[str], around: int) -> tuple[str, frozenset[Import]]:
        """Return the source of a call of ``partial``, and the import that this call needs.

        Args:
            function: source of the function.
            values: sources of the arguments to bind.
            around: number of columns that other code needs in the line of the expression.

        Raises:
            NotMovable: the name ``partial`` is bound to another object at the place of the call.
        """
        module, node = self.module, self.node
        partial, imports = "partial", frozenset({("functools", "partial")})
        place = module.span(node)[0]
        spellings = (("partial", "functools.partial", "partial"), ("functools", "functools", "functools.partial"))
        for word, path, expression_for in spellings:
            owner = module.scopes.lookup(word, node)
            bindings = owner.bindings if owner is not None else []
            if find_names_from_star_imports(self.project, module, word) - {path} or may_be_patched_elsewhere(
                module, self.project, word
            ):
                continue
            earlier = all(one.qualified == path and module.span(one.node)[0] < place for one in bindings)
            if earlier and any(import_always_runs(module, one.node) for one in bindings):
                partial, imports = expression_for, frozenset()
                break
        else:
            owner = module.scopes.lookup("partial", node)
            is_hidden = owner is not None and not isinstance(owner.scope.node, cst.Module)
            if is_hidden or may_be_patched_elsewhere(module, self.project, "partial"):
                raise NotMovable(
                    "the rewrite needs `functools.partial`, but `partial` may refer to another object here"
                )
        indent, style = module.indentation(place), self.project.code_style
        return call_text(module, style, partial, [function, *values], indent=indent, columns_taken=around), imports

    def parameters(self) -> list[Edit]:
        """Return edits that add parameters for captured values, and remove the defaults of bound parameters.

        The new parameters are positional-only and come first, so that no caller can pass other values.
        """
        module, own = self.module, function_parameters(self.node)
        first = [*(["self"] if self.method is not None else []), *self.captives]
        if self.captives and not self.node.params.posonly_params:
            first.append("/")
        start = module.span(self.node.params)[0]
        edits = [Edit(start, start, ", ".join(first) + (", " if own else ""))] if first else []
        for one in self.bound:
            named = one.name if one.annotation is None else one.annotation.annotation
            edits.append(
                Edit(
                    move.span_with_parentheses(module, named)[1],
                    move.span_with_parentheses(module, one.default or named)[1],
                    "",
                )
            )
        return edits

    def parameter_text(self) -> str:
        """Return the source of the new function's parameters."""
        return apply_edits_in_span(self.module.text, self.module.span(self.node.params), self.parameters())

    def definition_edits(self, text: str) -> tuple[Edit, ...]:
        """Return edits that insert ``text``, the new definition, into the module or below the method."""
        if self.method is None:
            return move.insert_definition(self.module, self.place, text)
        offset, newline = move.definition_range(self.module, self.method)[1], self.module.newline
        lead = "" if self.module.text[:offset].endswith(("\n", "\r")) else newline
        return (Edit(offset, offset, lead + newline + text.rstrip("\r\n") + newline),)


def _names_are_not_inspected(module: Module, project: Project, owner: cst.ClassDef, depth: int = 0) -> bool:
    """Return False if code of a class, its module or its bases may inspect the names in the class, else True."""
    if owner.keywords or owner.decorators or depth == _BASES_LIMIT or may_list_attributes(module):
        return False
    for base in owner.bases:
        names = resolve_node(project, module, base.value)
        if not names:
            return False
        for name in names:
            found = find_class(project, name)
            if found is None and is_defined_in_project(project, name):
                return False
            if found is not None and not _names_are_not_inspected(found[0], project, found[1], depth + 1):
                return False
    return True


def _may_inherit_private_methods(module: Module, project: Project, owner: cst.ClassDef, depth: int = 0) -> bool:
    """Return whether a class may inherit from a library class that has private methods."""
    for name in qualified_base_names(module, project, owner):
        found = find_class(project, name)
        if found is None and not _PLAIN_BASE.fullmatch(name):
            return True
        if found is not None and (
            depth == _BASES_LIMIT or _may_inherit_private_methods(found[0], project, found[1], depth + 1)
        ):
            return True
    return False


def _owning_method(module: Module, captured: Variable | CapturedName) -> cst.FunctionDef | None:
    """Return the method whose ``self`` a function captures; None if the captured variable is not such a ``self``."""
    method = captured.scope.node
    if not isinstance(method, cst.FunctionDef) or method.decorators:
        return None
    parameters = [*method.params.posonly_params, *method.params.params]
    is_first = bool(parameters) and parameters[0].name.value == "self" and len(captured.bindings) == 1
    owner = module.scopes.scope_of(method).node
    makes_objects = isinstance(owner, cst.ClassDef) and not any(is_name(base.value, "type") for base in owner.bases)
    return method if is_first and makes_objects else None
