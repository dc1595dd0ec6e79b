"""What ``--diff`` prints is a patch: ``git apply`` and ``patch -p1`` make of the tree what ``apply`` would."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, Plan, Safety
from chirp_migrate.source.diff import count_changes, unified_diff
from chirp_migrate.source.matching_lines import shortest_diff_opcodes

FILES = {
    "plain.py": (b"a = 1\nb = 2\nc = 3\n", b"a = 1\nb = 3\nc = 3\n"),
    "no_newline_before.py": (b"a = 1\nb = 2", b"a = 1\nb = 2\nc = 3\n"),
    "no_newline_after.py": (b"a = 1\nb = 2\n", b"a = 1\nb = 3"),
    "no_newline.py": (b"a = 1\nb = 2", b"a = 2\nb = 2"),
    "windows.py": (b"a = 1\r\nb = 2\r\nc = 3\r\n", b"a = 1\r\nb = 3\r\nc = 3\r\n"),
    "mixed.py": (b"a = 1\r\nb = 2\nc\x0c = 3\n", b"a = 1\r\nb = 3\nc\x0c = 3\n"),
    "latin.py": (b"# coding: latin-1\n# \xe9\na = 1\n", b"# coding: latin-1\n# \xe9\na = 2\n"),
    "with space.py": (b"a = 1\n", b"a = 2\n"),
    "ümlaut.py": (b"a = 1\n", b"a = 2\n"),
    'quo"te\\.py': (b"a = 1\n", b"a = 2\n"),
    "from_empty.py": (b"", b"a = 2\n"),
    "deep/folder/new.py": (None, b"a = 1\n"),
    "new without newline.py": (None, b"a = 1"),
    "empty/py.typed": (None, b""),
    "long.py": (
        b"".join(b"x = %d\n" % i for i in range(200)),
        b"".join(b"x = %d\n" % (i if i % 50 else -1) for i in range(200)),
    ),
}


def plan_at(root: Path) -> Plan:
    """A plan over all of FILES, whose tree is written to ``root``."""
    findings = []
    files = []
    for path, (before, after) in FILES.items():
        if before is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(before)
        files.append(FilePlan(path, before, after, "rewrite"))
        message = "--- a line\n+++ that looks like a header\r\n@@ -1 +1 @@"
        findings.append(Finding("CHP001", "some-rule", path, 2, 1, message, Safety.SAFE, FindingStatus.REWRITE))
    return Plan(root, tuple(files), tuple(findings), ())


def patch_of(plan: Plan) -> bytes:
    """The diff as it is written to a file."""
    return "".join(unified_diff(plan)).encode("utf-8", errors="surrogateescape")


@pytest.mark.parametrize("command", [["git", "apply", "-"], ["patch", "-p1", "--binary", "--force"]])
@pytest.mark.skipif(os.name == "nt", reason="some of the names cannot be used there")
def test_the_diff_is_accepted_and_gives_the_planned_bytes(tmp_path: Path, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    plan = plan_at(tmp_path)
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(command, cwd=tmp_path, input=patch_of(plan), capture_output=True, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    found = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {path: after for path, (_, after) in FILES.items()}


def test_each_file_is_headed_by_rule_line_and_reason(tmp_path: Path) -> None:
    lines = patch_of(plan_at(tmp_path)).decode("utf-8", errors="surrogateescape").split("\n")
    start = lines.index("--- a/plain.py")
    assert lines[start - 2].startswith("# plain.py:2: CHP001 some-rule: ")
    assert lines[start + 1] == "+++ b/plain.py"


def test_lines_are_counted_as_the_diff_shows_them() -> None:
    assert count_changes(FilePlan("a.py", b"a\n--- b\nc\n", b"a\n+++ b\nc\nd\n", "rewrite")) == (2, 1)
    assert count_changes(FilePlan("a.py", None, b"a\nb", "rewrite")) == (2, 0)
    assert count_changes(FilePlan("a.py", None, b"", "vendor")) == (0, 0)


def test_an_empty_plan_is_an_empty_diff(tmp_path: Path) -> None:
    assert list(unified_diff(Plan(tmp_path, (), (), ()))) == []


def common_length(old: list[str], new: list[str]) -> int:
    """Length of a longest common subsequence, from its definition."""
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, line in enumerate(old):
        for j, other in enumerate(new):
            longer = max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if line == other else longer
    return lengths[-1][-1]


LINES = st.lists(st.sampled_from(["a\n", "b\n", "    )\n", "\n"]), max_size=16)


@given(LINES, LINES)
def test_no_diff_has_fewer_lines(old: list[str], new: list[str]) -> None:
    changes = shortest_diff_opcodes(old, new)
    made: list[str] = []
    for tag, i1, i2, j1, j2 in changes:
        assert tag != "equal" or old[i1:i2] == new[j1:j2]
        made += old[i1:i2] if tag == "equal" else new[j1:j2]
    assert made == new
    assert sum(i2 - i1 for tag, i1, i2, *_ in changes if tag == "equal") == common_length(old, new)


def test_long_files_of_like_lines_are_told_apart_in_time() -> None:
    old = ["\n", "x\n"] * 4000
    changes = shortest_diff_opcodes(old, ["y\n", *old[100:], "z\n"])
    assert [tag for tag, *_ in changes if tag != "equal"]
