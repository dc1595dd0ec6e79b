"""Advice: what is spoken of, what is not, and that nothing is ever rewritten for it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
import pytest
import torch

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus, Safety
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project

RULES = {rule.code: rule for rule in all_rules()}
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


@pytest.mark.parametrize(
    ("init", "getitem"),
    [
        ("self.rng = np.random.default_rng(3)", "return self.rng.normal()"),
        ("self.rng = np.random.RandomState()", "return self.rng.rand()"),
        ("self.rng = rng or random.Random(0)", "return self.rng.random()"),
        ("self.rng = torch.Generator().manual_seed(1)", "return torch.rand(3, generator=self.rng)"),
        ("g = torch.Generator()\ng.manual_seed(1)\nself.rng = g", "return torch.rand(3, generator=self.rng)"),
        ("self.rng = np.random.default_rng(3)", "return augment(i, self.rng)"),
        (
            "self.rngs = [np.random.default_rng(n) for n in range(3)]\nself.rng = np.random.default_rng()",
            "return f(self.rng)",
        ),
    ],
)
def test_a_generator_drawn_from_in_getitem_is_copied(init: str, getitem: str) -> None:
    (message,) = advice("CHP017", dataset(init, getitem))
    assert (
        "`self.rng` starts in the same state in every worker" in message
        and "the same numbers in `__getitem__`" in message
        and "get_worker_info().seed" in message
    )


def test_draws_are_found_in_what_getitem_calls() -> None:
    text = """
        class Base(Dataset):
            def __getitem__(self, i):
                return self.noise() + i

        class D(Base):
            def __init__(self):
                self.rng = np.random.default_rng(0)

            def noise(self):
                return self.rng.normal()
    """
    (message,) = advice("CHP017", text)
    assert "the same numbers in `noise`" in message


def test_an_annotated_parameter_is_a_generator() -> None:
    text = """
        class D(Dataset):
            def __init__(self, rng: np.random.Generator | None):
                self.rng = rng

            def __getitem__(self, i):
                return self.rng.normal()
    """
    assert len(advice("CHP017", text)) == 1


@pytest.mark.parametrize(
    ("init", "getitem", "more"),
    [
        ("self.x = x", "return np.random.default_rng(i).normal()", ""),
        ("self.rng = np.random.default_rng(3)\nself.x = self.rng.normal()", "return self.x", ""),
        ("self.rng = np.random.default_rng(3)", "return 1", "def shuffled(self):\n    return self.rng.permutation(3)"),
        ("self.rng = torch.Generator()", "self.rng.manual_seed(i)\nreturn torch.rand(3, generator=self.rng)", ""),
        ("self.rng = None", "self.rng = self.rng or random.Random()\nreturn self.rng.random()", ""),
        (
            "self.rng = random.Random(0)",
            "return self.rng.random()",
            "def set_epoch(self, epoch):\n    self.rng = random.Random(epoch)",
        ),
        ("self.rng = random.Random(0)", "info = tud.get_worker_info()\nreturn self.rng.random()", ""),
        ("self.rng = random.SystemRandom()", "return self.rng.random()", ""),
    ],
)
def test_generators_that_no_worker_shares_are_not_spoken_of(init: str, getitem: str, more: str) -> None:
    assert advice("CHP017", dataset(init, getitem, more=more)) == []


def test_a_generator_that_workers_replace_is_not_spoken_of() -> None:
    init = "def seed_worker(n):\n    tud.get_worker_info().dataset.rng = random.Random(torch.initial_seed())\n"
    text = dataset("self.rng = random.Random(0)", "return self.rng.random()")
    assert advice("CHP017", text + init) == []
    assert advice("CHP017", text, workers="import torch\n" + init) == []


def test_streams_may_share_their_order_but_not_their_noise() -> None:
    text = """
        class Stream(IterableDataset):
            def __init__(self, shards):
                self.shards = shards
                self.rng = random.Random(0)

            def __iter__(self):
                self.rng.shuffle(self.shards)
                for one in self.shards:
                    yield {}
    """
    assert advice("CHP017", text.format("one")) == []
    assert len(advice("CHP017", text.format("one * self.rng.random()"))) == 1


def test_generators_of_class_and_module_are_shared_too() -> None:
    text = """
        seeded = np.random.default_rng(3)
        fresh = np.random.default_rng()
        unused = np.random.default_rng(3)
        changed = np.random.default_rng(3)

        def reseed(seed):
            global changed
            changed = np.random.default_rng(seed)

        def noise():
            return fresh.normal()

        class D(Dataset):
            rng = torch.Generator()

            def __getitem__(self, i):
                return seeded.normal() + noise() + torch.rand(1, generator=self.rng) + f(unused=i) + changed.normal()
    """
    said = advice("CHP017", text)
    assert [one.partition(" ")[0] for one in said] == ["`seeded`", "`fresh`", "`rng`"]
    assert ["state in every forked worker" in one for one in said] == [False, True, False]


@pytest.mark.parametrize(
    ("function", "given", "happens"),
    [
        ("def f(n):\n    np.random.seed(0)", "f", "the same seed in every worker"),
        ("def f(n):\n    seed = cfg.seed\n    random.seed(seed)", "f", "the same seed in every worker"),
        ("", "lambda _: torch.manual_seed(SEED)", "the same seed in every worker"),
        ("def f(n):\n    np.random.seed(SEED + n)", "f", "the same seed in every epoch"),
        ("def f(n):\n    random.seed(n)", "f, persistent_workers=False", "the same seed in every epoch"),
        ("def f(n, seed):\n    random.seed(n + seed)", "partial(f, seed=SEED)", "the same seed in every epoch"),
        ("def f(rank, n):\n    random.seed(rank)", "partial(f, RANK)", "the same seed in every worker"),
        ("def f(seed):\n    random.seed(seed)", "lambda n: f(3)", "the same seed in every worker"),
        ("def f(a, b):\n    random.seed(a + b)", "lambda n: f(SEED, b=n)", "the same seed in every epoch"),
        ("def f(seed):\n    random.seed(seed)", "lambda n: f(torch.initial_seed())", None),
        ("def f(n):\n    np.random.seed(0)", "f, persistent_workers=True", "the same seed in every worker"),
        ("def f(n):\n    np.random.seed(n)", "f, persistent_workers=True", None),
        ("def f(n):\n    np.random.seed(n)", "f, **options", None),
        ("def f(n):\n    np.random.seed(torch.initial_seed() % 2**32)", "f", None),
        ("def f(n):\n    seed = torch.initial_seed() % 2**32\n    np.random.seed(seed + n)", "f", None),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][0] + n)", "f", "the same seed in every epoch"),
        ("def f(n):\n    np.random.seed(int(np.random.get_state()[1][0]) + n)", "f", "the same seed in every epoch"),
        (
            "def f(n):\n    s = np.random.get_state()\n    np.random.seed(s[1][0] + n)",
            "f",
            "the same seed in every epoch",
        ),
        ("def f(n):\n    random.seed(np.random.get_state()[1][0] + n)", "f", "the same seed in every epoch"),
        ("", "lambda n: np.random.seed(np.random.get_state()[1][0] + n)", "the same seed in every epoch"),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][0])", "f", "the same seed in every worker"),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][1] + n)", "f", None),
        ("def f(n):\n    np.random.seed(np.random.get_state()[1][0] + n)", "f, persistent_workers=True", None),
        ("def f(n):\n    seed_all()\n    np.random.seed(np.random.get_state()[1][0] + n)", "f", None),
        ("def f(n):\n    np.random.seed(epoch * 100 + n)", "f", None),
        ("def f(n, seed):\n    np.random.seed(seed + n)", "partial(f, seed=epoch + 1)", None),
        ("def f(n):\n    seed = 1\n    seed += read()\n    random.seed(seed)", "f", None),
        ("def f(n):\n    random.seed()", "f", None),
        ("def f(n):\n    random.seed(None)", "f", None),
        ("def f(n):\n    seed_all(3)", "f", None),
    ],
)
def test_worker_init_functions_that_seed_alike(function: str, given: str, happens: str | None) -> None:
    text = f"{function}\nloader = DataLoader(x, num_workers=2, worker_init_fn={given})\n"
    said = advice("CHP017", text)
    assert [happens in one for one in said] == [True] if happens is not None else said == []


def test_a_seed_from_the_state_of_numpy_is_named_with_the_line_that_is_right() -> None:
    text = """
        def worker_init_fn(worker_id):
            np.random.seed(np.random.get_state()[1][0] + worker_id)
    """
    (message,) = advice("CHP017", text)
    assert "`np.random.get_state()[1][0]` is always 2147483648 in workers" in message
    assert "Write `np.random.seed(torch.initial_seed() % 2**32)`" in message


class _OneNumber(torch.utils.data.Dataset[int]):
    """A sample drawn by NumPy."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return int(np.random.randint(1 << 30))


