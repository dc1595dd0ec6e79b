"""Loading problems that verify's own watching proves, and trainings that look alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from chirp_migrate.doctor.recording_of_verify import find_problems_in_passes
from chirp_migrate.verify.equivalence.loader_recorder import LoaderRecorder

ROWS = TensorDataset(torch.arange(80.0).reshape(20, 4), torch.arange(20) % 2)


class Noisy(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(4) + index


def epochs(train: Any, *validate: Any, count: int = 2, before: Callable[[], Any] = lambda: None) -> None:
    """Iterate over the loaders as a training does."""
    for _ in range(count):
        before()
        for _ in train:
            torch.zeros(1, requires_grad=True).sum().backward()
        for loader in validate:
            with torch.no_grad():
                list(loader)


def loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"batch_size": 4, **options})


def order_seeded_each_epoch() -> None:
    epochs(loader(ROWS, shuffle=True), before=lambda: torch.manual_seed(1))


def order_by_chance() -> None:
    epochs(loader(ROWS, shuffle=True))


def order_of_storage() -> None:
    epochs(loader(ROWS))


def validation_in_training() -> None:
    epochs(loader(ROWS, shuffle=True), loader(Subset(ROWS, range(8))))


def validation_by_parts() -> None:
    epochs(loader(Subset(ROWS, range(12)), shuffle=True), loader(Subset(ROWS, range(12, 20))))


def fit_beside_validation() -> None:
    parts = [Subset(ROWS, range(12)), Subset(ROWS, range(6)), Subset(ROWS, range(12, 20))]
    epochs(loader(parts[0], shuffle=True), loader(parts[1]), loader(parts[2]))


def training_samples_without_gradients() -> None:
    epochs(loader(ROWS, shuffle=True), loader(ROWS))


def random_validation() -> None:
    epochs(loader(ROWS, shuffle=True), loader(Noisy()))


def random_samples_of_the_training_dataset() -> None:
    dataset = Noisy()
    epochs(loader(dataset, shuffle=True), loader(dataset))


def parts_of_random_samples_of_equal_length() -> None:
    epochs(loader(Subset(Noisy(), range(6))), loader(Subset(Noisy(), range(4))), count=1)


def validation_dropped() -> None:
    epochs(loader(ROWS, shuffle=True), loader(TensorDataset(torch.rand(10, 4)), drop_last=True))


def evaluation_that_starts_with_gradients() -> None:
    train, validate = loader(ROWS, shuffle=True), loader(Subset(ROWS, range(8)))
    for _ in range(2):
        epochs(train, count=1)
        list(validate)


def validation_that_fits() -> None:
    epochs(loader(ROWS, shuffle=True), loader(TensorDataset(torch.rand(8, 4)), drop_last=True))


def training_dropped() -> None:
    epochs(loader(ROWS, batch_size=32, drop_last=True))


@pytest.mark.parametrize(
    ("train", "checks"),
    [
        (order_seeded_each_epoch, ["order"]),
        (order_by_chance, []),
        (order_of_storage, []),
        (validation_in_training, ["overlap"]),
        (validation_by_parts, []),
        (fit_beside_validation, []),
        (training_samples_without_gradients, []),
        (random_validation, ["validation-varies"]),
        (random_samples_of_the_training_dataset, []),
        (parts_of_random_samples_of_equal_length, []),
        (validation_dropped, ["last-batch"]),
        (validation_that_fits, []),
        (evaluation_that_starts_with_gradients, []),
        (training_dropped, ["last-batch"]),
    ],
)
def test_only_what_the_passes_prove_is_a_problem(train: Callable[[], None], checks: list[str]) -> None:
    torch.manual_seed(0)
    with LoaderRecorder() as watch:
        train()
        traces = watch.take()
    found = find_problems_in_passes({"one": traces, "two": traces}, has_own_data=True)
    assert [(one.check, one.entry_points) for one in found] == [(check, ["one", "two"]) for check in checks]


def test_an_empty_loader_proves_nothing_where_verify_chose_the_number_of_samples() -> None:
    with LoaderRecorder() as watch:
        training_dropped()
        traces = watch.take()
    assert find_problems_in_passes({"one": traces}, has_own_data=False) == []
