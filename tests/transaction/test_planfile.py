"""Plans as files: applied exactly as reviewed, only to the tree they are for, and never further than its root."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import write_files

from chirp_migrate.console.json_document import to_json_bytes, to_json_values
from chirp_migrate.engine.migration import plan_migration
from chirp_migrate.errors import ChirpMigrateError, UsageProblem, WriteRefused
from chirp_migrate.review.plan_file import PlanFile, keep_earlier_decisions, plan_document, read_plan
from chirp_migrate.review.selection import HunkChoice, apply_choices, decidable_hunk_ids

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "plan.json"

TRAIN = """\
from torch.utils.data import DataLoader

a = DataLoader(one, batch_size=2)


b = DataLoader(two, batch_size=3)
"""


def backend(root: Path) -> Path:
    """A backend of two files with loaders, one of them in another encoding, and a notebook."""
    latin = "# -*- coding: latin-1 -*-\n# h\u00f6ren\n" + TRAIN.replace("\n", "\r\n")
    cell = {"cell_type": "code", "source": TRAIN, "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    files = {"train.py": TRAIN, "other.py": latin.encode("latin-1"), "n.ipynb": json.dumps(notebook)}
    made_for = {"utils/__init__.py": "", "utils/training_utils.py": ""}  # the added files
    return write_files(root, {**files, **made_for, "requirements.txt": "torch\n"})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One to change."""
    return backend(tmp_path / "backend")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One to leave as it is, and its plan."""
    root = backend(tmp_path_factory.mktemp("planned"))
    return root, to_json_values(plan_document(plan_migration(root)))


def read(document: Any, root: Path) -> PlanFile:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_plan(data, "plan.json", root)


def test_what_was_planned_is_what_is_read(tree: Path) -> None:
    plan = plan_migration(tree)
    found = read_plan(to_json_bytes(plan_document(plan)), "plan.json", tree)
    assert found.plan.files == plan.files
    assert found.plan.findings == plan.findings
    assert (found.choices, found.reviewed) == ({}, False)
    assert {file.path for file in plan.files if file.hunks} == {"train.py", "other.py", "n.ipynb"}


def test_a_plan_is_as_its_schema_says(tree: Path) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    plan = plan_migration(tree)
    ids = decidable_hunk_ids(plan)
    edited = HunkChoice(True, plan.files[0].hunks[0].edits)
    for choices in (None, {ids[0]: edited, ids[1]: HunkChoice(False)}):
        jsonschema.validate(json.loads(to_json_bytes(plan_document(plan, choices))), schema)


def test_decisions_travel_with_it(tree: Path) -> None:
    plan = plan_migration(tree)
    choices = {one: HunkChoice(number % 2 == 0) for number, one in enumerate(decidable_hunk_ids(plan))}
    found = read_plan(to_json_bytes(plan_document(plan, choices)), "plan.json", tree)
    assert found.reviewed and found.choices == choices
    assert apply_choices(found.plan, choices) == apply_choices(plan, choices)


def changed(tree: Path) -> None:
    (tree / "train.py").write_text(TRAIN + "\n")


def removed(tree: Path) -> None:
    (tree / "train.py").unlink()


def replaced_by_a_folder(tree: Path) -> None:
    removed(tree)
    (tree / "train.py").mkdir()


def made_already(tree: Path) -> None:
    (tree / "utils" / "dataloader_factory.py").write_text("x = 1\n")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (changed, "train.py"),
        (removed, "train.py"),
        (replaced_by_a_folder, "train.py"),
        (made_already, "utils/dataloader_factory.py"),
    ],
)
def test_a_tree_that_changed_is_refused_by_name(tree: Path, change: Callable[[Path], None], named: str) -> None:
    data = to_json_bytes(plan_document(plan_migration(tree)))
    change(tree)
    with pytest.raises(WriteRefused, match=named) as refused:
        read_plan(data, "plan.json", tree)
    assert "other.py" not in str(refused.value) and "plan.json" in str(refused.value)


def test_what_was_decided_on_hunks_that_are_the_same_is_carried_over(tree: Path) -> None:
    plan = plan_migration(tree)
    choices = {one: HunkChoice(False) for one in decidable_hunk_ids(plan)}
    old = plan_document(plan, choices)
    changed(tree)
    found = read(to_json_bytes(keep_earlier_decisions(old, plan_document(plan_migration(tree)))), tree)
    assert found.reviewed
    assert set(choices) - set(found.choices) == {("train.py", 1), ("train.py", 2)}


def edit(document: dict[str, Any], path: str = "train.py") -> dict[str, Any]:
    """The first edit of a file in a plan."""
    found: dict[str, Any] = file_of(document, path)["hunks"][0]["edits"][0]
    return found


def file_of(document: dict[str, Any], path: str = "train.py") -> dict[str, Any]:
    return next(file for file in document["files"] if file["path"] == path)


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "other text": lambda d: edit(d).update(text="os.system('rm')"),
    "no such line": lambda d: edit(d).update(start=[4000, 1]),
    "no such column": lambda d: edit(d).update(end=[1, 4000]),
    "line zero": lambda d: edit(d).update(start=[0, 1]),
    "backwards": lambda d: edit(d).update(start=[3, 20], end=[3, 1]),
    "overlapping": lambda d: file_of(d)["hunks"][0]["edits"].append(dict(edit(d), text="twice")),
    "edits that are numbers": lambda d: file_of(d)["hunks"][0].update(edits=[1]),
    "a place that is text": lambda d: edit(d).update(start="3"),
    "a place that is true": lambda d: edit(d).update(start=[True, 1]),
    "an import of something else": lambda d: file_of(d)["hunks"][0].update(imports=["import os"]),
    "another hash": lambda d: file_of(d).update(sha256_after="0" * 64),
    "numbers twice": lambda d: file_of(d)["hunks"][1].update(number=1),
    "no hunks": lambda d: file_of(d).update(hunks=[]),
    "hunks of a file that is not there": lambda d: file_of(d).update(path="new.py", sha256_before=None),
    "a file twice": lambda d: d["files"].append(file_of(d)),
    "an unknown decision": lambda d: file_of(d)["hunks"][0].update(decision="maybe"),
    "an unknown reason": lambda d: file_of(d).update(note="because"),
    "no findings": lambda d: d.pop("findings"),
    "findings that are text": lambda d: d.update(findings="CHP001"),
    "an unknown status": lambda d: d["findings"][0].update(status="done"),
    "other content": lambda d: file_of(d, "requirements.txt").update(content="evil\n"),
    "content that is a number": lambda d: file_of(d, "requirements.txt").update(content=1),
    **{
        f"the path {path!r}": lambda d, path=path: file_of(d, "requirements.txt").update(path=path)  # type: ignore[misc]
        for path in ("../x.py", "/etc/passwd", "a/../../x.py", ".git/hooks/x", ".chirp-migrate/x", "", "a\0b", 7, None)
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_plan_that_somebody_changed_is_refused(planned: tuple[Path, dict[str, Any]], name: str) -> None:
    tree, document = deepcopy(planned)
    HOSTILE[name](document)
    with pytest.raises(ChirpMigrateError, match=r"plan\.json|\.py"):
        read(document, tree)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"kind": "other"}', b"\xff\xfe", b"[" * 100_000, b'{"schema": 1}']
)
def test_what_is_no_plan_is_said_to_be_none(tree: Path, data: bytes) -> None:
    with pytest.raises(UsageProblem, match="`chirp-migrate plan"):
        read(data, tree)


def test_a_plan_of_a_newer_version_is_told_apart(tree: Path) -> None:
    document = {**to_json_values(plan_document(plan_migration(tree))), "schema": 2, "tool": "chirp-migrate 9.1"}
    with pytest.raises(UsageProblem, match=r"chirp-migrate 9\.1, .* schema of the file is 2"):
        read(document, tree)


@pytest.mark.parametrize("field", ["schema", "kind"])
def test_a_plan_without_its_kind_or_schema_is_refused(tree: Path, field: str) -> None:
    document = to_json_values(plan_document(plan_migration(tree)))
    del document[field]
    with pytest.raises(UsageProblem, match=f"`{field}` is missing"):
        read(document, tree)


def test_hunks_that_cannot_be_had_alone_are_refused_in_one_sentence(tree: Path) -> None:
    plan = plan_migration(tree)
    broken = plan.files[0].hunks[0].edits[0]
    ids = decidable_hunk_ids(plan)
    choice = HunkChoice(True, (type(broken)(broken.start, broken.end, "((("),))
    with pytest.raises(WriteRefused, match="not valid Python"):
        apply_choices(plan, {ids[0]: choice})
