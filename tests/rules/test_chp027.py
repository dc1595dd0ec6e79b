"""A cache of the device's memory that a loop empties is listed; nothing is rewritten."""

from __future__ import annotations

import textwrap

import pytest
from support import migrate, reports

LOOP = """\
import gc, time
import torch
from torch.cuda import empty_cache

def f(loader, model, sink):
    for batch in loader:
{body}
"""


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("torch.cuda.empty_cache()", ["`torch.cuda.empty_cache()` after each batch"]),
        ("empty_cache()", ["`empty_cache()` after each batch"]),
        ("if torch.cuda.is_available():\n    torch.cuda.empty_cache()", ["after each batch"]),
        ("gc.collect()\ntorch.cuda.empty_cache()", ["`torch.cuda.empty_cache()` and `gc.collect()` after each batch"]),
        ("for part in batch:\n    torch.cuda.empty_cache()", ["after each batch"]),
        ("torch.cuda.synchronize()", ["forces a GPU sync that this loop does not need"]),
        ("torch.cuda.synchronize()\ntorch.cuda.empty_cache()", ["forces a GPU sync", "`torch.cuda.empty_cache()`"]),
    ],
)
def test_a_cache_emptied_after_each_batch_is_listed(body: str, shown: list[str]) -> None:
    text = LOOP.format(body=textwrap.indent(body, " " * 8))
    after, findings = migrate("CHP027", text)
    assert after == text and len(findings) == len(shown)
    assert all(one in message for one, message in zip(shown, reports(findings), strict=True))


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    model(batch)\nexcept RuntimeError:\n    torch.cuda.empty_cache()",
        "if step % 100 == 0:\n    torch.cuda.empty_cache()",
        "gc.collect()",
        "torch.cuda.synchronize()\nsink.append(time.perf_counter())",
        "sink.empty_cache()",
        "def g():\n    torch.cuda.empty_cache()",
    ],
)
def test_a_cache_emptied_now_and_then_is_not(body: str) -> None:
    text = LOOP.format(body=textwrap.indent(body, " " * 8))
    assert migrate("CHP027", text) == (text, [])


@pytest.mark.parametrize(
    ("size", "spoken_of"),
    [("", False), ("batch_size=1", False), ("batch_size=8", True), ("batch_sampler=s", True), ("*sizes", True)],
)
def test_where_batches_hold_one_sample_the_cache_is_not_spoken_of(size: str, spoken_of: bool) -> None:
    text = f"import torch\nfrom torch.utils.data import DataLoader\nfor x in DataLoader(d, {size}):\n    model(x)\n"
    text += "    torch.cuda.empty_cache()\n"
    assert bool(migrate("CHP027", text)[1]) is spoken_of


def test_between_epochs_and_models_it_may_be_emptied() -> None:
    text = "import torch\ndef f(models, loader):\n    for model in models:\n        for x in loader:\n"
    text += "            model(x)\n        torch.cuda.empty_cache()\n"
    assert migrate("CHP027", text) == (text, [])
