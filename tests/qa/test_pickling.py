"""The rules report what cannot be pickled for workers, and nothing else: compared with ``pickle`` itself."""

from __future__ import annotations

from typing import Any

import pytest

from qa.pickling_programs import comparing, programs

#: Another seed than those of `python -m qa pickling`.
SEED = 7_000


def _wrong(step: int, seed: int) -> tuple[int, list[Any]]:
    """How many programs of every ``step``-th pair have objects that cannot be pickled, and the wrong answers."""
    pairs = programs.every_pair()[seed % step :: step]
    seen = list(comparing.answers([programs.make_program(kind, place, seed) for kind, place in pairs]))
    wrong = [
        (one.program.kind, one.program.place, one.error, one.reported) for one in seen if one.is_missed or one.is_false
    ]
    return sum(bool(one.error) for one in seen), wrong


def test_a_few_made_up_programs_are_told_apart() -> None:
    failing, wrong = _wrong(193, SEED)
    assert failing >= 8 and wrong == []


@pytest.mark.exhaustive  # a few of them run with the fast tests
@pytest.mark.slow
def test_made_up_programs_are_told_apart() -> None:
    failing, wrong = _wrong(11, SEED + 1)
    assert failing >= 200 and wrong == []
