"""What is compared of the results, given that some values never repeat."""

from __future__ import annotations

from collections.abc import Collection

from chirp_migrate.verify.equivalence.compare import Equivalence, compare_return_values
from chirp_migrate.verify.spec import EntryPointRecord, LoaderPassTrace


def result(augmented: bool = False, **leaves: str) -> dict[str, EntryPointRecord]:
    return {"entry": EntryPointRecord(leaves, [LoaderPassTrace(0, "train", random=augmented)])}


def compared(*runs: dict[str, EntryPointRecord], unrepeatable: Collection[str] = ()) -> Equivalence:
    """Compare before, before again, after, after again."""
    before, before_again, after, after_again = runs
    again = (("before", before_again), ("after", after_again))
    repeated = {side: {label: one.fingerprint for label, one in of.items()} for side, of in again}
    return compare_return_values(before, after, repeated, unrepeatable)


def test_equal_results_are_equivalent() -> None:
    run = result(loss="0x1p0", accuracy="0x1p-1")
    assert compared(run, run, run, run) == Equivalence()


def test_a_value_that_differs_is_named_with_both_values() -> None:
    before, after = result(loss="0x1p0"), result(loss="0x1p1")
    (difference,) = compared(before, before, after, after).differences
    assert difference == "entry: the results differ in 1 value (loss): 0x1p0 before, 0x1p1 after"


def test_a_value_that_is_missing_or_new_is_a_difference() -> None:
    less, more = result(loss="1"), result(loss="1", extra="2")
    assert "(extra): missing before, 2 after" in compared(less, less, more, more).differences[0]
    assert "(extra): 2 before, missing after" in compared(more, more, less, less).differences[0]


def test_what_never_repeated_is_noted_and_not_compared() -> None:
    runs = [result(loss="1", seconds=str(clock)) for clock in range(4)]
    found = compared(*runs)
    assert found.differences == ()
    assert found.notes == ["entry: 1 value (seconds): not compared, because two runs before the migration differ"]


def test_what_stopped_repeating_is_a_difference() -> None:
    before = result(loss="1")
    found = compared(before, before, result(loss="1"), result(loss="2"))
    assert [difference.name for difference in found.found] == ["seed-ignored"]
    text = "1 value (loss): two runs with the same seed are equal only before the migration"
    assert text in found.differences[0]


def test_augmented_training_must_keep_the_form_of_its_results_not_the_numbers() -> None:
    before = result(True, loss="1")
    assert compared(before, before, result(True, loss="2"), result(True, loss="2")).differences == ()
    gone = result(True, other="2")
    assert compared(before, before, gone, gone).differences == ("entry: 1 value (loss): no longer in the result",)


def test_results_of_a_training_that_does_not_repeat_must_keep_their_form() -> None:
    runs = [result(loss=str(number)) for number in (1, 1, 2, 3)]
    assert [one.name for one in compared(*runs).found] == ["seed-ignored"]
    assert compared(*runs, unrepeatable={"entry"}).differences == ()
    gone = result(other="2")
    assert compared(*runs[:2], gone, gone, unrepeatable={"entry"}).differences
