"""CHP028: classes that chain transforms let a batch through at once (R-000-1.2)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

import libcst as cst

from chirp_migrate.analysis.dataflow.uses_elsewhere import has_subclass, is_quoted, passed_by_name
from chirp_migrate.analysis.datasets.delegating_transform import DelegatingTransform, handing_on, initialises_super
from chirp_migrate.edits.statements import block_deletion, line_deletion
from chirp_migrate.rules.api import (
    Edit,
    Module,
    Outline,
    Project,
    Proposal,
    Rule,
    Safety,
    functions_of,
    last_name,
    runtime,
)

#: What augmentation that the runtime can do for whole batches is written with.
_AUGMENTS = ("time_mask_param", "randn_like")


class ComposedTransforms(Rule):
    """Requires, of a class of methods and docstrings at the top level, in a project with masks or noise of its own:

    - `no-base`: it inherits from nothing but `object`, and has no decorator, keyword or type parameter.
    - `methods-only`: each of its methods is defined once, and there is nothing else in it.
    - `plain-attributes`: no `__getattr__`, `__getattribute__`, `__setattr__`, `__new__` or `__init_subclass__`.
    - `keeps-its-parameter`: `__init__`, not decorated, has one parameter besides `self`, keeps it as it is in an
      attribute, and does nothing else but `super().__init__()` and `if …: raise …`.
    - `only-hands-on`: `__call__`, neither decorated nor `async`, has one parameter besides `self`, without a default,
      and returns `self.attribute(x)`, or sets `x = each(x)` in one loop over `self.attribute` and returns `x`.
    - `passed-by-position`: no call in the project passes an argument by the name of that parameter (a search by words);
      shipped, it is called `sample`.
    - `attribute-unread`: an attribute that the shipped class calls otherwise (`transforms`, `lambd`) occurs nowhere
      else in the project, neither after a dot nor in quotes.
    - `name-free`: then the class has no attribute or method yet of the name in the shipped class.
    - `no-subclass`: then, and where `__init__` calls `super().__init__()`, no class inherits from it.
    """

    code = "CHP028"
    name = "composed-transforms"
    reason = (
        "A dataset cannot see into a class of the project's own that only calls other transforms, so masks and noise "
        "inside are drawn sample by sample. The shipped Compose and Lambda do the same, and are taken apart: what "
        "they hold is applied to a whole batch where it can be. The class keeps its name and constructor."
    )
    safety = Safety.SAFE
    trigger = ("__call__",)

    def concerns(self, text: str, project: Project) -> bool:
        """Modules with callable classes, in a project that has masks or noise of its own."""
        return super().concerns(text, project) and any(project.search(rf"\b{word}\b", word) for word in _AUGMENTS)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Only where a class at the top level inherits from nothing and has the two methods alone that hand on."""
        return any(
            isinstance(statement, ast.ClassDef)
            and all(last_name(base) == "object" for base in statement.bases)
            and not (statement.keywords or statement.decorator_list)
            and _may_hand_on(functions_of(statement))
            for statement in outline.tree.body
        )

    def check(self, module: Module, project: Project) -> Iterable[Proposal]:
        """Rewrite top-level classes that hand their argument on, to one callable or to several in turn."""
        for statement in module.tree.body:
            if isinstance(statement, cst.ClassDef) and (hands_on := handing_on(module, statement)) is not None:
                yield _examine(module, project, statement, hands_on)


def _may_hand_on(methods: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> bool:
    """Whether the two methods take one argument, and ``__call__`` returns in one or two steps."""
    if not methods.keys() >= {"__init__", "__call__"}:
        return False
    steps = [statement for statement in methods["__call__"].body if not _is_text(statement)]
    plain = all(len(methods[name].args.args) == 2 for name in ("__init__", "__call__"))
    return plain and len(steps) in (1, 2) and isinstance(steps[-1], ast.Return)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant | ast.JoinedStr)


def _examine(module: Module, project: Project, node: cst.ClassDef, hands_on: DelegatingTransform) -> Proposal:
    shipped, attribute = ("Compose", "transforms") if hands_on.composes else ("Lambda", "lambd")
    title, offset = node.name.value, module.span(node.name)[0]
    problem = _problem(module, project, node, hands_on, attribute)
    if problem is not None:
        return Proposal(offset, f"`{title}` does what `chirpid_patch.{shipped}` does; left alone: {problem}")
    base = f"WorkerSafe{shipped}"
    if node.bases:
        heading = Edit(*module.span(node.bases[0].value), base)
    elif isinstance(node.lpar, cst.LeftParen):
        heading = Edit(module.span(node.name)[1], module.text.index(")", module.span(node.name)[1]) + 1, f"({base})")
    else:
        heading = Edit(module.span(node.name)[1], module.span(node.name)[1], f"({base})")
    edits = (
        heading,
        Edit(*module.span(hands_on.store.body[0]), f"super().__init__({hands_on.parameter})"),
        *(line_deletion(module, one) for one in hands_on.init.body.body if initialises_super(module, one)),
        block_deletion(module, hands_on.call),
    )
    does = "only chains transforms" if hands_on.composes else "only calls a function"
    message = f"`{title}` {does}: now inherits `chirpid_patch.{shipped}`, which takes whole batches"
    return Proposal(offset, message, edits, frozenset({runtime(f"{shipped} as {base}")}))


def _problem(
    module: Module, project: Project, node: cst.ClassDef, hands_on: DelegatingTransform, attribute: str
) -> str | None:
    """What other code knows of the class that the shipped one, which keeps ``attribute``, does not have."""
    kept, parameter = hands_on.attribute, hands_on.call.params.params[1].name.value
    if parameter != "sample" and passed_by_name(project, parameter):
        return f"an argument `{parameter}` is passed by its name somewhere"
    renamed = kept != attribute
    # Once in `__init__`, once in `__call__`.
    if renamed and module.text.count(f".{kept}") != 2:
        return f"other code reads its `{kept}`, which is `{attribute}` there"
    if renamed and (project.mentions(kept, besides=module.path) or is_quoted(project, kept)):
        return f"other code reads its `{kept}`, which is `{attribute}` there"
    if renamed and re.search(rf"(\.|\bdef )\s*{attribute}\b", module.source(node)):
        return f"it has a `{attribute}` of its own"
    calls_super = any(initialises_super(module, statement) for statement in hands_on.init.body.body)
    if (renamed or calls_super) and has_subclass(project, node.name.value):
        return "a subclass may need what it does not have there"
    return None
