"""Reasons of findings are true: each is printed for one program, and not for a similar one of which it is false."""

from __future__ import annotations

import pytest
from support import RULES, migrate

from chirp_migrate.plans.plan import Finding

HEAD = """\
import copy
import functools
import inspect
import math
from functools import partial

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

"""

#: A loader with a lambda or function that captures a value.
LAMBDA = "def build(data, pad):\n    return DataLoader(data, collate_fn=lambda batch: [*batch, pad])\n"
FUNCTION = (
    "def build(data, pad):\n    def collate(batch):\n        return [*batch, pad]\n\n"
    "    return DataLoader(data, collate_fn=collate)\n"
)
METHOD = (
    "class Data(Dataset):\n    def __init__(self, data):\n        self.data, self.k = data, 3\n"
    "        self.scale = lambda x: x * self.k\n"
)
TRANSFER = (
    "def train(data, model, device):\n    for x in DataLoader(data, collate_fn=stack, pin_memory=True):\n"
    "        model(x.to(device))\n"
)
EPOCHS = (
    "def train(data, step):\n    sampler = DistributedSampler(data)\n    loader = DataLoader(data, sampler=sampler)\n"
    "    for epoch in range(9):\n        step(loader)\n"
)
CLASS = (
    "def make(data, shift):\n    class Shifted(Dataset):\n        def __getitem__(self, i):\n"
    "            return data[i] + shift\n\n    return Shifted()\n"
)

