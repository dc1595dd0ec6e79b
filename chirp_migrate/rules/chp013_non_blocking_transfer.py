"""CHP013: copy batches to the device with `non_blocking=True`, so that Python continues meanwhile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from chirp_migrate.analysis.devices.device_moves import is_dtype
from chirp_migrate.analysis.devices.device_value import device_value
from chirp_migrate.analysis.devices.own_transfers import (
    find_mps_device,
    find_transfer_argument_inspection,
    why_method_to_may_lack_non_blocking,
)
from chirp_migrate.analysis.gain.loader_gains import loader_gains
from chirp_migrate.analysis.loaders.device_data import has_device_dataset
from chirp_migrate.analysis.loaders.loader_calls import argument_positions
from chirp_migrate.analysis.loaders.loader_loops import loader_loops
from chirp_migrate.analysis.loaders.loader_outline import PossibleLoaders
from chirp_migrate.analysis.loaders.loader_values import LoaderValue, may_use_loader
from chirp_migrate.analysis.loops.batch_names import BatchExpressions, Path
from chirp_migrate.analysis.loops.loop_names import innermost_statement
from chirp_migrate.analysis.loops.sync_points import DeviceLoop, has_wait_after_transfers
from chirp_migrate.edits.statements import split_tuple_assignment
from chirp_migrate.rules.api import (
    CALL,
    GAP,
    CallEdit,
    Edit,
    Gain,
    GainKind,
    Module,
    Outline,
    Project,
    Rule,
    RuleMatch,
    Safety,
    call_argument,
    called_method_name,
    find_nodes_in_scope,
    is_name,
    keyword_arguments,
)
from chirp_migrate.rules.moved_by_rule import is_moved_by_rule

_TRANSFER = re.compile(rf"\.{GAP}(to|cuda){CALL}(?![^()\r\n]*\bnon_blocking\s*=)")
#: Names of devices for which a copy from pinned memory runs in parallel with Python.
_PINNING = re.compile(r"(cuda|xpu)\b")
_MAKES_LOADERS = r"\bDataLoader\b|\bcreate_(\w+_)?loader\b"
_CUDA = re.compile(r"[\"'](cuda|xpu)")
_TRANSFORMERS = r"(?m)^[ \t\f]*(import|from)\s+transformers\b"


class NonBlockingTransfer(Rule):
    """Rewrites a statement only if each of its calls ``.to(…)`` and ``.cuda(…)`` meets all these conditions:

    - `known-loader`: the enclosing loop iterates over a loader. A call that builds the loader, or the annotation or
      name of the object, shows that the object is a loader. The loop is not an ``async for``.
    - `pinning-loader`: at least one call that builds the loader does not set ``pin_memory=False``. If the rule cannot
      find the call that builds the loader, a file of the project must contain `DataLoader` or the name of a function
      such as `create_training_loader`.
    - `not-on-device`: the samples are not on a device already. This condition fails only if the rule finds the calls
      that build the loaders of the loop, and every call gets a dataset of tensors that code has moved to a device.
    - `unchanged-batch`: the code copies the batch from the loader, or a part of this batch such as ``batch[0]``,
      ``batch["x"]`` or ``batch.x``. The code does not copy a computed value.
    - `to-accelerator`: the device is CUDA or XPU. Or the device is a variable with the name of a device (such as
      `device`), and is not provably the CPU or MPS.
    - `plain-arguments`: the call has no arguments except ``device``, ``dtype``, ``memory_format`` and ``copy``. The
      call passes no ``*`` or ``**``.
    - `not-changed`: no code may write to the memory of the batch after the copy. Below the copy, in inner functions, in
      the next iteration and after the loop, the code only reads the batch or binds it to names.
    - `no-mps`: a non-blocking copy may be unsafe on Apple's device MPS. So the call itself names CUDA or XPU, as in
      ``x.cuda()`` or ``x.to("cuda")``, or no file of the project names the device ``"mps"`` or ``backends.mps``.
    - `plain-to`: PyTorch's own collation builds the batch, so only tensors have a method ``to``. Or each method ``to``
      or ``cuda`` of a class of the project takes ``non_blocking``, no code assigns such a method, as in ``x.to = …``,
      and no class has a ``__getattr__``. Subclasses of ``torch.nn.Module`` are ignored, because no batch is a model.
      (The rule does not read the classes of other libraries.)
    - `arguments-not-inspected`: no file inspects the arguments of a ``to`` or ``cuda``, as in
      ``x.to.assert_called_with(…)``. No file replaces the ``to`` or ``cuda`` of tensors.
    - `no-batch-encoding`: the code copies only a part of a batch, or no file of the project imports transformers. In
      old versions of transformers, the ``to`` of a ``BatchEncoding`` takes no ``non_blocking``.

    By default the rule adds ``non_blocking=True`` only where this argument has an effect, that is, under two further
    conditions. First, a loader of the loop provably pins its batches after the migration. Second, the loop does not
    wait for the copy immediately after the copy starts. With ``--all-loaders`` the rule adds the argument without these
    further conditions.

    A loader provably pins its batches after the migration in two cases. In the first case, ``pin_memory`` is ``True``,
    ``torch.cuda.is_available()`` or a comparison such as ``device.type == "cuda"``. In addition, either the code
    already builds the loader with the factory (``OptimalDataLoaderFactory``), or the rewrite of the loader has a gain.
    In the second case, the call omits ``pin_memory``, the samples are in memory, and PyTorch's own collation builds the
    batches. The factory, with which the rewrite builds the loader, then pins the batches.

    In a review, the copies and the rewrite of their loader can be accepted or refused only together.

    If an assignment such as ``x, y = x.to(device), y.to(device)`` gets too long for a line, the rule splits the line
    into one assignment for each name. The rule does not split the line if one new assignment would read a name that
    another new assignment changes.
    """

    code = "CHP013"
    name = "non-blocking-transfer"
    reason = (
        "Copying a batch to the device makes Python wait until the copy is done. From pinned memory, "
        "`non_blocking=True` lets Python continue with the next operations. The device runs these operations after "
        "the copy, so all values stay the same. A copy from memory that is not pinned makes Python wait, as before."
    )
    safety = Safety.SAFE
    verbose_only = True
    trigger = (".to", ".cuda")
    beside = (may_use_loader, _TRANSFER)
    in_place = True
    follows = frozenset()

    def may_find(self, outline: Outline, project: Project) -> bool:
        """Return whether a loop that may iterate over a loader calls ``to`` or ``cuda``."""
        return any(
            isinstance(node, ast.Attribute) and node.attr in ("to", "cuda")
            for loop in outline.once(PossibleLoaders, project).loops
            for node in outline.inside(loop)
        )

    def check(self, module: Module, project: Project) -> Iterable[RuleMatch]:
        """Add ``non_blocking=True`` to copies of batches in the body of a loop."""
        for loop, loaders in loader_loops(module, project):
            if all(_may_pin_batches(project, loader) for _, loader in loaders):
                yield from _check_loop(module, project, loop, loaders)


def _check_loop(
    module: Module, project: Project, loop: cst.For, loaders: list[tuple[cst.BaseExpression, LoaderValue]]
) -> Iterator[RuleMatch]:
    batch = BatchExpressions(module, loop, [target for target, _ in loaders])
    collated = all(_collates_tensors(loader) for _, loader in loaders)
    statements: dict[cst.CSTNode, list[tuple[cst.Call, str | None]]] = {}
    for call in sorted(find_nodes_in_scope(loop.body, cst.Call), key=lambda node: module.span(node)[0]):
        match call.func:
            case cst.Attribute(value=moved, attr=cst.Name(value="to" | "cuda" as method)):
                path = batch.value(moved)
                if path is not None and _copies_to_accelerator(module, call, method):
                    problem = _why_unsafe(module, project, call, path, collated) or batch.why_written_after(call, path)
                    statements.setdefault(innermost_statement(module, call), []).append((call, problem))
    if statements and all(has_device_dataset(loader) for _, loader in loaders):
        return
    for statement, transfers in statements.items():
        offset, shown = module.span(transfers[0][0])[0], module.source(transfers[0][0]).strip()
        problems = [problem for _, problem in transfers if problem is not None]
        if problems:
            message = f"not rewritten: `{shown}` blocks until the copy to the device is done, but {problems[0]}"
            yield RuleMatch(offset, message, why="not-surely-safe")
        else:
            message = (
                f"`{shown}` blocks until the copy to the device is done; `non_blocking=True` lets the copy overlap "
                "with computation"
            )
            edits = tuple(edit for call, _ in transfers for edit in _insert_non_blocking(module, call))
            edits = split_tuple_assignment(module, project.code_style, statement, edits) or edits
            gain, together = _gain_of_copies(module, project, loop, loaders, [call for call, _ in transfers])
            yield RuleMatch(offset, message, edits, gain=gain, together=together)


def gain_of_pinned_copies(module: Module, project: Project, call: cst.Call) -> Gain | None:
    """Return the gain of a rewrite after which a loader pins its batches, and a loop copies them without blocking.

    ``call`` builds the loader. The result is None if no loop provably copies pinned batches of the loader in this way.
    """
    for path, line in loader_gains(project).loops_over_pinned(module, call):
        owner = module if path == module.path else project.module(path)
        for loop, loaders in loader_loops(owner, project):
            if owner.position(owner.span(loop)[0])[0] != line:
                continue
            for found in _check_loop(owner, project, loop, loaders):
                if found.gain is not None and found.gain.kind is GainKind.PINNED:
                    at = owner.position(found.offset)[0]
                    return Gain(
                        GainKind.PINNED,
                        "the batches of this loader are copied to the device while Python continues",
                        path,
                        at,
                    )
    return None


def _gain_of_copies(
    module: Module,
    project: Project,
    loop: cst.For,
    loaders: list[tuple[cst.BaseExpression, LoaderValue]],
    transfers: list[cst.Call],
) -> tuple[Gain, frozenset[tuple[str, int]]]:
    """Return the gain of the copies in one statement, and (path, line) of each call that builds a pinning loader."""
    pinned = loader_gains(project).pinning_calls(module, loop, partial(is_moved_by_rule, project))
    if not pinned:
        why = "no loader of this loop provably pins its batches and has a gain from the migration"
        return Gain(GainKind.NOTHING, why), frozenset()
    path, line = pinned[0].path, getattr(pinned[0].node, "lineno", 1)
    if has_wait_after_transfers(DeviceLoop(module, loop, loaders), transfers):
        return Gain(GainKind.NOTHING, "the loop waits for the copy immediately after the copy starts"), frozenset()
    places = [(one.path, getattr(one.node, "lineno", 1)) for one in pinned]
    return Gain(GainKind.PINNED, "the loader pins its batches", path, line), frozenset(places)


def _may_pin_batches(project: Project, loader: LoaderValue) -> bool:
    """Return whether a loader may pin its batches.

    The result is False if every call that builds the loader sets ``pin_memory=False``.
    """
    if not loader.calls:
        return project.search(_MAKES_LOADERS)
    return not all(is_name(keyword_arguments(call).get("pin_memory"), "False") for _, call in loader.calls)


def _insert_non_blocking(module: Module, call: cst.Call) -> Iterator[Edit]:
    start, end = module.span(call.args[-1] if call.args else call)
    rest = re.match(r"[ \t]*,[ \t]*#[^\r\n]*", module.text[end : module.line_end(end)])
    if call.args and rest is not None:  # a comment follows the last argument: add the new argument below it
        after = end + rest.end()
        yield Edit(after, after, f"{module.newline}{module.indentation(start)}non_blocking=True,")
        return
    change = CallEdit(module, call)
    change.add("non_blocking=True")
    yield from change.edits()


def _copies_to_accelerator(module: Module, call: cst.Call, method: str) -> bool:
    """Return whether a call of ``to`` or ``cuda`` copies to CUDA or XPU, and has only arguments that the rule knows."""
    names = keyword_arguments(call).keys()
    if any(one.star for one in call.args) or not names <= {"device", "dtype", "memory_format", "copy"}:
        return False
    device, second = call_argument(call, 0, "device"), call_argument(call, 1)
    positional = len(call.args) - len(names)
    if method == "cuda":
        return positional <= 1
    if positional > 2 or (second is not None and not is_dtype(module, second)):
        return False
    return device is not None and device_value(module, device).may_be(_PINNING)


def _collates_tensors(loader: LoaderValue) -> bool:
    """Return whether PyTorch's own collation builds the batches, so that only the tensors of a batch have ``to``."""
    for _, call in loader.calls:
        single = is_name(keyword_arguments(call).get("batch_size"), "None")
        if single or "collate_fn" in argument_positions(call) or any(a.star for a in call.args):
            return False
    return loader.complete


def _why_unsafe(module: Module, project: Project, call: cst.Call, path: Path, collated: bool) -> str | None:
    """Return why a non-blocking copy may be unsafe in this project; None for a safe copy."""
    shown = module.source(call)
    certain = called_method_name(call) == "cuda" or (_CUDA.search(shown) and "mps" not in shown)
    if not certain and (place := find_mps_device(project)) is not None:
        return f"the project also runs on MPS ({place}), where a non-blocking copy may be unsafe"
    if not collated and (problem := why_method_to_may_lack_non_blocking(project)) is not None:
        return problem
    if (place := find_transfer_argument_inspection(project)) is not None:
        return f"the project inspects the arguments of `to` or `cuda` ({place})"
    if not path and project.search(_TRANSFORMERS, "transformers"):
        return "the batch may be a `BatchEncoding`, whose `to` takes no `non_blocking` in old versions of transformers"
    return None
