"""What callers of a backend may rely on, before and after."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from chirp_migrate.verify.equivalence.api import Signature, api_break_sentences, public_names, read_public_signatures
from chirp_migrate.verify.equivalence.compare import compare_api

OLD: dict[str, dict[str, Signature | str]] = {
    "utils.m": {"f": [["a", "POSITIONAL_OR_KEYWORD", ""], ["b", "POSITIONAL_OR_KEYWORD", "1"]]}
}


def test_names_come_from_source_and_signatures_from_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = tmp_path / "utils"
    utils.mkdir()
    (utils / "things.py").write_text(
        '"""Text."""\nimport json\nclass C:\n    def __init__(self, a, b=2): pass\n    def go(self, *, x=None): pass\n'
        "def f(q: int = 3) -> int: return q\ndef _private(): pass\n"
    )
    (utils / "script.py").write_text("raise SystemExit('a script must not be imported')\n")
    (utils / "broken.py").write_text("def (:\n")
    names = public_names(tmp_path)
    assert names == {"utils.things": ["C", "C.go", "f"]}

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "utils", raising=False)
    described = read_public_signatures(names)
    for name in ("utils", "utils.things"):
        monkeypatch.delitem(sys.modules, name)
    assert described["utils.things"]["C"] == [
        ["a", "POSITIONAL_OR_KEYWORD", ""],
        ["b", "POSITIONAL_OR_KEYWORD", "2"],
    ]
    assert described["utils.things"]["f"] == [["q", "POSITIONAL_OR_KEYWORD", "3"]]


def test_the_init_of_utils_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = tmp_path / "utils"
    utils.mkdir()
    (utils / "__init__.py").write_text("import sys\nsys.runs_of_utils += 1\ndef f(a): pass\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "runs_of_utils", 0, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "utils", raising=False)
    importlib.import_module("utils")
    described = read_public_signatures(public_names(tmp_path))
    monkeypatch.delitem(sys.modules, "utils")
    assert described == {"utils": {"f": [["a", "POSITIONAL_OR_KEYWORD", ""]]}}
    assert sys.runs_of_utils == 1  # type: ignore[attr-defined]


def test_without_utils_only_what_the_training_imported_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "birds"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("def fit(model, epochs=3): pass\nprint('loose calls are the training\\'s own')\n")
    (package / "plots.py").write_text("raise SystemExit('not for verify to import')\n")
    (tmp_path / "main.py").write_text("def main(): pass\n")
    names = public_names(tmp_path)
    assert names == {"birds": [], "birds.plots": [], "birds.train": ["fit"], "main": ["main"]}

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path / "src")
    importlib.import_module("birds.train")
    before = read_public_signatures(names)
    (package / "plots.py").unlink()
    importlib.invalidate_caches()
    after = read_public_signatures(names)
    for name in ("birds", "birds.train"):
        monkeypatch.delitem(sys.modules, name)
    assert before["birds.train"]["fit"] == [
        ["model", "POSITIONAL_OR_KEYWORD", ""],
        ["epochs", "POSITIONAL_OR_KEYWORD", "3"],
    ]
    assert api_break_sentences(before, before) == []
    (message,) = api_break_sentences(before, after)
    assert message.startswith("birds.plots ")


@pytest.mark.parametrize(
    "signature, accepted",
    [
        ([["a", "POSITIONAL_OR_KEYWORD", ""], ["b", "POSITIONAL_OR_KEYWORD", "1"]], True),
        ([*OLD["utils.m"]["f"], ["c", "KEYWORD_ONLY", "None"]], True),
        ([*OLD["utils.m"]["f"], ["c", "POSITIONAL_OR_KEYWORD", "None"]], True),
        ([*OLD["utils.m"]["f"], ["c", "POSITIONAL_OR_KEYWORD", ""]], False),
        ([["c", "POSITIONAL_OR_KEYWORD", "0"], *OLD["utils.m"]["f"]], False),
        ([["b", "POSITIONAL_OR_KEYWORD", "1"], ["a", "POSITIONAL_OR_KEYWORD", ""]], False),
        ([["a", "POSITIONAL_OR_KEYWORD", ""], ["b", "POSITIONAL_OR_KEYWORD", "2"]], False),
        ([["a", "POSITIONAL_OR_KEYWORD", ""]], False),
        ("module", False),
    ],
)
def test_old_calls_must_keep_working(signature: Signature | str, accepted: bool) -> None:
    problems = api_break_sentences(OLD, {"utils.m": {"f": signature, "new": []}})
    assert (problems == []) is accepted


def test_missing_names_and_modules_are_said() -> None:
    assert api_break_sentences(OLD, {"utils.m": {}}) == ["utils.m.f no longer exists"]
    for after, why in (({}, ""), ({"utils.m": {"": "ImportError: no"}}, "ImportError: no")):
        (message,) = api_break_sentences(OLD, after)
        assert message.startswith("utils.m ") and message.endswith(why)
    assert api_break_sentences({"utils.m": {"": "it never did"}}, {}) == []


def test_a_module_may_rename_its_input_but_not_ask_for_more() -> None:
    def forward(*names: str) -> dict[str, dict[str, Signature | str]]:
        return {"utils.m": {"Layer.forward": [[name, "POSITIONAL_OR_KEYWORD", ""] for name in names]}}

    assert api_break_sentences(forward("self", "spec"), forward("self", "sample")) == []
    assert api_break_sentences(forward("self", "spec"), forward("self", "sample", "key")) != []
    assert api_break_sentences(forward("self", "spec"), forward("self")) != []


def test_a_name_that_callers_miss_is_a_difference() -> None:
    assert compare_api(OLD, OLD).found == []
    (found,) = compare_api(OLD, {"utils.m": {}}).found
    assert (found.name, found.entry_point, found.message) == ("api-changed", "", "utils.m.f no longer exists")
