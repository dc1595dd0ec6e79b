"""A generic trainer with hooks and several loaders: migrated, it trains the same to the last bit."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import copy_of, run

PACKAGES = ("framework", "vibration")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The backend before and after."""
    folder = tmp_path_factory.mktemp("trainer")
    for name in ("before", "after"):
        copy_of("trainer_backend", folder / name)
    result = run("apply", folder / "after", "--no-scaffold")
    assert result.exit_code == 0, result.output
    return folder / "before", folder / "after"


def forget_backend() -> None:
    """Have the next import of the backend's packages find those on the path then."""
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


def train(tree: Path) -> list[dict[str, Any]]:
    """The metrics of each epoch, all losses among them; it seeds everything itself."""
    forget_backend()
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tree)
        torch.set_num_threads(1)
        try:
            experiment = importlib.import_module("vibration.experiment")
            assert experiment.__file__ is not None and Path(experiment.__file__).is_relative_to(tree)
            recordings = importlib.import_module("vibration.recordings").make_recordings(160, (16, 24), 4, 5)
            history: list[dict[str, Any]] = experiment.run_experiment(
                recordings, 4, epochs=2, batch_size=8, strategy=experiment.SamplingStrategy.WEIGHTED, num_workers=2
            )
        finally:
            torch.set_num_threads(threads)
            forget_backend()
    return history


def test_its_loaders_and_datasets_are_migrated(trees: tuple[Path, Path]) -> None:
    loaders = (trees[1] / "framework" / "loaders.py").read_text()
    assert loaders.count("OptimalDataLoaderFactory.create_") == 3 and "return DataLoader(" not in loaders
    assert "lambda" not in loaders
    recordings = (trees[1] / "vibration" / "recordings.py").read_text()
    assert re.search(r"@standardizes_samples\([^)]*\)\nclass StandardizedWindows\(Dataset\)", recordings)


@pytest.mark.start_method("fork", reason="the original sends lambdas to workers")
def test_it_trains_the_same_to_the_last_bit(trees: tuple[Path, Path]) -> None:
    before, after = map(train, trees)
    assert [set(epoch["losses"]) for epoch in before] == [{"pump", "fan", "gearbox"}] * 2
    assert before[0]["val_loss"] != before[1]["val_loss"] > 0
    assert before == after
