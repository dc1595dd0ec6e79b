"""Lambdas that standardise or stack are recognised by what they do, not by how they are written."""

from __future__ import annotations

import textwrap

import pytest

from chirp_migrate.engine import rewrite
from chirp_migrate.project import Project
from chirp_migrate.rules import all_rules

RULES = [rule for rule in all_rules() if rule.code == "CHP007"]
HEADER = "import torch\nfrom torch import stack\nfrom torch.utils.data import DataLoader\n"
APPLIER = """
class Lambda:
    \"\"\"Apply a function.\"\"\"
    def __init__(self, lambd):
        if not callable(lambd):
            raise TypeError("no function")
        self.lambd = lambd

    def __call__(self, img):
        return self.lambd(img)
"""


def migrate(body: str, shim: str = APPLIER) -> str:
    texts = {"a.py": f"{HEADER}from transforms import Lambda\n{textwrap.dedent(body)}", "transforms.py": shim}
    after, _ = rewrite("a.py", texts["a.py"], Project(texts), rules=RULES)
    compile(after, "a.py", "exec")
    return after


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("lambda x: (x - mean) / (std + 1e-8)", "Standardize(mean, std, eps=1e-8)"),
        ("lambda image: (image-mean)/(1e-6+std)", "Standardize(mean, std, eps=1e-6)"),
        ("lambda x: (x - mean) / std", "Standardize(mean, std, eps=None)"),
        ("lambda x: x.sub(mean).div(std)", "Standardize(mean, std, eps=None)"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "Lambda({})"])
def test_standardising_is_recognised(written: str, expected: str, around: str) -> None:
    after = migrate(f"def make(samples, mean, std):\n    return Images(samples, transform={around.format(written)})\n")
    assert f"Images(samples, transform={expected})" in after
    assert "from chirpid_patch import Standardize" in after


@pytest.mark.parametrize(
    "written",
    [
        "lambda x: (x - mean) / (std * 2)",
        "lambda x: (x + mean) / std",
        "lambda x: (mean - x) / std",
        "lambda x: (x - x) / std",
        "lambda x: (x - mean) / (std + x)",
        "lambda x: (x - 0.5) / std",
        "lambda x: (x - mean[0]) / std",
        "lambda x, mean=0: (x - mean) / std",
        "lambda *x: (x - mean) / std",
    ],
)
def test_what_does_something_else_stays_a_function(written: str) -> None:
    after = migrate(f"def make(samples, mean, std):\n    return Images(samples, transform=Lambda({written}))\n")
    assert "Standardize" not in after
    assert "lambda" not in after
    assert "transform=Lambda(" in after


@pytest.mark.parametrize(
    "shim",
    [
        APPLIER.replace("return self.lambd(img)", "return self.lambd(img).clone()"),
        APPLIER.replace("self.lambd = lambd", "self.lambd = lambd\n        self.calls = 0"),
        APPLIER.replace("class Lambda:", "class Base: pass\nclass Lambda(Base):"),
        APPLIER + "\n    def __eq__(self, other):\n        return self.lambd is other\n",
        APPLIER.replace("self.lambd(img)", "self.other(img)"),
        "def Lambda(function):\n    return function\n",
    ],
    ids=["clones", "counts", "inherits", "compares", "another", "function"],
)
def test_what_is_around_it_stays_unless_it_only_applies(shim: str) -> None:
    body = "def make(samples, mean, std):\n    return Images(samples, transform=Lambda(lambda x: (x - mean) / std))\n"
    assert "transform=Lambda(Standardize(mean, std, eps=None))" in migrate(body, shim)


def test_a_mean_that_changes_later_is_left_alone() -> None:
    body = """
    def make(samples, mean, std):
        images = Images(samples, transform=lambda x: (x - mean) / std)
        mean = 0
        return images, mean
    """
    assert "Standardize" not in migrate(body)


@pytest.mark.parametrize(
    ("written", "recognised"),
    [
        ("lambda batch: (torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch]))", True),
        ("lambda rows: (stack([r[0] for r in rows]), stack([one[1] for one in rows]))", True),
        ("lambda batch: [torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch])]", False),
        ("lambda batch: (torch.stack([b[1] for b in batch]), torch.stack([b[0] for b in batch]))", False),
        ("lambda batch: (torch.cat([b[0] for b in batch]), torch.stack([b[1] for b in batch]))", False),
        ("lambda batch: (torch.stack([b[0] for b in batch], 1), torch.stack([b[1] for b in batch]))", False),
        ("lambda batch: (torch.stack([b[0] for b in batch if b]), torch.stack([b[1] for b in batch]))", False),
        ("lambda batch: (torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in other]))", False),
    ],
)
def test_stacking_pairs_is_recognised(written: str, recognised: bool) -> None:
    after = migrate(f"def make(samples, other):\n    return DataLoader(samples, collate_fn={written})\n")
    assert ("collate_fn=collate_pairs" in after) is recognised
    assert "lambda" not in after
