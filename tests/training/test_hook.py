"""The user's own function: how it is named, what it must give, and what is said when it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chirp_migrate.training.errors import NoSuchObject, TaskNotPossible
from chirp_migrate.training.workload.calls import load_model
from chirp_migrate.training.workload.entry_points import WorkloadSizes
from chirp_migrate.training.workload.hook import (
    is_function_reference,
    make_training_call,
    names_of_training_calls,
    workload_file_candidates,
)

SIZES = WorkloadSizes(samples=6, epochs=2)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty backend that is the working directory, as in the child process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.parametrize(
    "text, right",
    [
        ("chirp_verify.py:workload", True),
        ("bench/my_file.py:run", True),
        ("package.module:function", True),
        ("module:function", True),
        ("module", False),
        ("module:two words", False),
        (":function", False),
        ("/etc/outside.py:function", False),
        ("../outside.py:function", False),
        ("not-a-module.py:function", False),
        ("a..b:function", False),
    ],
)
def test_how_a_function_is_named(text: str, right: bool) -> None:
    assert is_function_reference(text) is right


def test_where_a_function_may_be() -> None:
    assert workload_file_candidates("bench/work.py:f") == ("bench/work.py",)
    assert workload_file_candidates("pack.work:f") == (
        "pack/work.py", "pack/work/__init__.py", "src/pack/work.py", "src/pack/work/__init__.py"
    )  # fmt: skip


def test_calls_are_named_and_each_gets_objects_of_its_own(tree: Path) -> None:
    (tree / "bench").mkdir()
    (tree / "bench" / "own_calls.py").write_text(
        "def work(sizes):\n"
        "    seen = []\n"
        "    def train(name):\n"
        "        seen.append(name)\n"
        "        return seen, sizes.samples\n"
        "    return {'first': lambda: train('first'), 'second': lambda: train('second')}\n"
    )
    reference = "bench/own_calls.py:work"
    assert names_of_training_calls(reference, SIZES) == ["first", "second"]
    assert make_training_call(reference, "first", SIZES)() == (["first"], 6)
    assert make_training_call(reference, "second", SIZES)() == (["second"], 6), (
        "what the first training did is not seen"
    )
    with pytest.raises(TaskNotPossible, match=r"'third'.* first, second"):
        make_training_call(reference, "third", SIZES)


@pytest.mark.parametrize(
    "number, body, sentence",
    [
        (1, "work = 3", "wrong1.py:work is no function; it has none"),
        (2, "def work(sizes): return [print]", "returned list: it must return a dictionary"),
        (3, "def work(sizes): return {}", "without entries"),
        (4, "def work(sizes): return {'a': 3}", "returns int for 'a'"),
        (5, "def work(sizes): return {'a\\n': print}", "names a call 'a\\\\n'"),
        (6, "def work(sizes): return {'a' * 61: print}", "a name must be a text of 1 to 60 printable characters"),
    ],
)
def test_what_a_function_must_give(tree: Path, number: int, body: str, sentence: str) -> None:
    (tree / f"wrong{number}.py").write_text(body + "\n")
    with pytest.raises(TaskNotPossible, match=sentence):
        names_of_training_calls(f"wrong{number}.py:work", SIZES)


def test_a_model_that_is_not_there_is_said_with_those_that_are(tree: Path) -> None:
    (tree / "own_models.py").write_text("import torch\n\nclass Bird(torch.nn.Module): ...\n")
    for reference, there in [
        ("own_models:Brid", r"own_models has no class Brid; did you mean Bird\?"),
        ("own_models:torch", r"own_models:torch is no class; it has Bird\."),
        ("own_model:Bird", r"PATH has no module own_model; did you mean own_models\?"),
    ]:
        with pytest.raises(NoSuchObject, match=there):
            load_model(reference)


def test_a_file_that_is_not_there(tree: Path) -> None:
    with pytest.raises(TaskNotPossible, match=r"nowhere\.py"):
        names_of_training_calls("nowhere.py:work", SIZES)
