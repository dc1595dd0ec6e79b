"""What a report tells, from where it is kept: the journal's runs, a plan, and the last verification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_tools import LOADERS, applied, backend, doctor_json, verdict_json, with_verdict
from support import run

from chirp_migrate.console.json_document import convert_json, read_document
from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.errors import JournalDamaged, UsageProblem
from chirp_migrate.plans.plan import FilePlan, FindingStatus
from chirp_migrate.report.change_rows import ChangeRow, differing_words, pair_rows_for_columns
from chirp_migrate.report.file_lines import FOLLOWS, FileLines
from chirp_migrate.report.page.changes import FileDetails, PageContents
from chirp_migrate.report.reading import read_report_contents
from chirp_migrate.report.stored_results import hashes_of_written_files, store_result
from chirp_migrate.report.verdict_rows import batch_waits_ms, entry_point_times, measured_metrics, total_times
from chirp_migrate.verify.verify_report import VerifyReport

FIXTURE = Path(__file__).parents[2] / "fixtures" / "backend"


def rebuilt(file: FileDetails, before: str) -> list[str]:
    """The lines that a reader would make of ``before`` by hand, from the lines of the hunks."""
    rows = [row for hunk in file.hunks for section in hunk.sections for row in section.rows]
    gone = {row.before: row.text for row in rows if row.sign == "-"}
    new = {row.after: row.text for row in rows if row.sign == "+"}
    lines = before.splitlines()
    assert all(lines[number - 1] == text for number, text in gone.items() if number is not None)
    kept = iter(line for number, line in enumerate(lines, start=1) if number not in gone)
    total = len(lines) - len(gone) + len(new)
    return [new[number] if number in new else next(kept) for number in range(1, total + 1)]


def verified(root: Path) -> VerifyReport:
    """A verification of the files in ``root`` as they are."""
    return convert_json(verdict_json(files=hashes_of_written_files(root)), VerifyReport)


def the_file(contents: PageContents, path: str = "train.py") -> FileDetails:
    return next(file for file in contents.files if file.path == path)


def page_of(root: Path) -> PageContents:
    return PageContents.of(read_report_contents(root))


def test_a_run_is_told_with_its_rules_and_reasons_and_its_account(tmp_path: Path) -> None:
    contents = page_of(applied(tmp_path / "mine"))
    (reported_run,) = contents.runs
    assert (contents.report.name, contents.report.verdict, contents.report.notices) == ("mine", None, ())
    run = reported_run.run
    assert run.number == 1 and run.created.endswith("Z") and run.tool.startswith("chirp-migrate ")
    file = the_file(contents)
    first, second, follows = file.hunks
    assert [hunk.kind for hunk in file.hunks] == ["rewrite", "rewrite", "follows"]
    assert first.findings[0].finding.rule == "CHP001"
    assert (
        first.findings[0].source == "    train = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers)"
    )
    assert first.imports == ("from chirpid_patch import OptimalDataLoaderFactory",)
    assert {section.within for section in (*first.sections, *second.sections)} == {"make"}
    assert (first.id, follows.id) == ("train.py:1", "train.py:follows")
    assert reported_run.ledger is not None
    sites = reported_run.ledger.to_counts().sites
    assert sites["found"] == sites["migrated"] + sites["suppressed"] + sites["listed"] == 4
    assert {one.finding.status for one in reported_run.reported} == {FindingStatus.REPORT, FindingStatus.SUPPRESSED}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train.py", "utils/util_backup.py", "utils/dataset_utils.py"])
def test_the_hunks_of_a_file_are_all_of_its_change(tmp_path: Path, name: str) -> None:
    if name == "train.py":
        root = backend(tmp_path / "mine")
    else:
        root = backend(tmp_path / "mine", **{name.replace("/", "__"): (FIXTURE / name).read_text()})
    before = (root / name).read_text()
    assert run("apply", root, "--no-scaffold", "-q").exit_code == 0
    file = the_file(page_of(root), name)
    assert rebuilt(file, before) == (root / name).read_text().splitlines() != before.splitlines()
    assert (file.added, file.removed) == tuple(
        sum(row.sign == sign for hunk in file.hunks for section in hunk.sections for row in section.rows)
        for sign in "+-"
    )
    assert len({hunk.id for hunk in file.hunks}) == len(file.hunks)


def test_as_json_it_has_the_documents_of_all_commands(tmp_path: Path) -> None:
    document = json.loads(run("report", with_verdict(applied(tmp_path / "mine")), "--json", "-").stdout)
    assert set(document) == {"schema", "tool", "name", "runs", "verdict", "doctor", "notices"}
    assert (document["verdict"]["verdict"], document["doctor"]) == ("faster", None)
    (one,) = document["runs"]
    assert one["number"] == 1 and one["created"].endswith("Z")
    assert [file["path"] for file in one["files"]] == ["train.py"]
    assert one["ledger"]["sites"]["migrated"] == 2 and one["findings"][0]["rule"] == "CHP001"


def test_a_notebook_is_told_by_its_cells(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# title"]},
        *(
            {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": [source]}
            for source in (
                "%matplotlib inline\nfrom torch.utils.data import DataLoader\n\nx = 1",
                "a = 1\n!ls\nloader = DataLoader(data, batch_size=4)\nb = 2",
            )
        ),
    ]
    book = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    file = the_file(page_of(applied(tmp_path / "mine", **{"train.ipynb": book})), "train.ipynb")
    (section,) = file.hunks[0].sections
    assert section.cell == 3
    assert [(row.sign, row.before, row.text) for row in section.rows][:3] == [
        (" ", 1, "a = 1"),
        (" ", 2, "!ls"),
        ("-", 3, "loader = DataLoader(data, batch_size=4)"),
    ]
    texts = {row.text for hunk in file.hunks for one in hunk.sections for row in one.rows}
    assert "%matplotlib inline" in texts and not any("_chirp_cell" in text for text in texts)


def test_with_nothing_to_report_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    root = backend(tmp_path / "mine")
    with pytest.raises(UsageProblem, match=r"`chirp-migrate apply .*mine` first"):
        read_report_contents(root)


def test_every_run_that_stands_is_told(tmp_path: Path) -> None:
    root = applied(tmp_path / "mine")
    (root / "later.py").write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1], 4)\n")
    assert run("apply", root, "--no-scaffold", "-q").exit_code == 0
    contents = page_of(root)
    assert [[file.path for file in reported_run.files if file.note == "rewrite"] for reported_run in contents.runs] == [
        ["train.py"],
        ["later.py"],
    ]
    assert the_file(contents, "later.py").hunks[0].id == "later.py:run2:1"


def test_later_edits_are_said_and_what_apply_wrote_is_shown(tmp_path: Path) -> None:
    root = applied(tmp_path / "mine")
    whole = the_file(page_of(root))
    (root / "train.py").write_text("x = 1\n")
    contents = page_of(root)
    assert the_file(contents).edited_since and the_file(contents).hunks == whole.hunks
    (notice,) = contents.report.notices
    assert "train.py" in notice


def test_a_run_without_its_plan_is_told_without_rules(tmp_path: Path) -> None:
    root = applied(tmp_path / "mine")
    before = the_file(page_of(root))
    (root / ".chirp-migrate" / "0001" / "plan.json").unlink()
    contents = page_of(root)
    (hunk,) = the_file(contents).hunks
    assert (hunk.kind, hunk.findings, contents.runs[0].ledger) == ("unknown", (), None)
    assert (the_file(contents).added, the_file(contents).removed) == (before.added, before.removed)
    assert len(contents.report.notices) == 1
    assert json.loads(run("report", root, "--json", "-").stdout)["runs"][0]["ledger"] is None


@pytest.mark.parametrize("name", ["plan.json", "verify.json", "doctor.json"])
@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"schema": 1}', b"\xff", b'{"schema": 9, "verdict": "x", "exit_code": 0}']
)
def test_a_damaged_document_of_a_run_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    root = applied(tmp_path / "mine", **{"a.py": "from torch.utils.data import DataLoader\nx = DataLoader([1], 4)\n"})
    (root / ".chirp-migrate" / "0001" / name).write_bytes(content)
    with pytest.raises(JournalDamaged, match=name):
        read_report_contents(root)


def test_a_plan_with_edits_that_overlap_is_refused_by_name(tmp_path: Path) -> None:
    root = applied(tmp_path / "mine")
    kept = root / ".chirp-migrate" / "0001" / "plan.json"
    content = json.loads(kept.read_text())
    edit = {"start": [1, 1], "end": [16, 1], "text": ""}
    content["files"][0]["hunks"][0]["edits"] = [edit, {**edit, "start": [2, 1]}]
    kept.write_text(json.dumps(content))
    with pytest.raises(JournalDamaged, match=r"remove .*plan\.json"):
        read_report_contents(root)


def test_files_that_could_not_be_written_are_no_changes(tmp_path: Path) -> None:
    root = backend(tmp_path / "mine", **{"train.py": LOADERS, "fixed.py": LOADERS})
    (root / "fixed.py").chmod(0o444)
    assert run("apply", root, "--no-scaffold", "-q").exit_code == 1
    (reported_run,) = page_of(root).runs
    assert [file.path for file in reported_run.files] == ["train.py"]
    assert [one.path for one in reported_run.run.plan.skipped] == ["fixed.py"]
    assert reported_run.ledger is not None
    assert (reported_run.ledger.sites[FindingStatus.REWRITE], reported_run.ledger.reasons["file-not-written"]) == (2, 2)
    assert {one.finding.why for one in reported_run.reported if one.finding.path == "fixed.py"} >= {"file-not-written"}


def test_a_verdict_is_kept_with_the_last_run_and_says_what_changed_since(tmp_path: Path) -> None:
    root = applied(tmp_path / "mine")
    assert store_result(root, verified(root)) is None
    assert (root / ".chirp-migrate" / ".gitignore").read_text() == "*\n", "git is not to see it"
    contents = read_report_contents(root)
    assert contents.verdict is not None and contents.verdict.verdict == "faster" and contents.notices == ()
    (root / "train.py").write_text("x = 1\n")
    (notice,) = [one for one in read_report_contents(root).notices if "verify" in one]
    assert "train.py" in notice
    (root / "later.py").write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1], 4)\n")
    assert run("apply", root, "--no-scaffold", "-q").exit_code == 0
    assert any("Run 2" in one and "verify" in one for one in read_report_contents(root).notices)
    assert run("rollback", root, "--run", "1", "--force", "-q").exit_code in (0, 2)


def test_what_doctor_found_is_kept_beside_the_verdict_and_read_again(tmp_path: Path) -> None:
    root = applied(tmp_path / "mine")
    found = convert_json(doctor_json(), DoctorReport)
    assert read_report_contents(root).doctor is None
    assert store_result(root, found) is None
    contents = read_report_contents(root)
    assert contents.doctor == found and contents.notices == ()
    (root / "later.py").write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1], 4)\n")
    assert run("apply", root, "--no-scaffold", "-q").exit_code == 0
    assert read_report_contents(root).notices == ("Run 2 was applied after doctor last ran: start doctor again.",)
    shown = " ".join(run("report", root).stdout.split())
    assert (
        "train.py:7: Validation samples are also" in shown
        and "Doctor: 1 problem in 2 entry points (1 failed)." in shown
    )


def test_a_result_of_doctor_that_cannot_be_kept_is_one_sentence(tmp_path: Path) -> None:
    root = applied(tmp_path / "mine")
    (root / ".chirp-migrate" / "0001" / "journal.json").write_text("{}")
    said = store_result(root, convert_json(doctor_json(), DoctorReport))
    assert said is not None and said.startswith("The result could not be stored for `chirp-migrate report`")


def test_nothing_is_kept_where_nothing_is_applied(tmp_path: Path) -> None:
    root = backend(tmp_path / "mine")
    assert store_result(root, verified(root)) is None
    assert not (root / ".chirp-migrate").exists()


def test_rollback_takes_what_was_kept_with_it(tmp_path: Path) -> None:
    root = backend(tmp_path / "mine")
    before = sorted(path.name for path in root.rglob("*"))
    assert run("apply", root, "--no-scaffold", "-q").exit_code == 0
    store_result(root, verified(root))
    assert run("rollback", root).exit_code == 0
    assert sorted(path.name for path in root.rglob("*")) == before


@pytest.mark.slow
def test_a_verification_is_kept_in_the_journal_and_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, target = applied(tmp_path / "mine"), tmp_path / "found.json"
    (root / "chirp_verify.py").write_text("")
    report = verified(root)
    monkeypatch.setattr("chirp_migrate.verify.session.verify_versions", lambda *_: report)
    assert run("verify", root, "--json", target).exit_code == 0
    assert read_document(target.read_bytes(), VerifyReport) == report == read_report_contents(root).verdict


@pytest.mark.slow
def test_what_verify_found_is_told_failed_or_not(tmp_path: Path) -> None:
    """The real command: the training of this backend raises, and that is a verdict as well."""
    root = applied(tmp_path / "mine")
    (root / "chirp_verify.py").write_text("raise ValueError('no data here')\n")
    done = run("verify", root, "--samples", "8", "--threads", "1", "-q")
    assert done.exit_code == 14
    contents = read_report_contents(root)
    assert contents.verdict is not None and contents.verdict.verdict == "failed"
    assert "no data here" in contents.verdict.reason + contents.verdict.output_tail
    assert contents.verdict.created.endswith("Z") and contents.notices == ()


def test_a_verdict_is_read_as_docs_json_has_it(tmp_path: Path) -> None:
    contents = read_report_contents(with_verdict(applied(tmp_path / "mine")))
    found = contents.verdict
    assert found is not None
    together = total_times(found)
    assert together is not None
    assert together.ratio.saved == pytest.approx((0.5, 0.4, 0.6))
    assert together.ratio.speed_up == pytest.approx((2.0, 1 / 0.6, 2.5))
    assert together.seconds["before"] == pytest.approx([2.1 + 1.0])
    assert [(one.label, one.verdict) for one in entry_point_times(found)] == [
        ("train.one", "meets the threshold"),
        ("train.two", "not shown"),
    ]
    assert batch_waits_ms(found)["before"] == pytest.approx((2.0, 4.0, 8.0)), "start-up and validation are left out"
    assert [(one.name, before, after) for one, before, after in measured_metrics(found)] == [("wait_p50_ms", 8.0, 1.5)]
    assert found.described.rounds.startswith("4 made")


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2},
        {"ratio": {"value": 0.5, "low": 0.6, "high": 0.4}},
        {"ratio": {"value": -1, "low": -2, "high": 1}},
        {"rounds": {"made": [{"seconds": {"before": {"train.one": "soon"}}}]}},
        {"measures": [1]},
        {"targets": [3]},
        {"files": {"../../etc/passwd": None}},
        {"verdicts": {"train.one": {"zero_cost_ratio": {}}}},
    ],
)
def test_what_is_no_verdict_is_refused_in_one_sentence(tmp_path: Path, changes: dict[str, object]) -> None:
    root = applied(tmp_path / "mine", **{"a.py": "from torch.utils.data import DataLoader\nx = DataLoader([1], 4)\n"})
    with pytest.raises(JournalDamaged, match=r"run verify again, or remove .*verify\.json"):
        read_report_contents(with_verdict(root, **changes))


def test_lines_that_no_hunk_made_are_what_follows() -> None:
    (section,) = FileLines(FilePlan("a.txt", b"a\nb\nc\n", b"a\nB\nc\nd\n", "rewrite")).sections(FOLLOWS)
    assert [(row.sign, row.before, row.after, row.text) for row in section.rows] == [
        (" ", 1, 1, "a"),
        ("-", 2, None, "b"),
        ("+", None, 2, "B"),
        (" ", 3, 3, "c"),
        ("+", None, 4, "d"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("class Mine(Dataset):", "class Mine(SafeDataset):", ("Dataset", "SafeDataset")),
        ("    x = f(a, b)", "    x = f(a, b, c)", ("", ", c")),
        ("x.to(device)", "x.to(device, non_blocking=True)", ("", ", non_blocking=True")),
        ("train_loader = one", "val_loader = one", ("train_loader", "val_loader")),
        ("    return 1", "    raise KeyError(name)", None),
        ("aaa bbb", "aaa bbb", ("", "")),
        ("", "x", None),
    ],
)
def test_where_two_lines_differ_is_told_in_words(old: str, new: str, parts: tuple[str, str] | None) -> None:
    found = differing_words(old, new)
    assert (found and (old[slice(*found[0])], new[slice(*found[1])])) == parts


def test_removed_lines_stand_beside_those_that_replace_them() -> None:
    rows = [
        ChangeRow("-", 1, None, "a"),
        ChangeRow("-", 2, None, "b"),
        ChangeRow("+", None, 1, "A"),
        ChangeRow(" ", 3, 2, "c"),
    ]
    texts = [tuple(row and row.text for row in pair) for pair in pair_rows_for_columns(rows)]
    assert texts == [("a", "A"), ("b", None), ("c", "c")]
