"""What counts as batches that are kept, by the number of open file descriptors after each batch."""

from __future__ import annotations

import pytest

from chirp_migrate.doctor.checks.handles import check
from chirp_migrate.doctor.recording import CodeLine, LoaderInfo, LoaderPass, Recording


def recording(*epochs: list[int]) -> Recording:
    loader = LoaderInfo(
        number=0,
        place=CodeLine("train.py", 7),
        dataset="Rows",
        dataset_place=CodeLine("train.py", 2),
        dataset_ids=[0],
        is_stream=False,
        samples=64,
        batch_size=4,
        num_workers=2,
        persistent_workers=False,
        drop_last=False,
        start_method="fork",
        sampler="RandomSampler",
        is_random_order=True,
    )
    passes = [LoaderPass(number, 0, handles=handles) for number, handles in enumerate(epochs)]
    return Recording("train.py", most_handles=1024, loaders=[loader], passes=passes)


QUIET = (
    [18, 24, 23, 24, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34],
    [35, 38, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50],
)
BUSY = (
    [18, 24, 23, 24, 23, 28, 25, 26, 31, 28, 29, 34, 31, 32, 37, 34],
    [35, 38, 37, 38, 43, 40, 41, 46, 43, 44, 45, 50, 47, 48, 53, 50],
)
RELEASED = ([20, 24, 23, 25, 24, 22, 25, 23, 24, 26, 22, 24, 23, 25, 24, 23],) * 2


@pytest.mark.parametrize(
    ("epochs", "is_reported"),
    [
        (QUIET, True),
        (BUSY, True),  # batches on their way, of workers that get ahead
        (RELEASED, False),
        ((QUIET[0], QUIET[0]), False),  # let go between epochs
        ((QUIET[0], [one + 20 for one in RELEASED[0]]), False),  # kept in one epoch
        ((QUIET[0][:10], QUIET[1][:10]), False),  # too few batches
    ],
)
def test_descriptors_that_rise_in_two_epochs_are_reported(epochs: tuple[list[int], ...], is_reported: bool) -> None:
    assert bool(list(check(recording(*epochs)))) is is_reported
