"""What ``apply`` says it did, for people and for machines."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TextIO

from chirp_migrate import __version__
from chirp_migrate.diff import count_changes
from chirp_migrate.migration import Migration
from chirp_migrate.plan import SCHEMA, Finding, Plan, Skipped, Status
from chirp_migrate.rules import all_rules

_WIDTH = 80
_NOTES = {"scaffold": "added", "vendor": "vendored", "dependency": "dependency", "rewrite": "rewritten"}


@dataclass(frozen=True)
class Paint:
    """Terminal colours, or none."""

    on: bool

    @classmethod
    def for_stream(cls, stream: TextIO, choice: str) -> Paint:
        """Colours on a terminal unless NO_COLOR is set; ``always`` and ``never`` decide it."""
        automatic = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        return cls(choice == "always" or (choice == "auto" and automatic))

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text

    def diff_line(self, line: str) -> str:
        """One line of a diff in its colour."""
        body, end = (line[:-1], "\n") if line.endswith("\n") else (line, "")
        if line.startswith(("+++", "---")):
            return self(body, "1") + end
        codes = {"+": "32", "-": "31", "@": "36", "#": "2"}
        return self(body, codes[line[0]]) + end if line and line[0] in codes else line


def totals(plan: Plan) -> str:
    """One line: how many files change, by how many lines."""
    if not plan.files:
        return "Nothing to do: already migrated, or nothing here that any rule knows."
    added, removed = map(sum, zip(*(count_changes(file) for file in plan.files), strict=True))
    created = sum(file.before is None for file in plan.files)
    rewritten = len(plan.files) - created
    return f"{_count(rewritten, 'file')} to rewrite, {created} to add: +{added} -{removed} lines. Nothing was written."


def applied(migration: Migration, left: Sequence[Skipped], path: Path, paint: Paint) -> str:
    """The report after an apply."""
    plan = migration.plan
    skipped = [*plan.skipped, *left]
    kept = {one.path for one in left}
    lines: list[str] = []
    done = [file for file in plan.files if file.path not in kept]
    for file in done:
        added, removed = count_changes(file)
        lines.append(f"{paint(file.path, '1')}  {_NOTES.get(file.note, file.note)}, +{added} -{removed}")
        findings = [f for f in plan.findings if f.path == file.path and f.status is Status.REWRITE]
        lines += _findings(findings, paint)
    for status, title in (
        (Status.OPT_IN, "Proposed, not applied: these change training (--unsafe applies them)"),
        (Status.REPORT, "Left alone"),
    ):
        findings = [f for f in plan.findings if f.status is status]
        if findings:
            lines += ["", f"{title}:"]
            for name, group in groupby(findings, key=lambda f: f.path):
                lines += [f"{name}", *_findings(list(group), paint)]
    if skipped:
        lines += ["", "Not handled:"]
        lines += [line for one in skipped for line in _wrapped(f"{one.path}: {one.reason}", "  ")]
    if not done:
        lines.append("Nothing to do: already migrated, or nothing here that any rule knows.")
    else:
        rewritten = sum(file.before is not None for file in done)
        lines += ["", f"{_count(rewritten, 'file')} rewritten, {len(done) - rewritten} added."]
        lines += [line for note in migration.notes for line in _wrapped(note, "")]
        lines.append(f"Next: review it (git diff), then: chirp-migrate verify {shlex.quote(str(path))}")
        lines.append(f"To undo it to the byte: chirp-migrate rollback {shlex.quote(str(path))}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _findings(findings: Sequence[Finding], paint: Paint) -> list[str]:
    lines = []
    for finding in findings:
        head = f"{finding.line:>5}  {finding.rule}  "
        text = _wrapped(finding.message, " " * len(head), first=head)
        lines += [text[0].replace(finding.rule, paint(finding.rule, "36"), 1), *text[1:]]
    return lines


def _wrapped(text: str, indent: str, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_json(migration: Migration, left: Iterable[Skipped]) -> dict[str, object]:
    """The plan without file contents, for machines."""
    plan = migration.plan
    reasons = {rule.code: rule.reason for rule in all_rules()}
    return {
        "schema": SCHEMA,
        "tool": f"chirp-migrate {__version__}",
        "files": [file.to_json() for file in plan.files],
        "findings": [{**finding.to_json(), "reason": reasons[finding.rule]} for finding in plan.findings],
        "skipped": [one.to_json() for one in (*plan.skipped, *left)],
        "notes": list(migration.notes),
    }
