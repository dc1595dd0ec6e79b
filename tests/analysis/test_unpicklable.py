"""What no spawned worker can be sent is reported: wherever a dataset or loader holds it, and only if it does."""

from __future__ import annotations

import textwrap

import pytest

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project

RULES = [rule for rule in all_rules() if rule.code in ("CHP006", "CHP007", "CHP012", "CHP018")]
HEAD = """\
import contextlib, functools, json, os, threading
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from functools import partial
import h5py, lmdb, netCDF4
import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split


class Base(Dataset):
    def __init__(self, n=4, transform=None):
        self.n, self.transform = n, transform

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(float(i))


class Compose:
    def __init__(self, steps):
        self.steps = steps


def load(dataset, **options):
    return DataLoader(dataset, batch_size=2, num_workers=2, **options)


"""


def reports(text: str, head: str = HEAD, **others: str) -> list[tuple[str, str]]:
    """Rule and message of all that is listed in a program: ``main.py``, and other files by their names."""
    texts = {"main.py": head + textwrap.dedent(text), **{f"{name}.py": other for name, other in others.items()}}
    project = Project(texts)
    found: list[tuple[str, str]] = []
    for path, content in texts.items():
        found += [
            (f.rule, f.message)
            for f in rewrite_text(path, content, project, rules=RULES)[1]
            if f.status is FindingStatus.REPORT
        ]
        project.update(path, content)
    return found


def dataset(init: str, more: str = "") -> str:
    """A program whose dataset has some statements in its constructor."""
    methods = textwrap.indent(textwrap.dedent(more), "    ")
    body = textwrap.indent(textwrap.dedent(init), "        ")
    return f"class D(Base):\n    def __init__(self):\n        super().__init__()\n{body}\n{methods}\n\nload(D())\n"


@pytest.mark.parametrize(
    ("program", "holder"),
    [
        ("load(Base(4, Compose([lambda x: x])))", "`Compose.steps`"),
        ("steps = []\nsteps.append(lambda x: x)\nload(Base(4, Compose(steps)))", "`Compose.steps`"),
        ("sets = {k: Base(4, Compose([lambda x: x])) for k in ('a', 'b')}\nload(sets['a'])", "`Compose.steps`"),
        ("def make(n, f):\n    return Base(n, f)\nload(make(4, lambda x: x))", "`Base.transform`"),
        (
            "def make(**options):\n    return Base(4, **options)\nload(make(transform=[lambda x: x]))",
            "`Base.transform`",
        ),
        (
            "class D(Base):\n    def __init__(self, k):\n        super().__init__(4, lambda x: x * k)\nload(D(3))",
            "`D.transform`",
        ),
        (dataset("self.groups = defaultdict(lambda: [])"), "`D.groups`"),
        ("data = Base()\ndata.extra = [lambda x: x]\nload(data)", "`Base.extra`"),
        ("data = Base()\nsetattr(data, 'extra', lambda x: x)\nload(data)", "`Base.extra`"),
        ("OPS = {'a': lambda x: x, 'b': int}\nload(Base(4, OPS['a']))", "`Base.transform`"),
        ("train, val = random_split(Base(4, Compose([lambda x: x])), [2, 2])\nload(train)", "`Compose.steps`"),
        ("load(ConcatDataset([Base(2, Compose([lambda x: x]))]))", "`Compose.steps`"),
        ("load(Base(4, partial(partial, lambda x: x)))", "`Base.transform`"),
        ("class C:\n    def __init__(self, f):\n        self.f = f\nload(Base(), collate_fn=C(lambda b: b))", "`C.f`"),
        ("load([1, 2, lambda: 3])", "the dataset"),
    ],
)
def test_lambdas_that_workers_are_sent(program: str, holder: str) -> None:
    assert reports(program) == [
        (
            "CHP007",
            f"lambda in {holder} cannot be pickled for workers. Use a module-level function, or `functools.partial`",
        )
    ]


@pytest.mark.parametrize(
    ("program", "rule", "what"),
    [
        (
            "def main():\n    def f(x):\n        return x\n    load(Base(4, Compose([f])))\nmain()",
            "CHP012",
            "local function `f`",
        ),
        (
            "def make(k):\n    def f(x):\n        return x * k\n    return f\nload(Base(4, Compose(make(2))))",
            "CHP012",
            "local function `f`",
        ),
        (
            "def make(base):\n    class Sub(base):\n        pass\n    return Sub(4)\nload(make(Base))",
            "CHP006",
            "local class `Sub`",
        ),
        ("def main():\n    class C:\n        pass\n    load(Base(4, C()))\nmain()", "CHP006", "local class `C`"),
        (
            "def main():\n    P = namedtuple('P', 'a b')\n    load(Base(4, P(1, 2)))\nmain()",
            "CHP006",
            "class that is made in a function",
        ),
    ],
)
def test_functions_and_classes_that_have_no_name_in_a_module(program: str, rule: str, what: str) -> None:
    ((code, message),) = reports(program)
    assert code == rule and message.startswith(f"{what} in ") and "cannot be pickled for workers" in message


