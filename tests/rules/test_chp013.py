"""Copies of a batch to the device: which need not wait, and which stay as they are."""

from __future__ import annotations

import textwrap

import pytest
from rule_programs import body
from support import migrate, reports


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = x.to(device)", "x = x.to(device, non_blocking=True)"),
        ("x = x.to(device,)", "x = x.to(device, non_blocking=True,)"),
        ("x = x.to(device=device)", "x = x.to(device=device, non_blocking=True)"),
        ("x = x.to(device, torch.float)", "x = x.to(device, torch.float, non_blocking=True)"),
        ("x = x.to(device, dtype=torch.half)", "x = x.to(device, dtype=torch.half, non_blocking=True)"),
        (
            "x = x.to(\n    device=device  # why\n)",
            "x = x.to(\n    non_blocking=True,\n    device=device  # why\n)",
        ),
        ("x = x.to('cuda:0')", "x = x.to('cuda:0', non_blocking=True)"),
        ("x = x.to(f'cuda:{sink}')", "x = x.to(f'cuda:{sink}', non_blocking=True)"),
        ("x = x.to(torch.device('cuda'))", "x = x.to(torch.device('cuda'), non_blocking=True)"),
        ("x = x.to(next(model.parameters()).device)", "x = x.to(next(model.parameters()).device, non_blocking=True)"),
        ("x, y = x.cuda(), y.cuda(0)", "x, y = x.cuda(non_blocking=True), y.cuda(0, non_blocking=True)"),
        ("loss = model(x.to(device), len(y))", "loss = model(x.to(device, non_blocking=True), len(y))"),
        ("model(x.to(device)); print(x.shape)", "model(x.to(device, non_blocking=True)); print(x.shape)"),
        ("z = x.cuda()\nsink(y)", "z = x.cuda(non_blocking=True)\nsink(y)"),
        ("if sink:\n    x = x.to(device)\nmodel(x)", "if sink:\n    x = x.to(device, non_blocking=True)\nmodel(x)"),
        ("y = [t.to(device) for t in y]", "y = [t.to(device, non_blocking=True) for t in y]"),
        (
            "for v in y.values():\n    sink(v.to(device))",
            "for v in y.values():\n    sink(v.to(device, non_blocking=True))",
        ),
        (
            "y = [{k: v.to(device) for k, v in t.items()} for t in y]",
            "y = [{k: v.to(device, non_blocking=True) for k, v in t.items()} for t in y]",
        ),
        (
            "y = {k: v.to(device) if len(k) else k for k, v in y.items()}",
            "y = {k: v.to(device, non_blocking=True) if len(k) else k for k, v in y.items()}",
        ),
        (
            "for k, v in y.items():\n    y[k] = v.to(device)\nmodel(**y)",
            "for k, v in y.items():\n    y[k] = v.to(device, non_blocking=True)\nmodel(**y)",
        ),
        (
            "y['a'] = y['a'].to(device)\nmodel(**y)",
            "y['a'] = y['a'].to(device, non_blocking=True)\nmodel(**y)",
        ),
    ],
)
def test_a_copy_of_the_batch_need_not_wait(before: str, after: str) -> None:
    found, findings = migrate("CHP013", body(before))
    assert (found, reports(findings)) == (body(after), [])


