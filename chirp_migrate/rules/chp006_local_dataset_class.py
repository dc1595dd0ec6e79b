"""CHP006: dataset classes defined inside functions move to the module, where worker processes find them (R-000-1.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

import libcst as cst

from chirp_migrate.closures import Capture, captures, reads_of
from chirp_migrate.destinations import Destinations, base_names
from chirp_migrate.import_time import check_class
from chirp_migrate.lifting import (
    NotMovable,
    definition_range,
    free_name,
    import_edits,
    import_lines,
    insert_above,
    insertion_offset,
    joined,
    left_over_imports,
    moved,
    nests,
    removal,
    statement_after_docstring,
)
from chirp_migrate.module import Module
from chirp_migrate.movability import check_values, is_unused
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.rules.chp005_dataset_wrapper import constructor_calls
from chirp_migrate.signatures import parameter_edits, parameters_offset

_WORDS = re.compile(r"Dataset|Sampler")
#: Bases without a constructor that would have to be called.
_BARE = re.compile(r"torch\.utils\.data\.((dataset|sampler)\.)?(Dataset|IterableDataset|Sampler)|typing\.Generic")


class LocalDatasetClass(Rule):
    code: ClassVar[str] = "CHP006"
    name: ClassVar[str] = "local-dataset-class"
    reason: ClassVar[str] = (
        "Worker processes look a class up by its name in a module; a class inside a function has none, so its datasets "
        "cannot be pickled. At module level it can, and what it took from the function comes in as arguments."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset", "Sampler")

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with classes in functions, and with words for what these may be."""
        return _WORDS.search(text) is not None and nests(text, "class")

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Move function-local dataset and sampler classes in front of the function."""
        destinations = Destinations(module, project)
        taken: set[str] = set()
        for node in module.find(cst.ClassDef):
            if module.enclosing_function(node) is not None and destinations.of_class(node) is not None:
                try:
                    yield _Moved(module, project, node).proposal(taken)
                except NotMovable as reason:
                    yield Proposal(
                        module.span(node.name)[0],
                        f"{node.name.value} is local to a function and cannot go to worker processes, but {reason}; "
                        "move it by hand",
                    )


class _Moved:
    """A class on its way to the module: what it captures becomes keyword-only constructor arguments."""

    def __init__(self, module: Module, project: Project, node: cst.ClassDef) -> None:
        self.module, self.project, self.node = module, project, node
        self.scope = module.scopes.scope_of(node)
        self.title = node.name.value
        captured = captures(module, node.body)
        captured.pop(self.title, None)
        self.imports = [one for one in captured.values() if one.is_import]
        self.values = [one for one in captured.values() if not one.is_import]
        body = node.body.body if isinstance(node.body, cst.IndentedBlock) else ()
        self.methods = [one for one in body if isinstance(one, cst.FunctionDef)]
        self.init = next((one for one in self.methods if one.name.value == "__init__"), None)
        on_self = {one.attr.value for one in module.find(cst.Attribute) if node in module.ancestors(one)}
        on_self |= {one.name.value for one in self.methods}
        # A base that is not known to keep nothing may use any name for itself.
        bare = all(_BARE.fullmatch(base) for base in base_names(module, project, node))
        self.attribute = {
            one.name: f"_captured_{one.name}" if one.name in on_self or not bare else one.name for one in self.values
        }

    def proposal(self, taken: set[str]) -> Proposal:
        """The edits that move the class; its new name is added to ``taken``.

        Raises:
            NotMovable: it cannot be moved, for the reason given.
        """
        module, node, title = self.module, self.node, self.title
        self._check()
        calls = constructor_calls(module, node)
        if calls is None:
            raise NotMovable("it is used as a value there")
        namesakes = [one for one in module.find(cst.ClassDef) if one.name.value == title and one is not node]
        is_free = not namesakes and is_unused(module, self.project, title, self.scope)
        name = title if is_free else free_name(module, [title], taken)
        taken.add(name)
        start, end = definition_range(module, node)
        own = [
            one for one in reads_of(module, title, self.scope) if start <= module.span(one)[0] < end and name != title
        ]
        inside = [Edit(*module.span(node.name), name), *(Edit(*module.span(one), name) for one in own)]
        text = moved(module, (start, end), "", [*inside, *self._handed_in(), *self._imported()])
        edits = [removal(module, start, end), insert_above(module, node, text)]
        edits += left_over_imports(module, (start, end), self.imports)
        for call in calls:
            edits += self._construction(call, name)
        message = f"{title} is local to a function and cannot go to worker processes: it moves to the module"
        return Proposal(module.span(node.name)[0], message, joined(edits))

    def _construction(self, call: cst.Call, name: str) -> Iterator[Edit]:
        """Edits of a constructor call: the name, and the captured values."""
        if name != self.title:
            yield Edit(*self.module.span(call.func), name)
        for one in self.values:
            owner = self.module.scopes.lookup(one.name, call)
            if owner is None or owner[0] is not one.scope:
                raise NotMovable(f"`{one.name}` is another name where it is constructed")
        if self.values:
            end = self.module.span(call)[1] - 1
            comma = call.args and not isinstance(call.args[-1].comma, cst.Comma)
            yield Edit(end, end, (", " if comma else "") + ", ".join(f"{one.name}={one.name}" for one in self.values))

    def _check(self) -> None:
        node, module = self.node, self.module
        if node.decorators or node.keywords:
            raise NotMovable("it is decorated or takes class keywords")
        for name in captures(module, *(one.value for one in node.bases)):
            raise NotMovable(f"its base class comes from `{name}` of the function")
        for one in (*self.values, *self.imports):
            self._check_reads(one)
        check_values(module, node, self.values)
        check_class(module, self.project, node, insertion_offset(module, node))
        if self.values and self.init is None:
            bases = set(base_names(module, self.project, node))
            if not all(_BARE.fullmatch(base) for base in bases):
                raise NotMovable("the constructor of its base class would have to be called")
        if self.values and self.init is not None and not isinstance(self.init.body, cst.IndentedBlock):
            raise NotMovable("its constructor is written in one line")

    def _check_reads(self, captured: Capture) -> None:
        """See that a captured name is only read in methods, where ``self`` is known."""
        for read in captured.reads:
            method = self._method_of(read)
            if method is None:
                raise NotMovable(f"its class body uses `{read.value}` of the function")
            if captured.is_import or method is self.init:
                continue
            own = self.module.scopes.lookup("self", read)
            if method.decorators or own is None or own[0].node is not method:
                raise NotMovable(f"`{read.value}` of the function is used where `self` is not known")

    def _method_of(self, read: cst.CSTNode) -> cst.FunctionDef | None:
        """The method in whose body a name is read."""
        around = set(self.module.ancestors(read))
        return next((one for one in self.methods if one.body in around), None)

    def _handed_in(self) -> list[Edit]:
        """Edits that keep what the constructor is given, and read it from ``self``."""
        module = self.module
        edits = [
            Edit(*module.span(read), f"self.{self.attribute[one.name]}")
            for one in self.values
            for read in one.reads
            if self._method_of(read) is not self.init
        ]
        if not self.values:
            return edits
        names = [one.name for one in self.values]
        old = module.indentation(module.span(self.node)[0])
        if self.init is not None:
            first = module.line_start(module.span(statement_after_docstring(self.init))[0])
            inner = module.indentation(first).removeprefix(old)
            edits += parameter_edits(module, self.init.params, parameters_offset(module, self.init), [], names)
            lines = [f"{inner}self.{self.attribute[name]} = {name}" for name in names]
            return [*edits, Edit(first, first, "".join(line + module.newline for line in lines))]
        first = definition_range(module, self.methods[0])[0]
        step = module.indentation(module.span(self.methods[0])[0]).removeprefix(old)
        lines = [f"{step}def __init__(self, *, {', '.join(names)}):"]
        lines += [f"{step}{module.tree.default_indent}self.{self.attribute[name]} = {name}" for name in names]
        return [*edits, Edit(first, first, "".join(line + module.newline for line in (*lines, "")))]

    def _imported(self) -> list[Edit]:
        """Edits that repeat imports of the function in the methods that use them."""
        edits: list[Edit] = []
        for method in self.methods:
            used = [one for one in self.imports if any(self._method_of(read) is method for read in one.reads)]
            old = self.module.indentation(self.module.span(self.node)[0])
            indent = self.module.indentation(self.module.span(method)[0]).removeprefix(old)
            edits += import_edits(self.module, method, indent, import_lines(self.module, used))
        return edits
