"""Every entry point is compared before anything is timed; those that fail or hang are named and block nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from support import run
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from chirp_migrate.cli.verify import parse_verify_options, verify
from chirp_migrate.training.workload.choosing import parse_expression
from chirp_migrate.training.workload.entry_points import FullTrainingLength, find_entry_points
from chirp_migrate.verify.equivalence.loader_recorder import WorkerCountLimit
from chirp_migrate.verify.options import entry_points_from_options
from chirp_migrate.verify.timing.epochs import RepeatedBatchLoading
from chirpid_patch import BatchedDataLoader

SINGLE = "training_utils.single_fold_training_with_predefined_split"
AUGMENTED = "training_utils.fast_single_fold_training_with_augmentation"
FITS = "    train_set, val_set = Masked(Subset(dataset, train_indices)), Subset(dataset, val_indices)\n"
LOCAL = FITS + "    if len(dataset) < 0:\n        from random import shuffle\n    shuffle\n"
ONLY_IN_WORKERS = [
    (
        "        x, y = self.base[index]\n",
        "        if get_worker_info(): raise ValueError('in a worker')\n        x, y = self.base[index]\n",
    ),
    ("import DataLoader, Dataset, Subset", "import DataLoader, Dataset, Subset, get_worker_info"),
    ("shuffle=True)", "shuffle=True, num_workers=2)"),
]
OTHER = FITS + "    raise KeyError('augment_params')\n"


def verified(after: Path, before: Path, report: Path, *options: str) -> Result:
    asked = ["--samples", "60", "--shape", "12x10", "--threads", "1", "--max-rounds", "3", "--json", str(report)]
    return CliRunner().invoke(verify, [str(after), "--baseline", str(before), *asked, *options])


@pytest.mark.slow
def test_another_error_after_is_another_training(write_backend: Callable[..., Path], tmp_path: Path) -> None:
    before, after = write_backend("before", (FITS, LOCAL)), write_backend("after", (FITS, OTHER))
    result = verified(after, before, tmp_path / "report.json")
    assert result.exit_code == 13
    (difference,) = json.loads((tmp_path / "report.json").read_text())["differences"]
    assert (difference["name"], difference["entry_point"]) == ("error-differs", AUGMENTED)
    assert "raises UnboundLocalError" in difference["message"] and "KeyError: 'augment_params'" in difference["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([(FITS, OTHER)], "augmentation raised KeyError: 'augment_params'"),
        (
            ONLY_IN_WORKERS,
            "Caught ValueError in DataLoader worker process 0. … ValueError: in a worker",
        ),
    ],
)
def test_what_fails_after_only_is_a_failure(
    changes: list[tuple[str, str]], error: str, write_backend: Callable[..., Path], tmp_path: Path
) -> None:
    before, after = write_backend("before"), write_backend("after", *changes)
    result = verified(after, before, tmp_path / "report.json")
    assert result.exit_code == 14
    values = json.loads((tmp_path / "report.json").read_text())
    assert values["side"] == "after" and error in values["reason"]
    assert "utils/training_utils.py" in values["output_tail"]


HANGS = FITS + "    import time\n    time.sleep(1000)\n"
DIES = FITS + "    import os\n    os._exit(7)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "how"),
    [
        (LOCAL, "raises UnboundLocalError"),
        # Below, both happen where it is timed.
        pytest.param(DIES, "ended with exit code 7 and returned no result", marks=pytest.mark.exhaustive),
        pytest.param(HANGS, "did not end within 9 s", marks=pytest.mark.exhaustive),
    ],
)
def test_an_entry_point_that_is_broken_before_the_migration_is_named_and_blocks_nothing(
    broken: str, how: str, write_backend: Callable[..., Path], tmp_path: Path
) -> None:
    before, after = write_backend("before", (FITS, broken)), write_backend("after", (FITS, broken))
    result = verified(after, before, tmp_path / "report.json", *(["--timeout", "9"] if broken is HANGS else []))
    values = json.loads((tmp_path / "report.json").read_text())
    assert result.exit_code in (0, 10, 11, 12)
    assert list(values["workload"]["failing"]) == [AUGMENTED] and values["workload"]["entry_points"] == [SINGLE]
    assert values["differences"] == []
    start = f"{AUGMENTED}: not compared, because the code before"
    assert any(note.startswith(start) and how in note for note in values["notes"])
    assert list(values["ratios"]) == [SINGLE]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "how"),
    [
        ("os._exit(7)", "ended with exit code 7"),
        pytest.param("time.sleep(1000)", "did not end within 15 s", marks=pytest.mark.exhaustive),
    ],
)
def test_an_entry_point_that_is_lost_only_where_it_is_timed_is_named_and_blocks_nothing(
    dies: str, how: str, write_backend: Callable[..., Path], tmp_path: Path
) -> None:
    larger = FITS + f"    if len(dataset) > 52:\n        import os, time\n        {dies}\n"
    before, after = write_backend("before", (FITS, larger)), write_backend("after", (FITS, larger))
    result = verified(after, before, tmp_path / "report.json", "--timeout", "15")
    values = json.loads((tmp_path / "report.json").read_text())
    assert result.exit_code in (0, 10, 11, 12)
    assert list(values["ratios"]) == [SINGLE] and values["differences"] == []
    assert any(note.startswith(f"{AUGMENTED}: not timed") and how in note for note in values["notes"])


@pytest.mark.slow
def test_the_budget_keeps_no_entry_point_from_being_compared(
    write_backend: Callable[..., Path], tmp_path: Path
) -> None:
    before, after = write_backend("before"), write_backend("after")
    result = verified(after, before, tmp_path / "report.json", "--time-budget", "0.001")
    values = json.loads((tmp_path / "report.json").read_text())
    assert result.exit_code == 10
    assert set(values["passes"]["after"]) == set(values["workload"]["entry_points"]) == {SINGLE, AUGMENTED}
    assert values["workload"]["no_room"] == [SINGLE, AUGMENTED] and values["ratios"] == {}


def test_the_own_run_of_an_entry_point_is_in_its_source(write_backend: Callable[..., Path]) -> None:
    assert {one.own for one in find_entry_points(write_backend("tree")).entry_points} == {
        FullTrainingLength(250, 1, assumed=False)
    }


def write_training(root: Path, **modules: str) -> None:
    """Write a backend with a model and these training modules."""
    (root / "utils").mkdir()
    (root / "utils" / "models.py").write_text("class Net(Module):\n    def __init__(self, num_classes): ...\n")
    for name, text in modules.items():
        (root / "utils" / f"{name}.py").write_text(text)


def test_epochs_and_folds_are_taken_from_defaults_then_from_what_the_backend_sets(tmp_path: Path) -> None:
    write_training(
        tmp_path,
        cross_validation="def k_fold(dataset, model_class, num_classes, k_folds=5, num_epochs=300): ...\n"
        "def given(dataset, fold_indices, model_class, num_classes, num_epochs): ...\n",
        training_core="def train(features, labels, config, model_class, num_classes):\n"
        "    config = {**{'num_epochs': 220, 'k_folds': 4}, **config}\n",
    )
    found = {one.name: one.own for one in find_entry_points(tmp_path).entry_points}
    assert found == {
        "k_fold": FullTrainingLength(300, 5, False),
        "given": FullTrainingLength(300, 5, False),
        "train": FullTrainingLength(220, 4, False),
    }
    assert parse_verify_options(str(tmp_path), "--own-epochs", "30").own_epochs == 30


def test_epochs_that_no_module_sets_are_named_an_assumption(tmp_path: Path) -> None:
    k_fold = "def k_fold(dataset, fold_indices, model_class, num_classes, num_epochs, k_folds=5): ...\n"
    write_training(tmp_path, cross_validation=k_fold)
    for options, own in (((), FullTrainingLength(100, 5)), (("--own-epochs", "30"), FullTrainingLength(30, 5, False))):
        given = parse_verify_options(str(tmp_path), *options)
        [found] = entry_points_from_options(tmp_path, tmp_path, given).entry_points
        assert found.own == own


class WhereRead(Dataset[int]):
    """Samples that are the number of the process that reads them."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return os.getpid()


