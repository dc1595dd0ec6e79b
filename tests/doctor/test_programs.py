"""Each program of fixtures/doctor shows exactly the problems that are listed here, and look-alikes show none."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import Any

import pytest
from support import FIXTURES, ROOT, run

PROGRAMS = FIXTURES / "doctor"

pytestmark = pytest.mark.slow  # each program runs in a separate process

#: What functions of a dataset return below its random transforms is seen from Python 3.12 on.
SEES_RESULTS = sys.version_info >= (3, 12)

PROBLEMS = {
    "attribute_frozen_below": ["frozen-copy"],
    "attribute_frozen_in_workers": ["frozen-copy"],
    "attribute_in_shared_memory": [],
    "attribute_list_frozen": ["frozen-copy"],
    "attribute_not_read": [],
    "attribute_of_new_workers": [],
    "batch_of_one_in_validation": [],
    "batch_of_one_raises": ["last-batch"],
    "batch_of_one_with_batchnorm": ["last-batch"],
    "batch_of_one_with_layernorm": [],
    "cache_filled_before": [],
    "cache_in_list_lost": ["lost-cache"],
    "cache_kept_with_workers": [],
    "cache_lost_with_workers": ["lost-cache"],
    "cache_of_handles": [],
    "cache_of_method_lost": ["lost-cache"],
    "cache_of_parameters": [],
    "copied_data_forked": [],
    "copied_data_of_arrays": ["copied-data"],
    "copied_data_of_objects": ["copied-data"],
    "copied_data_of_tensors": [],
    "double_for_double_model": [],
    "double_from_numpy": ["double-precision"],
    "double_in_dictionary": ["double-precision"],
    "double_of_few_numbers": [],
    "everything_dropped": ["last-batch"],
    "handles_of_copies": [],
    "handles_of_kept_batches": ["handles"],
    "handles_of_kept_labels": ["handles"],
    "handles_of_one_epoch": [],
    "handles_of_two_workers": ["handles"],
    "memory_array_of_strings": [],
    "memory_history_below_key": ["memory"],
    "memory_history_emptied": [],
    "memory_history_in_workers": ["memory"],
    "memory_history_without_workers": ["memory"],
    "memory_list_not_read": [],
    "memory_list_of_records": ["memory"],
    "memory_list_of_strings": ["memory"],
    "memory_of_bounded_queue": [],
    "memory_of_replay": [],
    "noise_equal_in_workers": ["equal-randomness"],
    "noise_from_held_generator": ["equal-randomness"],
    "noise_seeded_by_index": [],
    "noise_seeded_by_worker": [],
    "noise_seeded_each_epoch": ["equal-randomness"],
    "order_epoch_never_set": ["order"],
    "order_epoch_never_set_alone": ["order"],
    "order_epoch_set": [],
    "order_equal_in_folds": [],
    "order_equal_in_trials": [],
    "order_fixed_and_mixed": [],
    "order_generator_made_each_epoch": ["order"],
    "order_of_carried_cell": [],
    "order_of_carried_state": [],
    "order_seeded_each_epoch": ["order"],
    "order_sorted_by_class": ["order"],
    "order_sorted_of_decoders": ["order"],
    "order_sorted_of_sequences": ["order"],
    "overlap_of_folds": [],
    "overlap_of_measured_fit": [],
    "overlap_of_random_splits": ["overlap"],
    "overlap_of_short_epochs": ["overlap"],
    "overlap_split_with_replacement": ["overlap"],
    "overlap_validation_in_training": ["overlap"],
    "pickle_lambda_in_steps": ["not-picklable"],
    "pickle_lambda_without_workers": [],
    "pickle_left_out_in_getstate": [],
    "pickle_open_file": ["not-picklable", "not-picklable"],
    "repeated_reading": ["repeated-reading"],
    "repeated_reading_augmented": [],
    "repeated_reading_below_wrapper": ["repeated-reading"] if SEES_RESULTS else [],
    "repeated_reading_by_loader": ["repeated-reading"] if SEES_RESULTS else [],
    "repeated_reading_cached": [],
    "repeated_reading_hidden_by_start": [],
    "repeated_reading_in_workers": ["repeated-reading"],
    "repeated_reading_of_cheap_files": [],
    "repeated_reading_of_crops": [],
    "shared_handle_of_file": ["shared-handle"],
    "shared_handle_of_reader": ["shared-handle"],
    "shared_handle_of_log": [],
    "shared_handle_opened_in_worker": [],
    "shared_handle_read_at_offsets": [],
    "statistics_adapted_to_target": [],
    "statistics_of_all_columns": ["statistics-of-all"],
    "statistics_of_all_ends": ["statistics-of-all"],
    "statistics_of_all_spectrograms": ["statistics-of-all"],
    "statistics_of_each_sample": [],
    "statistics_of_training": [],
    "statistics_of_training_ends": [],
    "stream_divided": [],
    "stream_not_divided": ["duplicated-samples"],
    "stream_of_few_values": [],
    "stream_of_inner_loader": [],
    "stream_shuffled_not_divided": ["duplicated-samples"],
    "teacher_in_training_mode": [],
    "threads_before_reading": [],
    "threads_of_python": [],
    "threads_of_workers": ["threads"],
    "threads_one_for_each_worker": [],
    "threads_set_by_sample": ["threads"],
    "training_set_evaluated_with_drop_last": [],
    "transfers_of_views": ["transfers"],
    "transfers_on_cpu": [],
    "transfers_pageable": ["transfers"],
    "transfers_without_workers": [],
    "validation_augmented_by_shared_dataset": ["validation-varies"],
    "validation_by_engine": ["validation-varies"],
    "validation_dropped": ["last-batch"],
    "validation_in_training_mode": ["validation-varies"],
    "validation_of_training_data": [],
    "validation_padded_to_batch": [],
    "validation_with_random_crop": ["validation-varies"],
    "waiting_for_busy_workers": ["waiting"],
    "waiting_for_kept_workers": [],
    "waiting_for_samples_in_memory": ["waiting"],
    "waiting_for_the_model": [],
    "waiting_for_workers": ["waiting"],
    "waiting_without_workers": ["waiting"],
}

#: Under spawn a dataset that cannot be pickled starts no worker, so these trainings fail, and the reason is named.
FAIL_WITHOUT_FORK = {"pickle_lambda_in_steps", "pickle_open_file"}

#: Of the programs about one kind of problem, the first that has it and the first look-alike, and one more that waits.
ONE_OF_EACH = {
    *{(name.partition("_")[0], bool(PROBLEMS[name])): name for name in sorted(PROBLEMS, reverse=True)}.values(),
    "waiting_without_workers",
}


def parameters(*rows: tuple[Any, ...]) -> list[Any]:
    """Return parameters of tests; those of programs outside ``ONE_OF_EACH`` are exhaustive."""
    return [row if row[0] in ONE_OF_EACH else pytest.param(*row, marks=pytest.mark.exhaustive) for row in rows]


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest) -> list[str]:
    """The programs that run: all if exhaustive tests are selected, otherwise one of each."""
    tests = (item for item in request.session.items if item.path == request.path)
    return sorted(PROBLEMS if any(item.get_closest_marker("exhaustive") for item in tests) else ONE_OF_EACH)


@pytest.fixture(scope="module")
def report(programs: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run of doctor over the programs writes as JSON."""
    folder = tmp_path_factory.mktemp("doctor")
    others = [f"{name}.py" for name in PROBLEMS.keys() - set(programs)]
    tree = shutil.copytree(PROGRAMS, folder / "tree", ignore=shutil.ignore_patterns(*others, "__pycache__"))
    path = folder / "doctor.json"
    result = run("doctor", tree, "--time-budget", 1200, "--json", path)
    assert result.exit_code == 1, result.output
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_page_names_the_check_of_each_kind_of_problem() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| .+ \| \[(.+)\]\(#\1\) \| `(\w+)` \|$", page, re.MULTILINE)
    assert len(rows) >= 25
    assert [(check, program) for check, program in rows if check not in PROBLEMS[program]] == []
    alike = sum(not checks for checks in PROBLEMS.values()) - (0 if SEES_RESULTS else 2)
    assert f"{len(PROBLEMS) - alike} programs with a problem and {alike} programs that look similar" in page
    sections = set(re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE))
    assert {check for checks in PROBLEMS.values() for check in checks} | {"unguarded-main"} <= sections
    for check in sections:
        section = page.partition(f"\n## {check}\n")[2].partition("\n## ")[0]
        assert all(f"**{part}:**" in section for part in ("Seen", "Why it hurts", "Fix"))


