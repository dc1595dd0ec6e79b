"""Hunks refused at random: what is left compiles, imports what it uses and no more, and is otherwise as planned."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyflakes import checker, messages

from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.edits.apply_hunks import text_with_hunks
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.project_files import decode_source
from chirp_migrate.engine.rewrite_file import rewrite_in_hunks
from chirp_migrate.engine.settings import Settings
from chirp_migrate.plans.plan import Edit, FilePlan, FindingStatus, Plan, PlanOptions
from chirp_migrate.review.plan_file import plan_document, read_plan
from chirp_migrate.review.selection import HunkChoice, apply_choices, decidable_hunk_ids
from chirp_migrate.rules import all_rules
from chirp_migrate.source.diff import whole_line_edits
from chirp_migrate.source.piece_table import FOLLOWS, PieceTable
from chirp_migrate.source.text import apply_edits
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project

BACKEND = Path(__file__).resolve().parents[2] / "fixtures" / "backend"


@pytest.fixture(scope="module", params=[False, True], ids=["safe", "unsafe"])
def plan(request: pytest.FixtureRequest) -> Plan:
    """Everything the rules rewrite in the fixture backend."""
    return plan_tree(BACKEND, settings=Settings(unsafe=request.param))


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_left_of_a_file_is_sound_and_as_planned(plan: Plan, data: st.DataObject) -> None:
    file = plan.files[data.draw(st.integers(0, len(plan.files) - 1))]
    share = data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    random = data.draw(st.randoms(use_true_random=False))
    choices = {(file.path, hunk.number): HunkChoice(random.random() >= share) for hunk in file.hunks}
    alone = replace(plan, files=(file,), findings=tuple(one for one in plan.findings if one.path == file.path))
    left = apply_choices(alone, choices)
    accepted = [hunk for hunk in file.hunks if choices[file.path, hunk.number].accepted]
    assert [one.path for one in left.files] == [file.path] * bool(accepted)
    if accepted:
        check(file, left.files[0], [edit for hunk in accepted for edit in hunk.edits])
    for before, after in zip(alone.findings, left.findings, strict=True):
        refused = before.hunk is not None and not choices[file.path, before.hunk].accepted
        assert after == (replace(before, status=FindingStatus.REFUSED) if refused else before)


def check(file: FilePlan, left: FilePlan, edits: list[Edit]) -> None:
    """Compiles; no name more is undefined, no import more is unused; beside the edits only imports and dead code."""
    assert file.before is not None and left.before == file.before
    before, after = (decode_source(file.path, data).text for data in (file.before, left.after))
    assert not complaints(after) - complaints(before), file.path
    spliced = apply_edits(before, list(dict.fromkeys(edits)))
    for follow in whole_line_edits(spliced, after):
        # What follows adds nothing but imports.
        added = [line for line in follow.replacement.splitlines() if line.strip()]
        gone = spliced[follow.start : follow.end].splitlines()
        assert all("import" in line or line.startswith(("    ", ")")) or line in gone for line in added), added


def complaints(text: str) -> Counter[tuple[str, object]]:
    """Undefined names, and imports and variables that nothing uses."""
    kinds = (messages.UndefinedName, messages.UnusedImport, messages.UnusedVariable, messages.ImportShadowedByLoopVar)
    found = checker.Checker(ast.parse(text)).messages
    return Counter((type(one).__name__, one.message_args[0]) for one in found if isinstance(one, kinds))


@pytest.mark.slow
def test_nothing_refused_is_the_plan_and_all_refused_is_nothing(plan: Plan) -> None:
    assert apply_choices(plan, {}) == plan
    assert apply_choices(plan, {one: HunkChoice(True) for one in decidable_hunk_ids(plan)}) == plan
    nothing = apply_choices(plan, {one: HunkChoice(False) for one in decidable_hunk_ids(plan)})
    assert nothing.files == () and not [one for one in nothing.findings if one.status is FindingStatus.REWRITE]


@pytest.mark.slow
@settings(max_examples=1, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_plan_file_says_all_of_a_plan(plan: Plan, data: st.DataObject) -> None:
    decided = data.draw(st.lists(st.sampled_from(decidable_hunk_ids(plan)), unique=True))
    choices = {one: HunkChoice(data.draw(st.booleans())) for one in decided}
    asked = replace(plan, options=PlanOptions(unsafe=True))
    found = read_plan(to_json_bytes(plan_document(asked, choices)), "plan.json", plan.root)
    assert found.plan == asked and found.choices == choices and found.reviewed


# What belongs together, by small cases.

TWO_LOADERS = """\
from torch.utils.data import DataLoader