#: Rule, reason, a program of which it is true, and what to change so that it is not.
REASONS: list[tuple[str, str, str, tuple[str, str]]] = [
    (
        "CHP007",
        "the project reads an attribute of functions such as `__name__`",
        LAMBDA + "print(step.__name__)\n",
        ("step.", "Step."),
    ),
    (
        "CHP007",
        "reads an attribute of functions such as `__name__`",
        LAMBDA + "print(step.__name__)\n",
        ("step.", "type(step)."),
    ),
    (
        "CHP007",
        "reads an attribute of functions such as `__name__`",
        LAMBDA + "print(step.__name__)\n",
        ("step.", "self.model_class."),
    ),
    (
        "CHP007",
        "reads an attribute of functions such as `__name__`",
        LAMBDA + "print(step.__code__)\n",
        ("__code__", "code"),
    ),
    (
        "CHP012",
        "reads an attribute of functions such as `__name__`",
        FUNCTION + "print(f.__qualname__)\n",
        ("f.", "Net."),
    ),
    (
        "CHP012",
        "reads an attribute of functions such as `__name__`",
        FUNCTION + "inspect.isfunction(f)\n",
        ("isfunction", "isclass"),
    ),
    (
        "CHP007",
        "reads function attributes",
        LAMBDA + "print(step.__doc__)\n",
        ("step.", "Step."),
    ),
    (
        "CHP012",
        "reads function attributes",
        FUNCTION + "print(f.__module__)\n",
        ("f.", "Net."),
    ),
    (
        "CHP012",
        "the code uses attributes of the function",
        (
            "def build(data, pad):\n"
            "    def collate(batch):\n"
            "        return [*batch, pad]\n"
            "\n"
            "    collate.k = 3\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("collate.k", "k"),
    ),
    (
        "CHP007",
        "may set attributes on the function",
        LAMBDA + "x.collate_fn.k = 3\n",
        ("collate_fn.k", "other.k"),
    ),
    (
        "CHP007",
        "checks for `partial` objects",
        LAMBDA + "isinstance(x, partial)\n",
        ("partial)", "int)"),
    ),
    (
        "CHP012",
        "the project reads the function with `inspect`",
        (
            "def build(data, pad):\n"
            "    def collate(batch):\n"
            "        return [*batch, pad]\n"
            "\n"
            "    inspect.signature(collate)\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("(collate)\n", "(build)\n"),
    ),
    (
        "CHP007",
        "a deep copy of an object that contains the function",
        LAMBDA + "copy.deepcopy(x)\n",
        ("deepcopy", "copy"),
    ),
    (
        "CHP012",
        "a deep copy of an object that contains the function",
        FUNCTION + "copy.deepcopy(x)\n",
        ("deepcopy(x)", "deepcopy(x.state_dict())"),
    ),
    (
        "CHP007",
        "`pad` is deleted",
        ("def build(data, pad):\n    x = DataLoader(data, collate_fn=lambda batch: [*batch, pad])\n    del pad\n"),
        ("del pad", "del data"),
    ),
    (
        "CHP007",
        "may have no value yet",
        (
            "def build(data):\n"
            "    if data:\n"
            "        pad = 3\n"
            "    return DataLoader(data, collate_fn=lambda b: [*b, pad])\n"
        ),
        ("    if data:\n        pad = 3", "    pad = 3"),
    ),
    (
        "CHP007",
        "`pad` is assigned only below",
        ("def build(data):\n    f = lambda b: [*b, pad]\n    pad = 3\n    return DataLoader(data, collate_fn=f)\n"),
        ("(data):", "(data, pad):"),
    ),
    (
        "CHP007",
        "is assigned again",
        (
            "def build(data, pad):\n"
            "    x = DataLoader(data, collate_fn=lambda batch: [*batch, pad])\n"
            "    pad = 4\n"
            "    return x\n"
        ),
        ("pad = 4", "more = 4"),
    ),
    (
        "CHP007",
        "is a caught exception",
        (
            "def build(data):\n"
            "    try:\n"
            "        pass\n"
            "    except OSError as pad:\n"
            "        return DataLoader(data, collate_fn=lambda b: [*b, pad])\n"
        ),
        ("as pad:", "as error:\n        pad = error"),
    ),
    (
        "CHP007",
        "is rebound by an inner function",
        (
            "def build(data, pad):\n"
            "    def other():\n"
            "        nonlocal pad\n"
            "        pad = 3\n"
            "    return DataLoader(data, collate_fn=lambda batch: [*batch, pad])\n"
        ),
        ("        nonlocal pad\n", ""),
    ),
    (
        "CHP007",
        "after the comprehension reads only the last value of its variable `pad`",
        ("def build(data):\n    return [DataLoader(data, collate_fn=lambda b: [*b, pad]) for pad in data]\n"),
        ("lambda b:", "lambda b, *, pad=pad:"),
    ),
    (
        "CHP007",
        "the definition uses the lambda `more`",
        (
            "def build(data):\n"
            "    more = lambda b: locals()\n"
            "    return DataLoader(data, collate_fn=lambda b: more(b))\n"
        ),
        ("lambda b: locals()\n", "data.more\n"),
    ),
    (
        "CHP007",
        "the definition uses the local function `more`",
        ("def build(data):\n    def more(b): return b\n    return DataLoader(data, collate_fn=lambda b: more(b))\n"),
        ("def more(b): return b", "more = data.more"),
    ),
    (
        "CHP012",
        "the definition uses the local class `More`",
        (
            "def build(data, pad):\n"
            "    class More: pass\n"
            "\n"
            "    def collate(batch):\n"
            "        return [*batch, More]\n"
            "\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("class More: pass", "More = data.More"),
    ),
    (
        "CHP007",
        "the rewrite would move this code to a place where `locals` has another result",
        ("def build(data, pad):\n    return DataLoader(data, collate_fn=lambda batch: [*batch, pad, locals()])\n"),
        ("locals()", "local()"),
    ),
    (
        "CHP007",
        "may read the local names of the enclosing function",
        (
            "def build(data, pad):\n"
            "    print(locals())\n"
            "    return DataLoader(data, collate_fn=lambda batch: [*batch, pad])\n"
        ),
        ("locals()", "local()"),
    ),
    (
        "CHP012",
        "a place where `super` has another result",
        (
            "class A(B):\n"
            "    def f(self, d):\n"
            "        def collate(b):\n"
            "            return super().f(b)\n"
            "        return DataLoader(d, collate_fn=collate)\n"
        ),
        ("super().f", "B.f"),
    ),
    (
        "CHP007",
        "only inside the enclosing class",
        ("class A:\n    def f(self, d, o):\n        return DataLoader(d, collate_fn=lambda b: o.__pad(b))\n"),
        ("__pad", "_pad"),
    ),
    (
        "CHP007",
        "different import statements bind the name",
        (
            "def build(d):\n"
            "    if d:\n"
            "        from json import dumps\n"
            "    else:\n"
            "        from pickle import dumps\n"
            "    return DataLoader(d, collate_fn=lambda b: dumps(b))\n"
        ),
        ("from pickle", "from json"),
    ),
    (
        "CHP012",
        "the function has a decorator",
        (
            "def build(data, pad):\n"
            "    @functools.cache\n"
            "    def collate(batch):\n"
            "        return [*batch, pad]\n"
            "\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("@functools.cache", "@torch.no_grad()"),
    ),
    (
        "CHP012",
        "the code deletes the name of the function",
        (
            "def build(data, pad):\n"
            "    def collate(batch):\n"
            "        return [*batch, pad]\n"
            "\n"
            "    del collate\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("del collate", "del data"),
    ),
    (
        "CHP012",
        "the function calls itself by its local name",
        (
            "def build(data, pad):\n"
            "    def collate(batch):\n"
            "        return [collate(batch), pad]\n"
            "\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("[collate(batch)", "[len(batch)"),
    ),
    (
        "CHP012",
        "the definition rebinds `pad` of the enclosing function",
        (
            "def build(data, pad):\n"
            "    def collate(batch):\n"
            "        nonlocal pad\n"
            "        pad = 3\n"
            "        return [*batch, pad]\n"
            "\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("        nonlocal pad\n", ""),
    ),
    (
        "CHP012",
        "the annotations use `Batch`",
        (
            "def build(data, pad):\n"
            "    def collate(batch: Batch):\n"
            "        return [*batch, pad]\n"
            "\n"
            "    return DataLoader(data, collate_fn=collate)\n"
        ),
        ("Batch", "list"),
    ),
    (
        "CHP007",
        "the function has a positional-only parameter with a default",
        ("def build(d, k):\n    return DataLoader(d, collate_fn=lambda b=k, /: b)\n"),
        ("=k, /", "=3, /"),
    ),
    (
        "CHP007",
        "the rewrite would bind the default of `k` with `partial`",
        ("def build(d, k, f):\n    f(collate_fn=lambda b, k=k: (b, k))\n"),
        ("b, k=k", "b, *, k=k"),
    ),
    (
        "CHP007",
        "and code that sets attributes under computed names",
        METHOD + ("        for n in data:\n            setattr(self, n, 1)\n"),
        ("n, 1", "'n', 1"),
    ),
    (
        "CHP007",
        "inspects the methods",
        (
            "@register\n"
            "class Data(Dataset):\n"
            "    def __init__(self, data):\n"
            "        self.data, self.k = data, 3\n"
            "        self.scale = lambda x: x * self.k\n"
        ),
        ("@register\n", ""),
    ),
    (
        "CHP006",
        "is assigned again",
        (
            "def make(data, shift):\n"
            "    class Shifted(Dataset):\n"
            "        def __getitem__(self, i):\n"
            "            return data[i] + shift\n"
            "\n"
            "    made = Shifted()\n"
            "    shift = 3\n"
            "    return Shifted()\n"
        ),
        ("shift = 3", "other = 3"),
    ),
    (
        "CHP006",
        "the rule needs code that only calls the class",
        (
            "def make(data, shift):\n"
            "    class Shifted(Dataset):\n"
            "        def __getitem__(self, i):\n"
            "            return data[i] + shift\n"
            "\n"
            "    return Shifted\n"
        ),
        ("return Shifted\n", "return Shifted()\n"),
    ),
    (
        "CHP006",
        "the class is defined in the body of another class",
        (
            "def make(data):\n"
            "    class Outer:\n"
            "        class Inner(Dataset):\n"
            "            def __getitem__(self, i):\n"
            "                return i\n"
            "\n"
            "    return Outer.Inner()\n"
        ),
        ("    class Outer:\n        class Inner", "    if True:\n        class Inner"),
    ),
    (
        "CHP006",
        "the project reads names of classes",
        CLASS + ("\n\nShifted = 3\nprint(type(x).__name__)\n"),
        ("print(type(x).__name__)\n", ""),
    ),
    (
        "CHP013",
        "the project also runs on MPS",
        TRANSFER + "device = torch.device('mps')\n",
        ("torch.device('mps')", "{'mps': 3.5}"),
    ),
    (
        "CHP013",
        "the project also runs on MPS",
        TRANSFER + "torch.backends.mps.is_available()\n",
        ("torch.backends.mps.", "meter.mps."),
    ),
    (
        "CHP013",
        "the project also runs on MPS",
        TRANSFER + "use('mps')\n",
        ("use('mps')", "log('mps', 12.0)"),
    ),
    (
        "CHP013",
        "whose `to` takes no `non_blocking`",
        TRANSFER + ("class Batch:\n    def to(self, device): return self\n"),
        ("self, device)", "self, device, **more)"),
    ),
    (
        "CHP013",
        "whose `to` takes no `non_blocking`",
        TRANSFER + ("class Batch:\n    def to(self, device): return self\n"),
        ("class Batch", "class Batch(torch.nn.Module)"),
    ),
    (
        "CHP013",
        "whose `to` takes no `non_blocking`",
        TRANSFER + ("class Batch:\n    def to(self, device): return self\n"),
        ("class Batch:\n    def to(self, device)", "if device:\n    def to(x, device)"),
    ),
    (
        "CHP013",
        "inspects the arguments of `to` or `cuda`",
        TRANSFER + "batch.to.assert_called_once_with('cuda')\n",
        ("to.assert_called_once_with", "save.assert_called_once_with"),
    ),
    (
        "CHP013",
        "inspects the arguments of `to` or `cuda`",
        TRANSFER + "patch.object(torch.Tensor, 'to', send)\n",
        ("'to'", "'save'"),
    ),
    (
        "CHP013",
        "replaces the method `to` of an object",
        TRANSFER + "batch.to = send\n",
        ("batch.to =", "to ="),
    ),
    (
        "CHP013",
        "`__getattr__` may return a method `to`",
        TRANSFER + ("class B:\n    def __getattr__(self, name): return 1\n"),
        ("class B:\n    def __getattr__(self, name)", "def __getattr__(name)"),
    ),
    (
        "CHP013",
        "may be a `BatchEncoding`",
        (
            "def train(data, model, device):\n"
            "    for x in DataLoader(data, pin_memory=True):\n"
            "        model(x.to(device))\n"
            "import transformers\n"
        ),
        ("import transformers", "import transforms"),
    ),
    (
        "CHP013",
        "is used again, and may change",
        TRANSFER + "        x.add_(1)\n",
        ("x.add_(1)", "x.size(1)"),
    ),
    (
        "CHP014",
        "builds the sampler again in every iteration",
        (
            "def train(data, step):\n"
            "    sampler = DistributedSampler(data)\n"
            "    loader = DataLoader(data, sampler=sampler)\n"
            "    for epoch in range(9):\n"
            "        sampler = DistributedSampler(data)\n"
            "        loader = DataLoader(data, sampler=sampler)\n"
            "        step(loader)\n"
        ),
        (("        sampler = DistributedSampler(data)\n        loader = DataLoader(data, sampler=sampler)\n"), ""),
    ),
    (
        "CHP014",
        "the loop has no variable for the epoch",
        (
            "def train(data, step):\n"
            "    sampler = DistributedSampler(data)\n"
            "    loader = DataLoader(data, sampler=sampler)\n"
            "    for _ in range(9):\n"
            "        step(loader)\n"
        ),
        ("for _", "for number"),
    ),
    (
        "CHP014",
        "it is not clear which of the loops",
        (
            "def train(data, step):\n"
            "    sampler = DistributedSampler(data)\n"
            "    loader = DataLoader(data, sampler=sampler)\n"
            "    for a in range(9):\n"
            "      for b in range(9):\n"
            "        step(loader)\n"
        ),
        ("for b", "for epoch"),
    ),
    (
        "CHP001",
        "is patched elsewhere",
        ("loader = DataLoader(data)\nfrom unittest.mock import patch\npatch('a.DataLoader')\n"),
        ("'a.DataLoader'", "'a.Dataset'"),
    ),
    (
        "CHP001",
        "may refer to PyTorch's class or",
        ("try:\n    from fast import DataLoader\nexcept ImportError:\n    pass\nx = DataLoader(data)\n"),
        ("from fast import DataLoader", "from fast import Loader"),
    ),
    (
        "CHP001",
        "already means something else",
        ("def f(OptimalDataLoaderFactory, d):\n    return DataLoader(d)\n"),
        ("OptimalDataLoaderFactory, ", ""),
    ),
    (
        "CHP001",
        "call has no dataset",
        "x = DataLoader(batch_size=3)\n",
        ("batch_size", "dataset"),
    ),
    (
        "CHP001",
        "is passed to",
        "x = build(DataLoader, d)\n",
        ("build(DataLoader, d)", "build(DataLoader(d))"),
    ),
    (
        "CHP001",
        "subclasses `DataLoader`",
        "class L(DataLoader): pass\n",
        ("(DataLoader)", "(Dataset)"),
    ),
    (
        "CHP001",
        "`L` subclasses `DataLoader` and overrides `__iter__`",
        "class L(DataLoader):\n    def __iter__(self): return iter([])\n",
        ("__iter__", "__len__"),
    ),
    (
        "CHP007",
        "`k` is assigned again, and an object that the function creates, such as a generator, may read the new value",
        "def run(data):\n    for k in data:\n"
        "        list(DataLoader(data, collate_fn=lambda batch: (x * k for x in batch)))\n",
        ("(x * k for x in batch)", "list(x * k for x in batch)"),
    ),
    (
        "CHP007",
        "the imported name `size` may get another value later",
        "def build(data):\n    from sizes import size\n"
        "    return DataLoader(data, collate_fn=lambda batch: batch[:size])\n"
        "def change(sizes):\n    sizes.size = 3\n",
        ("sizes.size", "sizes.length"),
    ),
    (
        "CHP007",
        "the rewrite would make the function a method, and `__init__` may be called with an object of another class as "
        "`self`",
        METHOD + "def fill(other):\n    Data.__init__(other, [])\n",
        ("Data.__init__", "Other.__init__"),
    ),
]


def said(code: str, program: str) -> list[str]:
    """Messages of what a rule only reports."""
    findings: list[Finding] = migrate(code, HEAD + program)[1]
    return [one.message for one in findings if one.status.value in ("report", "opt-in")]


@pytest.mark.parametrize(("code", "reason", "program", "change"), REASONS, ids=lambda value: str(value)[:40])
def test_a_reason_is_given_where_it_is_true_alone(
    code: str, reason: str, program: str, change: tuple[str, str]
) -> None:
    assert code in RULES
    assert any(reason in message for message in said(code, program)), said(code, program)
    near = program.replace(*change)
    assert not any(reason in message for message in said(code, near)), said(code, near)
