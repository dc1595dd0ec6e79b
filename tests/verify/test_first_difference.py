"""Which difference between two passes is named first, from the records of the passes alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from chirp_migrate.verify.equivalence.first_difference import encode_sample_values, first_differences_between_passes
from chirp_migrate.verify.spec import LoaderPassTrace

#: Two batches of two samples, read to the end.
PASS = LoaderPassTrace(
    0,
    role="train",
    whole=True,
    finished=True,
    samples=4,
    sizes=[2, 2],
    batches=["a", "b"],
    contents="ab",
    base="data",
    base_indices=[0, 1, 2, 3],
    labels={"0": 2, "1": 2},
    losses=[(0.5).hex(), (0.25).hex()],
)


def named(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The name of the difference between two passes with these values; empty if there is none."""
    found = first_differences_between_passes([replace(PASS, **before)], [replace(PASS, **after)])
    assert len(found) <= 1
    return found[0][0] if found else ""


def test_equal_passes_have_no_difference() -> None:
    assert first_differences_between_passes([PASS, PASS], [PASS, PASS]) == []


def test_further_passes_are_a_difference() -> None:
    (found,) = first_differences_between_passes([PASS], [PASS, PASS])
    assert found == ("epochs-added", "the number of passes over the train loaders changed from 1 to 2")


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ({}, {"samples": 5, "sizes": [2, 3]}, "samples-added"),
        ({}, {"samples": 2, "sizes": [2], "base": "other", "finished": False}, "epoch-shortened"),
        ({}, {"shuffled": True}, "shuffled"),
        ({}, {"indices": [0, 3, 1, 2]}, "shuffled"),
        ({"shuffled": True}, {"indices": [0, 1, 2, 3]}, "not-shuffled"),
        ({}, {"losses": [(0.5).hex()]}, "losses-differ"),
        ({}, {"losses": [(0.5).hex(), (0.75).hex()]}, "losses-differ"),
        ({}, {"batches": ["b", "a"]}, "order-differs"),
        ({}, {"batches": ["a", "c"], "contents": "ac"}, "samples-differ"),
    ],
)
def test_the_difference_has_a_name(before: dict[str, Any], after: dict[str, Any], name: str) -> None:
    assert named(before, after) == name


def test_losses_that_follow_from_other_samples_are_not_named() -> None:
    assert named({}, {"batches": ["a", "c"], "contents": "ac", "losses": []}) == "samples-differ"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ([[1.0, 2.0]], "samples-differ"),  # the compared values are equal
        ([[1.0, 3.0]], "values-differ"),
        ([[1.0, 2.0, 3.0]], "samples-differ"),  # not comparable
    ],
)
def test_the_size_of_a_change_of_values_is_told_where_values_are_known(changed: list[list[float]], name: str) -> None:
    old, new = encode_sample_values([torch.tensor([[1.0, 2.0]])]), encode_sample_values([torch.tensor(changed)])
    before, after = {"sketches": [old, old]}, {"sketches": [old, new], "batches": ["a", "c"], "contents": "ac"}
    assert named(before, after) == name


def test_augmented_samples_in_another_order_are_compared_only_if_each_is_read_once() -> None:
    before: dict[str, Any] = {"random": True, "plain_contents": "ab"}
    after: dict[str, Any] = {**before, "batches": ["c", "d"], "plain_contents": "cd", "base_indices": [0, 1, 2, 9]}
    assert named(before, before | {"batches": ["c", "d"]}) == ""
    assert named(before, after) == "samples-differ"
    assert named({**before, "whole": False}, {**after, "whole": False}) == ""


def test_a_shuffled_pass_beside_augmented_ones_is_compared_without_its_order() -> None:
    augmented = replace(PASS, random=True)
    validation = replace(PASS, role="validation", shuffled=True)
    reordered = replace(validation, batches=["b", "a"])
    others = replace(validation, batches=["b", "c"], contents="bc")
    assert first_differences_between_passes([augmented, validation], [augmented, reordered]) == []
    (found,) = first_differences_between_passes([augmented, validation], [augmented, others])
    assert found[0] == "samples-differ"