a = DataLoader(one, batch_size=2)


b = DataLoader(two, collate_fn=lambda batch: batch)
"""


def hunks_of(text: str) -> list[list[str]]:
    """The source that each hunk replaces or inserts."""
    result = rewrite_in_hunks("a.py", text, Project({"a.py": text}))
    return [[text[edit.start : edit.end] or edit.replacement for edit in hunk.edits] for hunk in result.hunks]


def test_loaders_on_lines_of_their_own_are_decided_one_by_one() -> None:
    assert len(hunks_of("from torch.utils.data import DataLoader\na = DataLoader(x)\nb = DataLoader(y)\n")) == 2


def test_two_loaders_on_one_line_are_one_decision() -> None:
    assert len(hunks_of("from torch.utils.data import DataLoader\na, b = DataLoader(x), DataLoader(y)\n")) == 1


def test_a_lambda_and_the_function_it_becomes_are_one_decision() -> None:
    result = rewrite_in_hunks("a.py", TWO_LOADERS, Project({"a.py": TWO_LOADERS}))
    by_rule = {one.rule: one.hunk for one in result.findings if one.line == 6}
    assert by_rule["CHP001"] == by_rule["CHP007"]
    assert {one.hunk for one in result.findings} == {1, 2}


def test_what_is_written_around_or_into_a_rewrite_belongs_to_it() -> None:
    trail = PieceTable("abcdef")
    trail.splice([(Edit(1, 3, "XY"), frozenset({0})), (Edit(5, 5, "!"), frozenset({1})), (Edit(0, 0, "#"), FOLLOWS)])
    assert trail.text == "#aXYde!f"
    trail.splice([(Edit(3, 3, "-"), frozenset({2})), (Edit(7, 8, ""), frozenset({3}))])
    assert trail.text == "#aX-Yde!"
    assert trail.joined == {(0, 2)}
    assert [trail.origin(offset) for offset in (1, 2, 5, 7, 8)] == [0, 1, 3, 5, 6]
    assert list(trail.edits()) == [
        (Edit(1, 3, "X"), frozenset({0})),
        (Edit(3, 3, "-"), frozenset({2})),
        (Edit(3, 3, "Y"), frozenset({0})),
        (Edit(5, 5, "!"), frozenset({1})),
        (Edit(5, 6, ""), frozenset({3})),
    ]
    assert list(PieceTable("abcdef").edits()) == []


def test_each_of_several_hunks_brings_the_function_that_they_share() -> None:
    text = "from torch.utils.data import DataLoader\n" + "".join(
        f"\n\ndef {name}(data):\n    return DataLoader(data, collate_fn=lambda b: tuple(b[0]))\n" for name in ("f", "g")
    )
    rules = [rule for rule in all_rules() if rule.code == "CHP007"]
    result = rewrite_in_hunks("a.py", text, Project({"a.py": text}), rules=rules)
    assert len(result.hunks) == 2
    for hunk in result.hunks:
        alone = text_with_hunks(Module("a.py", text), [hunk], result.public, ImportStyle())
        assert alone.count("def _collate_fn(b):") == 1 and alone.count("lambda") == 1
