"""Programs for the tests of several rules, and what rules say about them."""

from __future__ import annotations

import textwrap

from support import RULES

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus, Safety
from chirp_migrate.syntax.project import Project

IMPORTS = """\
import gzip, multiprocessing, random, threading, zipfile
import h5py
import numpy as np
import torch
import torch.utils.data as tud
from functools import partial
from torch.utils.data import DataLoader, Dataset, IterableDataset
"""


def advice(code: str, text: str, *, path: str = "a.py", imports: str = IMPORTS, **others: str) -> list[str]:
    """What a rule says about a module of a backend with some other modules."""
    texts = {path: imports + textwrap.dedent(text), **{f"{name}.py": other for name, other in others.items()}}
    after, findings = rewrite_text(path, texts[path], Project(texts), unsafe=True, rules=[RULES[code]])
    assert after == texts[path]
    compile(after, path, "exec")
    assert all(one.status is FindingStatus.REPORT and one.safety is Safety.ADVICE for one in findings)
    return [one.message for one in findings]


def dataset(init: str, getitem: str = "return self.x[i]", base: str = "Dataset", more: str = "") -> str:
    """A dataset class with these statements in its methods."""
    body = textwrap.indent(textwrap.dedent(init), " " * 8)
    item = textwrap.indent(textwrap.dedent(getitem), " " * 8)
    rest = textwrap.indent(textwrap.dedent(more), " " * 4)
    methods = f"    def __init__(self, x, rng=None):\n{body}\n    def __getitem__(self, i):\n{item}\n{rest}\n"
    return f"class D({base}):\n{methods}"


def body(text: str, header: str = "for x, y in DataLoader(data):") -> str:
    """A loop over a loader in a function."""
    inner = textwrap.indent(textwrap.dedent(text), "    ")
    loop = textwrap.indent(f"{header}\n{inner}", "    ")
    return f"import torch\nfrom torch.utils.data import DataLoader\n\ndef f(data, model, device, sink):\n{loop}\n"


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
