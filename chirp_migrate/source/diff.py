"""Write plans as unified diffs that ``patch -p1`` and ``git apply`` accept.

A diff is a string. Bytes of a file that are not UTF-8 appear in the diff as surrogates (PEP 383), so callers must
encode the diff with ``errors="surrogateescape"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from chirp_migrate.plans.plan import Edit, FilePlan, Finding, FindingStatus, Plan
from chirp_migrate.source.matching_lines import group_opcodes_as_hunks, shortest_diff_opcodes
from chirp_migrate.source.text import SOURCE_LINE

_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file\n"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def unified_diff(plan: Plan) -> Iterator[str]:
    """Yield the lines of one diff that contains all files of a plan.

    Comment lines above the diff of each file list the findings that the diff rewrites, each with its rule and message.
    """
    for file in plan.files:
        findings = [f for f in plan.findings if f.path == file.path and f.status is FindingStatus.REWRITE]
        yield from file_diff(file, findings)


def file_diff(file: FilePlan, findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the lines of the diff of one file, below comment lines that list ``findings``."""
    for finding in findings:
        reason = " ".join(finding.message_with_gain.split())
        yield f"# {_mask_control_characters(finding.path)}:{finding.place}: {finding.rule} {finding.name}: {reason}\n"
    old, new = _quote_name(f"a/{file.path}"), _quote_name(f"b/{file.path}")
    # Only a header of git (`diff --git`) can describe a new empty file. All files of a diff must have the same kind of
    # header, so every file has a header of git.
    yield f"diff --git {old} {new}\n"
    if file.before is None:
        yield "new file mode 100644\n"
        if not file.after:
            yield "index 0000000..e69de29\n"
    hunks = diff_hunks_of_file(file)
    if hunks:
        yield f"--- {'/dev/null' if file.before is None else _header_name(old)}\n"
        yield f"+++ {_header_name(new)}\n"
        for line in hunks:
            yield line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}"


def count_changes(file: FilePlan) -> tuple[int, int]:
    """Return the number of added lines and the number of removed lines of a file."""
    lines = diff_hunks_of_file(file)
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def whole_line_edits(before: str, after: str) -> tuple[Edit, ...]:
    """Return edits that turn ``before`` into ``after``. Each edit replaces whole lines."""
    old, new = SOURCE_LINE.findall(before), SOURCE_LINE.findall(after)
    starts = [0, *accumulate(map(len, old))]
    return tuple(
        Edit(starts[i1], starts[i2], "".join(new[j1:j2]))
        for tag, i1, i2, j1, j2 in shortest_diff_opcodes(old, new)
        if tag != "equal"
    )


def diff_hunks_of_file(file: FilePlan) -> Sequence[str]:
    """Return the lines of all hunks of one file, without the two lines (``---`` and ``+++``) that name the file."""
    return _hunks(file.before or b"", file.after)


@lru_cache(maxsize=256)  # one caller prints the lines, another caller counts them
def _hunks(before: bytes, after: bytes) -> tuple[str, ...]:
    return tuple(diff_hunks_of_lines(_lines_of_bytes(before), _lines_of_bytes(after)))


def diff_hunks_of_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the lines of all hunks of a diff between two lists of lines."""
    for group in group_opcodes_as_hunks(before, after, _CONTEXT):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield f"@@ -{_hunk_range(i1, i2)} +{_hunk_range(j1, j2)} @@\n"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in before[i1:i2])
                continue
            yield from (f"-{line}" for line in before[i1:i2])
            yield from (f"+{line}" for line in after[j1:j2])


def _hunk_range(start: int, stop: int) -> str:
    """Return a range of lines as in an ``@@`` line: the number of the first line (from 1), and the number of lines.

    An empty range has no first line, so the first number is the number of the line above the hunk.
    """
    count = stop - start
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


def _lines_of_bytes(data: bytes) -> list[str]:
    """Split bytes into lines as ``patch`` does: only a line feed ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("utf-8", errors="surrogateescape"))


def _quote_name(name: str) -> str:
    """Return a file name as git writes it: in quotes if it contains special characters."""
    if not re.search(r'[\x00-\x1f\x7f"\\]', name):
        return name
    body = re.sub(r'[\x00-\x1f\x7f"\\]', lambda m: _ESCAPES.get(m.group(), f"\\{ord(m.group()):03o}"), name)
    return f'"{body}"'


def _header_name(name: str) -> str:
    """Return a file name as in a ``---`` or ``+++`` line of a diff.

    A name that contains a space gets a tab at its end. Without the tab, ``patch`` would read the text after the space
    as a date.
    """
    return f"{name}\t" if " " in name and not name.startswith('"') else name


def _mask_control_characters(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "?", text)
