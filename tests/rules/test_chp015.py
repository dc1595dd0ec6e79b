"""A transform that is made for every sample is named."""

from __future__ import annotations

import textwrap

import pytest
from support import migrate, reports

DATASET = """
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import v2
import torch, cfg

SIZE = 3
LIST = [1]

class Data(Dataset):
    def __init__(self, a, size):
        self.a = a
        self.size = size

    def __getitem__(self, i):
        x = self.a[i]
{body}
"""


def dataset(text: str) -> str:
    """A dataset with these lines in ``__getitem__``."""
    return DATASET.format(body=textwrap.indent(text, " " * 8))


@pytest.mark.parametrize(
    "text",
    [
        "return transforms.ToTensor()(x)",
        "return transforms.Resize(SIZE)(x)",
        "return transforms.Resize(self.size)(x)",
        "return v2.ToDtype(torch.float32, scale=True)(x)",
        "t = transforms.RandomCrop(-(-SIZE // 2))\nreturn t(x), t(x)",
        "if i:\n    x = transforms.Pad(3)(x)\nreturn x",
        "return transforms.Compose([transforms.Pad(3), transforms.ToTensor()])(x)",
    ],
)
def test_a_transform_made_for_every_sample_is_named(text: str) -> None:
    after, findings = migrate("CHP015", dataset(text))
    assert after == dataset(text)
    (message,) = reports(findings)
    assert "is created again for every sample; create it once in `__init__`" in message


@pytest.mark.parametrize(
    "text",
    [
        "return transforms.Resize(x.shape[0])(x)",
        "s = x.shape\nreturn transforms.Resize(s)(x)",
        "from torchvision.transforms import Pad\nreturn Pad(3)(x)",
        "return self.transform(x)",
        "return Resize(3)(x)",
        "return lambda: transforms.Pad(3)",
        "raise ValueError(i)",
    ],
)
def test_what_belongs_to_the_sample_is_not_spoken_of(text: str) -> None:
    assert migrate("CHP015", dataset(text)) == (dataset(text), [])


@pytest.mark.parametrize("base", ["torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module"])
def test_a_module_of_the_project_is_named_by_any_name_of_its_base(base: str) -> None:
    blur = f"\nclass Blur({base}):\n    def forward(self, x):\n        return x\n"
    _, findings = migrate("CHP015", dataset("return Blur()(x)") + blur)
    assert "`Blur` is created again" in reports(findings)[0]
