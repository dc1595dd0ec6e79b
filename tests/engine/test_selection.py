"""Which rules run where: on the command line's and the settings' word, and as comments in the code ask."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from chirp_migrate import rules as package
from chirp_migrate.console.json_document import to_json_values
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.engine.settings import Settings, matches_any_glob, read_settings
from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import Finding, FindingStatus, Plan, PlanOptions, Safety
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.rules import Rule, all_rules, codes_matching, selected_codes
from chirp_migrate.syntax.project import Project

IMPORT = "from torch.utils.data import DataLoader\n"
LOADER = IMPORT + "loader = DataLoader(data, num_workers=2, collate_fn=lambda batch: [batch])\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write files below ``root``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def planned(root: Path, **options: Sequence[str] | bool) -> Plan:
    """Plan as the command line does."""
    return plan_tree(root, settings=read_settings(root).overridden(**options))  # type: ignore[arg-type]


def statuses(findings: Sequence[Finding]) -> list[tuple[str, int, str]]:
    """Rule, line and status of each finding."""
    return [(f.rule, f.line, f.status.value) for f in findings]


def rewritten(text: str) -> tuple[str, list[tuple[str, int, str]]]:
    """One module through the rules for loaders and lambdas, and again, which changes nothing."""
    rules = [rule for rule in all_rules() if rule.code in ("CHP001", "CHP007")]
    new, findings = rewrite_text("a.py", text, Project({"a.py": text}), rules=rules)
    again, _ = rewrite_text("a.py", new, Project({"a.py": new}), rules=rules)
    assert again == new
    return new, statuses(findings)


ALL = {rule.code for rule in all_rules()}


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        (["ALL"], [], ALL),
        (["CHP001"], [], {"CHP001"}),
        (["chp001", "Lambda-In-Loader"], [], {"CHP001", "CHP007"}),
        (["CHP00"], ["CHP001"], {code for code in ALL if code.startswith("CHP00")} - {"CHP001"}),
        (["ALL"], ["CHP"], set()),
        (["CHP011"], ["CHP01"], {"CHP011"}),
        (["CHP011"], ["label-scan"], set()),
    ],
)
def test_the_selector_that_says_more_decides(select: list[str], ignore: list[str], expected: set[str]) -> None:
    assert selected_codes(select, ignore) == expected


@pytest.mark.parametrize("selector", ["CHP9999", "no-such-rule", "", "C", "CHP001x"])
def test_what_names_no_rule_names_none(selector: str) -> None:
    assert codes_matching(selector) == frozenset()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"select": ["CHP007"]}, {"CHP007"}),
        ({"select": ["dataloader-factory"]}, {"CHP001"}),
        ({"ignore": ["CHP007"]}, {"CHP001"}),
    ],
)
def test_only_selected_rules_run(tmp_path: Path, options: dict[str, list[str]], expected: set[str]) -> None:
    plan = planned(tree(tmp_path, {"a.py": LOADER}), **options)
    assert {finding.rule for finding in plan.findings} == expected


def test_an_unknown_code_is_a_sentence_with_the_nearest() -> None:
    with pytest.raises(UsageProblem, match=r"--select: there is no rule 'lambda-loader'; the nearest is CHP007"):
        read_settings(Path()).overridden(select=["lambda-loader"])
    with pytest.raises(UsageProblem, match="no rule is left"):
        read_settings(Path()).overridden(select=["CHP001"], ignore=["CHP001"])


# --- comments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "suppressed"),
    [
        ("x = DataLoader(d)  # chirp: ignore[CHP001]\n", True),
        ("x = DataLoader(d)  # chirp: ignore\n", True),
        ("x = DataLoader(d)  # noqa: E501  # CHIRP:ignore [dataloader-factory, CHP007] as measured\n", True),
        ("# chirp: ignore[CHP00]\nx = DataLoader(d)\n", True),
        ("# chirp: ignore[CHP001]\n# because it is so\nx = DataLoader(d)\n", True),
        ("# chirp: ignore\nx = [\n    DataLoader(d),\n]\n", True),
        ("x = [\n    DataLoader(d),\n]  # chirp: ignore\n", True),
        ("x = [\n    DataLoader(d),  # chirp: ignore\n]\n", True),
        ("x = [\n    # chirp: ignore\n    DataLoader(d),\n]\n", True),
        ("x = [  # chirp: ignore\n    DataLoader(d),\n]\n", False),
        ("x = DataLoader(d)  # chirp: ignore[CHP007]\n", False),
        ("# chirp: ignore\n\nx = DataLoader(d)\n", False),
        ("y = 1  # chirp: ignore\nx = DataLoader(d)\n", False),
        ("x = DataLoader(d); y = '# chirp: ignore'\n", False),
        ("y = '''\n# chirp: ignore\n'''; x = DataLoader(d)\n", False),
        ("x = DataLoader(d)  # chirp: ignored\n", False),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_comment_leaves_its_line_or_statement_alone(code: str, suppressed: bool, newline: str) -> None:
    text = (IMPORT + code).replace("\n", newline)
    new, ((rule, _, status),) = rewritten(text)
    assert (new == text) is suppressed
    assert (rule, status) == ("CHP001", "suppressed" if suppressed else "rewrite")


def test_a_comment_holds_after_another_rule_has_rewritten_its_line() -> None:
    text = IMPORT + "loader = DataLoader(data, collate_fn=lambda b: [b], num_workers=4)  # chirp: ignore[CHP007]\n"
    new, found = rewritten(text)
    assert "create_loader" in new and "lambda b: [b]" in new
    assert found == [("CHP001", 2, "rewrite"), ("CHP007", 2, "suppressed")]


@pytest.mark.parametrize(
    ("head", "suppressed"),
    [
        ("# chirp: ignore-file[CHP001]\n", True),
        ("#!/usr/bin/env python\n# chirp: ignore-file\n", True),
        ('"""What this is."""\n\n# chirp: ignore-file[CHP00]\n', True),
        ("# chirp: ignore-file[CHP007]\n", False),
        ("import os\n# chirp: ignore-file\n", False),
        ('"""# chirp: ignore-file"""\n', False),
        ("import os  # chirp: ignore-file\n", False),
    ],
)
def test_a_comment_at_the_top_leaves_the_file_alone(head: str, suppressed: bool) -> None:
    text = head + IMPORT + "x = DataLoader(d)\n"
    _, ((_, _, status),) = rewritten(text)
    assert status == ("suppressed" if suppressed else "rewrite")


