"""Entry points that do not train, how long the others will take, and what fits into the budget."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support import run
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from chirp_migrate.cli.verify import options_of, verify
from chirp_migrate.training.watch.interception import FewerWorkers
from chirp_migrate.training.workload.choosing import parse_expression
from chirp_migrate.training.workload.entry_points import Sizes
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.options import LEAST_SAMPLES, VerifyOptions
from chirp_migrate.verify.spec import Tried
from chirp_migrate.verify.timing.constant_batch import CachedLoading
from chirp_migrate.verify.timing.rounds import LEAST_TO_TELL, Rounds, Stopped, TimedRound, take_rounds
from chirp_migrate.verify.trial import Trial, fitting
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
    asked = ["--samples", "60", "--shape", "12x10", "--threads", "1", "--max-rounds", "4", "--measure-seconds", "0"]
    quick = ["--num-workers", "", "--json", str(report)]
    return CliRunner().invoke(verify, [str(after), "--baseline", str(before), *asked, *quick, *options])


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


class WhereRead(Dataset[int]):
    """Samples that are the number of the process that reads them."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return os.getpid()


@pytest.mark.parametrize("loader_class", [DataLoader, BatchedDataLoader])
@pytest.mark.parametrize(("persistent", "asked"), [(True, 2), (False, 4)])
def test_a_trial_counts_the_workers_and_reads_without(loader_class: Any, persistent: bool, asked: int) -> None:
    made = loader_class(WhereRead(), num_workers=2, persistent_workers=persistent, timeout=5)
    with FewerWorkers(0) as none:
        none.cover_new_classes()
        read = {int(batch) for _ in range(2) for batch in made}
        assert none.take() == asked and none.take() == 0
    assert read == {os.getpid()}
    assert (made.num_workers, made.timeout) == (2, 5)


def test_a_trial_fails_with_one_worker_as_with_more() -> None:
    with FewerWorkers(1) as one:
        read = {int(batch) for batch in DataLoader(WhereRead(), num_workers=2)}
    assert len(read) == 1 and os.getpid() not in read and one.asked == 2


class Streamed(IterableDataset[int]):
    """Samples that only a worker can read."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        assert worker is not None
        yield from range(worker.id, 8, worker.num_workers)


def test_a_stream_is_read_in_a_worker_and_never_from_one_cached_batch() -> None:
    made = DataLoader(Streamed(), batch_size=4, num_workers=2)
    with FewerWorkers(0):
        assert [batch.tolist() for batch in made] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with CachedLoading():
        assert sorted(batch.tolist() for batch in made) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_settings_choose_entry_points_and_the_seed(write_backend: Callable[..., Path]) -> None:
    root = write_backend("tree")
    (root / "pyproject.toml").write_text('[tool.chirp-migrate.verify]\nselect = "not augmentation"\nseed = 7\n')
    result = run("verify", root, "--list", "--json", "-")
    assert [one["entry_point"] for one in json.loads(result.stdout)["entry_points"]] == [SINGLE]
    assert options_of(str(root)).sizes.seed == 7 and options_of(str(root), "--seed=8").sizes.seed == 8
    none = run("verify", root, "--list", "-k", "k_fold")
    assert (none.exit_code, none.stderr.count("\n")) == (2, 1) and "fits none of 2" in none.stderr


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
    with pytest.raises(ValueError, match="must be parts of names"):
        parse_expression(text)


@given(st.floats(0, 5), st.floats(0, 5), st.floats(0, 0.05), st.floats(0, 2), st.integers(24, 500), st.integers(1, 50))
def test_what_is_expected_is_what_epochs_and_samples_take(
    once_s: float, epoch_s: float, workers_s: float, more_workers_s: float, samples: int, epochs: int
) -> None:
    """Exact where all that is read takes longer with more samples, and where none of it does."""
    starting_s = (workers_s, workers_s + more_workers_s, workers_s)
    starting = workers_s + (epochs - 1) * more_workers_s
    for grows in (True, False):
        few_s = once_s + epoch_s
        seconds = (few_s, few_s + epoch_s, few_s * (1 + grows))
        expected = Tried("", 24, 0.1, seconds, starting_s).expected_s(Sizes(samples=samples, epochs=epochs))
        larger = samples / 24 if grows and few_s else 1
        assert math.isclose(expected, larger * (once_s + epochs * epoch_s) + starting, rel_tol=1e-6, abs_tol=1e-6)


@given(st.floats(0.001, 2), st.integers(1, 9), st.integers(LEAST_SAMPLES, 3000), st.integers(1, 40), st.floats(0, 2000))
def test_what_does_not_fit_is_reduced_epochs_first(
    each_s: float, entries: int, samples: int, epochs: int, left_s: float
) -> None:
    tried = {
        side: {f"{n}": Tried("", 24, each_s, (each_s, 2 * each_s, 2 * each_s), (0.1, 0.1, 0.1)) for n in range(entries)}
        for side in ("before", "after")
    }
    trial = Trial({"0": "KeyError"} if entries > 1 else {}, tried, 1.0, Equivalence())
    settings = VerifyOptions(Sizes(samples=samples, epochs=epochs), threads=1)
    sizes, fitted = fitting(trial, settings, left_s)
    assert fitted.expected_s(replace(settings, sizes=sizes)) <= left_s or len(fitted.labels) == 1
    assert sizes.samples == samples or sizes.epochs == min(epochs, 2)
    assert (*fitted.labels, *fitted.no_room) == trial.labels
    if fitted.no_room:
        assert sizes.samples == LEAST_SAMPLES
        one_more = replace(fitted, no_room=fitted.no_room[1:])
        assert one_more.expected_s(replace(settings, sizes=sizes)) > left_s
    elif sizes.samples == samples and sizes.epochs < epochs:
        more = replace(settings, sizes=replace(sizes, epochs=sizes.epochs + 1))
        assert fitted.expected_s(more) > left_s


@pytest.mark.slow
def test_entry_points_that_there_is_no_time_to_try_are_left_out(
    write_backend: Callable[..., Path], tmp_path: Path
) -> None:
    before, after = write_backend("before"), write_backend("after")
    result = verified(after, before, tmp_path / "report.json", "--time-budget", "0.001")
    values = json.loads((tmp_path / "report.json").read_text())
    assert values["workload"]["no_room"] == [AUGMENTED]
    assert "in 1 of 2 entry points" in " ".join(result.stderr.split())


@pytest.mark.parametrize("whole", range(8))
def test_an_interrupt_after_the_fewest_rounds_leaves_a_verdict(whole: int) -> None:
    def make(number: int, labels: frozenset[str] | None) -> TimedRound:
        if number == whole:
            raise KeyboardInterrupt
        seconds = {side: {"one": 1.0} for side in ("before", "after", "cached")}
        return TimedRound(("before", "after"), seconds, 0.0, 1.0)

    def take() -> Rounds:
        return take_rounds(make, lambda *_: frozenset({"one"}), 20, 1e9)

    if whole < LEAST_TO_TELL:
        with pytest.raises(KeyboardInterrupt):
            take()
    else:
        rounds = take()
        assert (len(rounds.included), rounds.ended_with) == (whole, Stopped.INTERRUPTED)
