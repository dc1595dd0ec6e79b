"""CHP028: declare which transforms a class chains, so that loaders transform whole batches."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.datasets.delegating_transform import match_delegating_transform
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.edits.statements import class_decorator_insertion
from chirp_migrate.rules.api import (
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    last_name,
    methods_of_class,
    runtime_import,
)

#: Words in code of masks and noise. `chirpid_patch` can apply such augmentations to whole batches.
_AUGMENTS = ("time_mask_param", "randn_like")


class ComposedTransforms(Rule):
    """Decorates a top-level class, in a project with its own masks or noise, only if all these conditions hold:

    - `no-base`: the class has no base except `object`, and no decorator, keyword or type parameter.
    - `methods-only`: the body of the class defines each method once, and contains nothing else.
    - `only-passes-on`: the method `__call__` returns `self.attribute(x)`. Or `__call__` sets `x = each(x)` in one loop
      `for each in self.attribute` and returns `x`. The attribute is not a method of the class. `__call__` has no
      decorator and is not `async`. `__call__` has one parameter besides `self`, without a default.

    By default the rule only decorates a class if a loader may apply the class to batches. The project must build a
    loader outside of tests. The migration must improve at least one loader that can contain the class (see "gain" in
    docs/glossary.md).
    """

    code = "CHP028"
    name = "composed-transforms"
    reason = (
        "If a class of the project only calls other transforms, a loader cannot see the masks and noise in this class. "
        "So masks and noise run sample by sample. A decorator declares the transforms that the class calls. Loaders "
        "then apply these transforms to whole batches where possible. The class itself does not change."
    )
    safety = Safety.SAFE
    trigger = ("__call__",)

    def concerns(self, text: str, project: Project) -> bool:
        """Return whether the text may define ``__call__``, and the project has its own masks or noise."""
        return super().concerns(text, project) and _has_own_augmentation(project)

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a top-level class without a base may pass the argument of its ``__call__`` on."""
        return any(
            isinstance(statement, ast.ClassDef)
            and all(last_name(base) == "object" for base in statement.bases)
            and not (statement.keywords or statement.decorator_list)
            and _may_delegate(methods_of_class(statement).get("__call__"))
            for statement in outline.tree.body
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Decorate top-level classes whose ``__call__`` only calls one transform, or several transforms in turn."""
        for node in module.tree.body if _has_own_augmentation(project) else ():
            if not isinstance(node, cst.ClassDef) or (found := match_delegating_transform(module, node)) is None:
                continue
            decorator = "composes_transforms" if found.composes else "applies_transform"
            edit = class_decorator_insertion(module, project.code_style, node, decorator, [f'"{found.attribute}"'])
            does = "only chains transforms" if found.composes else "only calls a function"
            message = f"`{node.name.value}` {does}: `@{decorator}` declares this, and loaders transform whole batches"
            gain = loader_gains(project).gain_of_transform(module.path, node.name.value)
            imports = frozenset({runtime_import(decorator)})
            yield RuleMatch(module.span(node.name)[0], message, (edit,), imports, gain=gain)


def _has_own_augmentation(project: Project) -> bool:
    """Return whether a project has its own masks or noise."""
    return any(project.search(rf"\b{word}\b", word) for word in _AUGMENTS)


def _may_delegate(call: ast.FunctionDef | ast.AsyncFunctionDef | None) -> bool:
    """Return whether ``__call__`` takes one argument, and consists of a ``return`` after at most one statement."""
    if call is None or len(call.args.args) != 2:
        return False
    steps = [statement for statement in call.body if not _is_string_statement(statement)]
    return len(steps) in (1, 2) and isinstance(steps[-1], ast.Return)


def _is_string_statement(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant | ast.JoinedStr)
