"""``check --format sarif``: valid by the published schema, and its fixes are the rewrites, hunk by hunk."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest
from support import FIXTURES, run

from chirp_migrate import __version__
from chirp_migrate.doctor.doctor_report import DoctorReport, Problem
from chirp_migrate.edits.apply_hunks import text_with_hunks
from chirp_migrate.engine.checking import CheckReport
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import Settings, read_settings
from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import Plan
from chirp_migrate.report.formats.sarif import sarif_of_check, sarif_of_doctor
from chirp_migrate.rules import all_rules
from chirp_migrate.source.text import SourceFile
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.module import Module

HERE = Path(__file__).parent
PAIRS = FIXTURES / "rules"
SCHEMA = jsonschema.Draft4Validator(json.loads((HERE / "data" / "sarif-2.1.0-rtm.5.json").read_text()))
IMPORT = "from torch.utils.data import DataLoader\n"
CALL = "loader = DataLoader(data, batch_size=4, shuffle=True)\n"
LOADER = f"{IMPORT}\n{CALL}"

Json = dict[str, Any]


def document(root: Path, *options: str, exit_code: int = 1) -> Json:
    """The run of a valid document, as the command line prints it."""
    result = run("check", "--format", "sarif", *options, root)
    assert result.exit_code == exit_code, result.stderr
    return valid(json.loads(result.stdout))


def valid(content: Json) -> Json:
    """The one run of a document, which the schema must allow."""
    SCHEMA.validate(content)
    (run,) = content["runs"]
    assert content["version"] == "2.1.0"
    return run  # type: ignore[no-any-return]


def fixed(text: str, fix: Json) -> str:
    """``text`` with a fix applied, by what the standard says of regions: 1-based, columns in code points, the end of a
    region just behind its last character, and newlines as the document lists them."""
    starts = [0, *(match.end() for match in re.finditer("\r\n|\n|\r", text))]
    (change,) = fix["artifactChanges"]
    for one in reversed(change["replacements"]):
        region = one["deletedRegion"]
        begin = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        assert 0 <= begin <= end <= len(text) and region["startColumn"] == 1
        text = text[:begin] + one.get("insertedContent", {"text": ""})["text"] + text[end:]
    return text


def write_corpus(root: Path, every: int) -> Path:
    """What rules rewrite, in the ways that bytes of a Python file differ."""
    (root / ".git").mkdir()  # names are told from here
    for rule in all_rules()[::every]:
        folder = root / rule.code
        folder.mkdir(parents=True)
        for file in (PAIRS / rule.code).glob("*.py"):
            if file.name != "after.py":
                (folder / file.name).write_bytes(file.read_bytes())
    before = (PAIRS / "CHP001" / "before.py").read_bytes()
    (root / "windows.py").write_bytes(before.replace(b"\n", b"\r\n"))
    (root / "mac.py").write_bytes(LOADER.replace("\n", "\r").encode())
    (root / "mark.py").write_bytes(b"\xef\xbb\xbf" + b'"""\xc3\xbc"""\n' + LOADER.encode())
    (root / "mark_first.py").write_bytes(b"\xef\xbb\xbf" + LOADER.encode())
    (root / "latin.py").write_bytes(f"# -*- coding: latin-1 -*-\n{IMPORT}\nname = 'ü'; {CALL}".encode("latin-1"))
    (root / "no_newline.py").write_text(f"{IMPORT}a = 1\f\nname = '\u2028'\n{CALL}".rstrip())
    return root


@pytest.fixture(
    scope="module", params=[13, pytest.param(1, marks=pytest.mark.slow)], ids=lambda every: f"every {every} rules"
)
def corpus(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[Plan, Json]:
    """The plan of the corpus with behaviour-changing rules, and its run in a document."""
    root = write_corpus(tmp_path_factory.mktemp("corpus"), request.param)
    settings = Settings(unsafe=True, all_loaders=True)
    plan = plan_tree(root, settings=settings, jobs=1)
    return plan, valid(sarif_of_check(CheckReport(plan, settings)))


#: Rules that find what makes results wrong or runs fail.
BUGS = {"CHP014", "CHP017", "CHP018", "CHP019", "CHP021"}


def test_every_fix_makes_the_file_with_only_its_hunk(corpus: tuple[Plan, Json]) -> None:
    plan, run = corpus
    findings = [one for one in plan.findings if one.status.value not in ("fine", "unchanged")]
    seen = set()
    for finding, result in zip(findings, run["results"], strict=True):
        assert (result["ruleId"], result["level"] == "warning") == (finding.rule, finding.rule in BUGS)
        assert ("fixes" in result) == (finding.hunk is not None and finding.path != "mark_first.py")
        for fix in result.get("fixes", ()):
            file = next(one for one in plan.files if one.path == finding.path)
            assert file.before is not None
            text = SourceFile.from_bytes(file.before).text
            hunk = next(one for one in file.hunks if one.number == finding.hunk)
            assert fixed(text, fix) == text_with_hunks(
                Module(file.path, text), [hunk], file.public, ImportStyle(plan.root)
            )
            assert f"{finding.rule} ({finding.name}) in line {finding.line}" in fix["description"]["text"]
            seen.add((file.path, hunk.number))
    expected = {(file.path, hunk.number) for file in plan.files for hunk in file.hunks if file.path != "mark_first.py"}
    assert seen == expected
    assert {path for path, _ in seen} >= {"windows.py", "mac.py", "mark.py", "latin.py", "no_newline.py"}


def test_it_names_tool_and_rules(corpus: tuple[Plan, Json]) -> None:
    plan, run = corpus
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("chirp-migrate", __version__)
    for rule, described in zip(all_rules(), driver["rules"], strict=True):
        assert (described["id"], described["name"]) == (rule.code, rule.name)
        assert described["fullDescription"]["text"] == rule.reason
        assert described["properties"] == {"safety": rule.safety.value}
        assert described["defaultConfiguration"]["level"] == ("warning" if rule.code in BUGS else "note")
    assert all(driver["rules"][one["ruleIndex"]]["id"] == one["ruleId"] for one in run["results"])
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1, "toolExecutionNotifications": []}]
    assert str(plan.root) not in json.dumps(run)


def test_columns_are_code_points(corpus: tuple[Plan, Json]) -> None:
    _, run = corpus
    assert run["columnKind"] == "unicodeCodePoints"
    (place,) = [
        location["physicalLocation"]
        for result in run["results"]
        for location in result["locations"]
        if location["physicalLocation"]["artifactLocation"]["uri"] == "latin.py"
    ]
    assert place["region"] == {"startLine": 4, "startColumn": len("name = 'ü'; loader = ") + 1}


def test_what_is_suppressed_says_where(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LOADER.rstrip() + "  # chirp: ignore\n")
    (tmp_path / "b.py").write_text(LOADER)
    (tmp_path / "pyproject.toml").write_text('[tool.chirp-migrate.per-file-ignores]\n"b.py" = ["CHP001"]\n')
    run = document(tmp_path, exit_code=0)
    assert [(one["level"], one["suppressions"]) for one in run["results"]] == [
        ("note", [{"kind": "inSource"}]),
        ("note", [{"kind": "external"}]),
    ]


def test_files_that_were_not_handled_and_notes_are_notifications(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{IMPORT}def f(:\n")
    (tmp_path / "b.py").write_text(f"{IMPORT}x = 1  # chirp: ignore[CHP999]\nloader = DataLoader(data)\n")
    run = document(tmp_path)
    (invocation,) = run["invocations"]
    error, note = invocation["toolExecutionNotifications"]
    assert error["level"] == "error" and "syntax error in line 2" in error["message"]["text"]
    assert error["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("a.py")
    assert note["level"] == "note" and "CHP999" in note["message"]["text"]


def test_notebooks_have_the_lines_of_their_json_and_no_fix(tmp_path: Path) -> None:
    source = PAIRS.parent / "notebooks" / "train.ipynb"
    (tmp_path / "train.ipynb").write_bytes(source.read_bytes())
    run = document(tmp_path, "--notebooks")
    lines = source.read_text(encoding="utf-8").splitlines()
    plan = plan_tree(tmp_path, settings=Settings(notebooks=True))
    findings = [one for one in plan.findings if one.status.value not in ("fine", "unchanged")]
    assert findings
    for finding, result in zip(findings, run["results"], strict=True):
        region = result["locations"][0]["physicalLocation"]["region"]
        assert "fixes" not in result and result["message"]["text"].startswith(f"{finding.place}: ")
        assert result["locations"][0]["logicalLocations"][0]["name"] == f"cell {finding.cell}"
        assert '"source": [' in lines[region["startLine"] - 1] and lines[region["endLine"] - 1].strip().startswith("]")


def test_fingerprints_stay_when_lines_move(tmp_path: Path) -> None:
    def fingerprints(text: str) -> list[str]:
        (tmp_path / "a.py").write_text(text)
        return [one["partialFingerprints"]["ruleAndLine/v1"] for one in document(tmp_path)["results"]]

    first = fingerprints(LOADER + CALL)
    assert len(set(first)) == 2, "equal lines are told apart"
    assert fingerprints(f"{IMPORT}import os\n\n\nx = 1\n{CALL}\nif x:\n    {CALL}") == first
    assert fingerprints(LOADER.replace("4", "5") + CALL)[1] == first[0]


@pytest.mark.skipif(os.name == "nt", reason="names that Windows does not have")
def test_names_are_uris_from_the_top_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    backend = tmp_path / "a b#c"
    backend.mkdir()
    names = [b"50%?.py", b"a:b.py", b"line\nbreak.py", b"n\xff.py", "ü.py".encode()]
    for name in names:
        with open(os.fsencode(backend) + b"/" + name, "w") as file:  # noqa: PTH123 - Path cannot hold all of them
            file.write(LOADER)
    run = document(backend)
    places = [one["locations"][0]["physicalLocation"]["artifactLocation"] for one in run["results"]]
    assert sorted(unquote_to_bytes(place["uri"]) for place in places) == sorted(b"a b#c/" + name for name in names)
    for place in places:
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", place["uri"]) and place["uriBaseId"] in run["originalUriBaseIds"]


def test_a_file_that_changes_meanwhile_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{IMPORT}\n\nclass Mine(DataLoader):\n    pass\n")
    plan = plan_tree(tmp_path)
    check = CheckReport(plan, read_settings(tmp_path))
    for content in (b"", b"\xff"):
        (tmp_path / "a.py").write_bytes(content)
        with pytest.raises(UsageProblem, match=r"a\.py changed while chirp-migrate checked the project"):
            sarif_of_check(check)
    (tmp_path / "a.py").unlink()
    with pytest.raises(UsageProblem, match=r"a\.py changed while chirp-migrate checked the project"):
        sarif_of_check(check)


def test_problems_of_doctor_are_a_valid_document(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    texts = {"message": "Validation samples are also training samples.", "evidence": "8 of 8.", "fix": "Split."}
    problems = [
        Problem(check="overlap", path="train.py", line=7, **texts),
        Problem(check="order", **texts),
        Problem(check="overlap", path="other.py", line=8, **texts),
    ]
    report = DoctorReport(tool="", problems=problems, entry_points=[], notes=[], exit_code=1)
    run = valid(sarif_of_doctor(report, tmp_path))
    assert [(one["ruleId"], one["ruleIndex"]) for one in run["results"]] == [
        ("overlap", 0),
        ("order", 1),
        ("overlap", 0),
    ]
    assert "locations" not in run["results"][1]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("train.py", {"startLine": 7})
    assert place["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
    assert len({one["partialFingerprints"]["checkAndMessage/v1"] for one in run["results"]}) == 3


def test_the_same_tree_gives_the_same_document(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LOADER)
    assert document(tmp_path) == document(tmp_path, "--jobs", "2")