@pytest.mark.parametrize("loader_class", [DataLoader, BatchedDataLoader])
def test_a_watch_starts_as_few_workers_as_show_what_workers_do(loader_class: Any) -> None:
    made = loader_class(WhereRead(), num_workers=4, timeout=300)
    with WorkerCountLimit() as few:
        few.cover_new_classes()
        read = {int(batch) for batch in made}
    assert len(read) == 2 and os.getpid() not in read
    assert (made.num_workers, made.timeout) == (4, 300)


def test_validation_is_read_in_the_process_where_workers_change_nothing() -> None:
    def read(**options: Any) -> set[int]:
        made = DataLoader(WhereRead(), num_workers=4, **options)
        with WorkerCountLimit(), torch.no_grad():
            return {int(batch) for batch in made}

    assert read() == {os.getpid()}
    # Workers that are kept decide how often a seed is drawn.
    assert os.getpid() not in read(persistent_workers=True)


class Streamed(IterableDataset[int]):
    """Samples that only a worker can read."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        assert worker is not None
        yield from range(worker.id, 8, worker.num_workers)


def test_a_stream_is_read_in_a_worker_and_never_from_one_cached_batch() -> None:
    made = DataLoader(Streamed(), batch_size=4, num_workers=2)
    with WorkerCountLimit(), torch.no_grad():
        assert [batch.tolist() for batch in made] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with RepeatedBatchLoading():
        assert sorted(batch.tolist() for batch in made) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_settings_choose_entry_points_and_the_seed(write_backend: Callable[..., Path]) -> None:
    root = write_backend("tree")
    (root / "pyproject.toml").write_text('[tool.chirp-migrate.verify]\nselect = "not augmentation"\nseed = 7\n')
    result = run("verify", root, "--list", "--json", "-")
    assert [one["entry_point"] for one in json.loads(result.stdout)["entry_points"]] == [SINGLE]
    assert (
        parse_verify_options(str(root)).sizes.seed == 7 and parse_verify_options(str(root), "--seed=8").sizes.seed == 8
    )
    none = run("verify", root, "--list", "-k", "k_fold")
    assert (none.exit_code, none.stderr.count("\n")) == (2, 1) and "matches none of 2" in none.stderr


def test_the_list_says_how_each_is_called_and_runs_nothing(write_backend: Callable[..., Path]) -> None:
    root = write_backend("tree", ("import random", "raise SystemExit('was run')\nimport random"))
    result = run("verify", root, "--list", "-k", "augmentation", "--epochs", "5", "--json", "-")
    assert result.exit_code == 0
    (found,) = json.loads(result.stdout)["entry_points"]
    assert found["entry_point"] == AUGMENTED
    assert found["call"] == (
        "fast_single_fold_training_with_augmentation(dataset, train_indices, val_indices, model_class=TinyCNN, "
        "num_classes=4, num_epochs=5, batch_size=32)"
    )


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("k_fold", ["backup.k_fold", "core.K_fold"]),
        ("not k_fold", ["core.single"]),
        ("k_FOLD and not backup", ["core.K_fold"]),
        ("core.single or backup", ["backup.k_fold", "core.single"]),
        ("(core and not single) or 'up.k'", ["backup.k_fold", "core.K_fold"]),
    ],
)
def test_expressions_choose_as_those_of_pytest_do(expression: str, chosen: list[str]) -> None:
    names = ["backup.k_fold", "core.K_fold", "core.single"]
    assert list(filter(parse_expression(expression), names)) == chosen


@pytest.mark.parametrize("text", ["", "a b", "not", "f(x)", "a == b", "1", "a and (b", "a if b else c", "a and 1"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be parts of entry point names"):
        parse_expression(text)
