"""Files that are large, or nested deeply: planned in a time that grows with them, or named and left alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import LOADER

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import rewrite
from chirp_migrate.syntax.project import Project

HEADER = "from torch.utils.data import DataLoader, Dataset\nimport torch\n\n"
GETITEM = "class D(Dataset):\n    def __getitem__(self, i):\n        x, y = self.data[i]\n"

TOO_DEEP = {
    "a sum": "x = " + " + ".join(f"a{number}" for number in range(1500)),
    "a sum of a sample": GETITEM + "        return " + " + ".join(["x"] * 1500) + ", y",
    "text": "x = (" + " + ".join(f"'a{number}'" for number in range(1500)) + ")",
    "items": f"x = a{'[0]' * 2000}",
    "calls": f"x = a{'.b()' * 1500}",
    "powers": "x = " + "**".join(["a"] * 1500),
    "branches": "if a:\n    pass\n" + "".join(f"elif a{number}:\n    pass\n" for number in range(1500)),
    "lambdas": "loader = DataLoader(data, num_workers=2, collate_fn="
    + "".join(f"lambda a{n}: " for n in range(60))
    + "a0)",
}


@pytest.mark.parametrize("name", TOO_DEEP)
def test_a_file_nested_too_deeply_is_named_and_the_others_are_planned(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep.py").write_text(f"{LOADER}{TOO_DEEP[name]}\n")
    (tmp_path / "other.py").write_text(LOADER)
    plan = plan_tree(tmp_path, jobs=1)
    assert [one.path for one in plan.files] == ["other.py"]
    (skipped,) = plan.skipped
    assert skipped.path == "deep.py" and "nested too deeply" in skipped.reason


@pytest.mark.parametrize(
    "text",
    [
        "x = " + " and ".join(f"a{number}" for number in range(1500)),
        "x = " + " + ".join(f"a{number}" for number in range(200)),
        f"x = f'{'{a}' * 1000}'",
        "x = (" + " ".join(["'a'"] * 1000) + ")",
        "f(" + ", ".join(f"a{number}=1" for number in range(1000)) + ")",
    ],
    ids=["and", "sum", "f-string", "strings", "arguments"],
)
def test_what_is_long_is_planned(text: str) -> None:
    text = f"{LOADER}{text}\n"
    assert "create_loader" in rewrite("a.py", text, Project({"a.py": text}))[0]


#: A loop over what has a name, to a device of that name.
LOOP = """\
def train({name}, device, model, {name}_device):
    for batch in {name}:
        batch = batch.to({name}_device)
        model(batch)
    return DataLoader({name}, batch_size=2), [batch for batch in {name}]
"""
#: A loader whose function captures a name.
CAPTURES = "def captures(data, k):\n    return DataLoader(data, collate_fn=lambda b: [x * k for x in b])\n"
#: Code that is as large as a number says.
GROWING: dict[str, Callable[[int], str]] = {
    "pairs": lambda size: "P = [" + ",\n".join(f"({n}, 'a{n}')" for n in range(size)) + "]\n",
    "statements": lambda size: "".join(f"x{n} = {n}\n" for n in range(size)),
    "functions": lambda size: "".join(f"def g{n}(a):\n    return a\n" for n in range(size)),
    "comments about rules": lambda size: "# chirp: ignore[CHP013]\n" * size,
    "an unclosed bracket": lambda size: f"S = '''class A({'x ' * 10 * size}'''\n",
    "an unclosed call": lambda size: f"S = '''type({'x, ' * 10 * size}'''\n",
    "many unclosed calls": lambda size: f"S = '''{'setattr(x, ' * size}'''\n",
    "blanks": lambda size: f"S = '''class{' ' * 20 * size}'''\n",
    "many unclosed classes": lambda size: f"S = '''{'class A(' * size}'''\n",
    "many classes of objects": lambda size: f"{CAPTURES}S = 'partial {'__class__ is ' * size}'\n",
    "loaders of lambdas": lambda size: "".join(
        f"def h{n}(d):\n    return DataLoader(d, num_workers=2, collate_fn=lambda b: [b, {n}])\n"
        for n in range(size // 30)
    ),
    "a name of underscores": lambda size: LOOP.format(name="_" * 20 * size + "x"),
    "a name of words": lambda size: LOOP.format(name="loader_" * 10 * size + "x1y"),
    "a name of one word": lambda size: LOOP.format(name="loader" * 10 * size + "s9x"),
    "a dataset of words": lambda size: LOOP.format(name="_dataset_set" * 5 * size + "x"),
    "blanks behind an import": lambda size: (
        f"from functools import (\n    partial,  # kept\n    lru_cache{' ' * 20 * size})\n{CAPTURES}"
    ),
}


#: The others grow in the same places of the code.
ONE_OF_EACH = {
    "pairs",
    "statements",
    "an unclosed bracket",
    "an unclosed call",
    "loaders of lambdas",
    "a name of words",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [one if one in ONE_OF_EACH else pytest.param(one, marks=pytest.mark.exhaustive) for one in GROWING]
)
def test_time_grows_with_the_file(name: str) -> None:
    def seconds(size: int) -> float:
        text = HEADER + GROWING[name](size) + LOADER + GETITEM + "        return x, y\n"
        began = time.process_time()
        rewrite("a.py", text, Project({"a.py": text, "b.py": "import a\n"}))
        return time.process_time() - began

    seconds(10)  # imports
    # Sixteen times as much would take 256 times as long if it were quadratic.
    assert seconds(4800) < 60 * max(seconds(300), 0.05)