def test_a_comment_that_cannot_be_meant_is_noted(tmp_path: Path) -> None:
    text = IMPORT + "x = DataLoader(d)  # chirp: ignore[CHP9999]\n# chirp: ignore-file\n"
    plan = planned(tree(tmp_path, {"a.py": text}))
    assert [note.partition(": ")[0] for note in plan.notes] == ["a.py:2", "a.py:3"]
    assert "'CHP9999'" in plan.notes[0] and "first statement" in plan.notes[1]


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("globs", "matched", "others"),
    [
        ("old", ["old/a.py", "x/old/b/c.py"], ["old.py", "bold/a.py"]),
        ("old/", ["old/a.py", "x/old/a.py"], ["old"]),
        ("/old", ["old/a.py"], ["x/old/a.py"]),
        ("*.py", ["a.py", "x/b.py"], ["a.ipynb"]),
        ("x/*.py", ["x/a.py"], ["x/y/a.py", "z/x/a.py"]),
        ("x/**/a.py", ["x/a.py", "x/y/z/a.py"], ["a.py", "x/y/b.py"]),
        ("**/gen_*.py", ["gen_a.py", "x/gen_b.py"], ["x/gen/c.py"]),
        ("x/**", ["x/a.py", "x/y/a.py"], ["y/a.py"]),
        ("./a.py", ["a.py"], ["x/a.py"]),
        ("a?[1].py", ["ab1.py"], ["a/[1].py", "ab[1].py"]),
        ("a[!bc].py", ["aa.py"], ["ab.py", "ac.py"]),
        ("old/* !old/new.py", ["old/a.py"], ["old/new.py"]),
        ("*.py !x.py /x.py", ["a.py", "x.py"], ["b/x.py"]),
    ],
)
def test_globs_are_those_of_gitignore(globs: str, matched: list[str], others: list[str]) -> None:
    assert [path for path in (*matched, *others) if matches_any_glob(tuple(globs.split()), path)] == matched


def with_settings(root: Path, body: str, **files: str) -> Path:
    """A backend of two files with settings."""
    return tree(
        root, {"pyproject.toml": f"[tool.chirp-migrate]\n{body}\n", "a.py": LOADER, "old/b.py": LOADER, **files}
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", {"a.py": {"CHP001", "CHP007"}, "old/b.py": {"CHP001", "CHP007"}}),
        ('exclude = ["old"]', {"a.py": {"CHP001", "CHP007"}}),
        ('include = ["old/**"]', {"old/b.py": {"CHP001", "CHP007"}}),
        ('select = ["CHP007"]', {"a.py": {"CHP007"}, "old/b.py": {"CHP007"}}),
        ('ignore = ["lambda-in-loader"]', {"a.py": {"CHP001"}, "old/b.py": {"CHP001"}}),
        ('per-file-ignores = {"old/*" = ["CHP001"]}', {"a.py": {"CHP001", "CHP007"}, "old/b.py": {"CHP007"}}),
    ],
)
def test_settings_say_which_files_and_rules(tmp_path: Path, body: str, expected: dict[str, set[str]]) -> None:
    plan = planned(with_settings(tmp_path, body))
    applied = [f for f in plan.findings if f.status is FindingStatus.REWRITE]
    assert {path: {f.rule for f in applied if f.path == path} for path in {f.path for f in applied}} == expected