def _seed_from_state(worker_id: int) -> None:
    np.random.seed(np.random.get_state()[1][0] + worker_id)


def _seed_from_torch(worker_id: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)


@pytest.mark.slow
@pytest.mark.parametrize(("init", "distinct"), [(_seed_from_state, 2), (_seed_from_torch, 4)])
def test_pytorch_draws_the_same_in_every_epoch_with_a_seed_from_the_state(
    init: Callable[[int], None], distinct: int
) -> None:
    loader = torch.utils.data.DataLoader(_OneNumber(), num_workers=2, worker_init_fn=init)
    assert len({int(number) for _ in range(2) for number in loader}) == distinct


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


@pytest.mark.parametrize(
    ("init", "found"),
    [
        ("self.m = np.memmap(x)", True),
        ("self.m = np.load(x, mmap_mode='r')", True),
        ("self.m = [np.load(one, mmap_mode='c') for one in x]", True),
        ("self.m = np.lib.format.open_memmap(x)", True),
        ("self.m = np.load(x, mmap_mode=None)", False),
        ("self.m = np.load(x, mmap_mode='r')[:]", False),
        ("self.m = np.load(x)", False),
        ("m = np.memmap(x)\nself.n = len(m)", False),
    ],
)
def test_memory_maps_are_pickled_whole(init: str, found: bool) -> None:
    said = advice("CHP022", dataset(init))
    assert ["pickling a memory map copies the whole file" in one for one in said] == ([True] if found else [])


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("model.cuda()\nDataLoader(x, num_workers=2, multiprocessing_context='fork')", True),
        ("DataLoader(x, num_workers=2, multiprocessing_context='fork')\nmodel.to('cuda')", True),
        ("torch.cuda.set_device(0)\nctx = multiprocessing.get_context('fork')\nf(multiprocessing_context=ctx)", True),
        (
            "d = torch.device('cuda:0')\nmodel.to(d)\nf(multiprocessing_context=multiprocessing.get_context('fork'))",
            True,
        ),
        ("model.cuda()\nmultiprocessing.set_start_method('fork', force=True)", True),
        ("model.cuda()\ntorch.multiprocessing.set_start_method('fork')", True),
        ("model.cuda()\nDataLoader(x, num_workers=2, multiprocessing_context='spawn')", False),
        ("model.cuda()\nDataLoader(x, num_workers=2)", False),
        ("model.to('cpu')\nDataLoader(x, multiprocessing_context='fork'), 'cuda'", False),
        ("torch.cuda.is_available()\nDataLoader(x, multiprocessing_context='fork')", False),
        ("torch.cuda.is_available()\nmultiprocessing.set_start_method('fork')", False),
        ("def g():\n    model.cuda()\nDataLoader(x, multiprocessing_context='fork')", False),
    ],
)
def test_forking_beside_cuda(body: str, found: bool) -> None:
    said = advice("CHP019", "def train(model, x):\n" + textwrap.indent(body, "    ") + "\n")
    assert ["workers are forked after CUDA was used" in one for one in said] == ([True] if found else [])


