"""Write docs/messages.md, which lists every message of every rule, from programs in fixtures/rules.

Run it with `python docs/make_messages.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.rules import Rule, all_rules
from chirp_migrate.syntax.project import Project

sys.path.append(str(Path(__file__).resolve().parents[1]))
from qa.rule_cases import cases

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "messages.md"
PROGRAMS = ROOT / "fixtures" / "rules"

_HEAD = """\
# Messages

After reading this page you know every message of every rule. `python docs/make_messages.py` writes this page from the
programs in `fixtures/rules`. [rules.md](rules.md) links to the pages that explain the rules.

* **rewrites**: `apply` rewrites the code. If the rule changes what training learns, `apply` needs `--unsafe`.
* **reports**: the rule reports the code and does not rewrite it.

*Likely bug* in a heading marks a rule whose findings are likely bugs.
"""
_SHOWN_AS = {FindingStatus.REWRITE: "rewrites", FindingStatus.REPORT: "reports"}


def page() -> str:
    """Return the text of the page."""
    return _HEAD + "".join(f"\n{section(rule)}" for rule in all_rules())


def section(rule: Rule) -> str:
    """Return the section of a rule: its messages, without messages that differ only in quoted names or numbers."""
    examples: dict[tuple[FindingStatus, str], str] = {}
    for status, message in said(rule):
        examples.setdefault((status, re.sub(r"`[^`]*`|\d+", "…", message)), message)
    lines = [
        f"* **{_SHOWN_AS[status]}**: {_prose(message)}" for (status, _), message in sorted(examples.items(), key=_place)
    ]
    bug = " (likely bug)" if rule.finds_bugs else ""
    return "\n".join([f"## {rule.code} {rule.name}{bug}", "", *lines]) + "\n"


def said(rule: Rule) -> Iterator[tuple[FindingStatus, str]]:
    """Yield status and message of all findings in the rule's programs, in the order of the file names."""
    files = sorted((PROGRAMS / rule.code).glob("*.py"))
    alone = [{f"rule/{file.name}": file.read_text(encoding="utf-8")} for file in files]
    for texts in (*alone, *cases(rule.code).values()):
        for path, text in texts.items():
            _, findings = rewrite_text(path, text, Project(texts), unsafe=True, rules=[rule])
            yield from ((one.status, one.message) for one in findings if one.status in _SHOWN_AS)


def _place(example: tuple[tuple[FindingStatus, str], str]) -> tuple[bool, str]:
    (status, _), message = example
    return status is not FindingStatus.REWRITE, message.replace("`", "").lower()


def _prose(text: str) -> str:
    """Return ``text`` in Markdown, with all special characters outside of backticks escaped."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(one if one.startswith("`") else re.sub(r"([<*_\[\]\\])", r"\\\1", one) for one in pieces)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"written: {TARGET}")
