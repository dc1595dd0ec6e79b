"""Rewritten code is laid out as the project's own formatter would, and stays clean for its linters."""

from __future__ import annotations

import subprocess
from pathlib import Path

import black
import pytest
from click.testing import CliRunner
from flake8.main.cli import main as flake8
from ruff import find_ruff_bin
from support import working_in

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.syntax.project import Project

IMPORTS = "import torch\nfrom torch.utils.data import DataLoader\n\n\n"
USE = "    return loader, torch\n"
WIDE_ENOUGH = "[tool.black]\nline-length = 120\n"
RUFF = find_ruff_bin()
FACTORY = "OptimalDataLoaderFactory.create_training_loader"


def migrated(folder: Path, text: str, settings: str = "", name: str = "pyproject.toml") -> str:
    """The module after its migration, in a project with these settings."""
    (folder / name).write_text(settings, encoding="utf-8")
    (folder / "train.py").write_text(text, encoding="utf-8")
    (file,) = (one for one in plan_tree(folder).files if one.path == "train.py")
    (folder / "train.py").write_bytes(file.after)
    return file.after.decode()


def is_clean(folder: Path, tool: str, *options: str) -> bool:
    """Whether a tool has nothing to say of the module."""
    arguments = [*options, "train.py"]
    with working_in(folder):
        if tool == "black":
            return CliRunner().invoke(black.main, arguments).exit_code == 0
        if tool == "flake8":
            return flake8(arguments) == 0
        return subprocess.run([tool, *arguments], check=False, capture_output=True).returncode == 0