@pytest.mark.parametrize(
    ("init", "getitem", "found"),
    [
        ("self.x = x", "return self.x[i].cuda()", True),
        ("self.x = x", "return self.x[i].to('cuda', non_blocking=True)", True),
        ("self.device = 'cuda' if x else 'cpu'", "return self.x[i].to(self.device)", True),
        ("self.x = x", "return torch.tensor(self.x[i], device='cuda:0')", True),
        ("self.device = x", "return self.x[i].to(self.device), 'cuda'", False),
        ("self.x = x.cuda()", "return self.x[i]", False),
        ("self.x = x", "return self.x[i].to(torch.float), 'cuda'", False),
    ],
)
def test_samples_made_on_the_gpu(init: str, getitem: str, found: bool) -> None:
    said = advice("CHP019", dataset(init, getitem))
    assert ["moves samples to the GPU in `__getitem__`" in one for one in said] == ([True] if found else [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("loader = DataLoader(x, num_workers=2)\nfor b in loader:\n    pass", 1),
        ("loader = DataLoader(x, num_workers=args.workers)\nfor e in range(3):\n    train(model, loader)", 1),
        ("for n, b in enumerate(DataLoader(x, num_workers=2)):\n    pass", 1),
        ("a, b = DataLoader(x, num_workers=2), DataLoader(x, num_workers=2)\ntrain(a, b)", 2),
        ("def main():\n    for b in DataLoader(x, num_workers=2):\n        pass\n\nmain()", 1),
        ("def make():\n    return DataLoader(x, num_workers=2)\n\nloader = make()\ntrain(loader)", 1),
        ("loader = DataLoader(x, num_workers=2)\nfirst = [b for b in loader]", 1),
        ("if args.train:\n    for b in DataLoader(x, num_workers=2):\n        pass", 1),
        ("loader = DataLoader(x, num_workers=0)\nfor b in loader:\n    pass", 0),
        ("n = 0\nloader = DataLoader(x, num_workers=n)\nfor b in loader:\n    pass", 0),
        ("loader = DataLoader(x)\nfor b in loader:\n    pass", 0),
        ("loader = DataLoader(x, num_workers=2)\nprint(len(loader))", 0),
        ("def main():\n    for b in DataLoader(x, num_workers=2):\n        pass\n", 0),
        (
            "def main():\n    for b in DataLoader(x, num_workers=2):\n        pass\n\n"
            "if __name__ == '__main__':\n    main()",
            0,
        ),
        ("if '__main__' == __name__:\n    for b in DataLoader(x, num_workers=2):\n        pass", 0),
        ("for b in DataLoader(x, num_workers=2, multiprocessing_context='fork'):\n    pass", 0),
    ],
)
def test_scripts_without_a_guard(text: str, found: int) -> None:
    said = advice("CHP020", f"{text}\n")
    assert len(said) == found and all('`if __name__ == "__main__":`' in one for one in said)