def test_the_command_line_goes_before_the_settings(tmp_path: Path) -> None:
    root = with_settings(tmp_path, 'ignore = ["CHP007"]\nselect = ["CHP00"]\nunsafe = true\nnotebooks = false')
    assert {f.rule for f in planned(root, select=["CHP007"]).findings} == {"CHP007"}
    assert "CHP007" not in (read_settings(root).overridden(ignore=["CHP001"]).codes or ())
    settings = read_settings(root)
    assert settings.unsafe and not settings.notebooks
    settings = settings.overridden(unsafe=False, notebooks=True)
    assert settings.notebooks and not settings.unsafe


def test_an_excluded_file_still_keeps_what_it_imports(tmp_path: Path) -> None:
    root = with_settings(tmp_path, 'exclude = ["use.py"]')
    tree(root, {"use.py": "from a import DataLoader\n"})
    after = {file.path: file.after.decode() for file in planned(root).files}
    assert IMPORT in after["a.py"] and IMPORT not in after["old/b.py"] and "use.py" not in after


def test_settings_come_from_the_nearest_folder_up_to_the_top_of_the_work_tree(tmp_path: Path) -> None:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    tree(tmp_path, {"pyproject.toml": "[tool.chirp-migrate]\nunsafe = true\n"})
    root = with_settings(tmp_path / "repository", 'exclude = ["backend/old"]')
    tree(root, {"backend/a.py": LOADER, "backend/old/b.py": LOADER, "backend/pyproject.toml": "[project]\n"})
    assert not read_settings(root / "backend").unsafe
    assert [file.path for file in planned(root / "backend").files] == ["a.py"]


def test_outside_a_work_tree_only_the_folder_itself_is_asked(tmp_path: Path) -> None:
    root = with_settings(tmp_path, "unsafe = true")
    assert read_settings(root).unsafe and not read_settings(root / "old").unsafe


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('exlude = ["a"]', r"exlude is unknown; did you mean exclude\?"),
        ("colour = 1", "colour is unknown; the keys are include, exclude"),
        ('exclude = "old"', "exclude must be a list of strings"),
        ("include = [1]", "include must be a list of strings"),
        ('select = ["CHP9999"]', "select is invalid: there is no rule 'CHP9999'; the nearest is CHP"),
        ('ignore = ["ALL"]', "leaves no rule to run"),
        ('unsafe = "yes"', "unsafe must be true or false"),
        ("vendor = 1", "vendor must be true or false"),
        ('scaffold = "no"', "scaffold must be true or false"),
        ("tests = true\n# notes\n'notebooks' = 3", r"line 4: \[tool.chirp-migrate\] notebooks must be"),
        ('per-file-ignores = ["a"]', "per-file-ignores must be a table"),
        ('per-file-ignores = {"a.py" = "CHP001"}', 'per-file-ignores "a.py" must be a list of strings'),
        (
            'per-file-ignores = {"b.py" = ["CHP9999"]}',
            "per-file-ignores \"b.py\" is invalid: there is no rule 'CHP9999'",
        ),
        ("unsafe = ", "not valid TOML"),
        ("[tool]\nchirp-migrate = 1", "not valid TOML"),
    ],
)
def test_wrong_settings_are_a_sentence_that_names_file_and_key(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=said) as caught:
        read_settings(with_settings(tmp_path, body))
    assert str(tmp_path / "pyproject.toml") in str(caught.value) and "\n" not in str(caught.value)


def test_a_broken_pyproject_that_does_not_speak_of_us_is_not_our_business(tmp_path: Path) -> None:
    root = tree(tmp_path, {"pyproject.toml": "[project\n", "a.py": LOADER})
    assert len(planned(root).files) == 1


def test_all_files_left_out_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"excluded in pyproject\.toml"):
        planned(with_settings(tmp_path, 'exclude = ["**"]'))


@pytest.mark.parametrize("notebooks", [True, False])
def test_notebooks_keep_what_they_import_whether_they_are_looked_at_or_not(tmp_path: Path, notebooks: bool) -> None:
    root = tree(tmp_path, {"a.py": LOADER, "n.ipynb": '{"cells": [{"source": ["from a import DataLoader"]}]}'})
    plan = plan_tree(root, settings=Settings(notebooks=notebooks))
    assert IMPORT in next(file.after.decode() for file in plan.files if file.path == "a.py")


