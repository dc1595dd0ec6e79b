"""Rules on training loops: what they rewrite, what they only report, and what they do not speak of."""

from __future__ import annotations

import textwrap

import pytest
from support import RULES, migrate, reports

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.syntax.project import Project


def body(text: str, header: str = "for x, y in DataLoader(data):") -> str:
    """A loop over a loader in a function."""
    inner = textwrap.indent(textwrap.dedent(text), "    ")
    loop = textwrap.indent(f"{header}\n{inner}", "    ")
    return f"import torch\nfrom torch.utils.data import DataLoader\n\ndef f(data, model, device, sink):\n{loop}\n"


# CHP013: copies to the device


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


# CHP014: telling samplers the epoch

DISTRIBUTED = """
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm, trange

def f(data, args, work):
"""


def migrate_loop(text: str, **others: str) -> tuple[str, list[str]]:
    """The body of a function after the rule, and what was only reported."""
    after, findings = migrate("CHP014", DISTRIBUTED + textwrap.indent(textwrap.dedent(text), "    "), **others)
    return textwrap.dedent(after.partition("work):\n")[2]), reports(findings)


@pytest.mark.parametrize(
    ("loop", "first"),
    [
        ("for epoch in range(9):\n    for b in loader:\n        work(b)\n", "    sampler.set_epoch(epoch)\n"),
        ("for e in trange(9):\n    for n, b in enumerate(loader):\n        work(b)\n", "    sampler.set_epoch(e)\n"),
        ("for e in tqdm(range(9)):\n    work(loader)\n", "    sampler.set_epoch(e)\n"),
        ("for e in range(9):\n    it = iter(loader)\n", "    sampler.set_epoch(e)\n"),
        ("for epoch in range(9):\n\tfor b in tqdm(loader):\n\t\twork(b)\n", "\tsampler.set_epoch(epoch)\n"),
    ],
)
def test_the_sampler_is_told_first_of_all(loop: str, first: str) -> None:
    made = "sampler = DistributedSampler(data)\nloader = DataLoader(data, 8, False, sampler)\n"
    header, newline, rest = loop.partition("\n")
    assert migrate_loop(made + loop) == (f"{made}{header}{newline}{first}{rest}", [])


def test_a_loop_on_one_line() -> None:
    made = "loader = DataLoader(data, sampler=DistributedSampler(data))\n"
    assert migrate_loop(f"{made}for e in range(9): work(loader)\n") == (
        f"{made}for e in range(9): loader.sampler.set_epoch(e); work(loader)\n",
        [],
    )


def test_the_loop_that_counts_epochs_is_found_among_others() -> None:
    text = """
        for fold in range(5):
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(9):
                for part in range(2):
                    work(loader)
    """
    after, messages = migrate_loop(text)
    assert not messages and "for epoch in range(9):\n        sampler.set_epoch(epoch)\n" in after


def test_samplers_on_self_are_told_by_the_names_of_the_loop() -> None:
    text = """
        import torch.utils.data as tud

        class Trainer:
            def __init__(self, data):
                self.sampler = tud.DistributedSampler(data)
                self.loader = tud.DataLoader(data, sampler=self.sampler)

            def run(self):
                for epoch in range(9):
                    self.train(self.loader)
    """
    after, findings = migrate("CHP014", text)
    assert not reports(findings) and "        self.sampler.set_epoch(epoch)\n" in after


@pytest.mark.parametrize(
    "text",
    [
        "sampler = DistributedSampler(data, shuffle=False)\nloader = DataLoader(data, sampler=sampler)\n",
        "sampler = DistributedSampler(data, 2, 0, False)\nloader = DataLoader(data, sampler=sampler)\n",
        "sampler = args.sampler\nloader = DataLoader(data, sampler=sampler)\n",
        "loader = DataLoader(data, shuffle=True)\nsampler = DistributedSampler(data)\n",
        "loader = args.loader\nsampler = DistributedSampler(data)\n",
    ],
)
def test_samplers_that_need_no_epoch(text: str) -> None:
    loop = "for epoch in range(9):\n    for b in loader:\n        work(b)\n"
    assert migrate_loop(text + loop) == (text + loop, [])


@pytest.mark.parametrize(
    "loop",
    [
        "for epoch in range(9):\n    sampler.set_epoch(epoch)\n    work(loader)\n",
        "for epoch in range(9):\n    loader.sampler.set_epoch(epoch)\n    work(loader)\n",
        "for epoch in range(9):\n    if args:\n        sampler.set_epoch(epoch)\n    work(loader)\n",
        "for epoch in range(9):\n    train(loader, epoch)\n",
        "for epoch in range(9):\n    print(len(loader))\n",
        "for epoch in args:\n    work(loader)\n",
        "for b in loader:\n    work(b)\n",
    ],
)
def test_what_is_told_already_or_no_loop_of_epochs(loop: str) -> None:
    made = "from helpers import train\nsampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"
    helpers = "def train(loader, epoch):\n    loader.sampler.set_epoch(epoch)\n"
    assert migrate_loop(made + loop, helpers=helpers) == (made + loop, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for _ in range(9):\n    work(loader)\n", "no variable for the epoch"),
        ("for a, b in enumerate(range(9)):\n    work(loader)\n", None),
        ("for a in range(9):\n    for b in range(9):\n        work(loader)\n", "which of the loops"),
    ],
)
def test_a_loop_that_cannot_tell_the_epoch(text: str, reason: str | None) -> None:
    made = "sampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"
    after, messages = migrate_loop(made + text)
    assert after == made + text and [reason in one for one in messages if reason] == [True] * (reason is not None)


