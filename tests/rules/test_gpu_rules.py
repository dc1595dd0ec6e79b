"""Rules on what makes the GPU wait: what they rewrite, that results stay the same, and what they only report."""

from __future__ import annotations

import textwrap

import pytest
from support import migrate, reports

# CHP024: device-resident loading

#: Lines may be as long as this one.
WIDE = f"# {'-' * 98}"
MADE = "loader = OptimalDataLoaderFactory.create_training_loader(data, batch_size=8)"
RESIDENT = "loader = OptimalDataLoaderFactory.create_training_loader(data, batch_size=8, device=device)"


def function(text: str, parameters: str = "data, model, device, sink") -> str:
    """A function in a module that knows the factory."""
    body = textwrap.indent(textwrap.dedent(text), "    ")
    imports = f"{WIDE}\nimport torch\nfrom tqdm import tqdm\nfrom chirpid_patch import OptimalDataLoaderFactory\n"
    return f"{imports}\ndef f({parameters}):\n{body}\n"


def looped(text: str, header: str = "for x, y in loader:") -> str:
    """A loader, and a loop over it."""
    return f"{MADE}\n{header}\n{textwrap.indent(textwrap.dedent(text), '    ')}\n"


def devices_advised(text: str, **others: str) -> list[str]:
    """The devices that CHP024 advises to give to the factory; it rewrites nothing."""
    after, findings = migrate("CHP024", text, **others)
    assert after == textwrap.dedent(text)
    return [one.partition("batches to `")[2].partition("`")[0] for one in reports(findings)]


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("x, y = x.to(device), y.to(device)\nmodel(x, y)", "for x, y in loader:"),
        ("x = x.to(device, non_blocking=True)\ny = y.to(device=device)\nsink(x, y)", "for x, y in loader:"),
        ("model(x.to(device, torch.float), y.to(device).long())", "for x, y in loader:"),
        ("model(x.to(device))", "for x, _ in loader:"),
        ("model(x.to(device))\ntotal = len(x) + x.size(0) + x.shape[0]", "for x, y in loader:"),
        ("x = x.float().unsqueeze(1).to(device)\nmodel(x)", "for x, y in loader:"),
        ("x, y = batch\nx = x.to(device)\ny = y.to(device)\nmodel(x, y)", "for batch in loader:"),
        ("x = batch['x'].to(device)\nmodel(x, batch['y'].to(device))", "for batch in loader:"),
        ("batch = [t.to(device) for t in batch]\nmodel(*batch)", "for batch in loader:"),
        ("batch = {k: v.to(device) for k, v in batch.items()}\nmodel(**batch)", "for batch in loader:"),
        (
            "batch = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}\nmodel(batch)",
            "for batch in loader:",
        ),
        ("for k, v in batch.items():\n    batch[k] = v.to(device)\nmodel(**batch)", "for batch in loader:"),
        ("for k in batch:\n    batch[k] = batch[k].to(device)\nmodel(**batch)", "for batch in loader:"),
        ("batch['x'] = batch['x'].to(device)\nmodel(batch['x'])", "for batch in loader:"),
        ("with torch.no_grad():\n    model(x.to(device))", "for x, y in loader:"),
        ("model(x.to(device))", "for n, (x, y) in enumerate(tqdm(loader)):"),
        ("model(x.to(device))", "for (x, y), z in zip(loader, sink):"),
        ("model(x.to(device))", "for x, y in tqdm(loader, desc='train'):"),
        ("model(x.to(device))\nbar.set_postfix(sink)", "bar = tqdm(loader)\nfor x, y in bar:"),
    ],
)
def test_a_loader_whose_batches_all_go_to_the_device_right_away(text: str, header: str) -> None:
    assert devices_advised(function(looped(text, header))) == ["device"]


@pytest.mark.parametrize(
    "text",
    [
        "model(x.to(device))\nsink(y.numpy())",
        "sink[y] = model(x.to(device))",
        "sink(x)\nx = x.to(device)",
        "z = x.to(device)\nsink(x)",
        "x = (x / 255).to(device)\ny = y.to(device)",
        "a = x.to(device)\nb = y.pin_memory().to(device)",
        "if sink:\n    x = x.to(device)\nmodel(x)",
        "x = x.to(device) if sink else x\nmodel(x)",
        "try:\n    x = x.to(device)\nexcept RuntimeError:\n    pass",
        "sink(lambda: x.to(device))",
        "x.to(device)\nself.last = x",
        "a = x.to(device)\nb = y.to('cuda:1')",
        "a = x.to(device)\nb = y.to(model.device)",
    ],
)
def test_a_batch_that_is_used_on_the_cpu_is_left_there(text: str) -> None:
    assert devices_advised(function(looped(text))) == []


