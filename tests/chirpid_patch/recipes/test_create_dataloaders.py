"""One call makes the three loaders, and every sample is in exactly one of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from chirpid_patch.recipes import image_folder
from chirpid_patch.recipes.image_folder import ImageFolderDataset
from chirpid_patch.recipes.split_loaders import create_dataloaders
from chirpid_patch.scales.dataset import MultiScaleDataset


def values(number: int, size: int = 12) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    """20 training and 7 test images of two classes."""
    for split, count in (("train", 20), ("test", 7)):
        for number in range(count):
            folder = tmp_path / split / ("lens" if number % 2 else "nonlens")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values(number)).save(folder / f"{number:02}.png")
    (tmp_path / "train" / "lens" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".cache").mkdir()
    return tmp_path


def seen(loader: DataLoader[Any]) -> list[float]:
    """What identifies the samples of a loader."""
    return [float(image.sum()) for images, _ in loader for image in images]


def test_loaders_as_the_document_uses_them(data_root: Path) -> None:
    scales = [6, 12]
    train_loader_base, val_loader_base, test_loader_base = create_dataloaders(
        data_root=str(data_root), batch_size=4, img_size=scales[-1], num_workers=0, val_split=0.1
    )
    assert [len(loader.dataset) for loader in (train_loader_base, val_loader_base, test_loader_base)] == [18, 2, 7]
    train_multiscale = MultiScaleDataset(train_loader_base.dataset.dataset, scales, augment=True, memory_efficient=True)
    assert len(train_multiscale) == 20 and train_multiscale[0]["base_image"].shape == (3, 12, 12)
    _, _, test_loader = create_dataloaders(data_root=data_root, batch_size=4, img_size=12, num_workers=0, val_split=0.0)
    images, labels = next(iter(test_loader))
    assert images.shape == (4, 3, 12, 12) and images.dtype is torch.float32 and labels.tolist() == [0, 0, 0, 1]
    assert images.min() >= 0 and images.max() <= 1


def test_every_sample_is_in_exactly_one_split_and_the_split_repeats_with_the_seed(data_root: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    loaders = create_dataloaders(data_root, 4, 12, val_split=0.3)
    assert torch.equal(state, torch.get_rng_state())
    splits = [seen(loader) for loader in loaders]
    assert [len(split) for split in splits] == [14, 6, 7]
    base = loaders[0].dataset.dataset
    assert sorted(splits[0] + splits[1]) == sorted(float(image.sum()) for image, _ in base)
    again = create_dataloaders(data_root, 4, 12, val_split=0.3)
    other = create_dataloaders(data_root, 4, 12, val_split=0.3, seed=7)
    assert seen(again[1]) == splits[1] != seen(other[1])
    assert sorted(seen(again[0])) == sorted(splits[0]) and seen(again[0]) != seen(again[0])  # shuffled anew


def test_traps_2_and_3_validation_and_test_keep_every_sample(data_root: Path) -> None:
    loaders = create_dataloaders(data_root, 16, 12, val_split=0.5)
    assert [len(seen(loader)) for loader in loaders] == [10, 10, 7]
    loaders = create_dataloaders(data_root, 6, 12, val_split=0.5, drop_last=True)
    assert [len(seen(loader)) for loader in loaders] == [6, 10, 7]


def test_no_validation_split_gives_a_loader_without_batches() -> None:
    loaders = create_dataloaders(TensorDataset(torch.arange(10.0)), 4, val_split=0.0, test_split=0.0)
    assert [list(map(len, loader)) for loader in loaders[1:]] == [[], []] and len(loaders[0].dataset) == 10


def test_a_dataset_instead_of_folders() -> None:
    dataset = TensorDataset(torch.arange(50.0).reshape(50, 1), torch.arange(50))
    loaders = create_dataloaders(dataset, 8, val_split=0.2, test_split=0.1)
    assert [len(loader.dataset) for loader in loaders] == [35, 10, 5]
    assert loaders[0].dataset.dataset is dataset
    assert sorted(label for loader in loaders for _, labels in loader for label in labels.tolist()) == list(range(50))


def test_class_folders_without_splits_and_a_validation_folder_of_its_own(data_root: Path) -> None:
    loaders = create_dataloaders(data_root / "train", 4, 12, val_split=0.1, test_split=0.2)
    assert [len(loader.dataset) for loader in loaders] == [14, 2, 4]
    (data_root / "test").rename(data_root / "val")
    (data_root / "test" / "lens").mkdir(parents=True)
    Image.fromarray(values(0)).save(data_root / "test" / "lens" / "one.png")
    loaders = create_dataloaders(data_root, 4, 12)
    assert [len(loader.dataset) for loader in loaders] == [20, 7, 1]
    assert next(iter(loaders[2]))[1].tolist() == [0]  # "lens" has the number it has in training


def test_images_are_float_of_the_size_and_channels_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(values(1)).save(tmp_path / "a" / "0.png")
    dataset = pickle.loads(pickle.dumps(ImageFolderDataset(tmp_path, 12)))
    image, target = dataset[0]
    torch.testing.assert_close(image, torch.from_numpy(values(1)).permute(2, 0, 1).float() / 255)
    assert (dataset.classes, dataset.targets, target) == (["a"], [0], 0)
    assert torch.equal(ImageFolderDataset(tmp_path, None)[0][0], image)
    assert ImageFolderDataset(tmp_path, 5, channels=1)[0][0].shape == (1, 5, 5)


def test_without_pillow_the_sentence_says_what_to_install(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folder, "Image", None)
    with pytest.raises(RuntimeError, match="pip install Pillow"):
        create_dataloaders(data_root, 4, 12)


def test_what_is_missing_is_named(data_root: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        create_dataloaders(data_root / "nowhere")
    with pytest.raises(FileNotFoundError, match="lens"):
        create_dataloaders(data_root / "train" / "lens")
    with pytest.raises(ValueError, match="val_split"):
        create_dataloaders(data_root, val_split=10)
    with pytest.raises(TypeError, match="data_root"):
        create_dataloaders(3)
    with pytest.raises(ValueError):
        create_dataloaders(TensorDataset(torch.zeros(2)))
    (data_root / "test" / "arc").mkdir()
    with pytest.raises(ValueError, match=r"arc.*lens, nonlens"):
        create_dataloaders(data_root)
    (data_root / "train").rename(data_root / "training")
    with pytest.raises(FileNotFoundError, match=r"train.*test"):
        create_dataloaders(data_root)
