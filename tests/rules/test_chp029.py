"""Stacked samples: every spelling of the same stack, and nothing that stacks something else."""

from __future__ import annotations

import pytest
from support import migrate, reports


def expression(text: str, header: str = "import torch\ndef f(dataset, idx, n):") -> tuple[str, list[str]]:
    """An expression in a function after the rule, and the messages of what was only reported."""
    after, findings = migrate("CHP029", f"{header}\n    return {text}\n")
    return after.partition("return ")[2].strip(), reports(findings)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.stack([dataset[i][0] for i in idx])", "stack_samples(dataset, idx)"),
        ("torch.stack([dataset[i][0] for i in idx[:n]], 0).mean()", "stack_samples(dataset, idx[:n]).mean()"),
        ("torch.stack([dataset[idx[j]][0] for j in range(n)])", "stack_samples(dataset, (idx[j] for j in range(n)))"),
        ("torch.stack([x for x, _ in dataset])", "stack_samples(dataset)"),
        ("torch.stack([image for (image, label) in dataset], dim=0)", "stack_samples(dataset)"),
    ],
)
def test_stacks_are_gathered_however_they_are_written(before: str, after: str) -> None:
    assert expression(before) == (after, [])


@pytest.mark.parametrize(
    "text",
    [
        "torch.stack([dataset[i][-1] for i in idx])",
        "torch.stack([dataset[0][0] for i in idx])",
        "torch.stack([dataset[i][0][0] for i in idx])",
        "torch.stack([idx[i][0] for i in n])",
        "torch.stack([y for _, y in dataset])",
        "torch.stack([x for x in dataset])",
        "torch.stack(tensors=[dataset[i][0] for i in idx])",
        "torch.hstack([dataset[i][0] for i in idx])",
        "stack([dataset[i][0] for i in idx])",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert expression(text) == (text, [])


def test_names_that_mean_something_else_stay() -> None:
    text = "torch.stack([dataset[i][0] for i in idx])"
    assert expression(text, "import numpy as torch\ndef f(dataset, idx):") == (text, [])
    after, (message,) = expression(text, "import torch\ndef f(dataset, idx, stack_samples):")
    assert after == text and "`stack_samples` already means something else in the surrounding code" in message


def test_a_walrus_in_the_indices_is_reported() -> None:
    text = "torch.stack([dataset[(m := i)][0] for i in idx])"
    after, messages = expression(text)
    assert after == text and "contains `await`, `yield` or `:=`" in messages[0]
