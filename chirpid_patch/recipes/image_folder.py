"""Images in folders named after their classes, without further packages (R-003)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from chirpid_patch.scales.scaling import image_tensor, scale_images

try:
    from PIL import Image
except ImportError:  # optional: without it, images are .npy files
    Image = None  # type: ignore[assignment]

_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
_ARRAY = ".npy"
_MODES = {1: "L", 3: "RGB"}


class ImageFolderDataset(Dataset[tuple[Tensor, int]]):
    """Samples (image, class number) of ``root/CLASS/**/FILE``; images float32 (channels, img_size, img_size) in 0..1.

    Files are pictures that Pillow reads, where it is installed, and ``.npy`` arrays: (H, W), (H, W, C) or (C, H, W),
    bytes or floating-point, of one or ``channels`` channels; one channel is repeated. Files and folders whose names
    begin with a dot are left out. Order is that of the sorted paths. A file is read when its sample is. State is plain,
    so the dataset pickles.

    Args:
        root: the folder of class folders.
        img_size: width and height in pixels; None keeps each image's own.
        channels: 3 (colour) or 1 (grey).
        classes: names in the order of their numbers; by default the sorted names of the folders in ``root``.
        transform: applied to each image (C, H, W) last.
        as_bytes: give uint8 (C, H, W) in 0..255, rounded: a quarter of the memory, for ``MultiScaleDataset``.

    Raises:
        FileNotFoundError: there is no folder ``root``, or no image in it.
        ValueError: a class folder that ``classes`` does not name, or an impossible ``channels``.
        RuntimeError: there are pictures but Pillow is not installed.
    """

    def __init__(
        self,
        root: str | Path,
        img_size: int | None = 224,
        *,
        channels: int = 3,
        classes: Sequence[str] | None = None,
        transform: Callable[[Tensor], Any] | None = None,
        as_bytes: bool = False,
    ) -> None:
        if channels not in _MODES:
            raise ValueError(f"channels must be 1 or 3, not {channels}")
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"there is no folder {self.root}: data_root must hold a folder for each class")
        self.img_size = img_size
        self.channels = channels
        self.transform = transform
        self.as_bytes = as_bytes
        folders = class_folders(self.root)
        self.classes = [folder.name for folder in folders] if classes is None else list(classes)
        #: Number of each class.
        self.class_to_idx: Mapping[str, int] = {name: number for number, name in enumerate(self.classes)}
        unknown = [folder.name for folder in folders if folder.name not in self.class_to_idx]
        if unknown:
            raise ValueError(f"{self.root / unknown[0]} is none of the classes {', '.join(self.classes)}")
        #: Path and class number of every sample.
        self.samples = [(path, self.class_to_idx[folder.name]) for folder in folders for path in _images(folder)]
        if not self.samples:
            kinds = "pictures (.png, .jpg, …) or .npy arrays"
            raise FileNotFoundError(f"no images in {self.root}: it must hold a folder of {kinds} for each class")
        #: Class number of every sample.
        self.targets = [target for _, target in self.samples]
        picture = next((path for path, _ in self.samples if path.suffix.lower() != _ARRAY), None)
        if picture is not None and Image is None:
            raise RuntimeError(f"reading {picture} needs Pillow (pip install Pillow), or images saved as .npy arrays")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, target = self.samples[index]
        image: Any = _with_channels(_read(path, self.channels), self.channels, path)
        if self.img_size is not None:
            image = scale_images(image, self.img_size)
        if self.as_bytes:
            image = image if image.dtype is torch.uint8 else image.mul(255).round_().clamp_(0, 255).to(torch.uint8)
        elif image.dtype is torch.uint8:
            image = image.to(torch.float32).div_(255)
        return (image if self.transform is None else self.transform(image)), target


def class_folders(root: Path) -> list[Path]:
    """The folders in ``root``, sorted by name; none that begins with a dot."""
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    """Every image below ``folder``, sorted."""
    return sorted(
        path
        for path in folder.rglob("*")
        if (path.suffix.lower() in _PICTURES or path.suffix.lower() == _ARRAY)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )


def _read(path: Path, channels: int) -> Tensor:
    """The image in a file, (C, H, W), uint8 or float32."""
    if path.suffix.lower() != _ARRAY:
        with Image.open(path) as picture:
            return image_tensor(picture.convert(_MODES[channels]))
    values = np.load(path, allow_pickle=False)
    if values.dtype != np.uint8 and not np.issubdtype(values.dtype, np.floating):
        raise ValueError(f"{path} holds {values.dtype}: save images as uint8 in 0..255 or floating-point in 0..1")
    if values.ndim == 3 and values.shape[-1] not in (1, 3) and values.shape[0] in (1, 3):
        values = values.transpose(1, 2, 0)
    if values.ndim not in (2, 3):
        raise ValueError(f"{path} holds an array of shape {values.shape}: an image is (H, W), (H, W, C) or (C, H, W)")
    return image_tensor(values if values.dtype == np.uint8 else values.astype(np.float32))


def _with_channels(image: Tensor, channels: int, path: Path) -> Tensor:
    if len(image) == channels:
        return image
    if len(image) == 1:
        return image.expand(channels, -1, -1).contiguous()
    raise ValueError(f"{path} has {len(image)} channels, not {channels}: save it so, or give channels={len(image)}")
