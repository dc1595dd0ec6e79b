"""Notebooks with stored outputs are read, and rewritten only if that is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import LOADER, run, write_files

OUTPUT = {"output_type": "stream", "name": "stdout", "text": ["0.93\n"]}


def notebook(*outputs: dict[str, Any], source: str = LOADER) -> str:
    """A notebook of one cell."""
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [*outputs], "source": [source]}
    return json.dumps(
        {"cells": [cell], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 4}
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a notebook that holds outputs, and one that holds none."""
    mentioned = notebook(source=f"{LOADER}text = '\"outputs\": [1]'\n")
    return write_files(tmp_path / "mine", {"seen.ipynb": notebook(OUTPUT), "cleared.ipynb": mentioned, "data.py": ""})


def rewritten(root: Path) -> set[str]:
    """The notebooks that build their loaders by the factory."""
    return {one.name for one in root.glob("*.ipynb") if "OptimalDataLoaderFactory" in one.read_text()}


def test_a_notebook_with_outputs_is_left_and_named(root: Path) -> None:
    done = run("apply", root)
    assert done.exit_code == 0 and rewritten(root) == {"cleared.ipynb"}
    assert "seen.ipynb: the stored outputs would no longer match" in done.stdout and "--notebooks" in done.stdout
    assert run("check", root).exit_code == 0
    assert "stored outputs" in run("apply", root).stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--notebooks"], {"seen.ipynb", "cleared.ipynb"}),
        (["--no-notebooks"], set()),
        ([], {"cleared.ipynb"}),
    ],
)
def test_options_and_settings_say_which_notebooks(root: Path, arguments: list[str], expected: set[str]) -> None:
    assert run("apply", *arguments, root).exit_code == 0 and rewritten(root) == expected
    run("rollback", root) if expected else None
    if arguments:
        value = "true" if arguments == ["--notebooks"] else "false"
        (root / "pyproject.toml").write_text(f"[tool.chirp-migrate]\nnotebooks = {value}\n")
        assert run("apply", root).exit_code == 0 and rewritten(root) == expected


def test_a_notebook_that_is_named_is_rewritten(root: Path) -> None:
    assert run("apply", root / "seen.ipynb").exit_code == 0 and rewritten(root) == {"seen.ipynb"}


def test_a_plan_keeps_what_was_asked_for(root: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run("plan", "--notebooks", root, "-o", plan).exit_code == 0
    assert run("apply", "--plan", plan, root).exit_code == 0
    assert rewritten(root) == {"seen.ipynb", "cleared.ipynb"}


def test_what_a_notebook_with_outputs_imports_stays_where_it_is(tmp_path: Path) -> None:
    source = "from train import DataLoader\nprint(DataLoader)\n"
    root = write_files(tmp_path, {"train.py": LOADER, "seen.ipynb": notebook(OUTPUT, source=source)})
    assert run("apply", root).exit_code == 0
    assert "import DataLoader" in (root / "train.py").read_text()


@pytest.mark.parametrize("in_output", [True, False])
def test_only_code_of_a_notebook_counts(tmp_path: Path, in_output: bool) -> None:
    code = "from train import DataLoader\n"
    cell = notebook({**OUTPUT, "text": [code]}, source="print(1)\n") if in_output else notebook(OUTPUT, source=code)
    root = write_files(tmp_path, {"train.py": LOADER, "seen.ipynb": cell})
    assert run("apply", root).exit_code == 0
    assert ("import DataLoader" in (root / "train.py").read_text()) is not in_output


def test_notebooks_with_the_same_reason_share_one_line(root: Path) -> None:
    write_files(
        root, {"more.ipynb": notebook(OUTPUT), "api.ipynb": notebook(OUTPUT, source="import torch.utils.data\n")}
    )
    shown = " ".join(run("plan", root).stdout.split())
    assert (
        "3 notebooks: the stored outputs would no longer match the code; --notebooks includes such notebooks; "
        "-v lists them" in shown
    )
    whole = run("plan", "-v", root).stdout
    assert all(f"{name}.ipynb: the stored outputs" in whole for name in ("seen", "more", "api"))


@pytest.mark.parametrize(
    ("source", "is_listed"),
    [
        ("loss.item()\nmodel.cuda()\ntorch.from_numpy(x)\n", False),
        ("from torch import utils\nprint(datasets.load())\n", False),
        ("for x in train_dataloader:\n    x.to(device)\n", True),
        ("val_data_loader = make()\nx.to(device)\n", True),
        ("from torch.utils import data\nx.to(device)\n", True),
        ("trainer.fit(DataLoader(d))\n", True),
    ],
)
def test_only_notebooks_that_mention_data_loading_are_listed(tmp_path: Path, source: str, is_listed: bool) -> None:
    root = write_files(tmp_path, {"data.py": "", "seen.ipynb": notebook(OUTPUT, source=source)})
    assert ("seen.ipynb" in run("plan", root).stdout) == is_listed
