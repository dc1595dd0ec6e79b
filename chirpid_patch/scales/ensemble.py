"""Several models over one pass of a loader (R-003)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chirpid_patch.scales.scaling import scale_images

Models = Mapping[str, nn.Module] | Sequence[nn.Module]
Activation = Callable[[Tensor], Tensor]
Averaging = Literal["probabilities", "logits"]
_INPUTS = ("base_image", "image", "images", "inputs", "x")
_LABELS = ("label", "labels", "target", "targets", "y")


@dataclass(frozen=True)
class EnsembleResult:
    """What an ensemble says of N samples, in the loader's order, on the CPU.

    ``probabilities`` (N, K) of the ensemble; ``predictions`` (N,) int64, the place of the largest of them, or, for one
    output (K = 1), whether it is above 0.5; ``labels`` as the loader gave them, or None where it gives none;
    ``members``: each model's own outputs (N, K), where they were kept.
    """

    probabilities: Tensor
    predictions: Tensor
    labels: Tensor | None
    members: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class EnsembleBatch:
    """One batch: the loader's ``batch``, each model's outputs (B, K) on its device, the averaged ``probabilities``."""

    batch: Any
    members: dict[str, Tensor]
    probabilities: Tensor


def ensemble_inference(
    models: Models,
    loader: Iterable[Any],
    *,
    keep_members: bool = False,
    **options: Any,
) -> EnsembleResult:
    """Run ``models`` over one pass of ``loader`` and average what they say.

    Beside the models themselves one batch is held at a time, and what is returned.

    Args:
        models: by name, or in a sequence (then they are named "0", "1", …). They stay on their devices, which may
            differ, and are in evaluation mode and without gradients meanwhile; every module's mode is as before
            afterwards, also after an error.
        loader: gives batches ``(images, labels)``, ``(images,)``, images alone, or dictionaries with ``"image"`` or
            ``"base_image"`` and, if there are labels, ``"label"``.
        keep_members: also return each model's outputs, which are those it would give over a loader of its own.
        **options: as for ``ensemble_batches``.

    Raises:
        ValueError: no models, no batches, weights that cannot be used, or outputs that cannot be averaged.
        TypeError: batches of another form, or outputs that are not tensors.
    """
    named = _named(models)
    probabilities: list[Tensor] = []
    labels: list[Tensor] = []
    members: dict[str, list[Tensor]] = {name: [] for name in named} if keep_members else {}
    for done in ensemble_batches(named, loader, **options):
        probabilities.append(done.probabilities.cpu())
        found = _found(done.batch, 1, _LABELS)
        if found is not None:
            labels.append(torch.as_tensor(found).cpu())
        for name, outputs in members.items():
            outputs.append(done.members[name].cpu())
    if not probabilities:
        raise ValueError("the loader gave no batches: is its dataset empty?")
    together = torch.cat(probabilities)
    return EnsembleResult(
        together,
        (together[..., 0] > 0.5).long() if together.shape[-1] == 1 else together.argmax(-1),
        torch.cat(labels) if labels else None,
        {name: torch.cat(outputs) for name, outputs in members.items()},
    )


def ensemble_batches(
    models: Models,
    loader: Iterable[Any],
    *,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    average: Averaging = "probabilities",
    activation: Activation | None = None,
    scales: Mapping[str, int] | None = None,
    parallel: bool = False,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[EnsembleBatch]:
    """The same batch by batch, for results too large to keep; models are as before once the iterator is closed.

    Args:
        models, loader: as for ``ensemble_inference``.
        weights: how much each model counts, not negative, by name or in the models' order; by default all the same.
            They need not sum to 1.
        average: "probabilities": the mean of what ``activation`` makes of each model's outputs; "logits":
            ``activation`` of the mean output.
        activation: from outputs (B, K) to probabilities; by default softmax over the last axis. ``torch.sigmoid`` for
            several labels at once, or for one output.
        scales: size in pixels of the square images a model wants; images are scaled once for each size.
        parallel: run the models of a batch beside each other: in threads on a CPU, in streams of their own on a CUDA
            device. The results are the same; it helps where one model alone leaves the device idle.
        autocast: makes the context of each forward pass, such as ``lambda: torch.autocast("cuda")``.

    Raises:
        As ``ensemble_inference``, but for an empty loader.
    """
    named = _named(models)
    counts = _normalised(weights, list(named))
    if average not in ("probabilities", "logits"):
        raise ValueError(f'average is "probabilities" or "logits", not {average!r}')
    unknown = sorted(set(scales or {}) - set(named))
    if unknown:
        raise ValueError(f"scales names {unknown[0]!r}, which is none of the models {', '.join(named)}")
    forward = partial(_forward, autocast=autocast)
    with _evaluating(named.values()), _side_by_side(len(named), parallel) as run_all:
        for batch in loader:
            images = _images_for(named, _inputs(batch), scales or {})
            calls = {name: partial(forward, name, model, images[name]) for name, model in named.items()}
            outputs = run_all(calls, {name: images[name].device for name in named})
            del images, calls
            yield EnsembleBatch(batch, outputs, _averaged(outputs, counts, average, activation))
            del batch, outputs  # before the next batch is loaded


def _named(models: Models) -> dict[str, nn.Module]:
    named = dict(models) if isinstance(models, Mapping) else {str(n): model for n, model in enumerate(models)}
    if not named:
        raise ValueError("an ensemble needs at least one model")
    return named


def _normalised(weights: Mapping[str, float] | Sequence[float] | None, names: Sequence[str]) -> dict[str, float]:
    """Weights by name that sum to 1."""
    if weights is None:
        weights = [1.0] * len(names)
    given = dict(weights) if isinstance(weights, Mapping) else dict(zip(names, weights, strict=False))
    if given.keys() != set(names) or len(weights) != len(names):
        raise ValueError(f"weights must give one number for each of the models {', '.join(names)}")
    total = sum(given.values())
    if min(given.values()) < 0 or not 0 < total < float("inf"):
        raise ValueError(f"weights must not be negative and not all be 0, as {list(given.values())} are")
    return {name: given[name] / total for name in names}


@contextmanager
def _evaluating(models: Iterable[nn.Module]) -> Iterator[None]:
    """All models in evaluation mode; afterwards each module as it was, so that frozen layers stay frozen."""
    held = list(models)
    modes = [(module, module.training) for model in held for module in model.modules()]
    were = [model.training for model in held]
    try:
        for model in held:
            model.eval()
        yield
    finally:
        for model, training in zip(held, were, strict=True):
            model.train(training)
        for module, training in modes:
            module.training = training


def _forward(
    name: str, model: nn.Module, images: Tensor, *, autocast: Callable[[], AbstractContextManager[Any]]
) -> Tensor:
    """One model's outputs; gradients are off here and not around the loop, which is the caller's, too."""
    with torch.no_grad(), autocast():
        outputs = model(images)
    if not isinstance(outputs, Tensor):
        raise TypeError(f"model {name!r} gives {type(outputs).__name__}, not a tensor (B, K): wrap it so that it does")
    return outputs


Calls = Mapping[str, Callable[[], Tensor]]
Devices = Mapping[str, torch.device]
RunAll = Callable[[Calls, Devices], dict[str, Tensor]]


@contextmanager
def _side_by_side(count: int, parallel: bool) -> Iterator[RunAll]:
    """What runs the models of a batch."""
    if not parallel or count == 1:
        yield lambda calls, _devices: {name: call() for name, call in calls.items()}
        return
    with ThreadPoolExecutor(count, "chirpid-ensemble") as threads:
        yield partial(_run_parallel, threads, {})


def _run_parallel(
    threads: ThreadPoolExecutor, streams: dict[str, torch.cuda.Stream], calls: Calls, devices: Devices
) -> dict[str, Tensor]:
    """Models on a CPU in threads; those on CUDA are queued from here, each on its own stream."""
    on_cuda = [name for name in calls if devices[name].type == "cuda"]
    begun = {name: threads.submit(call) for name, call in calls.items() if name not in on_cuda}
    outputs: dict[str, Tensor] = {}
    for name in on_cuda:
        if name not in streams:
            streams[name] = torch.cuda.Stream(devices[name])  # type: ignore[no-untyped-call]
        stream = streams[name]
        # The images were made, or are being copied, on the stream in use here; they are kept until all are done.
        stream.wait_stream(torch.cuda.current_stream(devices[name]))
        with torch.cuda.stream(stream):
            outputs[name] = calls[name]()
    for name in on_cuda:
        here = torch.cuda.current_stream(devices[name])
        here.wait_stream(streams[name])
        outputs[name].record_stream(here)
    outputs.update((name, future.result()) for name, future in begun.items())
    return {name: outputs[name] for name in calls}


def _images_for(models: Mapping[str, nn.Module], inputs: Tensor, scales: Mapping[str, int]) -> dict[str, Tensor]:
    """What each model is given: ``inputs`` on its device and at its scale, each made once."""
    made: dict[tuple[torch.device, int | None], Tensor] = {}
    images = {}
    for name, model in models.items():
        held = next((part for part in (*model.parameters(), *model.buffers())), inputs)
        device, scale = held.device, scales.get(name)
        if (device, None) not in made:
            made[device, None] = inputs.to(device, non_blocking=True)
        if (device, scale) not in made:
            made[device, scale] = scale_images(made[device, None], scale) if scale else made[device, None]
        images[name] = made[device, scale]
    return images


def _inputs(batch: Any) -> Tensor:
    """The images of a batch."""
    found = batch if isinstance(batch, Tensor) else _found(batch, 0, _INPUTS)
    if not isinstance(found, Tensor):
        raise TypeError(
            f"the loader gives batches of {type(batch).__name__} in which no tensor of images was found: give (images, "
            'labels), (images,), images, or a dictionary with "image"'
        )
    return found


def _found(batch: Any, position: int, names: Sequence[str]) -> Any:
    """What of a batch stands at ``position``, or under one of ``names``; None if nothing does."""
    if isinstance(batch, Mapping):
        return next((batch[name] for name in names if name in batch), None)
    if isinstance(batch, tuple | list):
        return batch[position] if position < len(batch) else None
    return None


def _averaged(
    outputs: Mapping[str, Tensor], weights: Mapping[str, float], average: Averaging, activation: Activation | None
) -> Tensor:
    """The ensemble's probabilities (B, K), in float32 at least, on the device of the first model."""
    first = next(iter(outputs.values()))
    if any(one.shape != first.shape for one in outputs.values()):
        shapes = ", ".join(f"{name} {tuple(one.shape)}" for name, one in outputs.items())
        raise ValueError(f"models of an ensemble must give outputs of one shape (B, K), not {shapes}")
    if activation is None and (first.ndim < 2 or first.shape[-1] == 1):
        raise ValueError("softmax of a single output is always 1: give activation=torch.sigmoid")
    with torch.no_grad():
        link = activation or partial(torch.softmax, dim=-1)
        wide = torch.promote_types(first.dtype, torch.float32)
        same = {name: one.to(first.device, wide) for name, one in outputs.items()}
        if average == "logits":
            return link(torch.stack([weights[name] * one for name, one in same.items()]).sum(0))
        return torch.stack([weights[name] * link(one) for name, one in same.items()]).sum(0)