@pytest.mark.parametrize(
    ("init", "what"),
    [
        ("names = {'a': 1}\nself.names = names.keys()", "a view of a dict"),
        ("self.pairs = OrderedDict(a=1).items()", "a view of a dict"),
        ("self.codec = json", "a module"),
        ("self.files = [open(p) for p in ('a', 'b')]", "an open file"),
        ("self.files = {}\nfor p in ('a', 'b'):\n    self.files.setdefault(p, open(p))", "an open file"),
        ("with opened('a') as f:\n    self.f = f", "an open file"),
        ("self.f = helper('a')", "an open file"),
        ("self.z = np.load('a.npz')", "an open `.npz` archive"),
        ("self.z = np.load(os.path.join('data', f'{self.n}.npz'))", "an open `.npz` archive"),
        ("f = h5py.File('a', 'r')\nself.parts = {'x': f['x']}", "an open HDF5 file"),
        ("env = lmdb.open('a')\nself.txn = env.begin(write=False)", "an open LMDB environment"),
        ("nc = netCDF4.Dataset('a')\nself.t = [nc.variables[k] for k in ('t2m', 'u10')]", "an open netCDF file"),
        ("import mmap\nself.m = mmap.mmap(-1, 16)", "a memory map"),
        ("from queue import Queue\nself.q = Queue(3)", "a queue for threads"),
        ("self.it = (i for i in range(3))", "a generator"),
        ("self.it = self.walk()", "a generator"),
        ("self.made = self.it = None\nself.made = len(self.lazy)", "an open file"),
    ],
)
def test_state_that_has_no_pickled_form(init: str, what: str) -> None:
    helpers = (
        "@contextlib.contextmanager\ndef opened(path):\n    f = open(path)\n    yield f\n\n\n"
        "def helper(path):\n    return open(path)\n\n\n"
    )
    methods = (
        "\ndef walk(self):\n    yield 1\n\n@property\ndef lazy(self):\n    if self.it is None:\n"
        "        self.it = open('a')\n    return self.it\n"
    )
    ((code, message),) = reports(helpers + dataset(init, methods))
    assert code == "CHP018" and what in message and "cannot be pickled" in message and "With workers, " in message


READS = "class D(Base):\n    f = None\n\n    def __getitem__(self, i):\n        self.f = self.f or open('a')\n        return i\n\n\n"


@pytest.mark.parametrize(
    "use", ["data[0]", "next(iter(data))", "sum(data)", "for batch in DataLoader(data):\n    pass"]
)
def test_what_reading_a_sample_in_this_process_opens_is_sent_too(use: str) -> None:
    assert reports(f"{READS}data = D()\nload(data)\n") == []
    assert [rule for rule, _ in reports(f"{READS}data = D()\n{use}\nload(data)\n")] == ["CHP018"]


