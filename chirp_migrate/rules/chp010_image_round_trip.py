"""CHP010: apply masks to tensors, not to 8-bit images. The rewrite needs `--unsafe`, because training changes."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from chirp_migrate.analysis.datasets.augmenter_meaning import MASK_PARAMETERS
from chirp_migrate.analysis.datasets.dataset_expressions import only_base_is_torch_dataset
from chirp_migrate.edits.superclass import InitAttributeAssignment, find_init_assignments, superclass_edits
from chirp_migrate.rules.api import (
    Edit,
    Module,
    Project,
    Rule,
    RuleMatch,
    Safety,
    find_class,
    methods_of,
    runtime_import,
)

#: Attributes of the new class. The rewritten class may already have attributes with these names.
_PROVIDED = frozenset({"dataset", "base_dataset", "augment_params", "training"})
_REPLACEMENT = "WorkerSafeAugmentedDataset"
_CONSTRUCTION = re.compile(
    r"(?P<around>\()?(?P<augmenter>\w+)\((?P<arguments>.*)\)(?(around)\))(?P<condition> if \w+ else None)?", re.DOTALL
)


class ImageRoundTrip(Rule):
    """Rewrites a top-level class whose `__getitem__` contains `fromarray` and `255`, only if all these conditions hold:

    - `torch-dataset`: the only base of the class is PyTorch's `Dataset`. The class has no decorator except
      `augments_images`.
    - `base-read`: the method `__init__` stores a dataset in an attribute of `self`. `__getitem__` reads this attribute,
      as in `self.dataset[index]`.
    - `known-masks`: the method `__init__` stores an augmentation object in an attribute of `self`. `__getitem__` calls
      this attribute, as in `self.augment(image)`. The augmentation object comes from a call of a project class, such as
      `Masks(8, 8)` or `Masks(8, 8) if training else None`. The `__init__` of this class has only parameters that
      `SpecAugment` also has.
    - `one-at-a-time`: each statement that stores the dataset, the training flag or the augmentation stores only one
      attribute.
    - `not-reassigned`: no method except `__init__` assigns the attribute with the dataset, or the attribute with the
      training flag. If such an attribute is called `dataset`, `base_dataset` or `training`, any method may assign the
      attribute, because the new base class reads its values from attributes with these names.
    - `own-values`: the method `__init__` does not compute the stored values from `self`.
    - `stored-first`: the method `__init__` stores the dataset, the training flag and the augmentation before any
      statement that reads an attribute of `self`.
    """

    code = "CHP010"
    name = "image-round-trip"
    reason = (
        "The class converts each spectrogram to an 8-bit image and back. The conversion rescales each spectrogram by "
        "its own minimum and maximum, and rounds its values. The model then trains on values that differ from "
        "the values in the validation. Masks on the tensor need no conversion. The rewrite changes what the model "
        "sees, so the rewrite needs --unsafe."
    )
    safety = Safety.BEHAVIOUR
    trigger = ("fromarray",)
    beside = ("__getitem__",)

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Rewrite dataset classes whose ``__getitem__`` converts a sample to an image and masks the image."""
        for statement in module.tree.body:
            if not isinstance(statement, cst.ClassDef):
                continue
            getitem = methods_of(statement).get("__getitem__")
            text = module.source(getitem) if getitem is not None else ""
            if "fromarray" in text and "255" in text and _is_plain_dataset(module, project, statement):
                yield _rewrite(module, project, statement, text)


def _is_plain_dataset(module: Module, project: Project, node: cst.ClassDef) -> bool:
    """Return whether a class has ``Dataset`` as its only base, and no decorator except ``augments_images``."""
    plain = not node.keywords and only_base_is_torch_dataset(module, project, [base.value for base in node.bases])
    return plain and all(module.source(one.decorator).startswith("augments_images(") for one in node.decorators)


def _rewrite(module: Module, project: Project, node: cst.ClassDef, getitem: str) -> RuleMatch:
    offset, init = module.span(node.name)[0], methods_of(node).get("__init__")
    found = f"`{node.name.value}` masks each sample as an 8-bit image, which rounds and rescales the values"
    stores = find_init_assignments(module, init) if init is not None else []
    base = next((s for s in stores if re.search(rf"self\.{s.attribute}\[", getitem)), None)
    training = next((s for s in stores if re.search(rf"if self\.{s.attribute}\b", getitem)), None)
    augmenter = next((s for s in stores if re.search(rf"self\.{s.attribute}\(", getitem)), None)
    made = _mask_construction(module, project, augmenter)
    if base is None or augmenter is None or made is None:
        reason = "the rule does not recognise how this code masks the spectrogram"
        return RuleMatch(offset, f"{found}; mask the tensor instead. Not rewritten: {reason}")
    imports = frozenset({runtime_import(_REPLACEMENT), runtime_import("SpecAugment as WorkerSafeSpecAugment")})
    sources = [base.value]
    if training is not None:
        sources.append(f"training={training.value}")
    sources.append(f"transforms=[WorkerSafeSpecAugment({made['arguments']}){made['condition'] or ''}]")
    consumed = [s for s in (base, training, augmenter) if s is not None]
    provided = _PROVIDED | {augmenter.attribute}
    edits = superclass_edits(module, node, stores, _REPLACEMENT, sources, consumed, provided, project.code_style)
    if isinstance(edits, str):
        return RuleMatch(offset, f"{found}; mask the tensor instead. Not rewritten: {edits}")
    edits = (*edits, _remove_declaration(module, node))
    message = f"{found}; replaced by `{_REPLACEMENT}`, which masks the tensor"
    return RuleMatch(offset, message, edits, imports)


def _remove_declaration(module: Module, node: cst.ClassDef) -> Edit:
    """Return the edit that removes the decorator of CHP002 from a class.

    If the class has no decorator, the edit prevents CHP002 from adding the decorator.

    The edit replaces the text from the first decorator to ``class``. To add the decorator, CHP002 would have to edit
    the same text. Edits must not overlap, so the tool skips the edit of CHP002.
    """
    place = module.span(node)[0]
    keyword = module.text.index("class", module.span(node.decorators[-1])[1] if node.decorators else place)
    return Edit(module.span(node.decorators[0])[0] if node.decorators else keyword, keyword + len("class"), "class")


def _mask_construction(
    module: Module, project: Project, augmenter: InitAttributeAssignment | None
) -> re.Match[str] | None:
    """Return the call that creates the image augmenter, as a match of ``_CONSTRUCTION``.

    The result is None if the call has another form, or if the constructor has a parameter that ``SpecAugment`` lacks.
    """
    made = _CONSTRUCTION.fullmatch(augmenter.value) if augmenter is not None else None
    if made is None:
        return None
    bindings = module.scopes.module.bindings.get(made["augmenter"], [])
    if len(bindings) != 1:
        return None
    found = find_class(project, module.absolute(bindings[0].qualified or f"{module.name}.{made['augmenter']}"))
    init = methods_of(found[1]).get("__init__") if found is not None else None
    names = {parameter.name.value for parameter in init.params.params[1:]} if init is not None else None
    return made if names is not None and names <= set(MASK_PARAMETERS) else None
