"""Lightning validates although an epoch ends early. A module of the same name stands for its loop."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from chirp_migrate.training.watch.lightning_validation import let_lightning_validate_after

LOOP = """
class Loop:
    def __init__(self, trainer):
        self.trainer = trainer

    def advance(self, fetch):
        return fetch()
"""


def loop_in(name: str, validates_after: Any) -> Any:
    module = ModuleType(name)
    exec(LOOP, vars(module))
    return module.Loop(SimpleNamespace(val_check_batch=validates_after))


def through_a_helper() -> bool:
    return let_lightning_validate_after(9)


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_validates_after_the_batches_that_are_left(package: str) -> None:
    loop = loop_in(f"{package}.loops.training_epoch_loop", 30)
    assert loop.advance(through_a_helper)
    assert loop.trainer.val_check_batch == 9


@pytest.mark.parametrize(
    ("name", "validates_after"),
    [
        ("lightning.pytorch.loops.training_epoch_loop", float("inf")),  # a stream: Lightning sees its end
        ("lightning.pytorch.loops.training_epoch_loop", None),  # after an interval of time
        ("project.loops", 30),
    ],
)
def test_other_trainings_keep_their_settings(name: str, validates_after: Any) -> None:
    loop = loop_in(name, validates_after)
    assert not loop.advance(through_a_helper)
    assert loop.trainer.val_check_batch == validates_after


def test_without_lightning_nothing_changes() -> None:
    assert not let_lightning_validate_after(9)
