"""Lambdas that standardise or stack are recognised by what they do, not by how they are written."""

from __future__ import annotations

import textwrap

import pytest

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project

RULES = [rule for rule in all_rules() if rule.code == "CHP007"]
HEADER = "import torch\nfrom torch import stack\nfrom torch.utils.data import DataLoader\n"


def migrate(body: str) -> str:
    texts = {"a.py": f"{HEADER}from transforms import Lambda\n{textwrap.dedent(body)}"}
    after, _ = rewrite_text("a.py", texts["a.py"], Project(texts), rules=RULES)
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
    assert f"Images(samples, transform={around.format(expected)})" in after
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
        "lambda x, *rest: (x - mean) / std",
        "lambda x: (samples - mean) / std",
        "lambda x: (x - mean) / x",
        "lambda x: (x - mean) / (std + samples)",
        "lambda x: x.sub(mean).div_(std)",
    ],
)
def test_what_does_something_else_stays_a_function(written: str) -> None:
    after = migrate(f"def make(samples, mean, std):\n    return Images(samples, transform=Lambda({written}))\n")
    assert "Standardize" not in after
    assert "lambda" not in after
    assert "transform=Lambda(" in after


@pytest.mark.parametrize(
    "body",
    [
        "def make(samples, mean, std):\n    images = Images(samples, transform={})\n    mean = 0\n    return images\n",
        "mean, std = 1, 2\nimages = Images([], transform={})\nmean = 0\n",
        "mean, std = 1, 2\ndef clear():\n    global mean\n    mean = 0\nimages = Images([], transform={})\n",
        "std = 2\nfor mean in (1, 2):\n    images = Images([], transform={})\n",
        "def make(samples):\n    return Images(samples, transform={})\nmean, std = 1, 2\n",
        "def make(samples, mean, std, Standardize):\n    return Images(samples, transform={})\n",
        "def make(samples, mean, std):\n    return Images(samples, transform={}).transform(x=3)\n",
    ],
    ids=["parameter", "module", "global", "loop", "below", "shadowed", "by name"],
)
def test_what_may_change_later_or_means_something_else_is_not_taken_early(body: str) -> None:
    assert "Standardize(" not in migrate(body.format("lambda x: (x - mean) / std"))


def test_a_value_that_another_file_may_set_is_not_taken_early() -> None:
    body = "mean, std = 1, 2\nimages = Images([], transform=lambda x: (x - mean) / std)\n"
    assert "Standardize(" in migrate(body)
    for other in ("import a\na.mean = 3\n", "import a as b\nb.mean = 3\n", "patch('a.mean', 3)\n"):
        texts = {"a.py": HEADER + body, "other.py": other}
        assert "Standardize(" not in rewrite_text("a.py", texts["a.py"], Project(texts), rules=RULES)[0]


@pytest.mark.parametrize("asked", ["hasattr(one.transform, 'std')", "getattr(one.transform, 'mean', None)"])
def test_what_has_attributes_is_not_put_where_they_are_asked_for(asked: str) -> None:
    body = "def make(samples, mean, std):\n    return Images(samples, transform=lambda x: (x - mean) / std)\n"
    texts = {"a.py": HEADER + body, "other.py": f"def inverse(one):\n    return {asked}\n"}
    assert "Standardize(" not in rewrite_text("a.py", texts["a.py"], Project(texts), rules=RULES)[0]
    assert "Standardize(" in migrate(body)


@pytest.mark.parametrize(
    ("written", "recognised"),
    [
        ("lambda batch: (torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch]))", True),
        ("lambda rows: (stack([r[0] for r in rows]), stack([one[1] for one in rows]))", True),
        ("lambda batch: [torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch])]", False),
        ("lambda batch: (torch.stack([b[1] for b in batch]), torch.stack([b[0] for b in batch]))", False),
        ("lambda batch: (torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch]), 0)", False),
        ("lambda batch: (torch.stack([b[0] for b in batch]), torch.stack(*[b[1] for b in batch]))", False),
        ("lambda batch: (torch.stack([b[0] for b in batch]), torch.stack((b[1] for b in batch)))", False),
        ("lambda batch: (torch.stack([b[0] for b, _ in batch]), torch.stack([b[1] for b in batch]))", False),
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
