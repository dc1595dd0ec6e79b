"""A class that computes the loss of a batch in parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Criterion = Callable[[Any, Any], Tensor]
Reduction = Literal["mean", "sum"]

#: Maps loss functions of PyTorch to the loss class that computes the same loss.
_FUNCTIONS: dict[Any, type[nn.Module]] = {
    F.cross_entropy: nn.CrossEntropyLoss,
    F.nll_loss: nn.NLLLoss,
    F.mse_loss: nn.MSELoss,
    F.l1_loss: nn.L1Loss,
    F.smooth_l1_loss: nn.SmoothL1Loss,
    F.huber_loss: nn.HuberLoss,
    F.binary_cross_entropy: nn.BCELoss,
    F.binary_cross_entropy_with_logits: nn.BCEWithLogitsLoss,
}


class PartialLoss:
    """Compute the loss of a batch part by part.

    The sum of the losses of all parts is the loss of the whole batch. The sum is also correct for ``CrossEntropyLoss``
    and ``NLLLoss`` with class weights and ignored labels.

    Args:
        criterion: the loss function.
        reduction: how ``criterion`` combines the losses of samples: "mean" (all samples have the same weight) or "sum".
            None: the reduction of ``criterion``, if ``criterion`` is a loss of PyTorch. For any other ``criterion``,
            None means that the reduction is unknown. Then ``divisible`` is False, and callers must not call ``part``.
    """

    def __init__(self, criterion: Criterion, reduction: Reduction | None = None) -> None:
        known = _FUNCTIONS.get(criterion)
        self._criterion: Any = criterion if known is None else known()
        if reduction is None and type(self._criterion).__module__ == nn.CrossEntropyLoss.__module__:
            own = getattr(self._criterion, "reduction", None)
            reduction = "mean" if own in ("mean", "batchmean") else "sum" if own == "sum" else None
        self._reduction = reduction

    @property
    def divisible(self) -> bool:
        """Return whether the loss of a batch can be computed from the losses of its parts."""
        return self._reduction is not None

    def whole(self, outputs: Any, labels: Any) -> Tensor:
        """Return ``criterion(outputs, labels)``."""
        loss: Tensor = self._criterion(outputs, labels)
        return loss

    def part(self, outputs: Any, labels: Any, all_labels: Any) -> Tensor:
        """Return the contribution of a part of the batch to the loss of the whole batch.

        Args:
            outputs: the model's outputs for the part.
            labels: the labels of the part.
            all_labels: the labels of the whole batch.
        """
        if self._reduction == "sum":
            return self.whole(outputs, labels)
        weighs = isinstance(self._criterion, nn.CrossEntropyLoss | nn.NLLLoss)
        if weighs and isinstance(all_labels, Tensor) and not all_labels.is_floating_point():
            summed = copy.copy(self._criterion)
            summed.reduction = "sum"
            loss: Tensor = summed(outputs, labels) / self._weight_of(all_labels)
        else:
            loss = self.whole(outputs, labels) * (len(labels) / len(all_labels))
        return loss

    def _weight_of(self, labels: Tensor) -> Tensor:
        """Return the sum of the class weights of ``labels``, without ignored labels."""
        counted: Tensor = labels != self._criterion.ignore_index
        weights = self._criterion.weight
        if weights is None:
            return counted.sum()
        weight: Tensor = torch.where(counted, weights[torch.where(counted, labels, 0)], 0).sum()
        return weight
