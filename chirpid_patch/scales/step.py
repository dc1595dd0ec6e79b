"""A training step at several scales. By default, the scaled images of only one scale are in memory at a time."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chirpid_patch.scales.dataset import check_scales
from chirpid_patch.scales.groups import estimate_step_bytes, even_slices, uses_batch_statistics
from chirpid_patch.scales.loss_parts import Criterion, PartialLoss, Reduction
from chirpid_patch.scales.scaling import scale_images

logger = logging.getLogger("chirpid_patch")


@dataclass(frozen=True)
class ScaleLosses:
    """The losses and outputs of a step. All tensors are detached, and on the device of the model.

    Attributes:
        loss: the weighted sum of the losses of all scales, 0-dim.
        losses: maps each scale to its loss, 0-dim.
        outputs: maps each scale to the model's outputs (B, …); empty if the model does not return a tensor.
    """

    loss: Tensor
    losses: dict[int, Tensor]
    outputs: dict[int, Tensor]


class MultiScaleStep:
    """A training step that runs forward and backward pass at every scale, and sums the weighted gradients.

        step = MultiScaleStep(model, nn.CrossEntropyLoss(), (224, 448, 672), memory_budget=2 * 2**30)
        for batch in loader:
            optimizer.zero_grad()
            step(batch)
            optimizer.step()

    Call the step with a batch of ``MultiScaleDataset``. By default, the step scales the base images to one scale, runs
    forward and backward pass, and frees the memory before the next scale. For a batch of a dataset with
    ``memory_efficient=False``, the step runs the forward passes of all scales, and then a single backward pass. Except
    for rounding, both kinds of batches yield the same gradients. Your code must clear the gradients and call the
    optimiser.

    Args:
        model: the model.
        criterion: loss function of outputs and labels.
        scales: sizes of the images, in pixels.
        weights: maps each scale to the weight of the loss at this scale; None: all weights are ``1 / len(scales)``.
        memory_budget: largest number of bytes for forward and backward pass, in addition to model, gradients and
            optimiser. None: no limit. If a batch at a scale needs more bytes, the step divides the batch into parts,
            and runs the parts one after the other. The sum of the gradients of the parts is the gradient of the whole
            batch. With dropout, this sum differs, because the parts get other random numbers. To choose the size of the
            parts, the first step runs a forward pass of one sample at each scale. The step warns and runs whole batches
            in two cases: batch norm computes its statistics from the batch, as in training mode, or ``reduction`` is
            None and ``criterion`` is not a loss of PyTorch with the reduction "mean" or "sum".
        reduction: how ``criterion`` combines the losses of samples, "mean" or "sum" (see ``PartialLoss``). None: the
            reduction of ``criterion``, if ``criterion`` is a loss of PyTorch.
        backward: function to call with each loss, such as ``lambda loss: grad_scaler.scale(loss).backward()``. The
            default calls ``loss.backward()``.
        autocast: function that returns the context of each forward pass, such as ``lambda: torch.autocast("cuda")``.
        device: the device to which images and labels are moved; None: the device of the model's first parameter.

    Raises:
        ValueError: ``scales`` is empty or contains a scale twice or a scale below 1, the keys of ``weights`` differ
            from the scales, or ``memory_budget`` is not positive.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        scales: Sequence[int],
        *,
        weights: Mapping[int, float] | None = None,
        memory_budget: int | None = None,
        reduction: Reduction | None = None,
        backward: Callable[[Tensor], object] = Tensor.backward,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        device: torch.device | str | None = None,
    ) -> None:
        self.model = model
        self.scales = check_scales(scales)
        self.weights = dict.fromkeys(self.scales, 1 / len(self.scales)) if weights is None else dict(weights)
        if self.weights.keys() != set(self.scales):
            raise ValueError(
                f"the keys of weights must be exactly the scales {self.scales}, not {sorted(self.weights)}"
            )
        if memory_budget is not None and memory_budget <= 0:
            raise ValueError(f"memory_budget must be a number of bytes above 0, not {memory_budget}")
        self.memory_budget = memory_budget
        self._loss = PartialLoss(criterion, reduction)
        self._backward = backward
        self._autocast = autocast
        self._device = device
        self._needs: dict[int, int] = {}
        self._warned: set[str] = set()

    def __call__(self, batch: Mapping[str, Any]) -> ScaleLosses:
        """Add the gradients of ``batch`` to the gradients of the parameters, and return the losses.

        Raises:
            KeyError: the batch has no label, or neither a base image nor an image for each scale.
        """
        device = self._device or next(self.model.parameters()).device
        labels = batch["label"].to(device, non_blocking=True)
        if "base_image" in batch:
            return self._on_demand(batch["base_image"].to(device, non_blocking=True), labels)
        return self._all_at_once(batch, labels, device)

    def _on_demand(self, images: Tensor, labels: Tensor) -> ScaleLosses:
        pieces = [(scale, part) for scale in self.scales for part in self._divide_batch(scale, images)]
        losses: dict[int, list[Tensor]] = {scale: [] for scale in self.scales}
        outputs: dict[int, list[Any]] = {scale: [] for scale in self.scales}
        for number, (scale, part) in enumerate(pieces, 1):
            with self._gradient_exchange(number == len(pieces)):
                loss, output = self._run_part(scale, images, labels, part)
            losses[scale].append(loss)
            outputs[scale].append(output)
        return self._result(
            {scale: torch.stack(parts).sum() for scale, parts in losses.items()},
            {scale: parts for scale, parts in outputs.items() if isinstance(parts[0], Tensor)},
        )

    def _run_part(self, scale: int, images: Tensor, labels: Tensor, part: slice) -> tuple[Tensor, Any]:
        """Run forward and backward pass of a part of the batch at ``scale``, and return loss and outputs."""
        is_whole = part.stop - part.start == len(images)
        with self._autocast():
            output = self.model(scale_images(images[part], scale))
            loss = self._loss.whole(output, labels) if is_whole else self._loss.part(output, labels[part], labels)
        self._backward(loss * self.weights[scale])
        return loss.detach(), output.detach() if isinstance(output, Tensor) else None

    def _all_at_once(self, batch: Mapping[str, Any], labels: Tensor, device: torch.device | str) -> ScaleLosses:
        losses: dict[int, Tensor] = {}
        outputs: dict[int, list[Any]] = {}
        images = {scale: batch[f"image_{scale}"].to(device, non_blocking=True) for scale in self.scales}
        for scale in self.scales:
            with self._autocast():
                output = self.model(images[scale])
                losses[scale] = self._loss.whole(output, labels)
            if isinstance(output, Tensor):
                outputs[scale] = [output.detach()]
        self._backward(self._weighted_sum(losses))
        return self._result({scale: loss.detach() for scale, loss in losses.items()}, outputs)

    def _result(self, losses: dict[int, Tensor], outputs: Mapping[int, Sequence[Tensor]]) -> ScaleLosses:
        whole = {scale: parts[0] if len(parts) == 1 else torch.cat(list(parts)) for scale, parts in outputs.items()}
        return ScaleLosses(self._weighted_sum(losses), losses, whole)

    def _weighted_sum(self, losses: Mapping[int, Tensor]) -> Tensor:
        return torch.stack([self.weights[scale] * loss for scale, loss in losses.items()]).sum()

    def _gradient_exchange(self, now: bool) -> AbstractContextManager[Any]:
        """Return a context in which ``DistributedDataParallel`` exchanges gradients only if ``now`` is True."""
        no_sync = getattr(self.model, "no_sync", None)
        return nullcontext() if now or no_sync is None else no_sync()

    def _divide_batch(self, scale: int, images: Tensor) -> list[slice]:
        """Return the parts of the batch that the step must run one after the other at ``scale``."""
        count = len(images)
        whole = [slice(0, count)]
        if self.memory_budget is None:
            return whole
        if uses_batch_statistics(self.model):
            self._warn(
                "the model uses batch norm, which needs whole batches: use group norm, or freeze batch norm with eval()"
            )
            return whole
        if not self._loss.divisible:
            self._warn("the criterion may be neither a mean nor a sum over samples: pass the argument reduction")
            return whole
        need = self._bytes_per_sample(scale, images)
        if need > self.memory_budget:
            self._warn(
                f"a single sample at scale {scale} needs about {need / 2**20:.1f} MiB: raise memory_budget, "
                f"or lower the scale",
                but="the step runs one sample at a time",
            )
        return even_slices(count, self.memory_budget // need)

    def _bytes_per_sample(self, scale: int, images: Tensor) -> int:
        """Estimate how many bytes a training step with one sample needs at ``scale``."""
        if scale not in self._needs:
            with self._gradient_exchange(False), self._autocast():
                self._needs[scale] = max(1, estimate_step_bytes(self.model, scale_images(images[:1], scale)))
            logger.info("scale %d: a sample needs %.1f MiB in a training step", scale, self._needs[scale] / 2**20)
        return self._needs[scale]

    def _warn(self, why: str, but: str = "at each scale, the step runs the whole batch at once") -> None:
        if why not in self._warned:
            self._warned.add(why)
            warnings.warn(f"memory_budget cannot be respected, so {but}: {why}.", UserWarning, stacklevel=6)
