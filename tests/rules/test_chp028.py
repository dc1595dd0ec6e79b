"""Classes that only chain or call transforms are recognised by what calling them does, and nothing else is."""

from __future__ import annotations

import textwrap

import pytest

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project

RULES = [rule for rule in all_rules() if rule.name == "composed-transforms"]
AUGMENTS = {"noise.py": "import torch\ndef noise(x):\n    return x + torch.randn_like(x)\n"}


def migrate(source: str, others: dict[str, str] = AUGMENTS) -> str:
    texts = {"transforms.py": textwrap.dedent(source), **others}
    after, findings = rewrite_text("transforms.py", texts["transforms.py"], Project(texts), rules=RULES)
    compile(after, "transforms.py", "exec")
    assert all(finding.status is not FindingStatus.REWRITE for finding in findings) == (after == texts["transforms.py"])
    return after


def chain(call: str = "", init: str = "self.transforms = transforms") -> str:
    call = call or "for t in self.transforms:\n    x = t(x)\nreturn x"
    body = f"def __init__(self, transforms):\n{textwrap.indent(init, '    ')}\n\n"
    body += f"def __call__(self, x):\n{textwrap.indent(call, '    ')}\n"
    return f"class Chain:\n{textwrap.indent(body, '    ')}"


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        (chain(), '@composes_transforms("transforms")'),
        (chain(call="return self.transforms(x)"), '@applies_transform("transforms")'),
        (chain(init="self.transforms = list(transforms)\nself.count = 0"), '@composes_transforms("transforms")'),
        (chain(call="for t in self.steps:\n    x = t(x)\nreturn x"), '@composes_transforms("steps")'),
    ],
)
def test_a_class_stays_as_it_is_and_declares_what_it_calls(source: str, declared: str) -> None:
    after = migrate(source)
    assert after.endswith(f"{declared}\n{source}")


@pytest.mark.parametrize(
    "source",
    [
        chain(call="for t in self.transforms:\n    x = t(x) + 1\nreturn x"),
        chain(call="for t in reversed(self.transforms):\n    x = t(x)\nreturn x"),
        chain(call="for t in self.transforms:\n    if t is not None:\n        x = t(x)\nreturn x"),
        chain(call="for t in self.transforms:\n    x = t(x)\nelse:\n    x = -x\nreturn x"),
        chain(call="for t in self.transforms:\n    y = t(x)\nreturn y"),
        chain(call="return self.transforms(x, 1)"),
        chain(call="return self.transforms(*x)"),
        chain().replace("class Chain:", "class Chain(list):"),
        chain().replace("class Chain:", "class Chain(metaclass=type):"),
        "@register\n" + chain(),
        chain() + "\n    count = 0\n",
        chain(call="return self.compute(x)") + "\n    def compute(self, x):\n        return x\n",
    ],
)
def test_what_does_anything_else_is_left_alone(source: str) -> None:
    assert migrate(source) == source


def test_a_backend_that_augments_nothing_of_its_own_is_left_alone() -> None:
    assert migrate(chain(), {}) == chain()
