"""Make a notebook from a Python script in the percent format: cells begin with `# %%` or `# %% [markdown]`."""

from __future__ import annotations

import json
from typing import Any

_CODE = "# %%"
_MARKDOWN = "# %% [markdown]"


def notebook_json(script: str) -> str:
    """Return the JSON text of a notebook in format 4.5 for a script. Equal scripts result in equal texts.

    In the script, the text of a markdown cell is a block of comments. The function does not execute the cells, so the
    cells have no outputs and no execution counts.

    Raises:
        ValueError: the script does not begin with a cell marker, or a markdown cell contains a line of code.
    """
    cells = [_cell(number, *cell) for number, cell in enumerate(_split(script), start=1)]
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _split(script: str) -> list[tuple[str, list[str]]]:
    """Return, for each cell, its marker (`# %%` or `# %% [markdown]`) and its lines."""
    cells: list[tuple[str, list[str]]] = []
    for line in script.splitlines():
        if line in (_CODE, _MARKDOWN):
            cells.append((line, []))
        elif not cells:
            raise ValueError(f"the script must begin with {_CODE!r} or {_MARKDOWN!r}")
        else:
            cells[-1][1].append(line)
    return cells


def _cell(number: int, marker: str, lines: list[str]) -> dict[str, Any]:
    if marker == _MARKDOWN:
        lines = [_strip_comment(line) for line in lines]
    text = "\n".join(lines).strip("\n")
    cell = {"id": f"cell-{number:02d}", "metadata": {}, "source": text.splitlines(keepends=True)}
    if marker == _MARKDOWN:
        return {"cell_type": "markdown", **cell}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **cell}


def _strip_comment(line: str) -> str:
    if line and not line.startswith("#"):
        raise ValueError(f"each line of a markdown cell must begin with `#`, but this line does not: {line!r}")
    return line.removeprefix("#").removeprefix(" ")
