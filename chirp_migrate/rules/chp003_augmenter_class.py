"""CHP003: declare the masks and noise of an augmenter class, so that loaders augment whole batches."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable

import libcst as cst

from chirp_migrate.analysis.datasets.augmenter_grammar import UnknownAugmentation
from chirp_migrate.analysis.datasets.augmenter_meaning import (
    MASK_PARAMETERS,
    adds_noise_like_gaussian_noise,
    masks_images_like_spec_augment,
    masks_like_spec_augment,
)
from chirp_migrate.analysis.datasets.declared_class import string_tuple_source
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.edits.statements import class_decorator_insertion
from chirp_migrate.rules.api import (
    NN_MODULE,
    Module,
    Project,
    Rule,
    RuleMatch,
    Safety,
    find_nodes,
    is_self_attribute,
    methods_of,
    resolve_node,
    resolves_to,
    runtime_import,
)

#: For each decorator: the method that augments, the constructor parameters that a class must have, and the function
#: that checks whether the class augments as the decorator declares.
_DECLARED: tuple[tuple[str, str, tuple[str, ...], Callable[[str], tuple[str, ...]]], ...] = (
    ("masks_spectrograms", "forward", MASK_PARAMETERS, masks_like_spec_augment),
    ("adds_noise", "forward", ("std", "p"), adds_noise_like_gaussian_noise),
    ("masks_images", "__call__", MASK_PARAMETERS, masks_images_like_spec_augment),
)


class WorkerSafeAugmenter(Rule):
    """Decorates a top-level class that draws masks or noise only if all these conditions hold:

    - `nn-module`: the class has no decorator and no keyword, such as `metaclass=`, and its only base is PyTorch's
      `nn.Module`. A class that augments grey images has no base instead. For a class of grey images, the conditions
      below apply to `__call__` instead of `forward`, and to `np.array(image)` instead of `x.clone()`. The method
      returns `Image.fromarray(x)` instead of `x`.
    - `plain-methods`: the class defines each method once, and contains nothing else except a docstring. Its constructor
      has exactly the parameters of `SpecAugment` or `GaussianNoise` of `chirpid_patch`.
    - `gate`: the method `forward` takes one sample and contains one gate, an `if` that compares `random.random()` with
      `self.p`. If this comparison decides against an augmentation, `forward` returns the sample unchanged. Before the
      gate, the code only reads sizes and tests whether the sample has two axes.
    - `clone`: the class writes all masks into one `x.clone()` and returns this tensor. No other code changes the
      tensor.
    - `two-axes`: the class works for samples with two axes and for samples with three axes. The code may insert an axis
      in front of a sample with two axes if the code removes this axis again. The code uses the sizes of the last two
      axes. A class of grey images needs to work only for two axes, and may also use `shape[:2]`.
    - `both-axes`: one loop over `num_time_masks` draws masks on the last axis. Another loop over `num_freq_masks` draws
      masks on the axis before the last axis. The code of a mask is in the loop or in a separate method.
    - `guard`: in this condition and in the next conditions, `size` is the length of the axis, and `parameter` is the
      largest width of a mask on this axis, such as `self.time_mask_param`. A condition around the masks of an axis may
      be only `parameter > 0`, `size > parameter`, or both. If the masks of one axis have the condition `size >
      parameter`, the masks of the other axis also have this condition.
    - `width`: each mask draws its width with `width = random.randint(0, min(parameter, size))` for its axis.
    - `start`: each mask draws its start after its width, with `start = random.randint(0, size - width)`. The code may
      write `max(0, size - width)`, or may draw the start only if `width > 0`.
    - `stretch`: each mask sets the range from `start` to `start + width` to `self.mask_value`, in all rows or in all
      columns. The mask does nothing else. If the code writes `x[:, a:b, :]`, the code first unpacks the shape of `x`
      into three names. For a sample with more axes, this statement raises an error.
    - `noise`: the result is `clamp(x + randn_like(x) * std, 0, 1)`. The code may compute parts of this expression in
      earlier statements, as in `noise = torch.randn_like(x) * self.std`, and must use each such variable.
    - `usual-names`: in all calls in the body of the class, the names `random`, `torch`, `np` (NumPy) and `Image`
      (Pillow) refer to these modules. The names `len`, `min`, `max` and `range` refer to Python's own functions.

    By default, the rule decorates a class only if a loader of the project may apply the class to whole batches. Such a
    loader has a gain (see docs/glossary.md), and has no `collate_fn` of the project or of a library other than PyTorch.
    A lambda as `collate_fn` is permitted. If the rule finds loaders whose dataset contains the class, only these
    loaders count. Otherwise, all loaders of the project count. Loaders in tests count only for classes in tests. With
    `--all-loaders`, this condition does not apply.
    """

    code = "CHP003"
    name = "worker-safe-augmenter"
    reason = (
        "Masks and noise that are drawn sample by sample from the global generators are slow, and depend on which "
        "worker loads which sample. A decorator declares the augmentation, so that loaders augment whole batches with "
        "the same distribution. The random numbers of a sample then do not depend on the worker, so a run has the "
        "same results with any number of workers. Code that calls an object of the class directly, not through a "
        "loader, runs the original method."
    )
    safety = Safety.SAFE
    trigger = ("time_mask_param", "randn_like")

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Decorate the top-level classes that augment like a transform of ``chirpid_patch``."""
        for statement in module.tree.body:
            if isinstance(statement, cst.ClassDef):
                match = _examine_class(module, project, statement)
                if match is not None:
                    yield match


