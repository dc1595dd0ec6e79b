"""``check --add-ignore``: what is left today is left alone by comments, and what is new counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import run

LOADER = """\
from torch.utils.data import DataLoader


def build(data):
    if data:
        return DataLoader(  # all of them
            data,
            batch_size=4, num_workers=2, collate_fn=lambda batch: "\\
".join(batch),
        )
    else: return [DataLoader(data), DataLoader(data, shuffle=True)]
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": [line]}
        for line in ("%matplotlib inline\nfrom torch.utils.data import DataLoader", "1 + 1\nx = DataLoader(data)\n")
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 4,
}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_each_statement_gets_one_comment_and_nothing_counts_any_more(tmp_path: Path, newline: str) -> None:
    before = LOADER.replace("\n", newline).encode()
    (tmp_path / "a.py").write_bytes(before)
    assert run("check", "--add-ignore", tmp_path).exit_code == 0
    lines = (tmp_path / "a.py").read_bytes().decode().split(newline)
    added = [(number, line) for number, line in enumerate(lines) if "chirp:" in line]
    assert added == [(5, " " * 8 + "# chirp: ignore[CHP001, CHP007]"), (11, " " * 4 + "# chirp: ignore[CHP001]")]
    assert newline.join(line for line in lines if "chirp:" not in line).encode() == before
    (tmp_path / "a.py").write_bytes(newline.join([*lines, "new = DataLoader([1, 2], 2)", ""]).encode())
    assert run("check", tmp_path).exit_code == 1


def test_rollback_takes_the_comments_back(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LOADER)
    run("check", "--add-ignore", tmp_path)
    assert run("report", tmp_path).exit_code == 0
    assert run("rollback", tmp_path).exit_code == 0
    assert (tmp_path / "a.py").read_text() == LOADER


def test_in_a_notebook_the_comment_is_in_the_cell(tmp_path: Path) -> None:
    book = tmp_path / "n.ipynb"
    book.write_text(json.dumps(NOTEBOOK))
    assert run("check", "--add-ignore", tmp_path).exit_code == 0
    cells = ["".join(cell["source"]) for cell in json.loads(book.read_text())["cells"]]
    assert cells[1] == "1 + 1\n# chirp: ignore[CHP001]\nx = DataLoader(data)\n"


def test_with_strict_what_is_only_listed_is_left_alone_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from torch.utils.data import DataLoader\n\nkept = [DataLoader]\n")
    assert run("check", "--strict", tmp_path).exit_code == 1
    assert run("check", "--strict", "--add-ignore", tmp_path).exit_code == 0


def test_a_clean_tree_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert run("check", "--add-ignore", tmp_path).exit_code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.py"]