# --- tests ----------------------------------------------------------------------------------------------------------

TESTS = ("tests/loading.py", "pkg/tests/deep/a.py", "test_a.py", "a_test.py", "pkg/conftest.py")


def test_tests_are_left_alone_and_their_loaders_counted(tmp_path: Path) -> None:
    root = tree(tmp_path, {**dict.fromkeys(("a.py", "testing.py", *TESTS), LOADER), "tests/idle.py": "x = 1\n"})
    plan = planned(root)
    assert [file.path for file in plan.files] == ["a.py", "testing.py"]
    assert {one.path: one.loaders for one in plan.left_out} == dict.fromkeys(TESTS, 1)
    assert len(planned(root, tests=True).files) == 2 + len(TESTS)
    assert planned(with_settings(root, "tests = true")).left_out == ()


def test_a_test_that_is_named_is_looked_at(tmp_path: Path) -> None:
    root = tree(tmp_path, {"test_a.py": LOADER, "a.py": LOADER})
    assert [file.path for file in planned(root / "test_a.py").files] == ["test_a.py"]


def test_files_are_excluded_on_the_command_line_besides_those_of_the_settings(tmp_path: Path) -> None:
    root = tree(tmp_path, dict.fromkeys(("a.py", "b.py", "old/c.py"), LOADER))
    plan = planned(with_settings(root, 'exclude = ["b.py"]'), exclude=["old"])
    assert [file.path for file in plan.files] == ["a.py"]
    assert {one.path: one.reason for one in plan.left_out}["old/c.py"] == "excluded with --exclude"


# --- ledger ---------------------------------------------------------------------------------------------------------


def test_the_ledger_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factory: type[Rule] = next(rule for rule in all_rules() if rule.code == "CHP001").__class__
    monkeypatch.setattr(factory, "counts_sites", True)
    body = (
        "a = DataLoader(d)\n"
        "b = DataLoader(d)  # chirp: ignore\n"
        "kept = [DataLoader]\n"
        "c = DataLoader(d, num_workers=2, collate_fn=lambda batch: [batch])\n"
    )
    root = tree(tmp_path, {"a.py": IMPORT + body, "bad.py": "DataLoader(\n"})
    plan = planned(root, select=["CHP001", "CHP007"])
    ledger = LoaderLedger.of(plan)
    content = to_json_values(ledger.to_counts())
    counted = {"migrated": 2, "fine": 0, "unchanged": 0, "suppressed": 1, "refused": 0, "opt_in": 0, "listed": 1}
    assert content["sites"] == {"found": 4, **counted}
    assert sum(content["listed_by_reason"].values()) == 1
    assert content["rules"]["CHP007"]["migrated"] == 1
    assert content["files_not_handled"] == 1
    assert not LoaderLedger.of(replace(plan, options=PlanOptions(rules=("CHP007",)))).counting


def test_places_that_are_fine_are_counted_once_and_before_the_rewrite() -> None:
    from chirp_migrate.plans.plan import Edit
    from chirp_migrate.rules import RuleMatch
    from chirp_migrate.syntax.module import Module

    class Words(Rule):
        """Rewrites ``old`` to ``new``; finds ``new`` fine."""

        code, name, reason, safety, trigger = "CHP999", "words", "A reason.", Safety.SAFE, ("old", "new")

        def check(self, module: Module, project: Project) -> list[RuleMatch]:
            old, new = module.text.find("old"), module.text.find("new")
            edits = (Edit(old, old + 3, "new"),)
            return [
                *([RuleMatch(old, "old", edits, why="age")] if old >= 0 else []),
                *([RuleMatch(new, "new", fine=True)] if new >= 0 else []),
            ]

    text = "old = 1\nnew = 2\n"
    after, findings = rewrite_text("a.py", text, Project({"a.py": text}), rules=[Words()])
    assert after == "new = 1\nnew = 2\n"
    assert statuses(findings) == [("CHP999", 1, "rewrite"), ("CHP999", 2, "fine")]
    assert [finding.why for finding in findings] == ["age", ""]


def test_two_rules_of_one_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{package.__name__}.chp999_again"
    module = ModuleType(name)
    vars(module)["Again"] = type("Again", (Rule,), {"code": "CHP001", "__module__": name})
    (tmp_path / "chp999_again.py").touch()
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with pytest.raises(ValueError, match="two rules have the code CHP001"):
        all_rules.__wrapped__()