def _examine_class(module: Module, project: Project, node: cst.ClassDef) -> RuleMatch | None:
    if len(node.bases) > 1 or node.keywords or node.decorators or not isinstance(node.body, cst.IndentedBlock):
        return None
    if node.bases and not resolves_to(module, node.bases[0].value, NN_MODULE, project):
        return None
    methods = methods_of(node)
    init, method = methods.get("__init__"), "forward" if node.bases else "__call__"
    if init is None or method not in methods:
        return None
    parameters = {parameter.name.value for parameter in init.params.params[1:]}
    offset, title = module.span(node.name)[0], node.name.value
    for decorator, entry, expected, check in _DECLARED:
        if entry != method or parameters != set(expected):
            continue
        decorator_arguments: tuple[str, ...] = ()
        try:
            decorator_arguments = check(textwrap.dedent(module.source(node)))
            problem = _why_names_may_differ(module, project, node)
        except UnknownAugmentation as reason:
            problem = str(reason)
        if problem is not None:
            message = (
                f"`{title}` not rewritten: the class may not augment as `@{decorator}` declares, because {problem}"
            )
            return RuleMatch(offset, message)
        calls_made = [call.func for call in find_nodes(methods[entry], cst.Call)]
        called = [name for name in methods if any(is_self_attribute(one, name) for one in calls_made)]
        calls = [f"calls={string_tuple_source(called)}"] if called else []
        edit = class_decorator_insertion(module, project.code_style, node, decorator, [*decorator_arguments, *calls])
        message = f"`{title}` augments one sample at a time; with `@{decorator}`, loaders augment whole batches"
        gain = loader_gains(project).gain_of_transform(module.path, title)
        return RuleMatch(offset, message, (edit,), frozenset({runtime_import(decorator)}), gain=gain)
    return None


def _why_names_may_differ(module: Module, project: Project, node: cst.ClassDef) -> str | None:
    """Return why a name such as ``random``, ``torch`` or ``len`` may not refer to the usual module or function."""
    for call in find_nodes(node, cst.Call):
        spelled = module.source(call.func)
        meant = f"builtins.{spelled}" if spelled in ("len", "max", "min", "range") else spelled
        meant = re.sub("^np[.]", "numpy.", re.sub("^Image[.]", "PIL.Image.", meant))
        if not meant.startswith(("builtins.", "random.", "torch.", "numpy.", "PIL.")):
            continue
        if resolve_node(project, module, call.func) != {meant}:
            return f"`{spelled}` may be rebound"
    return None
