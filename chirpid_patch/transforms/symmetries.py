"""A transform that mirrors and turns images at random, for images without a fixed "up", such as aerial photos."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from chirpid_patch.randomness.keyed_random import Keys, uniform_numbers
from chirpid_patch.transforms.spectrograms import BatchTransform


class FlipsAndTurns(BatchTransform):
    """Turn an image at random by 0, 90, 180 or 270 degrees, and mirror half of the images.

    The eight possible results are equally likely, and one of them is the unchanged image. Images have the shape
    (C, H, W) or (H, W), and any dtype. An image that is not square is turned only by 0 or 180 degrees, so that its
    shape stays the same. Its four possible results are also equally likely.

    Args:
        p: probability that the transform is applied to an image.
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
        # The first random number has already decided whether to apply the transform, so the choices use the other
        # numbers.
        choices = (uniform_numbers(keys[rows], 4)[:, 1:] < 0.5).tolist()
        for row, (left_right, up_down, diagonal) in zip(rows, choices, strict=True):
            image = batch[row]
            axes = [axis for axis, flipped in ((-1, left_right), (-2, up_down)) if flipped]
            turned = image.flip(axes) if axes else image
            if diagonal and is_square:
                turned = turned.transpose(-1, -2)
            if turned is not image:
                # A transposed view must not be copied onto its own memory.
                image.copy_(turned if axes else turned.clone())
