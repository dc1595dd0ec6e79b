"""State that workers cannot have is spoken of; nothing is rewritten."""

from __future__ import annotations

import textwrap

import pytest
from rule_programs import advice, dataset


@pytest.mark.parametrize(
    ("init", "what"),
    [
        ("self.f = open(x)", "an open file"),
        ("self.f: object = gzip.open(x, 'rb')", "an open file"),
        ("self.f = zipfile.ZipFile(x) if x else None", "an open file"),
        ("self.f = h5py.File(x, 'r')", "an open HDF5 file"),
        ("self.f = h5py.File(x, 'r')['clips']", "an open HDF5 file"),
        ("self.f = [h5py.File(one) for one in x]", "an open HDF5 file"),
        ("self.f = {one: h5py.File(one) for one in x}", "an open HDF5 file"),
        ("file = h5py.File(x)\nself.n = len(file)\nself.f = file", "an open HDF5 file"),
        ("import lmdb as db\nself.f = db.open(x)", "an open LMDB environment"),
        ("import sqlite3\nself.f = sqlite3.connect(x)", "an open connection"),
        ("self.f = threading.RLock()", "a `threading` object"),
        ("from threading import Lock as L\nself.f = L()", "a `threading` object"),
        ("from concurrent.futures import ThreadPoolExecutor\nself.f = ThreadPoolExecutor()", "threads"),
        ("self.f = (one for one in x)", "a generator"),
        ("self.f = torch.zeros(3).cuda()", "CUDA tensors"),
        ("self.f = x.to('cuda:1')", "CUDA tensors"),
        ("self.f = x.to(device=torch.device('cuda' if x else 'cpu'))", "CUDA tensors"),
        ("self.f = torch.zeros(3, device='cuda')", "CUDA tensors"),
    ],
)
def test_what_workers_cannot_have(init: str, what: str) -> None:
    (message,) = advice("CHP018", dataset(init))
    assert f"`self.f` ({what} made in `__init__`) " in message and "With workers, " in message


@pytest.mark.parametrize(
    ("init", "getitem", "more"),
    [
        ("self.f = None", "self.f = self.f or h5py.File(self.x)\nreturn self.f[i]", ""),
        ("self.f = h5py.File(x)\nself.n = len(self.f)\nself.f.close()\nself.f = None", "return 1", ""),
        ("self.f = h5py.File(x)\nself.n = len(self.f)\ndel self.f", "return 1", ""),
        ("self.f = h5py.File(x)", "return 1", "def __getstate__(self):\n    return {}"),
        ("self.f = h5py.File(x)", "return 1", "def __reduce__(self):\n    return D, ()"),
        ("self.f = h5py.File(x)['clips'][:]", "return 1", ""),
        ("self.f = open(x).read()", "return 1", ""),
        ("with open(x) as f:\n    self.f = f.read()", "return 1", ""),
        ("f = open(x)\nself.f = list(f)", "return 1", ""),
        ("self.f = multiprocessing.Lock()", "return 1", ""),
        ("self.f = [one for one in x]", "return 1", ""),
        ("self.f = x.to(rng)", "return 1", ""),
        ("self.f = torch.device('cuda')", "return 1", ""),
        ("self.f = torch.cuda.current_device()", "return 1", ""),
        ("def open(x):\n    return x\nself.f = open(x)", "return 1", ""),
    ],
)
def test_what_workers_can_have(init: str, getitem: str, more: str) -> None:
    assert advice("CHP018", dataset(init, getitem, more=more)) == []


def test_datasets_are_known_through_the_project() -> None:
    base = "import torch.utils.data\nclass Base(torch.utils.data.Dataset[int]):\n    def __getstate__(self): ...\n"
    text = dataset("self.f = open(x)", base="base.Base")
    assert advice("CHP018", "import base\n" + text, base=base) == []
    assert len(advice("CHP018", "import base\n" + text, base=base.replace("getstate", "len"))) == 1
    assert advice("CHP018", dataset("self.f = open(x)", base="object")) == []
    assert len(advice("CHP018", dataset("self.f = open(x)", base="IterableDataset"))) == 1
    local = "def make():\n" + textwrap.indent(dataset("self.f = open(x)"), "    ")
    assert len(advice("CHP018", local)) == 1


@pytest.mark.parametrize("made", ["h5py.File(x)", "torch.zeros(3).cuda()", "open(x)"])
@pytest.mark.parametrize(
    ("loaders", "is_reported"),
    [
        ("DataLoader(D(1), num_workers=0)", False),
        ("DataLoader(D(1), num_workers=0), DataLoader([1], num_workers=0)", False),
        ("DataLoader(D(1))", False),
        ("load(D(1), DataLoader([1], num_workers=0))", False),
        ("DataLoader(D(1), num_workers=0), DataLoader(D(2), num_workers=workers)", True),
        ("DataLoader(D(1), num_workers=4)", True),
        ("load(D(1), DataLoader([1], num_workers=4))", True),
    ],
)
def test_state_is_no_bug_where_no_loader_has_workers(made: str, loaders: str, is_reported: bool) -> None:
    text = dataset(f"self.f = {made}") + f"\nfrom torch.utils.data import DataLoader\n\nmade = {loaders}\n"
    assert bool(advice("CHP018", text)) is is_reported


def test_what_a_helper_method_opens_counts_where_the_constructor_calls_it() -> None:
    helper = "def open_it(self):\n    self.f = open(self.x)"
    assert len(advice("CHP018", dataset("self.open_it()", more=helper))) == 1
    assert advice("CHP018", dataset("self.x = x", "self.open_it()", more=helper)) == []