def problem(report: dict[str, Any], program: str) -> dict[str, Any]:
    return next(one for one in report["problems"] if program in one["entry_points"])


def test_every_program_is_listed_and_ran(report: dict[str, Any], programs: list[str]) -> None:
    assert PROBLEMS.keys() == {path.stem for path in (PROGRAMS / "programs").glob("*.py")}
    assert [one["label"] for one in report["entry_points"]] == programs
    failed = {one["label"] for one in report["entry_points"] if one["error"]}
    assert failed - FAIL_WITHOUT_FORK == {"batch_of_one_raises"}


@pytest.mark.parametrize(("program",), parameters(*zip(PROBLEMS)))
def test_a_program_shows_these_problems_and_no_others(report: dict[str, Any], program: str) -> None:
    found = [one for one in report["problems"] if program in one["entry_points"]]
    assert [one["check"] for one in found] == PROBLEMS[program]
    for one in found:
        line = (PROGRAMS / one["path"]).read_text().splitlines()[one["line"] - 1]
        assert one["path"] == f"programs/{program}.py"
        assert any(word in line for word in ("DataLoader(", "class ", "lambda", "def "))
        assert one["fix"].endswith(".") and one["evidence"].endswith((".", "…"))


@pytest.mark.parametrize(
    ("program", "path"),
    parameters(
        ("pickle_lambda_in_steps", "dataset.transform.steps[1] (lambda"),
        ("pickle_open_file", "dataset.handle (open file"),
    ),
)
def test_an_object_that_cannot_be_pickled_is_named_by_its_attribute_path(
    report: dict[str, Any], program: str, path: str
) -> None:
    assert path in problem(report, program)["message"]