@pytest.mark.parametrize(
    "rest",
    [
        "for x, y in loader:\n    sink(x, y)",
        "for x, y in loader:\n    pass",
        "for item in enumerate(loader):\n    pass",
        "first = next(iter(loader))",
        "every = list(loader)",
        "every = [x for x, y in loader]",
        "found = sink in loader",
        "model.fit(loader)",
        "sink['train'] = loader",
        "every = {'train': loader}",
        "return loader",
        "loader.batches = 3",
        "sink(y)",
    ],
)
def test_every_loop_over_the_loader_has_to_be_seen(rest: str) -> None:
    assert devices_advised(function(f"{looped('x = x.to(device)')}{rest}\n")) == []


@pytest.mark.parametrize(
    "rest",
    [
        "print(len(loader), len(loader.dataset), loader.batch_size)",
        "if loader is not None and sink:\n    loader.sampler.set_epoch(3)",
        "loader.dataset.transform = None",
        "del loader",
    ],
)
def test_looking_at_a_loader_is_no_use_of_its_batches(rest: str) -> None:
    assert devices_advised(function(f"{looped('x = x.to(device)')}{rest}\n")) == ["device"]


@pytest.mark.parametrize(
    "text",
    [
        looped("model(x, y)"),
        looped("x = x.to('cpu')"),
        looped("x = x.to(torch.float16)"),
        looped("model(x.to(device))").replace(MADE, RESIDENT),
        looped("model(x.to(device))").replace("OptimalDataLoaderFactory.create_training_loader", "sink"),
    ],
)
def test_loaders_without_a_move_of_their_batches_are_not_spoken_of(text: str) -> None:
    assert devices_advised(function(text)) == []


def test_arguments_that_only_the_run_knows_may_name_a_device_already() -> None:
    assert devices_advised(function(looped("model(x.to(device))").replace("batch_size=8", "**sink"))) == []


@pytest.mark.parametrize(
    ("text", "resident"),
    [
        ("device = torch.device('cuda')\nLOOP", True),
        ("if sink:\n    device = 'cuda'\nelse:\n    device = 'cuda:1'\nLOOP", True),
        (f"{MADE}\ndevice = torch.device('cuda')\nfor x, y in loader:\n    x = x.to(device)\n", False),
        ("LOOP\ndevice = sink\nfor x, y in loader:\n    x = x.to(device)\n", False),
        ("for device in sink:\n    LOOP", False),
        ("from sink import device\nLOOP", False),
    ],
)
def test_the_device_has_its_value_where_the_loader_is_built_and_keeps_it(text: str, resident: bool) -> None:
    loop = looped("x = x.to(device)")
    inner = textwrap.indent(loop, "    ").lstrip()
    before = function(text.replace("    LOOP", f"    {inner}").replace("LOOP", loop), "data, model, sink")
    assert devices_advised(before) == ["device"] * resident


def test_cuda_is_a_device_that_every_place_knows() -> None:
    assert devices_advised(function(looped("model(x.cuda(), y.cuda(non_blocking=True))"))) == ['"cuda"']


@pytest.mark.parametrize(
    ("text", "resident"),
    [
        ("LOOP", True),
        ("args.device = torch.device('cuda')\nLOOP", True),
        ("LOOP\nargs.device = 'cuda:1'", False),
    ],
)
def test_settings_hold_devices(text: str, resident: bool) -> None:
    loop = looped("model(x.to(args.device), y.to(args.device))")
    before = function(text.replace("LOOP", loop), "data, model, args")
    assert devices_advised(before) == ["args.device"] * resident


def test_settings_are_followed_like_devices() -> None:
    text = f"""
        {WIDE}
        from chirpid_patch import OptimalDataLoaderFactory

        def make(data, config):
            return OptimalDataLoaderFactory.create_training_loader(data)

        def train(loader, cfg):
            for x in loader:
                x = x.to(cfg.train.device)

        def run(data, options):
            train(make(data, options), options)
    """
    assert devices_advised(text) == ["config.train.device"]


TRAINER = f"""
    {WIDE}
    import torch
    from chirpid_patch import OptimalDataLoaderFactory
    from loops import evaluate

    class Trainer:
        def __init__(self, data):
            self.device = torch.device("cuda")
            self.loader = OptimalDataLoaderFactory.create_training_loader(data)
            self.val_loader = self._validation(data)

        def _validation(self, data):
            return OptimalDataLoaderFactory.create_validation_loader(data)

        def run(self):
            self._epoch(self.loader, lr=0.1)
            return evaluate(self.val_loader, its_device=self.device)

        def _epoch(self, batches, lr):
            for x, y in batches:
                x, y = x.to(self.device), y.to(self.device)
"""
LOOPS = """
    def evaluate(batches, threshold=0.5, its_device=None):
        for x, y in batches:
            yield x.to(its_device) > threshold
"""


