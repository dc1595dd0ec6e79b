"""Loops that move every batch to the device are named; nothing is rewritten."""

from __future__ import annotations

import textwrap

import pytest
from support import migrate, reports

STORED = "loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset({}), 8)"

MADE = "loader = OptimalDataLoaderFactory.create_training_loader(data, batch_size=8)"


def looped(text: str, header: str = "for x, y in loader:", made: str = MADE) -> str:
    """A function that makes a loader and loops over it."""
    loop = f"{made}\n{header}\n{textwrap.indent(text, '    ')}\n"
    return (
        "import torch\nfrom tqdm import tqdm\nfrom chirpid_patch import OptimalDataLoaderFactory\n\n"
        f"def f(data, model, device, sink):\n{textwrap.indent(loop, '    ')}"
    )


def loops_advised(text: str) -> list[str]:
    """The moves that CHP024 names; it rewrites nothing."""
    after, findings = migrate("CHP024", text)
    assert after == text
    return [one.partition(" cop")[0] for one in reports(findings)]


@pytest.mark.parametrize(
    ("text", "header", "moves"),
    [
        ("x, y = x.to(device), y.to(device)\nmodel(x, y)", "for x, y in loader:", "`x.to(device)` and `y.to(device)`"),
        ("model(x.cuda())", "for n, (x, y) in enumerate(tqdm(loader)):", "`x.cuda()`"),
        ("batch = [t.to(device) for t in batch]", "for batch in loader:", "`t.to(device)`"),
    ],
)
def test_moves_of_every_batch_are_named(text: str, header: str, moves: str) -> None:
    assert loops_advised(looped(text, header)) == [moves]


@pytest.mark.parametrize(
    "tensor",
    ["x", "data", "data.to(torch.float16)", "data.to('cpu')", "data.to(device).cpu()", "torch.from_numpy(data.cuda())"],
)
def test_moves_of_samples_from_the_cpu_are_named(tensor: str) -> None:
    text = looped("x = x.to(device)\nmodel(x)", made=STORED.format(tensor))
    assert loops_advised(text) == ["`x.to(device)`"]


def test_how_the_loader_was_made_need_not_be_seen() -> None:
    text = "def fit(model, train_loader, device):\n    for x, y in train_loader:\n        model(x.to(device), y)\n"
    assert loops_advised(text) == ["`x.to(device)`"]


@pytest.mark.parametrize(
    "text",
    [
        looped("model(x, y)"),
        looped("x = x.to(torch.float16)"),
        looped("a = x.to(device)\nb = y.to('cuda:1')"),
        looped("model(x.to(device))", made=MADE.replace(")", ", device=device)")),
        looped("model(x.to(device))", "for x, y in sink:"),
        looped("model(x.to(device))", made=STORED.format("data.to(device)")),
        looped("model(x.to(device))", made=f"data = data.cuda()\nrows = data[:9]\n{STORED.format('rows')}"),
        looped("model(x.to(device))", made=STORED.format("torch.zeros(9, device=device)")),
    ],
)
def test_loops_that_need_no_device_argument_are_not_named(text: str) -> None:
    assert loops_advised(text) == []
