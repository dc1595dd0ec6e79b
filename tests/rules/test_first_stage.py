"""Words and ``ast`` decide which files LibCST reads: what a rule would find there always passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chirp_migrate.engine.rewrite_file import concerned_rules, rewrite
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.project import Project

FIXTURES = Path(__file__).parents[2] / "fixtures"
BACKENDS = ["grown_backend", "custom_loader_backend"]


@pytest.mark.parametrize("folder", [*(f"rules/{rule.code}" for rule in all_rules()), *BACKENDS])
def test_what_any_rule_finds_passes(folder: str) -> None:
    files = (FIXTURES / folder).glob("*.py") if folder.startswith("rules") else (FIXTURES / folder).rglob("*.py")
    texts = {one.relative_to(FIXTURES / folder).as_posix(): one.read_text(encoding="utf-8") for one in files}
    project = Project(texts)
    for path, text in texts.items():
        module = Module(path, text)
        finding = [rule for rule in all_rules() if any(True for _ in rule.check(module, project))]
        passing = concerned_rules(all_rules(), path, text, project)
        assert [rule.code for rule in finding if rule not in passing] == [], path


@pytest.mark.parametrize(
    "pattern",
    ["rules/*/before.py", "*backend/**/*.py", pytest.param("rules/**/*.py", marks=pytest.mark.slow)],
)
def test_rules_that_are_not_asked_again_have_nothing_to_say(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {file.as_posix(): file.read_text(encoding="utf-8") for file in sorted(FIXTURES.glob(pattern))}

    def rewritten() -> list[object]:
        return [rewrite(path, text, Project({path: text}), unsafe=True) for path, text in texts.items()]

    asked_some = rewritten()
    for rule in all_rules():
        monkeypatch.setattr(type(rule), "in_place", False)
    assert asked_some == rewritten()


def test_a_file_that_no_rule_can_say_anything_about_does_not_pass() -> None:
    text = """\
from torch.utils.data import DataLoader, Dataset

def set_up(loader: DataLoader, ds: Dataset, transform=None) -> None:
    names = sorted(ds.names, key=lambda name: name.lower())
    for number in range(3):
        print(names[number].to("cuda"), float(number))
"""
    assert concerned_rules(all_rules(), "a.py", text, Project({"a.py": text})) == ()


def test_loops_that_wait_for_their_batches_pass() -> None:
    text = (FIXTURES / "rules/CHP013/requires/known-loader.asynchronous.py").read_text(encoding="utf-8")
    assert "CHP024" in {one.rule for one in rewrite("a.py", text, Project({"a.py": text}))[1]}


@pytest.mark.parametrize(
    "use",
    [
        "return DataLoader(dataset, collate_fn=collate)",
        "chosen = collate\n    return DataLoader(dataset, collate_fn=chosen)",
        "def batched(samples):\n        return collate(samples)\n\n    return DataLoader(dataset, collate_fn=batched)",
    ],
)
def test_a_default_that_goes_to_a_loader_passes(use: str) -> None:
    imports = "from torch.utils.data import DataLoader\n\n\n"
    text = f"{imports}def make(dataset, collate=lambda samples: samples):\n    {use}\n"
    assert "CHP007" in {one.rule for one in rewrite("a.py", text, Project({"a.py": text}))[1]}


def test_a_function_given_by_position_to_a_parameter_for_transforms_passes() -> None:
    text = """\
import torch


class Images:
    def __init__(self, files, transform):
        self.files, self.transform = files, transform


def make(files):
    def grey(image):
        return image.mean(0)

    return Images(files, grey)
"""
    assert "CHP012" in {one.rule for one in rewrite("a.py", text, Project({"a.py": text}))[1]}
