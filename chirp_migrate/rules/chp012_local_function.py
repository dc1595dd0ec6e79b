"""CHP012: functions inside functions that loaders and datasets hold move to where workers find them (R-000-1.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import libcst as cst

from chirp_migrate.closures import captures, reads_of
from chirp_migrate.destinations import Destinations, may_have_destinations
from chirp_migrate.lifting import (
    NotMovable,
    definition_range,
    free_name,
    import_edits,
    import_lines,
    insert_above,
    insert_behind,
    insertion_offset,
    joined,
    left_over_imports,
    moved,
    nests,
    removal,
)
from chirp_migrate.module import Module
from chirp_migrate.movability import (
    LOOKS_AT_FUNCTIONS,
    check_body,
    check_calls,
    check_values,
    is_unused,
    method_name,
    outer_name,
    owning_method,
)
from chirp_migrate.origins import backend_holds
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.signatures import (
    bindings_of,
    bound_defaults,
    check_annotations,
    parameter_edits,
    parameters_offset,
    partial_call,
)

#: Decorators that do the same anywhere, and whose result is found by the name of the function.
_HARMLESS = frozenset({"torch.no_grad", "torch.inference_mode", "torch.enable_grad"})


class LocalFunction(Rule):
    code: ClassVar[str] = "CHP012"
    name: ClassVar[str] = "local-function"
    reason: ClassVar[str] = (
        "Worker processes look a function up by its name in a module; one inside a function has none there, so a "
        "loader or dataset that holds it cannot be pickled. At module level it can, and functools.partial binds what "
        "it closed over."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("def",)

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with functions in functions, and with words for what may hold them."""
        return may_have_destinations(text) and nests(text, "def")

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Move local functions that reach a loader, a dataset or a transform."""
        destinations = Destinations(module, project)
        taken: set[str] = set()
        for node in module.find(cst.FunctionDef):
            if _is_local(module, node) and destinations.of_function(node) is not None:
                try:
                    yield _Lifted(module, project, node).proposal(taken)
                except NotMovable as reason:
                    yield Proposal(
                        module.span(node.name)[0],
                        f"`{node.name.value}` is defined in a function, where worker processes cannot find it, but "
                        f"{reason}; make it a function of the module by hand",
                    )


def _is_local(module: Module, node: cst.FunctionDef) -> bool:
    scope = module.scopes.scope_of(node)
    return isinstance(scope.node, cst.FunctionDef) and scope.elsewhere.get(node.name.value) is not cst.Global


class _Lifted:
    """A local function on its way out of the function around it."""

    def __init__(self, module: Module, project: Project, node: cst.FunctionDef) -> None:
        self.module, self.project, self.node = module, project, node
        self.title = node.name.value
        self.scope = module.scopes.scope_of(node)
        self.uses = reads_of(module, self.title, self.scope)
        self.captured = captures(module, node.body)
        self.is_recursive = self.captured.pop(self.title, None) is not None
        self.imports = [one for one in self.captured.values() if one.is_import]
        self.values = [one for one in self.captured.values() if not one.is_import]

    def proposal(self, taken: set[str]) -> Proposal:
        """The edits that move the function; its new name is added to ``taken``.

        Raises:
            NotMovable: it cannot be moved, for the reason given.
        """
        module, node = self.module, self.node
        self._check()
        place = insertion_offset(module, node)
        bound = bound_defaults(module, node.params, place)
        check_annotations(module, node, place)
        if bound:
            positional = [*node.params.posonly_params, *node.params.params]
            check_calls(module, self.uses, len([one for one in positional if one not in bound]))
        own = self.captured.get("self")
        method = owning_method(module, own) if own is not None else None
        keywords = [one.name for one in self.values if method is None or one is not own]
        if backend_holds(self.project, LOOKS_AT_FUNCTIONS):
            raise NotMovable("the backend asks functions for their names or code")
        goes = self._is_plain() and not (keywords or bound or method)
        if self.is_recursive and not goes:
            raise NotMovable("it calls itself by a name that is local to the function")
        name = self._name(goes, method, taken)
        values = bindings_of(module, bound, keywords)
        value, imports = partial_call(module, node, f"self.{name}" if method else name, values)

        start, end = definition_range(module, node)
        indent = module.indentation(module.span(method)[0]) if method is not None else ""
        renamed = [Edit(*module.span(use), name) for use in self.uses if goes and name != self.title]
        inside = [
            Edit(*module.span(node.name), name),
            *parameter_edits(
                module, node.params, parameters_offset(module, node), bound, keywords, "self" if method else ""
            ),
            *import_edits(module, node, indent, import_lines(module, self.imports)),
            *(edit for edit in renamed if start <= edit.start < end),
        ]
        text = moved(module, (start, end), indent, inside)
        edits = [edit for edit in renamed if not start <= edit.start < end]
        edits.append(insert_behind(module, method, text) if method is not None else insert_above(module, node, text))
        edits += left_over_imports(module, (start, end), self.imports)
        if goes:
            edits.append(removal(module, start, end))
        else:
            stood = module.indentation(module.span(node)[0])
            edits.append(Edit(start, end, f"{stood}{self.title} = {value}{module.newline}"))
        taken.add(f"self.{name}" if method else name)
        what = f"the method {name}" if method else f"the function {name} of the module"
        message = f"`{self.title}` is defined in a function, where worker processes cannot find it: it becomes {what}"
        return Proposal(module.span(node.name)[0], message, joined(edits), imports)

    def _check(self) -> None:
        module, node = self.module, self.node
        for one in node.decorators:
            called = one.decorator.func if isinstance(one.decorator, cst.Call) else one.decorator
            names = module.qualified_names(called)
            if not names or not names <= _HARMLESS or captures(module, one):
                raise NotMovable("it is decorated")
        if node.type_parameters is not None:
            raise NotMovable("it has type parameters")
        if any(isinstance(module.parents[use], cst.Attribute) for use in self.uses):
            raise NotMovable("attributes of it are used")
        if any(isinstance(module.parents[use], cst.Del) for use in self.uses):
            raise NotMovable("its name is deleted")
        check_body(module, node)
        check_values(module, node, self.values)

    def _is_plain(self) -> bool:
        """Whether the definition is the only one of its name, straight in the body of the function."""
        owner = self.scope.node
        assert isinstance(owner, cst.FunctionDef)
        return len(self.scope.bindings[self.title]) == 1 and self.module.parents[self.node] is owner.body

    def _name(self, goes: bool, method: cst.FunctionDef | None, taken: set[str]) -> str:
        module, title = self.module, self.title
        namesakes = [one for one in module.find(cst.FunctionDef) if one.name.value == title and one is not self.node]
        if goes and title not in taken and not namesakes and is_unused(module, self.project, title, self.scope):
            return title
        bare = title.strip("_")
        wishes = [f"_{bare}"] if not any(_is_local(module, one) for one in namesakes) else []
        wishes.append(f"_{outer_name(module, self.node)}_{bare}")
        if method is not None:
            return method_name(module, self.project, method, wishes, taken)
        return free_name(module, wishes, taken)
