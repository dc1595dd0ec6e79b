"""Plans as unified diffs that ``patch -p1`` and ``git apply`` accept."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from chirp_migrate.plan import FilePlan, Finding, Plan, Status

_NO_NEWLINE = "\\ No newline at end of file\n"


def unified_diff(plan: Plan) -> Iterator[str]:
    """Lines of one diff over all files of a plan, each file headed by the rules and reasons behind its changes."""
    for file in plan.files:
        yield from file_diff(file, [f for f in plan.findings if f.path == file.path and f.status is Status.REWRITE])


def file_diff(file: FilePlan, findings: Iterable[Finding]) -> Iterator[str]:
    """Lines of the diff of one file, with the findings as comments in front."""
    for finding in findings:
        yield f"# {finding.path}:{finding.line}: {finding.rule} {finding.name}: {finding.message}\n"
    before = "" if file.before is None else _text(file.before)
    after = _text(file.after)
    old = "/dev/null" if file.before is None else f"a/{file.path}"
    for number, line in enumerate(difflib.unified_diff(_lines(before), _lines(after), old, f"b/{file.path}")):
        if number < 2 or line.endswith("\n"):
            yield line if line.endswith("\n") else line + "\n"
        else:
            yield line + "\n" + _NO_NEWLINE


def count_changes(file: FilePlan) -> tuple[int, int]:
    """Lines added to and removed from a file."""
    lines = [line for line in file_diff(file, ()) if not line.startswith(("+++", "---"))]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def _text(data: bytes) -> str:
    """Text for showing: bytes that are not UTF-8 keep their place as surrogates and come out again as they were."""
    return data.decode("utf-8", errors="surrogateescape")


def _lines(text: str) -> list[str]:
    """Lines as patch counts them: only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
