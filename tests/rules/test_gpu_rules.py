"""Rules on what makes the GPU wait: what they rewrite, that results stay the same, and what they only report."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
from support import RULES, migrate, reports

from chirp_migrate.engine.rewrite_file import rewrite, rewrite_in_hunks
from chirp_migrate.plans.plan import Status
from chirp_migrate.syntax.project import Project

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
    before = function(looped(text, header))
    after, findings = migrate("CHP024", before)
    assert (after, reports(findings)) == (before.replace(MADE, RESIDENT), [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model(x.to(device))\nsink(y.numpy())", "`y.numpy()` needs the batch"),
        ("sink[y] = model(x.to(device))", "`y` is used as it comes"),
        ("sink(x)\nx = x.to(device)", "`x` is used as it comes"),
        ("z = x.to(device)\nsink(x)", "`x` is used as it comes"),
        ("x = (x / 255).to(device)\ny = y.to(device)", "`x` is used as it comes"),
        ("a = x.to(device)\nb = y.pin_memory().to(device)", "`y.pin_memory()` needs the batch"),
        ("if sink:\n    x = x.to(device)\nmodel(x)", "only done under a condition"),
        ("x = x.to(device) if sink else x\nmodel(x)", "only done under a condition"),
        ("try:\n    x = x.to(device)\nexcept RuntimeError:\n    pass", "not surely done"),
        ("sink(lambda: x.to(device))", "not surely done"),
        ("x.to(device)\nself.last = x", "`x` is used as it comes"),
        ("a = x.to(device)\nb = y.to('cuda:1')", "several devices"),
        ("a = x.to(device)\nb = y.to(model.device)", "is not known where the loader is built"),
    ],
)
def test_a_batch_that_is_used_on_the_cpu_is_left_there(text: str, reason: str) -> None:
    before = function(looped(text))
    after, findings = migrate("CHP024", before)
    assert after == before and [reason in one for one in reports(findings)] == [True]


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("for x, y in loader:\n    sink(x, y)", "`x` is used as it comes"),
        ("for x, y in loader:\n    pass", "another loop does not move its batches"),
        ("for item in enumerate(loader):\n    pass", "does not unpack the batch"),
        ("first = next(iter(loader))", "`iter(…)` is given it"),
        ("every = list(loader)", "`list(…)` is given it"),
        ("every = [x for x, y in loader]", "more with it than a loop"),
        ("found = sink in loader", "more with it than a loop"),
        ("model.fit(loader)", "`model.fit(…)` is given it"),
        ("sink['train'] = loader", "it is kept in `sink['train']`"),
        ("every = {'train': loader}", "more with it than a loop"),
        ("return loader", "`f` returns it to code that cannot be seen"),
        ("loader.batches = 3", "more than a look at it"),
        ("sink(y)", "`y` may be used again after the loop"),
    ],
)
def test_every_loop_over_the_loader_has_to_be_seen(rest: str, reason: str) -> None:
    before = function(f"{looped('x = x.to(device)')}{rest}\n")
    after, findings = migrate("CHP024", before)
    assert after == before and [reason in one for one in reports(findings)] == [True]


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
    before = function(f"{looped('x = x.to(device)')}{rest}\n")
    assert migrate("CHP024", before)[0] == before.replace(MADE, RESIDENT)


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
    assert migrate("CHP024", function(text)) == (function(text), [])


def test_arguments_that_only_the_run_knows_may_name_a_device_already() -> None:
    before = function(looped("model(x.to(device))").replace("batch_size=8", "**sink"))
    after, findings = migrate("CHP024", before)
    assert after == before and "`**kwargs`" in reports(findings)[0]


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
    after, findings = migrate("CHP024", before)
    assert after == (before.replace(MADE, RESIDENT) if resident else before)
    assert bool(reports(findings)) is not resident


def test_cuda_is_a_device_that_every_place_knows() -> None:
    before = function(looped("model(x.cuda(), y.cuda(non_blocking=True))"))
    assert migrate("CHP024", before)[0] == before.replace(MADE, RESIDENT.replace("=device", '="cuda"'))


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
    after, findings = migrate("CHP024", before)
    assert after == (before.replace(MADE, RESIDENT.replace("=device", "=args.device")) if resident else before)
    assert bool(reports(findings)) is not resident


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
    assert "create_training_loader(data, device=config.train.device)" in migrate("CHP024", text)[0]


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
    after, findings = migrate("CHP024", TRAINER, loops=LOOPS)
    assert not reports(findings)
    assert "create_training_loader(data, device=self.device)" in after
    assert "create_validation_loader(data, device=self.device)" in after


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("self._epoch(self.loader, lr=0.1)", "self.device = 'cpu'\n            self._epoch(self.loader, 1)", "device"),
        (
            "            self.loader =",
            "            sink.device = 1\n            self.loader =",
            "device of its loops",
        ),
        ("        def run(self):", "        @sink.wrapped\n        def _epoch(self):", None),
        ("self._epoch(self.loader, lr=0.1)", "self._epoch(*self.loader)", None),
    ],
)
def test_what_may_be_another_device_is_none(old: str, new: str, reason: str | None) -> None:
    after, findings = migrate("CHP024", TRAINER.replace(old, new), loops=LOOPS)
    assert "create_training_loader(data, device=" not in after
    assert reason is None or reason in reports(findings)[0]


@pytest.mark.parametrize(
    "other",
    [
        "from a import Trainer\nclass Mine(Trainer): ...",
        "from a import Trainer\nTrainer([]).loader.dataset",
        "def f(trainer):\n    trainer.device = 'cpu'",
    ],
)
def test_other_files_have_a_say(other: str) -> None:
    assert "create_training_loader(data)" in migrate("CHP024", TRAINER, loops=LOOPS, other=other)[0]


def test_an_argument_that_is_changed_is_not_what_was_given() -> None:
    changed = LOOPS.replace("for x, y", "its_device = its_device or 'cuda'\n        for x, y", 1)
    after, findings = migrate("CHP024", TRAINER, loops=changed)
    assert (
        "create_validation_loader(data)" in after and "is not known where the loader is built" in reports(findings)[0]
    )


def test_a_loader_built_by_hand_gets_factory_and_device_in_one_run() -> None:
    before = function(looped("model(x.to(device), y.to(device))")).replace(
        "OptimalDataLoaderFactory.create_training_loader(data, batch_size=8)",
        "DataLoader(data, 8, True, num_workers=2)",
    )
    before = before.replace(
        "from chirpid_patch import OptimalDataLoaderFactory", "from torch.utils.data import DataLoader"
    )
    after, _ = migrate("CHP001 CHP024", before)
    assert "".join(after.split()).count("create_training_loader(data,8,shuffle=True,max_workers=2,device=device)") == 1
    assert migrate("CHP024", before) == (before, [])


def test_each_loader_stays_a_decision_of_its_own() -> None:
    made = (
        "{0} = DataLoader(\n        data,\n        batch_size=8\n    )\n    for x in {0}:\n        x = x.to(device)\n"
    )
    text = "from torch.utils.data import DataLoader\ndef f(data, model, device):\n"
    text += "".join(f"    {made.format(name)}" for name in ("first", "second"))
    rules = [RULES["CHP001"], RULES["CHP024"]]
    result = rewrite_in_hunks("a.py", text, Project({"a.py": text}), unsafe=True, rules=rules)
    assert result.text.count("device=device") == 2
    assert [(one.rule, one.hunk) for one in result.findings] == [
        ("CHP001", 1),
        ("CHP024", 1),
        ("CHP001", 2),
        ("CHP024", 2),
    ]


def test_without_leave_only_the_factory_comes() -> None:
    before = function(looped("model(x.to(device), y.to(device))"))
    after, (finding,) = migrate("CHP024", before, unsafe=False)
    assert (after, finding.status) == (before, Status.OPT_IN)


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


def sums(body: str, behind: str = "") -> str:
    """A training loop that ends with these lines, and with these behind it."""
    text = SUMS.format(body=textwrap.indent(textwrap.dedent(body), " " * 8))
    return text.replace("    return total", f"{textwrap.indent(behind, '    ')}    return total")


TOTAL, HITS = "total = float(total)\n", "hits = int(hits)\n"


@pytest.mark.parametrize(
    ("before", "after", "behind"),
    [
        ("total += loss.item()", "total += loss.detach().double()", TOTAL),
        ("total += loss.item() * x.size(0)", "total += loss.detach().double() * x.size(0)", TOTAL),
        ("total += len(y) * loss.item()", "total += len(y) * loss.detach().double()", TOTAL),
        ("n = y.shape[0]\ntotal += loss.item() * n", "n = y.shape[0]\ntotal += loss.detach().double() * n", TOTAL),
        ("total += criterion(out, y).item()", "total += criterion(out, y).detach().double()", TOTAL),
        ("total += F.mse_loss(out, y).item()", "total += F.mse_loss(out, y).detach().double()", TOTAL),
        ("hits += (out.argmax(1) == y).sum().item()", "hits += (out.argmax(1) == y).sum()", HITS),
        ("hits += out.argmax(1).eq(y).sum().item()", "hits += out.argmax(1).eq(y).sum()", HITS),
        ("hits += torch.sum(out.argmax(1) == y).item()", "hits += torch.sum(out.argmax(1) == y)", HITS),
        ("total += float(loss) * len(x)", "total += loss.detach().double() * len(x)", TOTAL),
        ("total += loss.detach().item()", "total += loss.detach().double()", TOTAL),
        (
            "hits += int((out.argmax(1) == y).sum())\ntotal += float(loss)",
            "hits += (out.argmax(1) == y).sum()\ntotal += loss.detach().double()",
            HITS + TOTAL,
        ),
        (
            "total += (\n    loss.item()  # of the batch\n)",
            "total += (\n    loss.detach().double()  # of the batch\n)",
            TOTAL,
        ),
        ("if sink:\n    total += loss.item()", "if sink:\n    total += loss.detach().double()", TOTAL),
        (
            "p = out.argmax(1)\ntotal += loss.item()\nhits += (p == y).sum().item()",
            "p = out.argmax(1)\ntotal += loss.detach().double()\nhits += (p == y).sum()",
            TOTAL + HITS,
        ),
    ],
)
def test_sums_stay_on_the_device_until_the_loop_is_over(before: str, after: str, behind: str) -> None:
    found, findings = migrate("CHP025", sums(before))
    assert (found, reports(findings)) == (sums(after, behind), [])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_sums_are_the_same_to_the_bit(dtype: torch.dtype) -> None:
    """On the CPU, and on CUDA where there is one."""
    body = "total += loss.item() * x.size(0)\nhits += (out.argmax(1) == y).sum().item()\nseen += len(y)"
    before = sums(body)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    after, _ = migrate("CHP025", before)
    assert after != before

    def run(text: str, count: int, seed: int) -> Any:
        torch.manual_seed(seed)
        layer = torch.nn.Linear(5, 4).to(device, dtype)
        data = [(torch.randn(5, dtype=dtype), seed % 4) for seed in range(count)]
        scope: dict[str, Any] = {}
        exec(compile(text, "a.py", "exec"), scope)
        return scope["f"](data, layer, None, None)

    for count in (0, 1, 3, 64):
        one, other = run(before, count, count), run(after, count, count)
        assert one == other and [type(part) for part in one] == [type(part) for part in other]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("total += loss.item() / len(y)", "is not only added up"),
        ("total = total + loss.item()", None),
        ("total += loss.item()\nprint(total / seen)", "`total` is used before the loop is over"),
        ("total += loss.item()\nsink.append(out.cpu())", "the loop waits at `out.cpu()`, too"),
        ("total += loss.item()\nsink.append(loss.item())", "is not only added up"),
        ("total += loss.cpu().item()", "the loop waits at `loss.cpu().item()`, too"),
        ("total += int(loss)\nhits += (out == y).sum().item()", "does not surely come from a loss"),
        ("total += float((out.argmax(1) == y).sum())", "does not surely come from a loss"),
        ("total += loss.item() * sink", "`sink` is not surely the batch size"),
        ("total += model.loss(out).item()", "does not surely come from a loss"),
        ("other = out.mean()\ntotal += other.item()", "does not surely come from a loss"),
        ("loss = loss * 2\ntotal += loss.item()", "does not surely come from a loss"),
        ("hits += loss.item()", "does not start as a literal number"),
        ("self.total += loss.item()", "`self.total` is no plain variable"),
        ("sink['total'] += loss.item()", "`sink['total']` is no plain variable"),
        ("start = time.time()\ntotal += loss.item()", "steps are timed"),
        ("def g():\n    return total\ntotal += loss.item()", "a function inside uses `total`"),
        ("total += loss.item()\nif sink:\n    total += loss.item()", "added to in several ways"),
        ("total += loss.item()\nyield x", "generator or coroutine"),
    ],
)
def test_what_is_not_proven_to_be_the_same_is_listed(body: str, reason: str | None) -> None:
    after, findings = migrate("CHP025", sums(body))
    assert after == sums(body) and findings
    assert all("a GPU sync in every step" in one for one in reports(findings))
    assert reason is None or any(reason in one for one in reports(findings))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('torch.device("cuda" if torch.cuda.is_available() else "cpu")', "sink", "may lack float64"),
        (
            'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
            "'mps' if sink else 'cpu'",
            "may lack float64",
        ),
        ("total, hits, seen = 0.0, 0, 0", "total, hits, seen = 0, 0, 0", "does not start as a literal number"),
        ("total, hits, seen = 0.0, 0, 0", "total, hits, seen = sink", "does not start as a literal number"),
        ("total, hits, seen = 0.0, 0, 0", "global total\n    hits = seen = 0", "is global or nonlocal"),
        ("criterion = nn.CrossEntropyLoss()", "total = sink", "does not start as a literal number"),
        ("def f(data", "@torch.compile\ndef f(data", "a decorator may compile"),
        ("    return total", "    total += sink\n    return total", "is changed elsewhere, too"),
        ("    return total", "    total += loss.item() * sink\n    return total", "is changed elsewhere, too"),
        ("total, hits, seen = 0.0, 0, 0", "if sink:\n        total = 0.0", "may have no value after a loop"),
        ("y.to(device)", "y.to(f'cuda:{len(y)}')", "another one in each iteration"),
        ("= nn.CrossEntropyLoss()\n", "= sink\n    model = vars()\n", "`locals()` or the like"),
    ],
)
def test_what_is_around_the_loop_decides_too(old: str, new: str, reason: str) -> None:
    text = sums("total += loss.item()").replace(old, new)
    after, findings = migrate("CHP025", text)
    assert after == text and reason in reports(findings)[0]


@pytest.mark.parametrize(
    ("around", "reason"),
    [("try:", "the `try` around"), ("with sink.suppressed():", "the `with` around"), ("with torch.no_grad():", None)],
)
def test_sums_that_outlive_an_error_stay_numbers(around: str, reason: str | None) -> None:
    head, loop = sums("total += loss.item()").split("    for x, y", 1)
    body, end = loop.split("    return", 1)
    handled = "    finally:\n        pass\n" if around == "try:" else ""
    text = f"{head}    {around}\n{textwrap.indent(f'    for x, y{body}', '    ')}{handled}    return{end}"
    after, findings = migrate("CHP025", text)
    assert (after == text) == (reason is not None)
    assert reason is None or reason in reports(findings)[0]


@pytest.mark.parametrize(
    "made",
    [
        "nn.CrossEntropyLoss(reduce=False)",
        "nn.CrossEntropyLoss(None, None, -100, None, 'none')",
        "nn.CrossEntropyLoss(**sink)",
        "nn.HuberLoss('none')",
        "nn.CrossEntropyLoss()\n    if sink: [criterion] = sink",
        "lambda a, b: F.mse_loss(a, b)",
    ],
)
def test_a_loss_that_may_be_no_number_or_no_tensor_is_read_as_before(made: str) -> None:
    text = sums("total += criterion(out, y).item()").replace("nn.CrossEntropyLoss()", made)
    after, findings = migrate("CHP025", text)
    assert after == text and "does not surely come from a loss" in reports(findings)[0]


@pytest.mark.parametrize(
    ("maker", "other", "is_known"),
    [
        ("__init__", "", True),
        ("set_up", "", False),
        ("__init__", "def change(trainer):\n    trainer.criterion = print\n", False),
    ],
)
def test_an_attribute_is_a_loss_if_it_always_is(maker: str, other: str, is_known: bool) -> None:
    made = f"class T:\n  def {maker}(self):\n    self.criterion = nn.CrossEntropyLoss()\n\n  def f(self, data"
    text = sums("total += criterion(out, y).item()").replace("= criterion(", "= self.criterion(")
    head, body = text.replace("    criterion = nn.CrossEntropyLoss()\n", "").split("def f(data")
    text = f"{head}{made}{body}"
    assert ("double()" in migrate("CHP025", text, other=other)[0]) == is_known


@pytest.mark.parametrize(
    "other",
    [
        "class Loss:\n    def item(self): ...\n",
        "class Loss:\n    item = property(float)\n",
        "class Loss:\n    def __getattr__(self, name): return {'item': print}[name]\n",
        "Loss = namedtuple('Loss', 'item backward')\n",
        "loss = SimpleNamespace(item=float, backward=print)\n",
        "def wrap(loss):\n    loss.item = float\n",
        "class Loss:\n    def __float__(self): ...\n",
        "class Loss:\n    __int__ = look_up\n",
    ],
)
def test_what_goes_backward_is_a_tensor_unless_the_project_has_something_like_one(other: str) -> None:
    text = sums("total += loss.item()").replace("nn.CrossEntropyLoss()", "sink")
    before = migrate("CHP025", text, other="for item in data: print(item.item())\n")[0]
    assert "total += loss.detach().double().sum()\n" in before  # of one element, in whatever shape
    after, findings = migrate("CHP025", text, other=other)
    assert after == text and "`loss` may be no tensor" in reports(findings)[0]


@pytest.mark.parametrize("read", ["loss.item()", "float(loss)"])
def test_an_object_of_a_class_of_the_project_is_no_loss(read: str) -> None:
    text = sums(f"total += {read}").replace("nn.CrossEntropyLoss()", "sink")
    assert "double()" in migrate("CHP025", text.replace("criterion(", "model.loss("))[0]
    text = f"from other import Total\n{text.replace('criterion(', 'Total(')}"
    after, findings = migrate("CHP025", text, other="class Total(Parts): ...\n")
    assert after == text and "does not surely come from a loss" in reports(findings)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        loss.backward()\n", "        if sink:\n            loss.backward()\n"),
        (
            "        loss.backward()\n        total += loss.item()\n",
            "        total += loss.item()\n        loss.backward()\n",
        ),
        ("        loss = criterion(out, y)\n", "        if sink:\n            loss = criterion(out, y)\n"),
        ("        loss.backward()\n", "        def g():\n            loss.backward()\n"),
    ],
)
def test_what_does_not_surely_happen_before_says_nothing_of_the_loss(old: str, new: str) -> None:
    text = sums("total += loss.item()").replace("nn.CrossEntropyLoss()", "sink").replace(old, new)
    after, findings = migrate("CHP025", text)
    assert after == text and "does not surely come from a loss" in reports(findings)[0]


def test_sums_are_made_in_one_inference_mode() -> None:
    body = "with torch.inference_mode({}):\n    hits += (out.argmax(1) == y).sum().item()"
    assert "hits = int(hits)" in migrate("CHP025", sums(body.format("")))[0]
    text = sums(body.format("len(y) == 3"))
    after, findings = migrate("CHP025", text)
    assert after == text and "`torch.inference_mode` may not be on" in reports(findings)[0]


@pytest.mark.parametrize(
    "other",
    ["from torch.distributed.tensor import DTensor", "import opacus", "class T:\n    def __torch_function__(cls): ..."],
)
def test_a_loss_that_may_be_no_plain_tensor_is_read_where_it_was(other: str) -> None:
    text = sums("total += loss.item()")
    after, findings = migrate("CHP025", text, other=other)
    assert after == text and "`DTensor`" in reports(findings)[0]


def test_a_cell_of_a_notebook_may_be_interrupted() -> None:
    text = textwrap.dedent(sums("total += loss.item()").partition(":\n")[2].rpartition("    return")[0])
    text = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n" + text
    rules = [RULES["CHP025"]]
    assert "double()" in rewrite("a.py", text, Project({"a.py": text}), rules=rules)[0]
    after, (finding,) = rewrite("a.ipynb", text, Project({"a.ipynb": text}), rules=rules)
    assert after == text and "interrupted" in finding.message


def test_counts_are_exact_on_every_device() -> None:
    text = sums("hits += (out.argmax(1) == y).sum().item()").replace("data, model", "data, model, device", 1)
    text = text.replace('    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n', "")
    after, findings = migrate("CHP025", text)
    assert not reports(findings) and "hits = int(hits)" in after


def test_other_objects_of_the_project_may_be_counted_otherwise() -> None:
    text = sums("hits += (out == y).sum().item()")
    hits = "class Hits:\n    def __eq__(self, other): ...\n    def item(self): ...\n"
    after, findings = migrate("CHP025", text, other=hits)
    assert after == text and "`(out == y).sum()` may be no tensor" in reports(findings)[0]
    text = sums("total += loss.item() * x.size(0)")
    after, findings = migrate("CHP025", text, other="class Batch:\n    def size(self, n): ...\n")
    assert after == text and "`x.size(0)` is not surely the batch size" in reports(findings)[0]


def test_what_is_summed_in_a_loop_inside_another_is_read_behind_it() -> None:
    inner = "for a, b in DataLoader(data):\n    a, b = a.to(device), b.to(device)\n    total += F.mse_loss(a, b).item()"
    after, findings = migrate("CHP025", sums(f"hits += (out == y).sum().item()\n{inner}"))
    assert not reports(findings)
    assert "        total = float(total)\n    hits = int(hits)\n    return" in after


def test_two_loops_may_use_one_name() -> None:
    loop = sums("total += loss.item()").partition("    for x")[2].partition("    return")[0]
    text = sums("total += loss.item()").replace(
        "    return", f"    print(total)\n    total = 0.0\n    for x{loop}    return"
    )
    after, findings = migrate("CHP025", text)
    assert not reports(findings) and after.count("    total = float(total)\n") == 2


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
    assert after == sums(body) and instead in message and "not rewritten" not in message


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
