"""The quick search for loops over loaders accepts every loop that the exact analysis finds."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from chirp_migrate.analysis.loaders.loader_loops import loader_loops
from chirp_migrate.analysis.loaders.loader_outline import PossibleLoaders
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project

HEADER = """\
from typing import Optional
from torch.utils.data import DataLoader
from torch.utils.data import DataLoader as Batches
from tqdm import tqdm
from itertools import islice
from other import build, Pipe, given as taken
import other
import other as o


class Own(DataLoader):
    pass


"""
OTHER = """\
from torch.utils.data import DataLoader

def build(data):
    made = DataLoader(data)
    return made, [made], len(data)

class Pipe(DataLoader):
    pass

def given(data):
    if data:
        return build(data)[0]
    return taken_back(data)

def taken_back(data):
    return given(data)
"""
NAMES = ["a", "b", "loader", "dl", "dls", "val_loaders", "self.a", "self.dl", "self.first.b", "o.a"]
CLASSES = ["DataLoader", "Batches", "Own", "Pipe", "other.Pipe", "Dataset", "int"]
CALLED = [*CLASSES, "build", "taken", "other.build", "o.given", "make", "self.make", "get_loader", "len", "range", "a"]
ANNOTATIONS = [*CLASSES, "'DataLoader'", "Optional[Own]", "list[Pipe]", "Batches | None", "DataLoader[int]"]

names = st.sampled_from(NAMES)
leaves = names | st.sampled_from(["3", "'x'", "None", "lambda: 0", "[i for i in data]"])


def _calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    passing = st.sampled_from(["enumerate", "zip", "tqdm", "iter", "islice", "list", "sorted", "reversed"])
    return st.one_of(
        st.builds("{}({})".format, st.sampled_from(CALLED), inner),
        st.builds("{}({})".format, passing, inner),
        st.builds("zip({}, {})".format, inner, inner),
        st.builds("{} if data else {}".format, inner, inner),
        st.builds("({}, {})".format, inner, inner),
        st.builds("[{}]".format, inner),
        st.builds("{{'k': {}}}".format, inner),
        st.builds("{}[0]".format, inner.map("({})".format)),
        st.builds("({}).b".format, inner),
        st.builds("[{} for i in data]".format, inner),
    )


expressions = st.recursive(leaves, _calls, max_leaves=4)
targets = st.sampled_from(["x", "i, x", "(i, (x, y))", "x, y"])
statements = st.one_of(
    st.builds("{} = {}".format, names, expressions),
    st.builds("{}, {} = {}".format, names, names, expressions),
    st.builds("{}: {} = {}".format, names, st.sampled_from(ANNOTATIONS), expressions),
    st.builds("{}: {}".format, names, st.sampled_from(ANNOTATIONS)),
    st.builds("with {} as {}:\n            pass".format, expressions, names),
    st.builds("if (a := {}):\n            pass".format, expressions),
    st.builds("for {} in {}:\n            pass".format, targets, expressions),
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    def body() -> list[str]:
        return draw(st.lists(statements, min_size=1, max_size=4))

    kind = draw(st.sampled_from(ANNOTATIONS))
    method = "\n        ".join([*body(), f"for {draw(targets)} in {draw(expressions)}:\n            pass"])
    made = "\n        ".join([*body(), f"return {draw(expressions)}"])
    top = "\n    ".join([*body(), f"return {draw(expressions)}"]).replace("\n            ", "\n        ")
    return (
        f"{HEADER}def make(data, b: {kind} = None):\n    {top}\n\n\n"
        f"class Trainer:\n    def make(self, data):\n        {made}\n\n"
        f"    def fit(self, data, a: {kind}):\n        {method}\n"
    )


@given(programs())
def test_every_loop_over_a_loader_is_found(text: str) -> None:
    ast.parse(text)
    project = Project({"main.py": text, "other.py": OTHER})
    module = project.module("main.py")
    exact = {module.position(module.span(loop)[0])[0] for loop, _ in loader_loops(module, project)}
    quick = {loop.lineno for loop in Outline("main.py", text).once(PossibleLoaders, project).loops}
    assert exact <= quick


def test_loops_over_other_values_are_not_found() -> None:
    """The search is useful only if it excludes the loops of most modules."""
    text = (
        "def show(handlers, config, dataset):\n"
        "    for handler in handlers:\n        pass\n"
        "    for key, value in config.items():\n        pass\n"
        "    for i in range(len(config)):\n        pass\n"
        "    for sample in dataset:\n        pass\n"
    )
    project = Project({"show.py": text})
    assert not Outline("show.py", text).once(PossibleLoaders, project).loops