SETTINGS = {
    "black": ("pyproject.toml", "[tool.black]\n"),
    "black, wide": ("pyproject.toml", WIDE_ENOUGH),
    "ruff": ("ruff.toml", 'line-length = 100\n[lint]\nselect = ["E", "F", "I", "COM812"]\n'),
    "flake8": ("setup.cfg", "[flake8]\nmax-line-length = 79\n"),
    "none": ("setup.cfg", ""),
}
CALLS = {
    "grows over the line": "    loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, drop_last=True)\n",
    "fits on one line again": (
        "    loader = DataLoader(\n        train_set, batch_size=64, shuffle=True, drop_last=True, pin_memory=True\n"
        "    )\n"
    ),
    "has a line for each argument": (
        "    loader = DataLoader(\n        train_set,\n        batch_size=64,  # of one GPU\n        shuffle=True,\n"
        "        num_workers=0,\n    )\n"
    ),
    "is an argument": ("    loader = torch.jit.annotate(object, DataLoader(train_set, shuffle=True, num_workers=4))\n"),
    "is in a header": (
        "    for loader in DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4):\n        pass\n"
    ),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_a_projects_tools_left_alone_they_leave_alone_again(
    call: str, settings: tuple[str, str], tmp_path: Path
) -> None:
    name, content = settings
    tools = {
        "ruff.toml": [(RUFF, "check", "--no-cache"), (RUFF, "format", "--no-cache", "--check")],
        "pyproject.toml": [("black", "--check")],
        "setup.cfg": [("flake8",)] if content else [("black", "--check")],
    }[name]
    text = f"{IMPORTS}def make(train_set, batch_size):\n{call}{USE}"
    (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    clean = [tool for tool in tools if is_clean(tmp_path, *tool)]
    after = migrated(tmp_path, text, content, name)
    assert FACTORY in after
    assert [tool for tool in clean if not is_clean(tmp_path, *tool)] == [], after


def test_a_call_that_fits_stays_on_its_line(tmp_path: Path) -> None:
    call = "    loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4)\n"
    text = f"{IMPORTS}def make(train_set):\n{call}{USE}"
    assert f"    loader = {FACTORY}(train_set, batch_size=64, shuffle=True, num_workers=4)\n" in migrated(
        tmp_path, text, WIDE_ENOUGH
    )
    assert (
        f"    loader = {FACTORY}(\n        train_set, batch_size=64, shuffle=True, num_workers=4\n    )\n"
        in migrated(tmp_path, text, "[tool.black]\nline-length = 80\n")
    )


UNWRAPPED = (
    f'    """Say {"more and " * 12}more."""',
    f"    # {'a comment ' * 12}",
    f"    size = 4  # {'a comment ' * 12}",
    f'    name = f"{"{size} " * 20}"',
    f'    torch.manual_seed(\n        "{"words " * 20}",\n    )',
)


@pytest.mark.parametrize("line", UNWRAPPED)
def test_long_text_that_black_does_not_wrap_permits_no_long_code(tmp_path: Path, line: str) -> None:
    call = "    loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4)\n"
    text = f"{IMPORTS}def make(train_set):\n{line}\n{call}{USE}"
    wrapped = f"    loader = {FACTORY}(\n        train_set, batch_size=64, shuffle=True, num_workers=4\n    )\n"
    assert wrapped in migrated(tmp_path, text)
    long_code = f"    print({', '.join(['train_set'] * 10)})\n"
    after = migrated(tmp_path, text.replace(call, long_code + call))
    assert f"    loader = {FACTORY}(train_set, batch_size=64, shuffle=True, num_workers=4)\n" in after


ALIGNED = """\
def make(train_set, size):
    train_loader = DataLoader(train_set, shuffle=True,
                              drop_last=True)
    train_batches = DataLoader(train_set,
                               collate_fn=torch.jit.script(torch.add,
                                                           (size, size)),
                               shuffle=True,   # every epoch
                               # of the last batch
                               drop_last=True, # not here
    )
    text_loader = DataLoader(train_set, batch_size=len('''
                                        '''),
                             shuffle=True, drop_last=True)
    return torch, train_loader, train_batches, text_loader
"""
BELOW = """\
    train_loader = {0}(
        train_set, shuffle=True,
        drop_last=True)
    train_batches = {0}(
        train_set,
        collate_fn=torch.jit.script(torch.add,
                                    (size, size)),
        shuffle=True,   # every epoch
        # of the last batch
        drop_last=True, # not here
    )
    text_loader = {0}(
        train_set, batch_size=len('''
                                        '''),
        shuffle=True, drop_last=True)
"""


def test_the_lines_of_an_aligned_call_move_below_its_name_together(tmp_path: Path) -> None:
    """Lines stay where they would change the value of a string."""
    assert BELOW.format(FACTORY) in migrated(tmp_path, IMPORTS + ALIGNED)


def test_a_statement_in_another_layout_keeps_it(tmp_path: Path) -> None:
    text = f"{IMPORTS}def make(train_set):\n    loader = DataLoader( train_set,\n      shuffle = True )\n{USE}"
    assert f"{FACTORY}( train_set,\n      shuffle = True )" in migrated(tmp_path, text, WIDE_ENOUGH)


def test_an_import_that_loses_a_name_is_written_as_a_shorter_one(tmp_path: Path) -> None:
    names = "DataLoader, RandomSampler, SequentialSampler, TensorDataset, WeightedRandomSampler"
    listed = "".join(f"    {name},\n" for name in names.split(", "))
    text = (
        f"import torch\nfrom torch.utils.data import (\n{listed})\n\n\ndef make(x):\n"
        "    loader = DataLoader(TensorDataset(x), 4, sampler=RandomSampler(x))\n"
        "    return loader, torch, SequentialSampler, WeightedRandomSampler\n"
    )
    settings = "[tool.isort]\nmulti_line_output = 3\ninclude_trailing_comma = true\nline_length = 100\n"
    after = migrated(tmp_path, text, settings)
    assert f"from torch.utils.data import {names.removeprefix('DataLoader, ')}\n" in after


def test_a_guarded_import_is_in_order_among_its_neighbours(tmp_path: Path) -> None:
    text = (
        "try:\n    import numpy\n    from torch.utils.data import DataLoader\n    from yaml import load\n"
        "except ImportError:\n    DataLoader = numpy = load = None\n\n\n"
        "def make(data):\n    return DataLoader(data), numpy, load\n"
    )
    lines = migrated(tmp_path, text, "[tool.isort]\nprofile = 'black'\n").splitlines()
    assert lines[1:3] == ["    import numpy", "    from chirpid_patch import OptimalDataLoaderFactory"]


DEFINITION = "\n\ndef load():\n    return torch.arange(9)\n\n"
SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{}
SIZE = 4
data = torch.arange(9)
train = DataLoader(data, batch_size=SIZE, num_workers=2, collate_fn=lambda rows: rows[:SIZE])
print(train, DataLoader(data, batch_size=SIZE, num_workers=2, collate_fn=lambda rows: rows[SIZE:]))
"""


@pytest.mark.parametrize("definition", ["", DEFINITION])
def test_the_functions_of_a_script_stand_behind_its_definitions_and_imports(tmp_path: Path, definition: str) -> None:
    after = migrated(tmp_path, SCRIPT.format(definition), "[tool.black]\n")
    assert after.count("\n\n\ndef _") == 2
    assert after.rindex("def _") < after.index("\n\n\nSIZE = 4\ndata = torch.arange(9)\ntrain = ")
    assert not definition or after.index("def load") < after.index("def _")
    assert is_clean(tmp_path, "black", "--check") and is_clean(tmp_path, "flake8", "--max-line-length=88")


def test_a_line_that_gets_too_long_is_broken_once_where_that_is_enough() -> None:
    lines = [
        "\tif args:",
        "\t\tloader = DataLoader(args.train_set, batch_size=args.batch_size, num_workers=args.workers)",
    ]
    text = "\n".join([f"{IMPORTS}def make(args):", *lines, "\treturn loader", ""])
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}))
    arguments = "args.train_set, batch_size=args.batch_size, num_workers=args.workers"
    assert f"OptimalDataLoaderFactory.create_loader(\n\t\t\t{arguments}\n\t\t)\n" in after


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            "images.to(device), targets.to(device)",
            "        images = images.to(device, non_blocking=True)\n"
            "        targets = targets.to(device, non_blocking=True)\n",
        ),
        (
            "images.to(device), targets.to(device)  # to the GPU",
            "        images = images.to(device, non_blocking=True)\n"
            "        targets = targets.to(device, non_blocking=True)  # to the GPU\n",
        ),
        # A comment for a tool may be about any part of its line.
        ("images.to(device), targets.to(device)  # type: ignore", None),
        # One that reads what the other has changed stays beside it.
        ("targets.to(device), images.to(device)", None),
    ],
)
def test_a_tuple_that_is_moved_becomes_two_assignments(values: str, expected: str | None) -> None:
    text = (
        "from torch.utils.data import DataLoader\n\n\ndef train(model, train_set, device):\n"
        "    for images, targets in DataLoader(train_set, batch_size=32, pin_memory=True):\n"
        f"        images, targets = {values}\n"
        "        model(images, targets)\n"
    )
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}))
    assert after.count("non_blocking=True") == 2
    assert ("        images, targets = " in after) is (expected is None)
    assert (expected or "") in after
