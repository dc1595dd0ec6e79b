"""Two small example projects that train in the same way, but take different times. The difference is known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.training.workload.entry_points import WorkloadSizes

__all__ = ["CONDITIONS", "SIZES", "Condition", "write_trees"]

SIZES = WorkloadSizes(samples=96, shape=(1, 64, 96), epochs=30, batch_size=32)
"""Thirty epochs of three batches: a tenth of the training is three whole epochs."""


@dataclass(frozen=True)
class Condition:
    """One injected change of the total training time.

    Attributes:
        name: name in the tables.
        function: name of the entry point with this change.
        ratio: true ratio of times after / before.
    """

    name: str
    function: str
    ratio: float


def _conditions() -> tuple[Condition, ...]:
    changed = [("less", percent, -percent) for percent in (50, 30, 20, 10)]
    changed += [("more", percent, percent) for percent in (10, 20, 30, 50)]
    conditions = [
        Condition(f"{percent} % {word} time", f"training_{word}_{percent}", 1 + change / 100)
        for word, percent, change in changed
    ]
    return (*conditions[:4], Condition("A/A: no change", "training_unchanged", 1.0), *conditions[4:])


CONDITIONS = _conditions()

_MODELS = """
import torch


class SmallCNN(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, kernel_size=5, stride=2, padding=2)
        self.pool = torch.nn.AdaptiveAvgPool2d((4, 4))
        self.fc = torch.nn.Linear(8 * 16, num_classes)

    def forward(self, x):
        return self.fc(self.pool(torch.relu(self.conv(x))).flatten(1))
"""

_TRAINING = """
import torch
from torch.utils.data import DataLoader, Dataset


class Standardized(Dataset):
    def __init__(self, base, indices):
        self.base, self.indices = base, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        x, y = self.base[self.indices[index]]
        return (x - x.mean()) / (x.std() + 1e-8), y


def _train(dataset, train_indices, val_indices, model_class, num_classes, num_epochs, batch_size):
    model = model_class(num_classes)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train_loader = DataLoader(Standardized(dataset, train_indices), batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(Standardized(dataset, val_indices), batch_size=batch_size)
    losses = []
    for _ in range(num_epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(sum(criterion(model(x), y).item() for x, y in val_loader))
    return losses
"""

_ENTRY = """

def {function}(dataset, train_indices, val_indices, model_class, num_classes, num_epochs=30, batch_size=32):
    epochs = max(1, round(num_epochs * {ratio}))
    return _train(dataset, train_indices, val_indices, model_class, num_classes, epochs, batch_size)
"""


def write_trees(folder: Path) -> dict[str, Path]:
    """Write both versions. Each condition has an entry point, whose number of epochs differs in the version after.

    Fewer or more epochs change every part of the time equally, so the total changes by exactly the wanted share.
    (``verify`` itself would report different trainings. So the benchmark times rounds without comparing the trainings.)
    """
    # The first training of a process takes 8 ms longer (measured), because its batch shapes are new. This time is short
    # for a verification, but is a twentieth of the shortest training here. So an entry point that is not judged runs
    # first.
    first = _ENTRY.format(function="training_first", ratio=1.0)
    trees = {}
    for side in ("before", "after"):
        utils = folder / side / "utils"
        utils.mkdir(parents=True)
        entries = (
            _ENTRY.format(function=each.function, ratio=each.ratio if side == "after" else 1.0) for each in CONDITIONS
        )
        (utils / "models.py").write_text(_MODELS, encoding="utf-8")
        (utils / "training_utils.py").write_text(_TRAINING + first + "".join(entries), encoding="utf-8")
        trees[side] = utils.parent
    return trees