@pytest.mark.parametrize(
    ("program", "is_certain"),
    parameters(
        ("overlap_of_random_splits", True),
        ("overlap_split_with_replacement", True),
        ("overlap_of_short_epochs", False),
        ("overlap_validation_in_training", False),
    ),
)
def test_an_overlap_that_may_be_a_measure_of_the_fit_has_two_readings(
    report: dict[str, Any], program: str, is_certain: bool
) -> None:
    message = problem(report, program)["message"]
    assert message.startswith("Validation samples are also training samples")
    assert ("so validation results are too good." in message) is is_certain
    assert ("Or this loader only measures the fit on training samples" in message) is not is_certain


@pytest.mark.parametrize(
    ("program", "evidence"),
    parameters(
        ("stream_not_divided", "2 workers delivered 24 samples in one epoch, but only 12 distinct samples"),
        ("stream_shuffled_not_divided", "2 workers delivered 20 samples in one epoch, but only 10"),
        ("noise_from_held_generator", "both epochs begin with the same state of the generator dataset.rng"),
        ("order_sorted_by_class", "8 of 8 batches had only one of the 2 classes"),
        ("batch_of_one_raises", "Normalizing this batch raised an error."),
        ("validation_dropped", "read 8 of 10 samples"),
        ("validation_augmented_by_shared_dataset", "8 of 8 samples"),
        ("validation_augmented_by_shared_dataset", "The validation loader shares a dataset object with the loader"),
        ("overlap_validation_in_training", "8 of 8 samples"),
        ("attribute_frozen_in_workers", "dataset.epoch was 1 in the training process and 0 in 2 workers"),
        ("statistics_of_all_columns", "All 60 samples together have mean 0 and standard deviation 1"),
        ("handles_of_kept_batches", "and did not fall between epochs"),
        ("double_from_numpy", "is float64 with 32,768 bytes"),
        ("transfers_pageable", "has 1.2 MiB, and the model is on meta. The memory of this batch is not pinned."),
        ("transfers_of_views", "The tensor at batch[0] is neither contiguous nor channels_last."),
        ("memory_history_in_workers", " had 32 entries for 16 samples, and the last epoch added 16 of these entries"),
        ("memory_list_of_strings", "dataset.paths has 400,000 objects. The memory of 1 worker rose by"),
        ("shared_handle_of_reader", "the file offset of dataset.readers[0].file in the training process changed"),
        ("repeated_reading", "All 16 compared samples are the same in both epochs"),
        ("waiting_without_workers", "which has no workers"),
        ("copied_data_of_arrays", "started 1 worker with spawn in one epoch, so pickle copied 96 MiB"),
        (
            "cache_lost_with_workers",
            "added 16 entries in one epoch. In the next epoch, dataset.cache was empty at first",
        ),
    ),
)
def test_the_evidence_has_the_numbers_that_were_seen(report: dict[str, Any], program: str, evidence: str) -> None:
    assert evidence in problem(report, program)["evidence"]


def test_workers_are_measured_for_the_loader_that_the_training_waits_for_most(report: dict[str, Any]) -> None:
    fixes = [problem(report, name)["fix"] for name in ("waiting_for_busy_workers", "waiting_without_workers")]
    assert sorted("without training, measured with" in fix for fix in fixes) == [False, True]
    assert sorted("`chirp-migrate tune` measures which number is best" in fix for fix in fixes) == [False, True]


@pytest.mark.skipif(not SEES_RESULTS, reason="sys.monitoring is new in Python 3.12")
@pytest.mark.parametrize(
    ("program", "evidence"),
    parameters(
        ("repeated_reading_below_wrapper", "All 16 compared results of Decoded.__getitem__"),
        ("repeated_reading_by_loader", "All 16 compared results of decode"),
    ),
)
def test_decoding_below_random_transforms_is_named(report: dict[str, Any], program: str, evidence: str) -> None:
    found = problem(report, program)
    assert evidence in found["evidence"] and ", before random transforms" in found["message"]