def test_a_guard_matters_for_the_factory_but_not_for_notebooks() -> None:
    factory = "from chirpid_patch import OptimalDataLoaderFactory\n"
    text = "for b in OptimalDataLoaderFactory.create_training_loader(x, 8, num_workers=4):\n    pass\n"
    assert len(advice("CHP020", factory + text)) == 1
    assert advice("CHP020", factory + text, path="a.ipynb") == []


DATA = (
    "from torch.utils.data import DataLoader\n\n\ndef loaders(workers):\n"
    "    return DataLoader([1, 2], num_workers=workers), DataLoader([3])\n"
)
TRAIN = (
    "from data import loaders\n\n\nclass Trainer:\n    def __init__(self, workers=2):\n"
    "        self.loader, _ = loaders(workers)\n\n"
    "    def fit(self):\n        for batch in self.loader:\n            print(batch)\n"
    "\n\ndef train(workers):\n    Trainer(workers).fit()\n"
)


@pytest.mark.parametrize(
    ("main", "lines"),
    [
        ("from data import loaders\ntrain, test = loaders(2)\nfor x in train:\n    pass", [3]),
        ("from data import loaders\ntrain, test = loaders(args.workers)\nfit(train)", [3]),
        ("from train import train\ntrain(2)", [2]),
        ("import train\n\ndef main():\n    train.train(4)\n\nmain()", [6]),
        ("from train import Trainer\nTrainer().fit()", [2]),
        ("import data\nif data:\n    for x in data.loaders(2)[0]:\n        pass", [3]),
        ("from data import loaders\nif __name__ == '__main__':\n    for x in loaders(2)[0]:\n        pass", []),
        ("import train\n\ndef main():\n    train.train(4)\n\nif __name__ == '__main__':\n    main()", []),
        ("from data import loaders\ntrain, test = loaders(2)\nprint(len(train))", []),
        ("from data import loaders\nfor x in loaders(2)[1]:\n    pass", []),
        ("from train import train\ntrain(0)", []),
        ("import train\nprint(train)", []),
        ("from train import Trainer\n\ndef test_it():\n    Trainer().fit()", []),
    ],
)
def test_scripts_without_a_guard_whose_loaders_another_file_builds(main: str, lines: list[int]) -> None:
    texts = {"main.py": f"{main}\n", "data.py": DATA, "train.py": TRAIN}
    found = rewrite_text("main.py", texts["main.py"], Project(texts))[1]
    assert [one.line for one in found if one.rule == "CHP020"] == lines
    assert all('`if __name__ == "__main__":`' in one.message for one in found)
    for path in ("data.py", "train.py"):  # libraries
        assert "CHP020" not in {one.rule for one in rewrite_text(path, texts[path], Project(texts))[1]}


