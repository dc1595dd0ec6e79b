"""A dataset of images in folders. The name of a folder is the class of the images in the folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from chirpid_patch.scales.scaling import as_float, image_tensor, scale_images

try:
    from PIL import Image
except ImportError:  # optional: only this module needs Pillow
    Image = None  # type: ignore[assignment]

_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
_MODES = {1: "L", 3: "RGB"}


class ImageFolderDataset(Dataset[tuple[Tensor, int]]):
    """A dataset of the images in the files ``root/CLASS/**/FILE``.

    A sample is a pair (image, class number). An image is a float32 tensor (channels, H, W) with values from 0 to 1.
    Pillow reads the file when the sample is requested. The samples have the order of the sorted paths. The dataset
    omits files and folders whose names begin with a dot. The dataset can be pickled.

    Args:
        root: folder that contains a folder for each class.
        img_size: width and height in pixels of the scaled images; None keeps the size of each image.
        channels: number of channels, which is 3 for colour and 1 for grey.
        classes: names of the classes in the order of their numbers; None: the sorted names of the folders in ``root``.
        transform: function that is applied to each scaled image (C, H, W); None: no function.

    Raises:
        FileNotFoundError: the folder ``root`` does not exist, or contains no images.
        ValueError: ``classes`` lacks the name of a folder in ``root``, or ``channels`` is neither 1 nor 3.
        RuntimeError: Pillow is not installed.
    """

    def __init__(
        self,
        root: str | Path,
        img_size: int | None = 224,
        *,
        channels: int = 3,
        classes: Sequence[str] | None = None,
        transform: Callable[[Tensor], Any] | None = None,
    ) -> None:
        if Image is None:
            raise RuntimeError("reading images needs Pillow: pip install Pillow")
        if channels not in _MODES:
            raise ValueError(f"channels must be 1 or 3, not {channels}")
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"there is no folder {self.root}: data_root must have a folder for each class")
        self.img_size = img_size
        self.channels = channels
        self.transform = transform
        folders = sorted(path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        self.classes = [folder.name for folder in folders] if classes is None else list(classes)
        #: Maps the name of each class to its number.
        self.class_to_idx: Mapping[str, int] = {name: number for number, name in enumerate(self.classes)}
        unknown = [folder.name for folder in folders if folder.name not in self.class_to_idx]
        if unknown:
            raise ValueError(f"the folder {self.root / unknown[0]} is not one of the classes {', '.join(self.classes)}")
        #: Path and class number of every sample.
        self.samples = [(path, self.class_to_idx[folder.name]) for folder in folders for path in _image_paths(folder)]
        if not self.samples:
            raise FileNotFoundError(
                f"no images in {self.root}: the folder must contain a folder of images (.png, .jpg, …) for each class"
            )
        #: Class number of every sample.
        self.targets = [target for _, target in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, target = self.samples[index]
        with Image.open(path) as picture:
            image: Any = image_tensor(picture.convert(_MODES[self.channels]))
        image = as_float(image) if self.img_size is None else scale_images(image, self.img_size)
        return (image if self.transform is None else self.transform(image)), target


def _image_paths(folder: Path) -> list[Path]:
    """Return the sorted paths of all images below ``folder``."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in _IMAGE_SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )
