"""Rules on what makes the GPU wait: what they rewrite, that results stay the same, and what they only report."""

from __future__ import annotations

import textwrap

import pytest
from support import migrate, reports

# CHP024: device-resident loading

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


# CHP025: numbers read in every step

SUMS = """\
import time, torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

def f(data, model, optimizer, sink):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    criterion = nn.CrossEntropyLoss()
    total, hits, seen = 0.0, 0, 0
    for x, y in DataLoader(data, batch_size=3):
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
{body}
    return total, hits, seen
"""


def sums(body: str) -> str:
    """A training loop that ends with these lines."""
    return SUMS.format(body=textwrap.indent(textwrap.dedent(body), " " * 8))


@pytest.mark.parametrize(
    "body",
    [
        "if step % 100 == 0:\n    print(loss.item())",
        "if batch_idx == 0:\n    print(loss.item())",
        "if sink.verbose:\n    print(loss.item())",
        "try:\n    pass\nexcept ValueError:\n    print(loss.item())",
        "seen += int(x.size(0)) + float(len(y))",
        "host = out.cpu()\nseen += host.sum().item()",
        "seen += sink.mean().item()",
        "def g():\n    return loss.item()",
        "return loss.item()",
    ],
)
def test_what_does_not_wait_in_every_step_is_not_spoken_of(body: str) -> None:
    assert migrate("CHP025", sums(body)) == (sums(body), [])


def test_on_the_cpu_nothing_waits() -> None:
    text = sums("total += loss.item()").replace("x, y = x.to(device), y.to(device)", "pass")
    assert migrate("CHP025", text) == (text, [])


@pytest.mark.parametrize(
    "body",
    [
        "total += loss.item() * x.size(0)",
        "hits += int((out.argmax(1) == y).sum())",
        "sink.total += loss.item()",
        "for i, part in enumerate(out):\n    seen += part.item()",
        "if (last := loss):\n    seen += last.item()",
        "last: object = loss\nseen += last.item()",
        "sink.append(loss.item())",
        "last = loss.item()",
        "if loss.item() > 3:\n    break",
        "sink.update(loss.item(), len(y))",
        "sink.set_postfix(loss=float(loss))",
        "print(f'{loss.item():.3f}')",
        "parts = []\nfor _ in sink:\n    parts.append(loss)\nsink.update(sum(parts).item())",
    ],
)
def test_numbers_that_every_step_reads_are_listed_with_what_to_do(body: str) -> None:
    after, findings = migrate("CHP025", sums(body))
    (message,) = reports(findings)
    assert after == sums(body) and "waits for the GPU in `" in message and "`.item()` after the loop" in message


def test_a_loop_has_one_finding_for_all_its_numbers() -> None:
    _, findings = migrate("CHP025", sums("total += loss.item()\nsink.append(float(loss))\nprint(loss.item())"))
    (message,) = reports(findings)
    assert "in `loss.item()` and `float(loss)`; " in message


# CHP026: copies of every batch


@pytest.mark.parametrize(
    "body",
    [
        "sink.append(out.cpu())",
        "sink.append(out.argmax(1).detach().cpu().numpy())",
        "sink.extend(out.argmax(1).tolist())",
        "sink += out.argmax(1).tolist()",
        "sink += [out.cpu()]",
        "sink += list(y.cpu().numpy())",
        "sink = torch.cat([sink, out.cpu()])",
        "p = out.cpu().numpy()\nsink.append(p)",
        "sink.append((out.cpu(), 3))",
        "for a, b in zip(y.cpu().numpy(), out.argmax(1).cpu().numpy()):\n    sink[a, b] += 1",
    ],
)
def test_copies_that_are_only_collected_are_listed(body: str) -> None:
    after, findings = migrate("CHP026", sums(body))
    (message,) = reports(findings)
    assert after == sums(body) and "every step waits for the GPU in" in message and "after the loop" in message


@pytest.mark.parametrize(
    "body",
    [
        "p = out.cpu().numpy()\nsink.append(p.mean())\nsink(p)",
        "sink(out.cpu())",
        "np.save(sink, out.cpu().numpy())",
        "sink.append(out)",
        "sink.append(data.cpu())",
        "sink(torch.cat([sink, out.cpu()]))",
        "if step % 10 == 0:\n    sink.append(out.cpu())",
        "sink.append(x.shape)",
    ],
)
def test_copies_that_a_step_needs_are_not_spoken_of(body: str) -> None:
    assert migrate("CHP026", sums(body)) == (sums(body), [])


# CHP027: emptied caches

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
