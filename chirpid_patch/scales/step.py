"""Forward and backward pass of a batch at every scale, with only one scale or a part of it in memory."""

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
from chirpid_patch.scales.groups import even_parts, step_bytes, uses_batch_statistics
from chirpid_patch.scales.loss_parts import Criterion, LossParts, Reduction
from chirpid_patch.scales.scaling import scale_images

logger = logging.getLogger("chirpid_patch")


@dataclass(frozen=True)
class ScaleLosses:
    """The result of a step, on the model's device and without a graph.

    Attributes:
        loss: the weighted sum that was differentiated, 0-dim.
        losses: the loss of each scale.
        outputs: the model's outputs (B, …) of each scale, for models that return a tensor.
    """

    loss: Tensor
    losses: dict[int, Tensor]
    outputs: dict[int, Tensor]


class MultiScaleStep:
    """Add the gradients of ``sum(weights[s] * criterion(model(images at s), labels) for s in scales)``.

        step = MultiScaleStep(model, nn.CrossEntropyLoss(), (224, 448, 672), memory_budget=2 * 2**30)
        for batch in loader:
            optimizer.zero_grad()
            step(batch)
            optimizer.step()

    Call it with a batch of ``MultiScaleDataset``. From ``"base_image"`` it computes each scale, runs forward and
    backward pass, and frees the scale before the next one. With ``"image_224"`` and so on (legacy mode) it runs the
    forward pass of all scales and then one backward pass. The gradients are the same up to rounding. The call neither
    clears gradients nor steps the optimiser.

    Args:
        model: the model.
        criterion: loss of outputs and labels.
        scales: sizes of the images, in pixels.
        weights: weight of each scale; by default equal, with the sum 1.
        memory_budget: bytes for the forward and backward pass, without model, gradients and optimiser. A scale that
            needs more runs in parts of the batch, whose gradients add up to the same sum. A forward pass of one sample
            determines the size of the parts once. Models that normalise by the batch (batch norm while training), and
            losses that may be no mean or sum over samples, run the whole batch, with a warning. With dropout, the parts
            of a batch get other random numbers than the whole batch.
        reduction: how your own ``criterion`` reduces over samples, see ``LossParts``.
        backward: called with a loss instead of ``loss.backward()``, such as ``lambda loss:
            grad_scaler.scale(loss).backward()``.
        autocast: returns the context of each forward pass, such as ``lambda: torch.autocast("cuda")``.
        device: the device to which images and labels are moved; by default that of the model's first parameter.

    Raises:
        ValueError: ``scales`` cannot be used, ``weights`` has other scales, or ``memory_budget`` is not positive.
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
            raise ValueError(f"weights must name exactly the scales {self.scales}, not {sorted(self.weights)}")
        if memory_budget is not None and memory_budget <= 0:
            raise ValueError(f"memory_budget is a number of bytes above 0, not {memory_budget}")
        self.memory_budget = memory_budget
        self._loss = LossParts(criterion, reduction)
        self._backward = backward
        self._autocast = autocast
        self._device = device
        self._needs: dict[int, int] = {}
        self._warned: set[str] = set()

    def __call__(self, batch: Mapping[str, Any]) -> ScaleLosses:
        """Add the gradients of one batch to those of the parameters, and return the losses.

        Raises:
            KeyError: the batch has neither base images nor an image of every scale, or no label.
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
        """Run forward and backward pass of a part of the batch, and free its memory."""
        is_whole = part.stop - part.start == len(images)
        with self._autocast():
            output = self.model(scale_images(images[part], scale))
            loss = self._loss.whole(output, labels) if is_whole else self._loss.part(output, labels[part], labels)
        self._backward(loss * self.weights[scale])
        return loss.detach(), _detach(output)

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
        """Return a context in which ``DistributedDataParallel`` exchanges gradients with the last part only."""
        no_sync = getattr(self.model, "no_sync", None)
        return nullcontext() if now or no_sync is None else no_sync()

    def _divide_batch(self, scale: int, images: Tensor) -> list[slice]:
        """Return the parts in which a batch of this scale runs."""
        count = len(images)
        whole = [slice(0, count)]
        if self.memory_budget is None:
            return whole
        if uses_batch_statistics(self.model):
            self._warn("the model normalises by the batch (batch norm): use group norm, or freeze it with eval()")
            return whole
        if not self._loss.divisible:
            self._warn("the criterion may not be a mean or sum over samples: set reduction=")
            return whole
        need = self._bytes_per_sample(scale, images)
        if need > self.memory_budget:
            self._warn(
                f"one sample at scale {scale} needs about {need / 2**20:.1f} MiB alone: raise memory_budget, "
                f"or lower the scale",
                but="samples are run one by one",
            )
        return even_parts(count, self.memory_budget // need)

    def _bytes_per_sample(self, scale: int, images: Tensor) -> int:
        """Estimate the bytes that one sample takes at ``scale``."""
        if scale not in self._needs:
            with self._gradient_exchange(False), self._autocast():
                self._needs[scale] = max(1, step_bytes(self.model, scale_images(images[:1], scale)))
            logger.info("scale %d: forward and backward need %.1f MiB a sample", scale, self._needs[scale] / 2**20)
        return self._needs[scale]

    def _warn(self, why: str, but: str = "each scale is run for the whole batch at once") -> None:
        if why not in self._warned:
            self._warned.add(why)
            warnings.warn(f"memory_budget cannot be respected, {but}: {why}.", UserWarning, stacklevel=6)


def _detach(output: Any) -> Any:
    return output.detach() if isinstance(output, Tensor) else None
