"""Files that are large, or nested deeply: planned in a time that grows with them, or named and left alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest
from support import LOADER

from chirp_migrate.analysis.objects.pickled import UnpicklableObjects
from chirp_migrate.analysis.objects.variable_store import VariableStore
from chirp_migrate.engine import worker_pool
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.syntax.name_resolution import resolve_name
from chirp_migrate.syntax.project import Project

HEADER = "from torch.utils.data import DataLoader, Dataset\nimport torch\n\n"
GETITEM = "class D(Dataset):\n    def __getitem__(self, i):\n        x, y = self.data[i]\n"

TOO_DEEP = {
    "a sum": "x = " + " + ".join(f"a{number}" for number in range(1500)),
    "a sum of 20,000 terms": "x = " + " + ".join(f"a{number}" for number in range(20_000)),
    "2,000 brackets": f"x = {'(' * 2000}1{')' * 2000}",
    "2,000 lists": f"x = {'[' * 2000}1{']' * 2000}",
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
    assert "create_loader" in rewrite_text("a.py", text, Project({"a.py": text}))[0]


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
        rewrite_text("a.py", text, Project({"a.py": text, "b.py": "import a\n"}))
        return time.process_time() - began

    seconds(10)  # imports
    # Sixteen times as much would take 256 times as long if it were quadratic.
    assert seconds(4800) < 60 * max(seconds(300), 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["from b import (x, ", "# from b import (\n", "# b #\n", "from b import x ", "b = "])
def test_time_grows_with_a_file_that_may_import(unit: str) -> None:
    def seconds(size: int) -> float:
        began = time.process_time()
        rewrite_text("b.py", LOADER, Project({"a.py": f"S = '''\n{unit * size}'''\n", "b.py": LOADER}))
        return time.process_time() - began

    seconds(10)  # imports
    assert seconds(8000) < 60 * max(seconds(500), 0.05)


def chain_of_helpers(size: int) -> dict[str, str]:
    """Each helper calls the previous one twice; the first one builds a loader."""
    first = "def h0(data):\n    return DataLoader(data, num_workers=2, collate_fn=lambda b: b)\n"
    more = (f"def h{n}(data):\n    return h{n - 1}(data) or h{n - 1}(data)\n" for n in range(1, size))
    return {"a.py": HEADER + first + "".join(more) + f"h{size - 1}([1])\n"}


def chain_of_classes(size: int) -> dict[str, str]:
    """Each class inherits from the previous one, and from a mixin of all."""
    more = (f"class C{n}(C{n - 1}, Mixin):\n    pass\n" for n in range(1, size))
    built = f"DataLoader(C{size - 1}(lambda x: x), num_workers=2)\n"
    base = "class Mixin:\n    pass\nclass C0(Dataset):\n    def __init__(self, f):\n        self.f = f\n"
    return {"a.py": HEADER + base + "".join(more) + built}


def chain_of_modules(size: int) -> dict[str, str]:
    """Each module exports the loader of the previous one."""
    first = f"{HEADER}def build(data):\n    return DataLoader(data, num_workers=2, collate_fn=lambda b: b)\n"
    more = {
        f"m{n}.py": f"from m{n - 1} import *\nfrom m{n - 1} import build\nloader = build([{n}])\n"
        for n in range(1, size)
    }
    return {"m0.py": first, **more}


def library_with_tests(size: int) -> dict[str, str]:
    """Each test runs all methods of a class, with a loader."""
    methods = (f"    def m{n}(self):\n        self.x{n} = self.of(self.loader)\n" for n in range(size))
    run = "    def run(self):\n" + "".join(f"        self.m{n}()\n" for n in range(size))
    made = "class Engine:\n    def __init__(self, loader, of):\n        self.loader, self.of = loader, of\n"
    tests = (
        f"def test_{n}():\n    engine = Engine(DataLoader([{n}], num_workers=2), lambda x: x)\n    engine.run()\n"
        for n in range(size)
    )
    return {"engine.py": made + "".join(methods) + run, "a.py": f"{HEADER}from engine import Engine\n" + "".join(tests)}


def callers_of_a_function(size: int) -> dict[str, str]:
    """Each script passes a lambda to the function that builds the loaders."""
    built = "def build(data, f):\n    return DataLoader(data, num_workers=2, collate_fn=f)\n"
    scripts = {
        f"s{n}.py": f"from a import build\ndef main():\n    return build([{n}], lambda b: b)\nmain()\n"
        for n in range(size)
    }
    return {"a.py": HEADER + built, **scripts}


@pytest.mark.parametrize(
    "project", [chain_of_helpers, chain_of_classes, chain_of_modules, library_with_tests, callers_of_a_function]
)
def test_steps_grow_with_the_project(project: Callable[[int], dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    steps, take = 0, VariableStore._step

    def take_counted(state: VariableStore) -> None:
        nonlocal steps
        steps += 1
        take(state)

    def steps_for(size: int) -> int:
        nonlocal steps
        steps = 0
        UnpicklableObjects(Project(project(size)))
        return steps

    monkeypatch.setattr(VariableStore, "_step", take_counted)
    assert steps_for(200) < 6 * steps_for(50), "linear is 4, quadratic is 16"


#: Modules that import from each other: by name, so that each lookup leads to a longer name, and by ``import *``.
CYCLES = {
    "names": {
        "a.py": "from pkg import x as pkg\nimport pkg.a as b\n",
        "b.py": "\n",
        "pkg/__init__.py": "import a as b\nimport a as pkg\nimport b as x\n",
        "pkg/a.py": "import pkg.sub.a as a\n",
        "pkg/sub/__init__.py": "import a as a\nimport pkg.a as x\nfrom .b import *\n",
        "pkg/sub/a.py": "from .sub import a\nfrom pkg.sub.a import pkg\n",
    },
    "stars": {f"m{n}.py": "".join(f"from m{other} import *\n" for other in range(16)) for n in range(16)},
}


@pytest.mark.parametrize("name", CYCLES)
def test_names_in_cycles_of_imports_are_looked_up_in_few_steps(name: str) -> None:
    text = "from pkg.sub.a.a import a\nfrom m0 import *\nlambda: a.a(DataLoader(b))\n"
    project = Project({**CYCLES[name], "main.py": text})
    for one in ("pkg.sub.a.a.a.a", "pkg.sub.a.a.a.pkg", "m0.a", "m1.m2.m3.b"):
        resolve_name(project, one)
    assert rewrite_text("main.py", text, project)[0] == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "project", [chain_of_helpers, chain_of_classes, chain_of_modules, library_with_tests, callers_of_a_function]
)
def test_calls_grow_with_the_project(project: Callable[[int], dict[str, str]]) -> None:
    def calls_for(size: int) -> int:
        texts, calls = project(size), 0

        def note(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        held = Project(texts)
        sys.setprofile(note)
        try:
            for path, text in texts.items():
                rewrite_text(path, text, held, skip_without_gain=True)
                held.update(path, text)
        finally:
            sys.setprofile(None)
        return calls

    calls_for(10)  # imports, and caches that all projects share
    assert calls_for(160) < 6 * calls_for(40), "linear is 4, quadratic is 16"


def test_a_file_that_takes_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "time", SimpleNamespace(monotonic=partial(next, count(step=7.0))))
    (tmp_path / "a file.py").write_text(LOADER)
    said: list[object] = []
    plan_tree(tmp_path, jobs=1, progress=said.append)
    assert [one for one in said if isinstance(one, str)] == [
        "planning a file.py took 7 s. To skip the file: --exclude 'a file.py'"
    ]