def test_a_module_that_trains_when_it_is_imported_is_found_whoever_imports_it() -> None:
    job = "from train import train\n\ntrain(2)\n"
    texts = {"main.py": "import job\n", "job.py": job, "data.py": DATA, "train.py": TRAIN}
    found = [
        one for path in texts for one in rewrite_text(path, texts[path], Project(texts))[1] if one.rule == "CHP020"
    ]
    assert [(one.path, one.line) for one in found] == [("job.py", 3)]


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("DataLoader(x, batch_size=64, shuffle=False, drop_last=True)", "up to 63 samples at the end"),
        ("tud.DataLoader(x, 2, False, drop_last=True)", "up to 1 sample at the end"),
        ("DataLoader(val_set, batch_size=n, drop_last=True)", "up to batch_size - 1 samples"),
        ("DataLoader(val_set, drop_last=True, **options)", "up to batch_size - 1 samples"),
        ("valLoader = DataLoader(x, batch_size=8, drop_last=True)", "up to 7 samples"),
        ("val: DataLoader = DataLoader(x, batch_size=8, drop_last=True)", "up to 7 samples"),
        ("DataLoader(Clips(), batch_size=8, shuffle=False, drop_last=True)", "up to 7 samples"),
        ("m.x = Clips()\nDataLoader(m.x, batch_size=8, shuffle=False, drop_last=True)", "up to 7 samples"),
        ("DataLoader(val_set, batch_size=8, sampler=None, shuffle=None, drop_last=True)", "up to 7 samples"),
        ("Factory.create_training_loader(x, 8, shuffle=False, drop_last=True)", "up to 7 samples"),
        ("Factory.create_validation_loader(x, 8, drop_last=True)", "ignores `drop_last=True`, and warns"),
        ("Factory.create_test_loader(x, 8, drop_last=True)", "`create_test_loader` ignores"),
    ],
)
def test_samples_that_are_never_seen(call: str, lost: str) -> None:
    header = "from chirpid_patch import OptimalDataLoaderFactory as Factory\nclass Clips(Dataset): ...\n"
    (message,) = advice("CHP021", f"{header}{call}\n")
    assert lost in message


@pytest.mark.parametrize(
    "call",
    [
        "DataLoader(x, batch_size=64, shuffle=True, drop_last=True)",
        "DataLoader(x, batch_size=64, shuffle=args.shuffle, drop_last=True)",
        "DataLoader(x, batch_size=64, shuffle=False, drop_last=args.drop)",
        "DataLoader(x, batch_size=64, shuffle=False, drop_last=False)",
        "DataLoader(val_set, batch_size=64, sampler=s, drop_last=True)",
        "DataLoader(val_set, batch_sampler=s, drop_last=True)",
        "DataLoader(val_set, batch_size=1, shuffle=False, drop_last=True)",
        "DataLoader(val_set, batch_size=None, drop_last=True)",
        "DataLoader(val_set, drop_last=True)",
        "DataLoader(batch_size=64, shuffle=False, drop_last=True)",
        "DataLoader(x, batch_size=64, shuffle=False, drop_last=True, **options)",
        "DataLoader(x, batch_size=64, drop_last=True)",
        "DataLoader(train_set, batch_size=64, shuffle=False, drop_last=True)",
        "train_loader = DataLoader(x, batch_size=64, shuffle=False, drop_last=True)",
        "train_loader = DataLoader(val_set, batch_size=64, shuffle=False, drop_last=True)",
        "DataLoader(contrastive, batch_size=64, drop_last=True)",
        "DataLoader(Stream(), batch_size=64, shuffle=False, drop_last=True)",
        "s = Stream()\nDataLoader(s, batch_size=64, shuffle=False, drop_last=True)",
        "m.x = Stream()\nDataLoader(m.x, batch_size=64, shuffle=False, drop_last=True)",
        "Factory.create_training_loader(val_set, 8, drop_last=True)",
        "OtherLoader(val_set, batch_size=64, shuffle=False, drop_last=True)",
    ],
)
def test_dropping_samples_in_training_is_not_spoken_of(call: str) -> None:
    header = "from chirpid_patch import OptimalDataLoaderFactory as Factory\nclass Stream(IterableDataset): ...\n"
    assert advice("CHP021", f"{header}{call}\n") == []


def test_functions_say_what_a_loader_is_for() -> None:
    method = "class M:\n    def {}(self):\n        return DataLoader(self.x, batch_size=8, drop_last=True)\n"
    said = {
        name: len(advice("CHP021", method.format(name))) for name in ("val_dataloader", "test_dataloader", "test_it")
    }
    assert said == {"val_dataloader": 1, "test_dataloader": 1, "test_it": 0}


@pytest.mark.parametrize("code", ["CHP017", "CHP018", "CHP019", "CHP020", "CHP021", "CHP022"])
@pytest.mark.parametrize(
    "text",
    [
        "import torch\nprint(torch.__version__)\n",
        "from torch.utils.data import DataLoader\nloader = DataLoader([1, 2], batch_size=2, shuffle=True)\n",
        "class D:\n    def __init__(self, x):\n        with open(x) as f:\n            self.x = f.read()\n",
    ],
)
def test_modules_without_the_hazard_are_not_even_parsed(code: str, text: str) -> None:
    assert not RULES[code].concerns(text, Project({"a.py": text}))
