"""The same number of lines everywhere: in the diff, the plan, what `apply` says, the report and git's own count."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from report_tools import LOADERS
from support import copy_of, run, write_files

from chirp_migrate.report.page.changes import FileDetails, PageContents
from chirp_migrate.report.reading import read_report_contents

#: Added and removed lines by path.
Lines = dict[str, tuple[int, int]]

NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": text.splitlines(True)}
        for text in ("%matplotlib inline", LOADERS, "x = 1\n")
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
TREES = {
    "lf": {"train.py": LOADERS, "deep folder/its own.py": LOADERS},
    "crlf": {"train.py": LOADERS.replace("\n", "\r\n")},
    "cr": {"train.py": LOADERS.replace("\n", "\r")},
    "mixed newlines, none at the end": {"train.py": LOADERS.replace("\n", "\r\n", 3).rstrip()},
    "form feed and other line separators": {"train.py": f"{LOADERS}\n\f\n# \x85 \u2028 \x1c\nx = 1\n"},
    "notebook": {"train.ipynb": json.dumps(NOTEBOOK, indent=1) + "\n"},
    "notebook in one line": {"train.ipynb": json.dumps(NOTEBOOK)},
    "requirements": {"train.py": LOADERS, "requirements.txt": "torch\r\nnumpy"},
    "pyproject": {"train.py": LOADERS, "pyproject.toml": '[project]\nname = "a"\nversion = "1"\ndependencies = []\n'},
}


def git(root: Path, *arguments: str) -> str:
    """What git prints in ``root``."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=root, capture_output=True, check=True)
    return done.stdout.decode()


def in_diff(diff: str) -> Lines:
    """Lines of a unified diff."""
    found: dict[str, Counter[str]] = {}
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            counted = found.setdefault(line.partition(" b/")[2], Counter())
        elif line[:1] in ("+", "-") and line[:4] not in ("+++ ", "--- "):
            counted[line[0]] += 1
    return {path: (counts["+"], counts["-"]) for path, counts in found.items()}


def in_words(text: str) -> Lines:
    """Lines that the report of `plan` or `apply` speaks of."""
    found = re.findall(r"^(\S.*?)  (?:rewritten|added|dependency), \+(\d+) -(\d+)$", text, re.MULTILINE)
    return {path: (int(added), int(removed)) for path, added, removed in found}


def rows(file: FileDetails) -> tuple[int, int]:
    """Lines that the report shows as added and removed."""
    signs = [row.sign for hunk in file.hunks for section in hunk.sections for row in section.rows]
    return signs.count("+"), signs.count("-")


def all_counts_agree(root: Path) -> tuple[FileDetails, ...]:
    """Migrate the tree at ``root`` and compare what everybody says; the files as the report tells them."""
    git(root, "init", "--quiet")
    git(root, "add", "--all", "--force")
    git(root, "commit", "--quiet", "--message", "before")
    counts = in_diff(run("apply", "--tests", "--diff", root).stdout_bytes.decode())
    plan = run("plan", "--tests", "-v", root).output
    assert in_words(plan) == counts
    total = tuple(map(sum, zip(*counts.values(), strict=True)))
    assert "+{} -{} lines".format(*total) in plan
    assert in_words(run("apply", "--tests", "-v", root).output) == counts
    files = PageContents.of(read_report_contents(root)).files
    assert {file.path: (file.added, file.removed) for file in files} == counts
    git(root, "add", "--all", "--intent-to-add")
    for row in git(root, "diff", "--minimal", "--numstat", "-z", "HEAD").split("\0")[:-1]:
        added, removed, path = row.split("\t")
        surplus = int(added) - counts[path][0], int(removed) - counts[path][1]
        # Git's minimal diff is not always the smallest one.
        assert surplus[0] == surplus[1] >= 0, path
    return files


@pytest.mark.parametrize("name", TREES)
def test_everybody_counts_the_same_lines(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, TREES[name])
    for file in all_counts_agree(tmp_path):
        if name not in ("cr", "notebook in one line"):  # one line to git, many to a reader
            assert rows(file) == (file.added, file.removed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("backend", marks=pytest.mark.exhaustive), "grown_backend"])
def test_everybody_counts_the_same_lines_of_a_whole_backend(tmp_path: Path, name: str) -> None:
    root = copy_of(name, tmp_path / name)
    for file in all_counts_agree(root):
        if not (file.action == "create" and file.path.endswith(".ipynb")):  # of these the code alone is shown
            assert rows(file) == (file.added, file.removed)
