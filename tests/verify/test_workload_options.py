"""Options go before settings, settings before defaults; what is wrong with either is one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chirp_migrate.cli.verify import parse_verify_options
from chirp_migrate.engine.settings import read_settings
from chirp_migrate.errors import ChirpMigrateError, UsageProblem
from chirp_migrate.training.workload.entry_points import TrainingSource, WorkloadSizes
from chirp_migrate.verify.options import VerifyOptions


def settings(root: Path, text: str) -> Path:
    (root / "pyproject.toml").write_text(f"[tool.chirp-migrate.verify]\n{text}\n")
    return root


def test_nothing_said_finds_the_training_by_itself(tmp_path: Path) -> None:
    assert parse_verify_options(str(tmp_path)) == VerifyOptions(may_halve=True)
    assert VerifyOptions().source is TrainingSource.FOUND


@pytest.mark.parametrize("folds", [1, 2])
def test_an_epoch_has_eight_batches_by_default_in_each_of_two_folds(folds: int) -> None:
    sizes = WorkloadSizes()
    assert sizes.samples / folds / sizes.batch_size >= 8


def test_a_very_busy_machine_times_half_of_the_samples_unless_their_number_is_given(tmp_path: Path) -> None:
    by_default, given = (
        parse_verify_options(str(tmp_path)),
        parse_verify_options(str(tmp_path), "--samples", "520"),
    )
    assert by_default.sizes_for_timing(0.5) == by_default.sizes == given.sizes_for_timing(0.9)
    assert by_default.sizes_for_timing(0.9).samples == 260


def test_options_go_before_settings_and_settings_before_defaults(tmp_path: Path) -> None:
    settings(
        tmp_path, 'samples = 90\nepochs = 7\nshape = "3x8x9"\nclasses = 5\nbatch-size = 4\nfolds = 3\n'
        'model = "nets.big:Net"\nmin-saving = 30\ntime-budget = 12.5\ntimeout = 9\nthreads = 1\nmax-rounds = 4',
    )  # fmt: skip
    options = parse_verify_options(str(tmp_path), "--samples", "50", "--min-saving=10")
    sizes = options.sizes
    assert (sizes.samples, sizes.epochs, sizes.shape, sizes.classes) == (50, 7, (3, 8, 9), 5)
    assert (sizes.batch_size, sizes.folds) == (4, 3)
    assert (options.model, options.threshold_percent, options.budget_s) == ("nets.big:Net", 10.0, 12.5)
    assert (options.timeout_s, options.threads, options.max_rounds) == (9.0, 1, 4)


def test_a_script_or_another_workload_replaces_the_one_of_the_settings(tmp_path: Path) -> None:
    settings(tmp_path, 'workload = "own.py:run"')
    (tmp_path / "train.py").write_text("")
    entry = parse_verify_options(str(tmp_path)).entry
    assert entry is not None and entry.source is TrainingSource.HOOK and entry.hook == "own.py:run"
    entry = parse_verify_options(str(tmp_path), "--workload=other.py:run").entry
    assert entry is not None and entry.hook == "other.py:run"
    entry = parse_verify_options("--", str(tmp_path), "python", "train.py").entry
    assert entry is not None and entry.source is TrainingSource.SCRIPT and not entry.hook


def test_a_file_by_the_usual_name_is_the_workload(tmp_path: Path) -> None:
    (tmp_path / "chirp_verify.py").write_text("raise RuntimeError('never imported here')")
    entry = parse_verify_options(str(tmp_path)).entry
    assert entry is not None and entry.hook == "chirp_verify.py:workload"


def test_apply_accepts_the_table(tmp_path: Path) -> None:
    assert read_settings(settings(tmp_path, 'workload = "a.py:b"')).codes is None


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("sample = 3", "did you mean samples?"),
        ("samples = 3.5", "samples: '3.5' is not a valid whole number"),
        ("epochs = true", "epochs: 'True' is not a valid whole number"),
        ("strict = 3", "strict: '3' is not a valid boolean"),
        ("time-budget = inf", "time-budget: 'inf' is not a finite number"),
        ("samples = 20", "20 samples are too few"),
        ("folds = 1", "range x>=2"),
        ("min-saving = 100", "range 0<=x<100"),
        ('shape = "12 by 9"', "shape: the value must be a shape such as 1x224x313"),
        ('workload = "chirp_verify"', "workload: the value must name a function"),
        ('model = "utils/models.py:Net"', "model: the value must name a class"),
        ('data = "nowhere.npz"', r"nowhere\.npz does not exist"),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageProblem, match=sentence) as problem:
        parse_verify_options(str(settings(tmp_path, text)))
    assert "\n" not in str(problem.value)


def test_the_table_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.chirp-migrate]\nverify = 3\n")
    with pytest.raises(UsageProblem, match="must be a table"):
        parse_verify_options(str(tmp_path))


def test_data_of_the_settings_lie_beside_them_and_say_shape_and_classes(tmp_path: Path) -> None:
    features = np.zeros((60, 8, 9), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", features=features, labels=np.arange(60) % 3)
    sizes = parse_verify_options(str(settings(tmp_path, 'data = "own.npz"'))).sizes
    assert (sizes.samples, sizes.shape, sizes.classes) == (60, (1, 8, 9), 3)
    assert sizes.data == str(tmp_path / "own.npz")
    with pytest.raises(UsageProblem, match="classes"):
        parse_verify_options(str(tmp_path), "--classes=4")

    hooked = parse_verify_options(str(tmp_path), "--workload=a.py:b").sizes
    assert (hooked.samples, hooked.data) == (WorkloadSizes().samples, str(tmp_path / "own.npz")), (
        "a hook makes of it what it wants"
    )


@pytest.mark.parametrize(
    "arrays, sentence",
    [
        ({"features": np.zeros((60, 8, 9))}, "lacks labels"),
        ({"labels": np.arange(60)}, "lacks features"),
        ({"features": np.zeros((60, 8)), "labels": np.arange(60)}, "real numbers of shape"),
        ({"features": np.zeros((60, 8, 9)), "labels": np.arange(59)}, "pass one value for each sample"),
        ({"features": np.zeros((60, 8, 9)), "labels": np.zeros(60)}, "at least two classes"),
        ({"features": np.zeros((60, 8, 9)), "labels": np.array([{}] * 60)}, "cannot be read as NumPy arrays"),
    ],
)
def test_data_that_cannot_be_used(tmp_path: Path, arrays: dict[str, np.ndarray], sentence: str) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ChirpMigrateError, match=sentence) as problem:
        parse_verify_options(str(tmp_path), "--data", str(tmp_path / "own.npz"))
    assert problem.value.exit_code == 2


def test_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "own.npz").write_text("no arrays")
    with pytest.raises(ChirpMigrateError, match="arrays of numbers or text"):
        parse_verify_options(str(tmp_path), "--data", str(tmp_path / "own.npz"))