def test_loaders_and_devices_are_followed_through_the_project() -> None:
    assert devices_advised(TRAINER, loops=LOOPS) == ["self.device", "self.device"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self._epoch(self.loader, lr=0.1)", "self.device = 'cpu'\n            self._epoch(self.loader, 1)"),
        ("            self.loader =", "            sink.device = 1\n            self.loader ="),
        ("        def run(self):", "        @sink.wrapped\n        def _epoch(self):"),
        ("self._epoch(self.loader, lr=0.1)", "self._epoch(*self.loader)"),
    ],
)
def test_what_may_be_another_device_is_none(old: str, new: str) -> None:
    after, findings = migrate("CHP024", TRAINER.replace(old, new), loops=LOOPS)
    named = [after.splitlines()[one.line - 1] for one in findings]
    assert not any("create_training_loader" in line for line in named)


@pytest.mark.parametrize(
    "other",
    [
        "from a import Trainer\nclass Mine(Trainer): ...",
        "from a import Trainer\nTrainer([]).loader.dataset",
        "def f(trainer):\n    trainer.device = 'cpu'",
    ],
)
def test_other_files_have_a_say(other: str) -> None:
    advised = devices_advised(TRAINER, loops=LOOPS)
    assert len(devices_advised(TRAINER, loops=LOOPS, other=other)) < len(advised)


def test_an_argument_that_is_changed_is_not_what_was_given() -> None:
    changed = LOOPS.replace("for x, y", "its_device = its_device or 'cuda'\n        for x, y", 1)
    assert devices_advised(TRAINER, loops=changed) == ["self.device"]


def test_a_loader_that_is_migrated_in_the_same_run_is_named_too() -> None:
    before = function(looped("model(x.to(device), y.to(device))")).replace(
        "OptimalDataLoaderFactory.create_training_loader(data, batch_size=8)",
        "DataLoader(data, 8, True, num_workers=2)",
    )
    before = before.replace(
        "from chirpid_patch import OptimalDataLoaderFactory", "from torch.utils.data import DataLoader"
    )
    _, findings = migrate("CHP001 CHP024", before)
    assert [one.rule for one in findings] == ["CHP001", "CHP024"]
    assert devices_advised(before) == []


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
    ],
)
def test_what_does_not_wait_in_every_step_is_not_spoken_of(body: str) -> None:
    assert migrate("CHP025", sums(body)) == (sums(body), [])


def test_on_the_cpu_nothing_waits() -> None:
    text = sums("total += loss.item()").replace("x, y = x.to(device), y.to(device)", "pass")
    assert migrate("CHP025", text) == (text, [])


@pytest.mark.parametrize(
    ("body", "instead"),
    [
        ("total += loss.item() * x.size(0)", "sum detached tensors"),
        ("hits += int((out.argmax(1) == y).sum())", "sum detached tensors"),
        ("sink.append(loss.item())", "`torch.stack(…).tolist()`"),
        ("if loss.item() > 3:\n    break", "decide on the device"),
        ("sink.update(loss.item(), len(y))", "every N steps"),
        ("sink.set_postfix(loss=float(loss))", "every N steps"),
        ("parts = []\nfor _ in sink:\n    parts.append(loss)\nsink.update(sum(parts).item())", "every N steps"),
    ],
)
def test_numbers_that_are_shown_or_compared_are_listed_with_what_to_do(body: str, instead: str) -> None:
    after, findings = migrate("CHP025", sums(body))
    (message,) = reports(findings)
    assert after == sums(body) and instead in message


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
    assert after == sums(body) and "a GPU sync in every step" in message and "after the loop" in message


@pytest.mark.parametrize(
    "body",
    [
        "p = out.cpu().numpy()\nsink.append(p.mean())\nsink(p)",
        "sink(out.cpu())",
        "np.save(sink, out.cpu().numpy())",
        "sink.append(out)",
        "sink.append(data.cpu())",
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
        ("torch.cuda.synchronize()", ["forces a sync that nothing here needs"]),
        ("torch.cuda.synchronize()\ntorch.cuda.empty_cache()", ["forces a sync", "`torch.cuda.empty_cache()`"]),
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


@pytest.mark.parametrize(("size", "spoken_of"), [("", False), ("batch_size=1", False), ("batch_size=8", True)])
def test_where_batches_hold_one_sample_the_cache_is_not_spoken_of(size: str, spoken_of: bool) -> None:
    text = f"import torch\nfrom torch.utils.data import DataLoader\nfor x in DataLoader(d, {size}):\n    model(x)\n"
    text += "    torch.cuda.empty_cache()\n"
    assert bool(migrate("CHP027", text)[1]) is spoken_of


def test_between_epochs_and_models_it_may_be_emptied() -> None:
    text = "import torch\ndef f(models, loader):\n    for model in models:\n        for x in loader:\n"
    text += "            model(x)\n        torch.cuda.empty_cache()\n"
    assert migrate("CHP027", text) == (text, [])
