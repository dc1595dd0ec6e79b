"""CHP002: declare how a dataset class standardises, augments or stores samples, so that loaders read whole batches."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

import libcst as cst

from chirp_migrate.analysis.datasets.declared_class import DeclaringDecorator, find_declaring_decorator
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.edits.statements import class_decorator_insertion
from chirp_migrate.rules.api import (
    TORCH_DATASET,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    bases_may_match,
    find_aliases,
    methods_of_class,
    runtime_import,
)

_DOES = {
    "standardizes_samples": "standardises one sample at a time",
    "augments_samples": "augments one sample at a time",
    "augments_images": "converts one sample at a time to an image and masks the image",
    "lists_samples": "reads one sample at a time from a list",
}


class WorkerSafeDatasetClass(Rule):
    """Decorates a class at the top level of a module only if all these conditions hold:

    - `plain-base`: the only base of the class is PyTorch's ``Dataset``. The class has no keywords, such as
      `metaclass=`.
    - `no-decorator`: the class has no decorator.
    - `methods-only`: the body of the class contains only a docstring and methods, and defines each name once.
    - `plain-access`: the class defines ``__getitem__``, but not ``__getitems__``, ``__iter__``, ``__getattr__`` or
      ``__getattribute__``.
    - `plain-parameters`: the method ``__getitem__(self, index)`` and the methods that it calls have no decorator and
      are not ``async``. Their parameters have no defaults and no `*`, `/` or `**`.
    - `straight-line`: the method ``__getitem__`` and the methods that it calls consist of assignments to names, ``if``
      and ``return``.
    - `known-samples`: each sample has one of four forms. The first form is ``((x - mean) / (std + number), y)`` for
      ``x, y = dataset[indices[index]]``, with or without the number. The second form is ``(transform(x), y)`` for ``x,
      y = dataset[index]``, with one transform or several transforms. The third form is ``samples[index]`` unchanged. In
      the fourth form, the code converts ``x`` to an 8-bit image, applies an augmenter to the image, and converts the
      image back to a tensor.
    - `samples-not-paths`: the list in ``samples[index]`` contains samples, and not paths of files, because samples in
      files cannot be read in whole batches. So the list must not be called ``paths``, ``files``, ``names``, ``urls`` or
      similar, and must not come from a call such as ``os.listdir(root)``.
    - `own-state-only`: dataset, indices, mean, std, transforms, augmenter and samples are attributes of ``self``. The
      flags that switch transforms on are attributes of ``self``, too.
    - `plain-switches`: each condition in the code tests a flag, as in `if self.training`, or tests whether a transform
      is not None.
    - `nothing-else`: every value that these methods compute is used for the sample or in a condition. These methods
      make the same call, such as `self.transform(x)`, at most once for each sample.
    - `clear-names`: apart from their own variables, the methods use only the names None, True, False and ``torch``. The
      name ``torch`` provably refers to PyTorch. For the form with images, the names of NumPy and of Pillow's ``Image``,
      ``isinstance`` and ``len`` are also permitted.

    By default, the rule decorates a class only if a loader of the project may read the samples of the class in batches,
    or if the rule finds no loader. With `--all-loaders`, this condition does not apply.
    """

    code = "CHP002"
    name = "worker-safe-dataset-class"
    reason = (
        "Standardising and augmenting one sample at a time takes longer than reading the sample. With a decorator, a "
        "class declares in which attributes it stores dataset, indices, statistics and transforms. Loaders then read "
        "whole batches, but only if the class's own code would return equal batches. In all other cases, loaders run "
        "the class's own code for each sample. The class itself does not change."
    )
    safety = Safety.SAFE
    trigger = ("Dataset",)
    beside = ("__getitem__",)

    def names(self, project: Project) -> Set[str]:
        """Return the other names under which modules of the project import ``Dataset``."""
        return find_aliases(project, "Dataset")

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a top-level class defines ``__getitem__``, and may have PyTorch's ``Dataset`` as only base."""
        return any(
            isinstance(statement, ast.ClassDef)
            and len(statement.bases) == 1
            and not (statement.keywords or statement.decorator_list)
            and "__getitem__" in methods_of_class(statement)
            and bases_may_match(outline, project, statement, TORCH_DATASET)
            for statement in outline.tree.body
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Decorate the top-level dataset classes whose samples have one of the known forms."""
        for statement in module.tree.body:
            if isinstance(statement, cst.ClassDef):
                declared = find_declaring_decorator(module, project, statement)
                if isinstance(declared, DeclaringDecorator):
                    yield _add_decorator(module, project, statement, declared)
                elif declared is not None:
                    title, place = statement.name.value, module.span(statement.name)[0]
                    yield RuleMatch(place, f"`{title}` not rewritten: {declared}")


def _add_decorator(module: Module, project: Project, node: cst.ClassDef, declared: DeclaringDecorator) -> RuleMatch:
    name = declared.decorator
    message = f"`{node.name.value}` {_DOES[name]}; with `@{name}`, loaders read whole batches at once"
    edit = class_decorator_insertion(module, project.code_style, node, name, declared.arguments)
    place = module.span(node.name)[0]
    gain = loader_gains(project).gain_of_class(module.path, node.name.value)
    return RuleMatch(place, message, (edit,), frozenset({runtime_import(name)}), gain=gain)