@pytest.mark.parametrize(
    "program",
    [
        # What nothing is known of, but that it is called.
        "def call(*parts, **more):\n    return partial(*parts, **more)()\ncall(*sys.argv)",
        # Module-level functions, bound methods, results.
        "def f(x):\n    return x\nload(Base(4, Compose([f, partial(f, 2), np.sqrt, torch.relu, int])))",
        "def named(f):\n    @functools.wraps(f)\n    def inner(*a):\n        return f(*a)\n    return inner\n@named\ndef g(b):\n    return b\nload(Base(), collate_fn=g)",
        dataset("self.pick = self.plus", "\ndef plus(self, x):\n    return x\n"),
        dataset("norm = lambda x: x / 2\nself.values = [norm(v) for v in (1, 2)]\nself.order = sorted('ba', key=lambda s: s)"),
        dataset("m = {'a': 1}\nself.k = sorted(m.keys())\nself.v = list(m.values())\nself.n = len(m.items())"),
        dataset("groups = defaultdict(lambda: [])\ngroups['a'].append(1)\nself.groups = dict(groups)"),
        dataset("with h5py.File('a') as f:\n    self.x = f['x'][:]\nwith np.load('a.npz') as z:\n    self.z = z['x']"),
        dataset("env = lmdb.open('a')\nwith env.begin() as txn:\n    self.length = txn.get(b'n')"),
        dataset("with threading.Lock():\n    self.x = json.loads('[1]')"),
        # Not held when it is pickled.
        dataset("self.f = open('a')\nself.lines = self.f.read()\nself.f = None"),
        dataset("self.f = open('a')\nself.stop()", "\ndef stop(self):\n    self.f.close()\n    self.f = None\n"),
        dataset("self.f = open('a')", "\ndef __getstate__(self):\n    return {k: v for k, v in vars(self).items() if k != 'f'}\n"),
        dataset("self.f = open('a')", "\ndef __getstate__(self):\n    state = self.__dict__.copy()\n    state.pop('f')\n    return state\n"),
        dataset("self.f = open('a')", "\ndef __reduce__(self):\n    return D, ()\n"),
        dataset("pass", "\ntable = {'a': lambda x: x}\n"),
        dataset("pass", "\n@property\ndef f(self):\n    return open('a')\n"),
        "class D(Base):\n    def __init__(self, keep=False):\n        super().__init__()\n        if keep:\n            self.f = open('a')\nload(D())",
        # Held by something else.
        "options = {'f': [lambda x: x], 'n': 4}\nload(Base(options['n']))",
        "OPS = {'a': lambda x: x, 'b': int}\nload(Base(4, OPS['b']))",
        "class T:\n    def __init__(self):\n        self.hook, self.data = [lambda x: x], Base()\n\n    def run(self):\n        return load(self.data)\nT().run()",
        "class S(torch.utils.data.Sampler):\n    def __init__(self, key):\n        self.key = key\nload(Base(), sampler=S(lambda x: x))",
        # No workers that are sent anything.
        "DataLoader(Base(4, Compose([lambda x: x])))",
        "n = 0\nDataLoader(Base(4, Compose([lambda x: x])), num_workers=n)",
        "DataLoader(Base(4, Compose([lambda x: x])), num_workers=2, multiprocessing_context='fork')",
    ],
)  # fmt: skip
def test_what_workers_can_be_sent_is_not_reported(program: str) -> None:
    assert reports(program) == []


def test_an_object_is_reported_where_it_is_made_whoever_holds_it() -> None:
    program = "from loaders import train_loader\nimport steps\n\nloader = train_loader(steps.build(), 2)\n"
    loaders = (
        "from torch.utils.data import DataLoader\nfrom sets import Clips\n\n\n"
        "def train_loader(transform, workers):\n    return DataLoader(Clips(transform), num_workers=workers)\n"
    )
    sets = "from torch.utils.data import Dataset\n\n\nclass Clips(Dataset):\n    def __init__(self, t):\n        self.t = t\n"
    steps = "def build():\n    return [lambda x: x]\n"
    (found,) = reports(program, "", loaders=loaders, sets=sets, steps=steps)
    assert found[0] == "CHP007" and "`Clips.t`" in found[1]
    assert reports(program, "", loaders=loaders, sets=sets, steps=steps.replace("lambda x: x", "int")) == []


def test_what_other_rules_rewrite_beside_it_does_not_matter() -> None:
    program = "def main():\n    loader = DataLoader(Base(4, Compose([lambda x: x])), num_workers=2, shuffle=True)\n    return loader\n"
    project = Project({"main.py": HEAD + program})
    after, findings = rewrite_text("main.py", HEAD + program, project)
    assert "create_loader" in after
    (found,) = (one for one in findings if one.rule == "CHP007")
    assert found.status is FindingStatus.REPORT and (HEAD + program).splitlines()[found.line - 1].count("lambda") == 1


def test_a_moved_function_is_not_reported_in_a_file_without_loaders() -> None:
    function = "    def collate(batch):\n        return torch.tensor(batch) * value\n"
    wrapper = "class Collator:\n    def __init__(self, fn=None):\n        self.fn = fn\n"
    collate = f"import torch\n\n\ndef make(value):\n{function}\n    return collate\n\n\n{wrapper}"
    loader = "DataLoader([1], 2, collate_fn=make(2), num_workers=2)\n"
    train = f"from collates import make\nfrom torch.utils.data import DataLoader\n\n{loader}"
    project = Project({"collates.py": collate, "train.py": train})
    after, findings = rewrite_text("collates.py", collate, project)
    assert "def _collate(value, /, batch):" in after
    assert [(one.rule, one.status) for one in findings] == [("CHP012", FindingStatus.REWRITE)]
