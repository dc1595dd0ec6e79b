"""Every rule turns its ``before.py`` into its ``after.py``, and leaves ``left_alone.py`` alone, saying why.

An advice rule rewrites nothing: its ``before.py`` shows the hazard, its ``after.py`` how a person mends it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chirp_migrate.engine import rewrite
from chirp_migrate.plan import Finding, Safety, Status
from chirp_migrate.project import Project
from chirp_migrate.rules import Rule, all_rules

PAIRS = Path(__file__).parents[2] / "fixtures" / "rules"
REWRITING = [rule for rule in all_rules() if rule.safety is not Safety.ADVICE]
ADVICE = [rule for rule in all_rules() if rule.safety is Safety.ADVICE]


def migrate(rule: Rule, name: str, texts: dict[str, str]) -> tuple[str, list[Finding]]:
    """Apply one rule to one file of its folder."""
    path = f"rule/{name}"
    return rewrite(path, texts[path], Project(texts), unsafe=True, rules=[rule])


def folder(rule: Rule) -> dict[str, str]:
    """Sources beside the pair, as a small project."""
    return {f"rule/{file.name}": file.read_text(encoding="utf-8") for file in (PAIRS / rule.code).glob("*.py")}


@pytest.mark.parametrize("rule", REWRITING, ids=lambda rule: rule.code)
def test_before_becomes_after(rule: Rule) -> None:
    texts = folder(rule)
    after, findings = migrate(rule, "before.py", texts)
    assert after == texts["rule/after.py"]
    compile(after, "after.py", "exec")
    assert {finding.status for finding in findings} == {Status.REWRITE}
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
    assert findings and all(f.status is Status.REPORT and f.message for f in findings)
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
    assert findings and all(f.status is Status.REPORT and f.message for f in findings)


def test_every_rule_has_a_pair_and_every_pair_a_rule() -> None:
    codes = {rule.code for rule in all_rules()}
    assert codes == {path.name for path in PAIRS.iterdir() if path.is_dir()}
    for rule in all_rules():
        assert rule.name and rule.reason.endswith(".") and rule.trigger
