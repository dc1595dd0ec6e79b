"""Classes that only chain or call transforms are recognised by what they do, and nothing else is."""

from __future__ import annotations

import textwrap

import pytest

from chirp_migrate.engine.rewrite_file import rewrite
from chirp_migrate.plans.plan import Status
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project

RULES = [rule for rule in all_rules() if rule.name == "composed-transforms"]
AUGMENTS = {"noise.py": "import torch\ndef noise(x):\n    return x + torch.randn_like(x)\n"}


def migrate(source: str, others: dict[str, str] = AUGMENTS) -> str:
    texts = {"transforms.py": textwrap.dedent(source), **others}
    after, findings = rewrite("transforms.py", texts["transforms.py"], Project(texts), rules=RULES)
    compile(after, "transforms.py", "exec")
    assert all(finding.status is not Status.REWRITE for finding in findings) == (after == texts["transforms.py"])
    return after


def chain(init: str = "self.transforms = transforms", call: str = "", parameters: str = "self, transforms") -> str:
    call = call or "for t in self.transforms:\n    x = t(x)\nreturn x"
    body = f"def __init__({parameters}):\n{textwrap.indent(init, '    ')}\n\n"
    body += f"def __call__(self, x):\n{textwrap.indent(call, '    ')}\n"
    return f"class Chain:\n{textwrap.indent(body, '    ')}"


def test_a_chain_is_recognised() -> None:
    after = migrate(chain())
    assert "class Chain(WorkerSafeCompose):" in after and "__call__" not in after
    assert "super().__init__(transforms)" in after


def test_migrated_code_works_as_before() -> None:
    namespace: dict[str, object] = {}
    exec(
        compile(
            migrate(chain('if not transforms:\n    raise ValueError("none")\nself.transforms = transforms')),
            "m",
            "exec",
        ),
        namespace,
    )
    kind = namespace["Chain"]
    assert kind([abs, float])(-3) == 3.0  # type: ignore[operator]
    with pytest.raises(ValueError, match="none"):
        kind([])  # type: ignore[operator]


@pytest.mark.parametrize(
    "source",
    [
        chain(init="self.transforms = list(transforms)"),
        chain(init="self.transforms = transforms\nself.count = 0"),
        chain(init="self.transforms = transforms\nprint(transforms)"),
        chain(parameters="self, transforms, p=0.5"),
        chain(parameters="self, *transforms"),
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
        chain() + "\n    def __getattr__(self, name):\n        return self.transforms[0]\n",
        chain() + "\n    count = 0\n",
    ],
)
def test_what_does_anything_else_is_left_alone(source: str) -> None:
    assert migrate(source) == source


def test_a_backend_that_augments_nothing_of_its_own_is_left_alone() -> None:
    assert migrate(chain(), {}) == chain()


def test_an_attribute_that_other_files_read_is_kept() -> None:
    renamed = chain(init="self.steps = transforms", call="for t in self.steps:\n    x = t(x)\nreturn x")
    assert "steps" not in migrate(renamed)
    assert migrate(renamed, {**AUGMENTS, "other.py": "print(chain.steps)\n"}) == renamed
