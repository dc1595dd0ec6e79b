"""A backend small enough to train in milliseconds, with the parameters and habits of the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MODELS = """
import torch


class TinyCNN(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.pool = torch.nn.AdaptiveAvgPool2d((4, 1))
        self.fc = torch.nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(self.pool(x).flatten(1))
"""

# Plain gradient descent written out: torch.optim would import for seconds.
TRAINING_UTILS = """
import random
import time
import torch
from torch.utils.data import DataLoader, Dataset, Subset


class Masked(Dataset):
    def __init__(self, base):
        self.base = base

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        x, y = self.base[index]
        x = x.clone()
        if random.random() < 0.8:
            start = random.randint(0, 5)
            x[..., start:start + random.randint(0, 4)] = 0.0
        return x, y


def _fit(train_set, val_set, model, num_epochs, batch_size):
    train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=batch_size)
    criterion = torch.nn.CrossEntropyLoss()
    history = {'train_losses': [], 'val_losses': [], 'seconds': time.perf_counter()}
    for _ in range(num_epochs):
        total = 0.0
        for x, y in train_loader:
            loss = criterion(model(x), y)
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
            total += loss.item()
        history['train_losses'].append(total)
        with torch.no_grad():
            history['val_losses'].append(sum(criterion(model(x), y).item() for x, y in val_loader))
    history['state'] = model.state_dict()
    return history


def single_fold_training_with_predefined_split(dataset, train_indices, val_indices, model_class, num_classes,
                                               num_epochs=250, batch_size=48, lr=0.001, standardize=False):
    train_set, val_set = Subset(dataset, train_indices), Subset(dataset, val_indices)
    return _fit(train_set, val_set, model_class(num_classes), num_epochs, batch_size)


def fast_single_fold_training_with_augmentation(dataset, train_indices, val_indices, model_class, num_classes,
                                                num_epochs=250, batch_size=48, augment_params=None):
    train_set, val_set = Masked(Subset(dataset, train_indices)), Subset(dataset, val_indices)
    return _fit(train_set, val_set, model_class(num_classes), num_epochs, batch_size)
"""


@pytest.fixture
def write_backend(tmp_path: Path) -> Callable[..., Path]:
    """Write the backend under a name, with pieces of its training code replaced (old text, new text)."""

    def write(name: str, *changes: tuple[str, str]) -> Path:
        text = TRAINING_UTILS
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        utils = tmp_path / name / "utils"
        utils.mkdir(parents=True)
        (utils / "models.py").write_text(MODELS)
        (utils / "training_utils.py").write_text(text)
        return utils.parent

    return write