@pytest.mark.parametrize(
    "text",
    [
        "x = x.to('cpu')",
        "x = x.cpu()",
        "x = x.to('mps')",
        "x = x.to(torch.float32)",
        "x = x.to(y)",
        "x = x.to(torch.device('cpu'))",
        "x = x.to(device, non_blocking=False)",
        "x = x.to(device, torch.float, True)",
        "x = x.cuda(0, True)",
        "x = x.to(*sink)",
        "x = x.to(device, **sink)",
        "out = model(x).to(device)",
        "with sink as x:\n    x = x.to(device)",
        "x = model(x)\nx = x.to(device)",
        "out = x.float().to(device)",
        "w = data.to(device)",
        "x += 1\nx = x.to(device)",
        "def g(x):\n    return x.to(device)",
        "cpu_device = torch.device('cpu')\nx = x.to(cpu_device)",
        "target = 'cpu'\nx = x.to(target)",
        "host = torch.device('cpu')\nx = x.to(host)",
        "device = torch.device('cpu')\nx = x.to(device)",
    ],
)
def test_what_is_no_copy_of_the_batch_to_a_device_stays(text: str) -> None:
    assert migrate("CHP013", body(text)) == (body(text), [])


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("out = model(x.to(device))\nx.add_(1)", "x"),
        ("out = model(x.to(device))\nx += 1", "x"),
        ("out = model(x.to(device))\nx[0] = 1", "x[0]"),
        ("out = model(x.to(device))\nsink(x)", "x"),
        ("out = model(x.to(device))\nsink.append(x)", "x"),
        ("z = x\nout = model(x.to(device))\nz.zero_()", "z"),
        ("for _ in range(2):\n    x.add_(1)\n    model(x.to(device))", "x"),
        ("z = x.cuda()\nnoise = x.numpy()", "x"),
        ("z = [t.cuda() for t in y]\nsink(y[0])", "y[0]"),
    ],
)
def test_memory_that_is_used_again_is_copied_as_before(text: str, used: str) -> None:
    after, findings = migrate("CHP013", body(text))
    (message,) = reports(findings)
    assert after == body(text) and f"`{used}` is used again" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("from transformers import AutoModel", "BatchEncoding"),
        ("DEVICE = 'mps' if torch.backends.mps.is_available() else 'cpu'", "MPS"),
        ("class Boxes:\n    def to(self, device):\n        return self", "whose `to` takes no `non_blocking`"),
        (
            "def __getattr__(self, name):\n    if name == 'to':\n        return self.move",
            "the function `__getattr__` may return a method `to`",
        ),
        (
            "class Bag:\n    def __getattr__(self, name):\n        return self.moved(name)",
            "whose `__getattr__` may return a method `to`",
        ),
        ("class Bag:\n    __getattribute__ = look_up", "whose `__getattribute__` may take no"),
        ("class Bag:\n    to = move", "whose `to` may take no `non_blocking`"),
        ("class Bag:\n    if fast:\n        def to(self, device): ...", "a `Bag`, whose `to` takes no `non_blocking`"),
        ("setattr(Bag, 'to', move)", "replaces the method `to` of an object"),
        ("Bag = type('Bag', (), {'to': move})", "a class made with `type()` may have a method `to`"),
        ("print 'old'\nclass Bag:\n    def to(self): ...", "a file that is not valid Python may define a method `to`"),
    ],
)
def test_what_the_backend_holds_decides_too(text: str, reason: str) -> None:
    loop = body("batch = batch.to(device)", "for batch in DataLoader(data, collate_fn=sink):")
    after, findings = migrate("CHP013", loop, other=text)
    assert after == loop and reason in reports(findings)[0]
    for fine in ("class Model:\n    def to(self, *args, **kwargs): ...", "def __getattr__(name): ..."):
        assert "non_blocking" in migrate("CHP013", loop, other=fine)[0]


def test_only_copies_that_may_go_to_mps_are_doubtful() -> None:
    other = "DEVICE = 'mps' if torch.backends.mps.is_available() else 'cpu'"
    assert "MPS" in reports(migrate("CHP013", body("x = x.to(device)"), other="print 'old', 'mps'")[1])[0]
    for call in ("cuda(0)", "to('cuda')", "to('cuda' if data else 'cpu')"):
        assert not reports(migrate("CHP013", body(f"x = x.{call}"), other=other)[1])
    assert "MPS" in reports(migrate("CHP013", body("x = x.to('cuda' if data else 'mps')"))[1])[0]


def test_what_pytorch_collates_is_tensors() -> None:
    other = "class Boxes:\n    def to(self, device):\n        return self\n"
    assert "non_blocking" in migrate("CHP013", body("x = x.to(device)"), other=other)[0]
    positional = "for x in DataLoader(data, 8, True, None, None, 0, sink):"
    assert reports(migrate("CHP013", body("x = x.to(device)", positional), other=other)[1])