def test_a_sampler_that_may_be_another_is_only_told_where_its_class_is_at_hand() -> None:
    text = """
        def f(data, args, work):
            from torch.utils.data import DataLoader, DistributedSampler
            sampler = DistributedSampler(data) if args else None
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(9):
                work(loader)
    """
    after, findings = migrate("CHP014", text)
    assert after == textwrap.dedent(text)
    assert "`sampler` may not be a DistributedSampler" in reports(findings)[0]


def test_a_loop_on_one_line_has_no_room_for_a_check_of_the_sampler() -> None:
    text = "sampler = DistributedSampler(data) if args else None\nloader = DataLoader(data, sampler=sampler)\n"
    after, messages = migrate_loop(text + "for epoch in range(9): work(loader)\n")
    assert after == text + "for epoch in range(9): work(loader)\n"
    assert "the loop is on one line, so the rule cannot insert an `if` statement" in messages[0]


def test_without_leave_nothing_changes() -> None:
    text = DISTRIBUTED + "    loader = DataLoader(data, sampler=DistributedSampler(data))\n"
    text += "    for e in range(9):\n        work(loader)\n"
    after, (finding,) = rewrite_text("a.py", text, Project({"a.py": text}), rules=[RULES["CHP014"]])
    assert (after, finding.status) == (text, FindingStatus.OPT_IN)


@pytest.mark.parametrize(
    ("made", "condition"),
    [
        ("sampler = DistributedSampler(data) if args.distributed else None\n", True),
        ("sampler = None if args.local_rank == -1 else DistributedSampler(data)\n", True),
        ("if world_size > 1:\n    sampler = DistributedSampler(data)\nelse:\n    sampler = None\n", True),
        ("sampler = DistributedSampler(data) if args.shuffled else None\n", False),
        ("sampler = DistributedSampler(data)\n", False),
    ],
)
def test_in_a_guard_for_several_processes_it_needs_no_leave(made: str, condition: bool) -> None:
    body = f"{made}loader = DataLoader(data, sampler=sampler)\nfor epoch in range(9):\n    work(loader)\n"
    text = DISTRIBUTED + textwrap.indent(body, "    ")
    after, (finding,) = rewrite_text("a.py", text, Project({"a.py": text}), rules=[RULES["CHP014"]])
    assert finding.status is (FindingStatus.REWRITE if condition else FindingStatus.OPT_IN)
    lines = ["if isinstance(sampler, DistributedSampler):", "    sampler.set_epoch(epoch)", "work(loader)"]
    rewritten = text.replace("        work(loader)\n", "".join(f"        {line}\n" for line in lines))
    assert after == (rewritten if condition else text)
    assert finding.message == "with several processes every epoch has the same order: call `sampler.set_epoch(epoch)`"


def test_a_loop_that_only_several_processes_run_needs_no_leave() -> None:
    body = """
        sampler = DistributedSampler(data)
        loader = DataLoader(data, sampler=sampler)
        if args.distributed:
            for epoch in range(9):
                work(loader)
    """
    text = DISTRIBUTED + textwrap.indent(textwrap.dedent(body), "    ")
    after, _ = rewrite_text("a.py", text, Project({"a.py": text}), rules=[RULES["CHP014"]])
    assert "for epoch in range(9):\n            sampler.set_epoch(epoch)\n" in after


# CHP015: transforms made for every sample

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


# CHP016: loaders restarted in loops


@pytest.mark.parametrize(
    "text",
    [
        "while True:\n    work(next(iter(loader)))",
        "for step in range(9):\n    x, y = next(iter(loader))",
        "for step in range(9):\n    with work:\n        x = next(iter(self.loaders['train']), None)",
        "x = [next(iter(loader)) for _ in range(9)]",
        "while next(iter(loader)):\n    work()",
    ],
)
def test_a_loader_restarted_in_a_loop_is_reported(text: str) -> None:
    code = f"def f(self, loader, work):\n{textwrap.indent(text, '    ')}\n"
    after, (finding,) = migrate("CHP016", code)
    assert after == code and finding.status is FindingStatus.REPORT and "restarts the loader" in finding.message


@pytest.mark.parametrize("package", ["chirpid_patch", "chirpid_patch.factory"])
def test_what_the_factory_builds_is_a_loader_wherever_it_is_imported_from(package: str) -> None:
    made = f"from {package} import OptimalDataLoaderFactory as Factory\n\nbatches = Factory.create_loader(data)\n"
    _, (finding,) = migrate("CHP016", f"{made}while True:\n    next(iter(batches))\n")
    assert "restarts the loader" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "x = next(iter(loader))",
        "for x in next(iter(loader)):\n    work(x)",
        "for loader in loaders:\n    work(next(iter(loader)))",
        "for name, loader in loaders.items():\n    work(next(iter(loader)))",
        "for name in loaders:\n    work(next(iter(loaders[name])))",
        "for data in work:\n    loader = make(data)\n    work(next(iter(loader)))",
        "x = [next(iter(one_loader)) for one_loader in loaders]",
        "for _ in work:\n    def sample():\n        return next(iter(loader))",
        "for _ in work:\n    x = next(iter(work))",
        "for _ in work:\n    x = next(it_loader)",
    ],
)
def test_a_loader_started_once_is_not(text: str) -> None:
    code = f"def f(loader, loaders, work, it_loader):\n{textwrap.indent(text, '    ')}\n"
    assert migrate("CHP016", code) == (code, [])
