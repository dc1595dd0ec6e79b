"""The last look before writing: what does not compile, or would be rewritten again, is not written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chirp_migrate.engine.idempotence import check_nothing_to_rewrite
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import Settings
from chirp_migrate.errors import WriteRefused
from chirp_migrate.plans.plan import Plan
from chirp_migrate.review.selection import HunkChoice, apply_choices

TRAIN = "from torch.utils.data import DataLoader\n\na = DataLoader(one)\nb = DataLoader(two)\n"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "train.py").write_text(TRAIN)
    return plan_tree(tmp_path)


def writing(plan: Plan, after: str) -> Plan:
    """The plan, with something else to be written."""
    return replace(plan, files=(replace(plan.files[0], after=after.encode()),))


def test_a_plan_and_any_part_of_it_passes(plan: Plan) -> None:
    check_nothing_to_rewrite(plan.root, plan, Settings())
    check_nothing_to_rewrite(plan.root, apply_choices(plan, {("train.py", 1): HunkChoice(False)}), Settings())


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ("a = (\n", "the result is not Python"),
        ("return 1\n", "the result is not Python"),
        ("a = b'\0'\n", "the result is not Python"),
        (TRAIN, "CHP001 would change the file again, in line 3"),
    ],
)
def test_what_is_not_sound_is_refused(plan: Plan, after: str, said: str) -> None:
    with pytest.raises(WriteRefused, match=said) as refused:
        check_nothing_to_rewrite(plan.root, writing(plan, after), Settings())
    assert "train.py" in str(refused.value) and "nothing was changed" in str(refused.value)


def test_what_the_user_wrote_only_has_to_compile(plan: Plan) -> None:
    check_nothing_to_rewrite(plan.root, writing(plan, TRAIN), Settings(), edited_files=frozenset({"train.py"}))
    with pytest.raises(WriteRefused, match="not Python"):
        check_nothing_to_rewrite(plan.root, writing(plan, "a = ("), Settings(), edited_files=frozenset({"train.py"}))