@pytest.mark.parametrize(
    ("setting", "iterable"),
    [
        ("from torch.utils.data import DataLoader as DL\nbatches = DL(data)", "batches"),
        ("import torch.utils.data as tud\nbatches = tud.DataLoader(data)", "batches"),
        (
            "from chirpid_patch import OptimalDataLoaderFactory\n"
            "batches = OptimalDataLoaderFactory.create_training_loader(data)",
            "batches",
        ),
        ("from data import loaders\nfirst, batches = loaders(data)", "batches"),
        ("from data import make\nbatches = make(data)", "batches"),
        ("from data import Mine\nbatches = Mine(data)", "batches"),
        ("import data as d\nbatches = {'a': d.Mine(data)}", "batches['a']"),
        ("from torch.utils.data import DataLoader\nbatches = [DataLoader(d) for d in data]", "batches[0]"),
        ("from torch.utils.data import DataLoader\nbatches: DataLoader = unknown()", "batches"),
        ("from torch.utils.data import DataLoader\nbatches = DataLoader(data) if data else None", "batches"),
        ("from unknown import made\nbatches: 'DataLoader' = made", "batches"),
        ("from torch.utils.data import DataLoader\nbatches: DataLoader | None = unknown()", "batches"),
        ("from torch.utils.data import DataLoader\nbatches: DataLoader[int] = unknown()", "batches"),
        ("from torch.utils.data import DataLoader\nbatches: list[DataLoader] = unknown()", "batches[0]"),
        (
            "from typing import Optional\nfrom torch.utils.data import DataLoader\n"
            "batches: Optional[DataLoader] = unknown()",
            "batches",
        ),
        ("from unknown import made", "made().train_loader"),
        ("from unknown import build\ntrain_loader = build()", "train_loader"),
        ("from unknown import cfg", "cfg.val_dataloader"),
        ("from unknown import model", "model.train_dataloader()"),
        ("from unknown import valid_dl", "valid_dl"),
        ("from unknown import dataloaders", "dataloaders['train']"),
        ("from unknown import loader\nfrom tqdm.auto import tqdm\nbatches = tqdm(loader, 'epoch')", "batches"),
    ],
)
def test_a_loader_is_known_by_facts(setting: str, iterable: str) -> None:
    data = """
        from torch.utils.data import DataLoader
        class Mine(DataLoader[int]): ...
        def make(data):
            loader = DataLoader(data)
            return loader
        def loaders(data):
            return 1, make(data)
    """
    after, _ = migrate("CHP013", f"{setting}\nfor x in {iterable}:\n    x = x.to(device)\n", data=data)
    assert "x = x.to(device, non_blocking=True)" in after


def test_what_is_only_called_a_loader_pins_only_in_a_project_that_makes_loaders() -> None:
    text = "from frames import stream_loader\nfor x in stream_loader:\n    x = x.to(device)\n"
    assert migrate("CHP013", text) == (text, [])


@pytest.mark.parametrize(
    ("header", "body_line"),
    [
        ("for step, (x, y) in enumerate(loader, 1):", "x = x.to(device)"),
        ("for step, (x, y) in tqdm(enumerate(loader), total=3):", "x = x.to(device)"),
        ("for (a, b), (x, y) in zip(other, loader):", "x = x.to(device)"),
        ("with tqdm(loader) as bar:\n  for x, y in bar:", "x = x.to(device)"),
    ],
)
def test_loaders_are_seen_through_wrappers(header: str, body_line: str) -> None:
    text = f"from tqdm import tqdm\ndef f(loader, other, device):\n{textwrap.indent(header, '    ')}\n            "
    after, _ = migrate("CHP013", f"{text}{body_line}\n", data="from torch.utils.data import DataLoader\n")
    assert "x.to(device, non_blocking=True)" in after


@pytest.mark.parametrize(
    ("setting", "iterable"),
    [
        ("from data import DataLoader\nloader = DataLoader(data)", "loader"),
        ("loader = [1, 2]", "loader"),
        ("loader = range(3)", "loader"),
        ("from unknown import loader", "range(loader)"),
        ("from unknown import loader", "enumerate(loader)"),
        ("from unknown import loader, things", "things"),
        ("from unknown import loaders", "loaders"),
        ("from torch.utils.data import DataLoader\nbatches: list[DataLoader] = unknown()", "batches"),
        ("from torch.utils.data import Dataset\nbatches: list[Dataset] = unknown()", "batches[0]"),
    ],
)
def test_what_is_no_loader_is_left_alone(setting: str, iterable: str) -> None:
    text = f"{setting}\nfor x in {iterable}:\n    x = x.to(device)\n"
    assert migrate("CHP013", text, data="class DataLoader: ...\n") == (text, [])
