"""CHP028: declare which transforms a class chains, so that loaders transform whole batches."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.datasets.delegating_transform import match_delegating_transform
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.edits.statements import class_decorator_insertion
from chirp_migrate.rules.api import (
    Module,
    Project,
    Rule,
    RuleMatch,
    Safety,
    runtime_import,
)

#: Words in code of masks and noise. `chirpid_patch` can apply such augmentations to whole batches.
_AUGMENTS = ("time_mask_param", "randn_like")


class ComposedTransforms(Rule):
    """Decorates a top-level class only if the project contains code for masks or noise, and all these conditions hold:

    - `no-base`: the class has no base except `object`, and no decorator, keyword or type parameter.
    - `methods-only`: the body of the class defines each method once, and contains nothing else except a docstring.
    - `only-passes-on`: the method `__call__` returns `self.attribute(x)`. Or `__call__` sets `x = each(x)` in one loop
      `for each in self.attribute` and returns `x`. The attribute is not a method of the class. `__call__` has no
      decorator and is not `async`. `__call__` has one parameter besides `self`, without a default.

    A project contains code for masks or noise if a file contains the word `time_mask_param` or `randn_like`.

    Without `--all-loaders`, the rule decorates a class only if two more conditions hold. The project builds a loader.
    At least one loader whose samples the class may transform can use PyTorch's own collation, and the migration of this
    loader has a gain (see "gain" in docs/glossary.md). Loaders in tests count only for classes in tests.
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
        """Return whether the text may define ``__call__``, and the project contains code for masks or noise."""
        return super().concerns(text, project) and _has_own_augmentation(project)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Decorate top-level classes whose ``__call__`` only calls one transform, or several transforms in turn."""
        for node in module.tree.body if _has_own_augmentation(project) else ():
            if not isinstance(node, cst.ClassDef) or (found := match_delegating_transform(module, node)) is None:
                continue
            decorator = "composes_transforms" if found.composes else "applies_transform"
            edit = class_decorator_insertion(module, project.code_style, node, decorator, [f'"{found.attribute}"'])
            does = "only chains transforms" if found.composes else "only calls a function"
            message = f"`{node.name.value}` {does}; with `@{decorator}`, loaders transform whole batches"
            gain = loader_gains(project).gain_of_transform(module.path, node.name.value)
            imports = frozenset({runtime_import(decorator)})
            yield RuleMatch(module.span(node.name)[0], message, (edit,), imports, gain=gain)


def _has_own_augmentation(project: Project) -> bool:
    """Return whether the project contains a word that is typical of masks or noise (see ``_AUGMENTS``)."""
    return any(project.search(rf"\b{word}\b", word) for word in _AUGMENTS)
