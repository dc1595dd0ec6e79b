"""Every rule turns its ``before.py`` into its ``after.py``, and leaves ``left_alone.py`` alone, saying why.

An advice rule rewrites nothing: its ``before.py`` shows the hazard, its ``after.py`` how a person mends it.
What a rule requires is a list of names in the docstring of its class. For each name, ``requires.toml`` has programs
that fail that requirement only, and are not rewritten. Without the change that fails it, the rule rewrites the program.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import Finding, FindingStatus, Safety
from chirp_migrate.rules import Rule, all_rules
from chirp_migrate.syntax.project import Project
from qa.rule_cases import PROGRAM, cases, rewritten_programs

PAIRS = Path(__file__).parents[2] / "fixtures" / "rules"
REWRITING = [rule for rule in all_rules() if rule.safety is not Safety.ADVICE]
ADVICE = [rule for rule in all_rules() if rule.safety is Safety.ADVICE]


def migrate(rule: Rule, name: str, texts: dict[str, str]) -> tuple[str, list[Finding]]:
    """Apply one rule to one file of its folder."""
    path = f"rule/{name}"
    return rewrite_text(path, texts[path], Project(texts), unsafe=True, rules=[rule])


def folder(rule: Rule) -> dict[str, str]:
    """Sources beside the pair, as a small project."""
    return {f"rule/{file.name}": file.read_text(encoding="utf-8") for file in (PAIRS / rule.code).glob("*.py")}


@pytest.mark.parametrize("rule", REWRITING, ids=lambda rule: rule.code)
def test_before_becomes_after(rule: Rule) -> None:
    texts = folder(rule)
    after, findings = migrate(rule, "before.py", texts)
    assert after == texts["rule/after.py"]
    compile(after, "after.py", "exec")
    assert {finding.status for finding in findings} == {FindingStatus.REWRITE}
    lines = texts["rule/before.py"].splitlines()
    assert all(1 <= finding.line <= len(lines) for finding in findings)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_after_stays_as_it_is(rule: Rule) -> None:
    texts = folder(rule)
    again, _ = migrate(rule, "after.py", texts)
    assert again == texts["rule/after.py"]


@pytest.mark.parametrize("rule", REWRITING, ids=lambda rule: rule.code)
def test_windows_newlines_survive(rule: Rule) -> None:
    texts = {path: text.replace("\n", "\r\n") for path, text in folder(rule).items()}
    after, _ = migrate(rule, "before.py", texts)
    assert after == texts["rule/after.py"]


@pytest.mark.parametrize("rule", ADVICE, ids=lambda rule: rule.code)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_advice_is_given_before_and_not_after(rule: Rule, newline: str) -> None:
    texts = {path: text.replace("\n", newline) for path, text in folder(rule).items()}
    before, findings = migrate(rule, "before.py", texts)
    assert before == texts["rule/before.py"]
    assert findings and all(f.status is FindingStatus.REPORT and f.message for f in findings)
    mended, remaining = migrate(rule, "after.py", texts)
    assert (mended, remaining) == (texts["rule/after.py"], [])
    for name in ("before.py", "after.py"):
        compile(texts[f"rule/{name}"], name, "exec")


@pytest.mark.parametrize(
    "rule", [r for r in all_rules() if (PAIRS / r.code / "left_alone.py").exists()], ids=lambda r: r.code
)
def test_what_is_not_sure_is_reported_not_rewritten(rule: Rule) -> None:
    texts = folder(rule)
    after, findings = migrate(rule, "left_alone.py", texts)
    assert after == texts["rule/left_alone.py"]
    assert findings and all(f.status is FindingStatus.REPORT and f.message for f in findings)


def required(rule: Rule) -> list[str]:
    """The names of what a rule requires."""
    return re.findall(r"^- `([a-z0-9-]+)`: ", rule.requires, re.MULTILINE)


@pytest.mark.parametrize("rule", [rule for rule in REWRITING if rule.requires], ids=lambda rule: rule.code)
def test_each_requirement_has_a_program_that_does_not_meet_it(rule: Rule) -> None:
    assert required(rule) == sorted(set(required(rule)), key=required(rule).index) != []
    assert rule.requires.count("\n- ") == len(required(rule))
    assert {name.partition(".")[0] for name in cases(rule.code)} == set(required(rule))


def beside(rule: Rule) -> dict[str, str]:
    """Sources beside the pair, without the pair."""
    return {path: text for path, text in folder(rule).items() if path not in ("rule/before.py", "rule/after.py")}


@pytest.mark.parametrize("rule", [rule for rule in REWRITING if rule.requires], ids=lambda rule: rule.code)
def test_programs_that_do_not_meet_a_requirement_are_left_alone(rule: Rule) -> None:
    for name, texts in cases(rule.code).items():
        project = Project(beside(rule) | texts)
        for path, text in texts.items():
            compile(text, f"{rule.code}/requires.toml, case {name}, {path}", "exec")
            assert rewrite_text(path, text, project, unsafe=True, rules=[rule])[0] == text, name


@pytest.mark.parametrize("rule", [rule for rule in REWRITING if rule.requires], ids=lambda rule: rule.code)
def test_programs_are_rewritten_without_the_change_that_fails_a_requirement(rule: Rule) -> None:
    for text in rewritten_programs(rule.code):
        project = Project(beside(rule) | {PROGRAM: text})
        assert rewrite_text(PROGRAM, text, project, unsafe=True, rules=[rule])[0] != text, text


def test_every_rule_has_a_pair_and_every_pair_a_rule() -> None:
    codes = {rule.code for rule in all_rules()}
    assert codes == {path.name for path in PAIRS.iterdir() if path.is_dir()}
    for rule in all_rules():
        assert rule.name and rule.reason.endswith(".") and rule.trigger
