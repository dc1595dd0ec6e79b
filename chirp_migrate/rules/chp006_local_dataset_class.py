"""CHP006: dataset classes defined inside functions move to the module, where worker processes find them (R-000-1.3)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import ClassVar

import libcst as cst
import libcst.matchers as m

from chirp_migrate.closures import captured_names, early_binding_problem, is_read
from chirp_migrate.lifting import free_name, insert_above
from chirp_migrate.module import Module, matching
from chirp_migrate.plan import Edit, Safety
from chirp_migrate.project import Project
from chirp_migrate.rules.base import Proposal, Rule
from chirp_migrate.rules.chp005_dataset_wrapper import constructor_calls
from chirp_migrate.statements import block_deletion

_DATASETS = frozenset({"torch.utils.data.Dataset", "torch.utils.data.IterableDataset"})


class LocalDatasetClass(Rule):
    code: ClassVar[str] = "CHP006"
    name: ClassVar[str] = "local-dataset-class"
    reason: ClassVar[str] = (
        "Worker processes look a class up by its name in a module; a class inside a function has none, so its datasets "
        "cannot be pickled. At module level it can, and what it took from the function comes in as arguments."
    )
    safety: ClassVar[Safety] = Safety.SAFE
    trigger: ClassVar[tuple[str, ...]] = ("Dataset",)

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Move function-local dataset classes in front of the function."""
        for node in matching(module.tree, m.ClassDef()):
            assert isinstance(node, cst.ClassDef)
            if module.enclosing_function(node) is None:
                continue
            names = {n for base in node.bases for n in project.resolved_names(module, base.value)}
            if names & _DATASETS or any(n.startswith("chirpid_patch.WorkerSafe") for n in names):
                yield _lift(module, node)


def _lift(module: Module, node: cst.ClassDef) -> Proposal:
    offset, title = module.span(node.name)[0], node.name.value
    moved = _Moved(module, node)
    problem = moved.problem()
    if problem is not None:
        return Proposal(
            offset,
            f"{title} is local to a function and cannot go to worker processes, but {problem}; move it by hand",
        )
    calls = constructor_calls(module, node)
    if calls is None:
        return Proposal(
            offset, f"{title} is local to a function and used as a value there; move it to the module by hand"
        )
    name = free_name(module, title) if module.text.count(f"class {title}") > 1 else title
    edits = [
        block_deletion(module, node),
        insert_above(module, module.top_level_statement(node), moved.text(name)),
    ]
    for call in calls:
        if name != title:
            edits.append(Edit(*module.span(call.func), name))
        end = module.span(call)[1] - 1
        separator = ", " if call.args else ""
        added = ", ".join(f"{captured}={captured}" for captured in moved.captured)
        if added:
            edits.append(Edit(end, end, separator + added))
    return Proposal(
        offset,
        f"{title} is local to a function and cannot go to worker processes: it moves to the module",
        tuple(edits),
    )


class _Moved:
    """A class on its way to the module: what it captures becomes keyword-only constructor arguments."""

    def __init__(self, module: Module, node: cst.ClassDef) -> None:
        self.module, self.node = module, node
        self.captured = captured_names(module, node)
        body = node.body.body if isinstance(node.body, cst.IndentedBlock) else ()
        self.methods = [s for s in body if isinstance(s, cst.FunctionDef)]
        self.init = next((f for f in self.methods if f.name.value == "__init__"), None)
        taken = {n.attr.value for n in matching(node, m.Attribute(m.Name("self"))) if isinstance(n, cst.Attribute)}
        taken |= {f.name.value for f in self.methods}
        self.attribute = {c: c if c not in taken else f"_captured_{c}" for c in self.captured}

    def problem(self) -> str | None:
        """Why the class cannot simply be moved."""
        node, module = self.node, self.module
        if node.decorators or node.keywords or not isinstance(node.body, cst.IndentedBlock):
            return "it is decorated or takes class keywords"
        if any(f.decorators for f in self.methods) and self.captured:
            return "one of its methods is decorated"
        if any(not f.params.params or f.params.params[0].name.value != "self" for f in self.methods):
            return "one of its methods does not take `self`"
        if self.init is not None and (self.init.params.star_kwarg or isinstance(self.init.params.star_arg, cst.Param)):
            return "its constructor takes any arguments"
        if node.name.value in self.captured:
            return "it refers to itself by name"
        inside = [self.module.span(f) for f in self.methods]
        for read in self._reads():
            place = module.span(read)[0]
            if not any(start <= place < end for start, end in inside):
                return f"its class body uses `{read.value}` of the function"
        strings = matching(node, m.SimpleString() | m.FormattedString() | m.ConcatenatedString())
        if any("\n" in module.source(s) and not isinstance(module.parents[s], cst.Expr) for s in strings):
            return "it holds strings of several lines"
        return early_binding_problem(module, node, self.captured)

    def _reads(self) -> list[cst.Name]:
        names = matching(self.node, m.Name())
        return [n for n in names if isinstance(n, cst.Name) and n.value in self.captured and is_read(self.module, n)]

    def text(self, name: str) -> str:
        """Source of the class at module level, newlines as ``\\n``."""
        module = self.module
        start = module.line_start(module.span(self.node)[0])
        end = module.line_end(module.span(self.node)[1] - 1)
        edits = [Edit(*module.span(self.node.name), name)]
        init_span = module.span(self.init) if self.init is not None else (0, 0)
        for read in self._reads():
            a, b = module.span(read)
            if not init_span[0] <= a < init_span[1]:
                edits.append(Edit(a, b, f"self.{self.attribute[read.value]}"))
        indent = module.indentation(module.span(self.methods[0])[0]) if self.methods else "    "
        inner = indent + "    "
        stores = [f"{inner}self.{self.attribute[c]} = {c}" for c in self.captured]
        if self.captured and self.init is not None:
            edits.append(self._parameters(self.init))
            first = module.line_start(module.span(statement_after_docstring(self.init))[0])
            edits.append(Edit(first, first, "\n".join(stores) + "\n"))
        elif self.captured:
            place = module.line_start(module.span(self.methods[0])[0])
            header = f"{indent}def __init__(self, *, {', '.join(self.captured)}):"
            edits.append(Edit(place, place, "\n".join([header, *stores]) + "\n\n"))
        text = module.text[start:end]
        for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
            text = text[: edit.start - start] + edit.replacement + text[edit.end - start :]
        return textwrap.dedent(text.replace("\r\n", "\n")).rstrip("\n")

    def _parameters(self, init: cst.FunctionDef) -> Edit:
        parameters = [*init.params.params, *init.params.kwonly_params]
        last = parameters[-1]
        end = self.module.span(last)[1]
        if last.default is not None:
            brackets = getattr(last.default, "rpar", ())
            end = self.module.span(last.default)[1] + sum(len(self.module.source(one)) for one in brackets)
        star = "" if init.params.kwonly_params else "*, "
        return Edit(end, end, f", {star}{', '.join(self.captured)}")


def statement_after_docstring(function: cst.FunctionDef) -> cst.CSTNode:
    """First statement of a function that is not its docstring (the docstring when there is nothing else)."""
    body = list(function.body.body)
    documented = m.matches(body[0], m.SimpleStatementLine([m.Expr(m.SimpleString() | m.ConcatenatedString())]))
    return body[1] if documented and len(body) > 1 else body[0]
