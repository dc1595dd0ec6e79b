"""Documents as earlier versions wrote them are read, and what is written now has everything that they had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import run

from chirp_migrate.console.json_document import as_bytes, read_as, read_json
from chirp_migrate.plans.document import RunDocument
from chirp_migrate.plans.plan import Status
from chirp_migrate.report.reading import read_story
from chirp_migrate.review.plan_file import read_document
from chirp_migrate.transaction.journal_schema import read_record, write_record
from chirp_migrate.tune.document import TuneReport
from chirp_migrate.verify.document import decode, encode

EARLIER = Path(__file__).parent / "earlier"


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    """A project as an earlier version migrated and recorded it."""
    root = tmp_path / "mine"
    shutil.copytree(EARLIER / "run", root / ".chirp-migrate" / "0001")
    (file,) = read_record((EARLIER / "run" / "journal.json").read_bytes()).files
    shutil.copyfile(EARLIER / "run" / file.sha256_after, root / file.path)
    return root


def test_journals_are_written_to_the_byte_as_they_were() -> None:
    journal = (EARLIER / "run" / "journal.json").read_bytes()
    assert write_record(read_record(journal)) == journal


def test_nothing_of_earlier_plans_and_runs_is_lost() -> None:
    plan = (EARLIER / "run" / "plan.json").read_bytes()
    assert lost(read_json(plan), read_json(as_bytes(read_document(plan)))) == []
    for name in ("apply.json", "check.json"):
        data = (EARLIER / name).read_bytes()
        assert lost(read_json(data), read_json(as_bytes(read_as(read_json(data), RunDocument)))) == []


def test_an_earlier_run_is_reported_and_rolled_back(migrated: Path) -> None:
    (told,) = read_story(migrated).runs
    assert [file.path for file in told.files] == ["train.py"]
    assert told.ledger is not None and told.ledger.sites[Status.REWRITE] == 2
    assert run("rollback", migrated).exit_code == 0
    assert "chirpid_patch" not in (migrated / "train.py").read_text()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"files": [{"path": "a.py"}]}, r"`action` is missing at `\$\.files\[0\]`"),
        ({"state": 3}, r"`int` where `str` should be at `\$\.state`"),
        ({"state": "done"}, r"invalid enum value 'done' at `\$\.state`"),
        ({"folders": ["../x"]}, r"the path '\.\./x' leads outside the tree"),
    ],
)
def test_what_is_damaged_is_named_by_its_place(change: dict[str, Any], told: str) -> None:
    journal = {**read_json((EARLIER / "run" / "journal.json").read_bytes()), **change}
    with pytest.raises(ValueError, match=told):
        read_record(json.dumps(journal).encode())


def lost(old: Any, new: Any, place: str = "$") -> list[str]:
    """Places at which ``new`` has not what ``old`` has; fields may have been added."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{place}.{key}" for key in old.keys() - new.keys()]
        return missing + [one for key in old.keys() & new.keys() for one in lost(old[key], new[key], f"{place}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [one for at, (a, b) in enumerate(zip(old, new, strict=True)) for one in lost(a, b, f"{place}[{at}]")]
    return [] if old == new else [place]


def test_nothing_of_an_earlier_verification_is_lost(migrated: Path) -> None:
    data = (EARLIER / "verify.json").read_bytes()
    assert lost(json.loads(data), read_json(encode(decode(data)))) == []
    assert read_story(migrated, verdict_file=EARLIER / "verify.json").verdict == decode(data)


def test_nothing_of_earlier_measurements_of_loaders_is_lost() -> None:
    found = read_json((EARLIER / "tune.json").read_bytes())
    assert lost(found, read_json(as_bytes(read_as(found, TuneReport)))) == []
