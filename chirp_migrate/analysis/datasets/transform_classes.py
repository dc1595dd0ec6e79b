"""Which classes make transforms that can be made once: no random draw when made, no memory between calls."""

from __future__ import annotations

import re

import libcst as cst

from chirp_migrate.analysis.qualified_names import resolves_to
from chirp_migrate.syntax.module import Module, find_in
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import is_docstring, is_on_self, is_super_init, names_below, own_nodes, parameters

#: What torchvision and torchaudio call their transforms.
TRANSFORMS = re.compile(r"(torchvision\.transforms|torchaudio\.transforms)\.([\w.]+\.)?[A-Z]\w*")
#: Those that were looked at: they store their arguments and constants computed from them, and draw when called.
_KNOWN = re.compile(
    r"torchvision\.transforms\.(v2\.|transforms\.)?"
    r"(AugMix|AutoAugment|CenterCrop|ColorJitter|Compose|ConvertImageDtype|FiveCrop|GaussianBlur|Grayscale|Normalize"
    r"|PILToTensor|Pad|RandAugment|Random(AdjustSharpness|Affine|Apply|Autocontrast|Choice|Crop|Equalize|Erasing"
    r"|Grayscale|HorizontalFlip|Invert|Order|Perspective|Posterize|ResizedCrop|Rotation|Solarize|VerticalFlip)|Resize"
    r"|TenCrop|ToDtype|ToImage|ToPILImage|ToTensor|TrivialAugmentWide)"
    r"|torchaudio\.transforms\.(_transforms\.)?"
    r"(AmplitudeToDB|ComputeDeltas|Deemphasis|Fade|FrequencyMasking|LFCC|MFCC|MelScale|MelSpectrogram|MuLawDecoding"
    r"|MuLawEncoding|Preemphasis|Resample|SpecAugment|Spectrogram|TimeMasking|TimeStretch|Vol)"
)
#: What changes an attribute that it holds, or may hand it on; an element may be one of a target.
_CHANGES = (
    *(cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Del, cst.Element, cst.StarredElement),
    *(cst.Attribute, cst.Subscript),
)
_MODULE = re.compile(r"torch\.nn\.(modules\.module\.)?Module")


def is_transform(project: Project, names: set[str]) -> bool:
    """Whether a call of these qualified names makes a transform of a library, or a module of the project."""
    return bool(names) and all(TRANSFORMS.fullmatch(n) or _module_class(project, n) is not None for n in names)


def is_made_once(project: Project, names: set[str]) -> bool:
    """Whether one instance gives what a new one for each call would give."""
    return bool(names) and all(_KNOWN.fullmatch(n) or _only_stores(project, n) for n in names)


def _module_class(project: Project, qualified: str) -> tuple[Module, cst.ClassDef] | None:
    """A class of the project that is directly a ``torch.nn.Module`` and nothing else."""
    found = project.class_definition(qualified)
    if found is None or len(found[1].bases) != 1:
        return None
    return found if resolves_to(found[0], found[1].bases[0].value, _MODULE, project) else None


def _only_stores(project: Project, qualified: str) -> bool:
    """Whether ``__init__`` of a module of the project stores its parameters, and its methods only read them."""
    found = _module_class(project, qualified)
    if found is None or found[1].decorators or found[1].keywords:
        return False
    module, definition = found
    methods = [one for one in definition.body.body if isinstance(one, cst.FunctionDef)]
    targets = (one.target for one in find_in(definition, cst.AssignTarget))
    stored = {one.attr.value for one in targets if isinstance(one, cst.Attribute) and is_on_self(one)}
    own = {one.name.value for one in methods} | stored
    for position, statement in enumerate(definition.body.body):
        if isinstance(statement, cst.FunctionDef):
            initialises = statement.name.value == "__init__"
            if not (_stores(statement) if initialises else _reads(module, statement, own)):
                return False
        elif position or not is_docstring(statement):
            return False
    return True


def _stores(init: cst.FunctionDef) -> bool:
    known = parameters(init).keys() | {"True", "False", "None"}
    for statement in init.body.body:
        if is_super_init(statement) or is_docstring(statement):
            continue
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else (None,):
            if not isinstance(small, cst.Assign):
                return False
            constant = isinstance(small.value, cst.Integer | cst.Float | cst.SimpleString)
            if not constant and not (isinstance(small.value, cst.Name) and small.value.value in known):
                return False
            if not all(is_on_self(one.target) for one in small.targets):
                return False
    return not init.decorators


def _reads(module: Module, method: cst.FunctionDef, own: set[str]) -> bool:
    """Whether a method only takes values from ``self``: nothing is set, changed in place or handed on.

    Args:
        own: methods of the class, and attributes that it stores; others are the base's, and may change the object.
    """
    if any(isinstance(one, cst.Global | cst.Nonlocal) for one in own_nodes(method)):
        return False
    for name in names_below(method.body, "self"):
        attribute = module.parents[name]
        if not isinstance(attribute, cst.Attribute):
            return False
        around = module.parents[attribute]
        if isinstance(around, cst.Call) and attribute.attr.value not in own:
            return False
        if isinstance(around, _CHANGES):
            return False
        if isinstance(around, cst.Arg) and not _is_function_call(module, around):
            return False
    return True


def _is_function_call(module: Module, argument: cst.Arg) -> bool:
    """Whether an argument goes to a function of a library, which keeps and changes nothing it is not meant to."""
    call = module.parents[argument]
    names = module.qualified_names(call.func) if isinstance(call, cst.Call) else set()
    libraries = ("torch.", "torchaudio.", "torchvision.", "math.", "random.", "numpy.", "builtins.")
    return bool(names) and all(name.startswith(libraries) for name in names)
