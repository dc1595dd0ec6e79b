"""Random mirroring and turning of images, for pictures without an orientation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from chirpid_patch.randomness.keyed_random import Keys, uniforms
from chirpid_patch.transforms.spectrograms import BatchTransform


class FlipsAndTurns(BatchTransform):
    """Apply one of the eight symmetries of the square, each equally likely, with probability ``p``.

    Images are (C, H, W) or (H, W), of any dtype. Images that are not square use only the four symmetries of the
    rectangle. The transform moves pixel values and computes none, so shape and dtype stay.

    Args:
        p: probability of changing an image.
    """

    def __init__(self, p: float = 1.0) -> None:
        super().__init__()
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def check(self, samples: Tensor) -> None:
        if samples.ndim < 3:
            raise ValueError(f"FlipsAndTurns needs images of shape (C, H, W) or (H, W), not {tuple(samples.shape[1:])}")

    def transform_rows_(self, batch: Tensor, keys: Keys, rows: Sequence[int]) -> None:
        is_square = batch.shape[-1] == batch.shape[-2]
        # Draw 0 is the gate.
        choices = (uniforms(keys[rows], 4)[:, 1:] < 0.5).tolist()
        for row, (left_right, up_down, diagonal) in zip(rows, choices, strict=True):
            image = batch[row]
            axes = [axis for axis, flipped in ((-1, left_right), (-2, up_down)) if flipped]
            turned = image.flip(axes) if axes else image
            if diagonal and is_square:
                turned = turned.transpose(-1, -2)
            if turned is not image:
                # A transposed view of the image itself must not be copied onto it.
                image.copy_(turned if axes else turned.clone())
