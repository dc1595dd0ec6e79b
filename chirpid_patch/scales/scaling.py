"""Functions that scale an image or a whole batch of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def image_tensor(image: Any) -> Tensor:
    """Return an image as a tensor (C, H, W), without changing its values.

    Args:
        image: a tensor (C, H, W), or an array or Pillow image of shape (H, W) or (H, W, C).

    Raises:
        TypeError: ``image`` is neither a tensor nor an array nor a Pillow image.
        ValueError: a tensor does not have three axes, or an array or Pillow image does not have two or three axes.
    """
    if isinstance(image, Tensor):
        if image.ndim != 3:
            raise ValueError(f"an image must be a tensor (C, H, W), not of shape {tuple(image.shape)}")
        return image
    if not hasattr(image, "__array__") and not hasattr(image, "__array_interface__"):
        raise TypeError(
            f"the base dataset returns a {type(image).__name__} as an image: return a tensor (C, H, W), an "
            "array (H, W, C) or a Pillow image"
        )
    values = np.array(image)  # a copy, because the memory of a Pillow image is read-only
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3:
        raise ValueError(f"an image must be an array (H, W) or (H, W, C), not of shape {values.shape}")
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def as_float(images: Tensor) -> Tensor:
    """Return ``images`` in floating point. 8-bit values from 0 to 255 become float32 values from 0 to 1.

    Floating-point images are returned unchanged.

    Raises:
        TypeError: the dtype is neither uint8 nor floating-point.
    """
    if images.dtype is torch.uint8:
        return images.to(torch.float32).div_(255)
    if not images.is_floating_point():
        raise TypeError(f"images must be uint8 or floating-point, not {images.dtype}")
    return images


def scale_images(images: Tensor, scale: int) -> Tensor:
    """Scale images to squares of ``scale`` by ``scale`` pixels.

    The scaling is bilinear with antialiasing. The function scales all images of a batch together. Except for rounding,
    the result is the same as for single images. 8-bit values first become float32 values from 0 to 1 (see
    ``as_float``). Floating-point images of the requested size are returned without a copy.

    Args:
        images: an image (C, H, W) or a batch (B, C, H, W), uint8 or floating-point.
        scale: width and height in pixels.

    Returns:
        A floating-point tensor (C, scale, scale) or (B, C, scale, scale).

    Raises:
        ValueError: ``scale`` is below 1, or ``images`` does not have three or four axes.
        TypeError: the images are neither uint8 nor floating-point.
    """
    if scale < 1:
        raise ValueError(f"a scale must be a size in pixels, at least 1, not {scale}")
    if images.ndim not in (3, 4):
        raise ValueError(f"images must be (C, H, W) or (B, C, H, W), not of shape {tuple(images.shape)}")
    images = as_float(images)
    if tuple(images.shape[-2:]) == (scale, scale) or len(images) == 0:
        return images if len(images) else images.new_empty((*images.shape[:-2], scale, scale))
    batch = images if images.ndim == 4 else images.unsqueeze(0)
    # In half precision on the CPU, older versions of PyTorch cannot scale with antialiasing, and newer versions round
    # after every step.
    wide = batch.float() if batch.dtype in _HALF and batch.device.type == "cpu" else batch
    scaled = F.interpolate(wide, size=(scale, scale), mode="bilinear", align_corners=False, antialias=True)
    scaled = scaled.to(images.dtype)
    return scaled if images.ndim == 4 else scaled[0]


class ScaleTo:
    """A transform that calls ``scale_images``, and can be pickled.

    Args:
        scale: width and height in pixels.
    """

    def __init__(self, scale: int) -> None:
        self.scale = scale

    def __call__(self, image: Any) -> Tensor:
        """Scale an image that ``image_tensor`` accepts, or a batch (B, C, H, W)."""
        is_batch = isinstance(image, Tensor) and image.ndim == 4
        return scale_images(image if is_batch else image_tensor(image), self.scale)

    def __repr__(self) -> str:
        return f"ScaleTo({self.scale})"
