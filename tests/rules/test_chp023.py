"""Loading written by hand: what is recognised, what it is told, and what has nothing to do with loading."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import Finding, FindingStatus, Safety
from chirp_migrate.rules import all_rules
from chirp_migrate.rules.chp023_custom_loading import CustomLoadingCode
from chirp_migrate.syntax.project import Project
from chirpid_patch.recipes.wrapped_loader import REMOVED

ROOT = Path(__file__).parents[2]
IMPORTS = """\
import concurrent.futures, contextlib, multiprocessing, queue, threading
import multiprocessing as mp
import torch
import torch.multiprocessing as tmp
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor as Threads
from multiprocessing.pool import ThreadPool
from queue import Queue
from threading import Thread
from torch.utils.data import DataLoader, Dataset
"""


def findings(text: str) -> list[Finding]:
    """What the rule says about a module."""
    texts = {"a.py": IMPORTS + textwrap.dedent(text)}
    after, found = rewrite_text("a.py", texts["a.py"], Project(texts), rules=[CustomLoadingCode()])
    assert after == texts["a.py"]
    compile(after, "a.py", "exec")
    assert all(one.status is FindingStatus.REPORT and one.safety is Safety.ADVICE for one in found)
    return found


def reasons(text: str) -> list[str]:
    return [one.why for one in findings(text)]


@pytest.mark.parametrize(
    "pool",
    [
        "ProcessPoolExecutor(4)",
        "Threads(max_workers=4)",
        "concurrent.futures.ThreadPoolExecutor()",
        "mp.Pool(4)",
        "ThreadPool(4)",
        "tmp.Pool(2)",
    ],
)
def test_a_pool_that_reads_samples_is_recognised_by_what_it_is(pool: str) -> None:
    text = f"""
        def batches(dataset, order):
            with {pool} as pool:
                for indices in order:
                    yield torch.stack(list(pool.map(dataset.__getitem__, indices)))
    """
    (found,) = findings(text)
    assert found.why == "workers" and "`batches` implements loading with a worker pool (" in found.message
    assert found.line == IMPORTS.count("\n") + 2


@pytest.mark.parametrize(
    "handed",
    [
        "self.pool.map(self.dataset.__getitem__, order)",
        "[self.pool.submit(self.read, i) for i in order]",
        "[self.pool.submit(next, self.batches) for _ in order]",
    ],
)
def test_a_pool_is_handed_reading_in_many_ways(handed: str) -> None:
    text = f"""
        class Fast:
            def __init__(self, dataset, loader):
                self.dataset = dataset
                self.batches = iter(loader)
                self.pool = ProcessPoolExecutor(4)

            def read(self, i):
                return self.sample(i)

            def sample(self, i):
                return self.dataset[i]

            def __iter__(self):
                order = range(8)
                yield from {handed}
    """
    assert reasons(text) == ["workers"]


@pytest.mark.parametrize(
    "text",
    [
        # a pool that saves checkpoints while a loader is gone through
        """
        class Trainer:
            def __init__(self, loader):
                self.loader = loader
                self.pool = Threads(1)

            def fit(self, model, step):
                for batch in self.loader:
                    step(batch)
                    self.pool.submit(torch.save, model.state_dict(), 'last.pt')
        """,
        # files are fetched before there is any dataset
        """
        def download(urls, dataset_root):
            with Threads(8) as pool:
                return list(pool.map(fetch, urls))

        def fetch(url):
            return url
        """,
        # folds are trained at once
        """
        def fold(dataset, model):
            for x, y in DataLoader(dataset):
                model(dataset[0][0]).sum().backward()

        def run(dataset, models):
            with ProcessPoolExecutor() as pool:
                return [pool.submit(fold, dataset, model) for model in models]
        """,
        # the dataset's own map is no pool's
        """
        def prepare(dataset, tokens):
            with Threads() as pool:
                names = list(pool.map(str.lower, tokens))
            return dataset.map(lambda one: dataset[one]), names
        """,
        # part of a dataset, by name
        """
        def tables(dataset):
            with Threads() as pool:
                return list(pool.map(lambda key: dataset['train'], ['a']))
        """,
        # metrics are logged in the background
        """
        class Log:
            def __init__(self, dataset):
                self.lines = queue.Queue()
                threading.Thread(target=self.write, daemon=True).start()
                self.dataset = dataset

            def write(self):
                for line in iter(self.lines.get, None):
                    print(line)

            def add(self, line):
                self.lines.put(line)
        """,
        # a thread trains, and tells how it went
        """
        def in_background(loader, model, results):
            def train():
                for x in loader:
                    loss = model(x)
                    loss.backward()
                    results.put(loss)
            threading.Thread(target=train).start()
        """,
        # processes that go through a part each, and tell what they found
        """
        class Lengths:
            def __init__(self, dataset):
                self.dataset = dataset

            def count(self, results):
                found = [0]
                for batch in DataLoader(self.dataset):
                    found[0] = len(batch)
                results.put(found)

            def run(self):
                results = mp.Queue()
                mp.Process(target=self.count, args=(results,)).start()
                return results.get()
        """,
        # a queue of what no loader gave
        """
        class Lines(threading.Thread):
            def __init__(self, stream):
                super().__init__()
                self.stream, self.queue = stream, Queue()

            def run(self):
                for line in self.stream:
                    self.queue.put(line)

            def __iter__(self):
                return iter(self.queue.get, None)
        """,
        # weights are sent to the GPU beside the training
        """
        class Offload:
            def __init__(self, loader):
                self.loader, self.stream = loader, torch.cuda.Stream()

            def fit(self, model):
                for batch in self.loader:
                    with torch.cuda.stream(self.stream):
                        model.head.to('cuda', non_blocking=True)
        """,
        # samples are written to files
        """
        def write(dataset, folder):
            def save(i):
                torch.save(dataset[i], f'{folder}/{i}.pt')
            with Threads() as pool:
                list(pool.map(save, range(len(dataset))))
        """,
        # a file is measured once for each sample
        """
        def lengths(dataset):
            with mp.Pool() as pool:
                return pool.map(str.split, dataset)
        """,
        # a stream that only computes
        """
        class Two:
            def __init__(self, loader):
                self.loader, self.stream = loader, torch.cuda.Stream()

            def __iter__(self):
                for batch in self.loader:
                    with torch.cuda.stream(self.stream):
                        yield batch * 2
        """,
        # names that only look like it
        """
        class Pool:
            def map(self, f, indices):
                return [f(i) for i in indices]

        def batches(dataset, order):
            yield Pool().map(dataset.__getitem__, order)
        """,
    ],
    ids=lambda text: "",
)
def test_what_has_nothing_to_do_with_loading_is_not_spoken_of(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize(
    "producer",
    [
        "for batch in self.loader:\n    self.queue.put(batch)",
        "for number, batch in enumerate(self.loader):\n    self.queue.put((number, batch), timeout=1)",
        "for i in self.order:\n    self.queue.put_nowait(self.dataset[i])",
        "batches = iter(self.loader)\nwhile True:\n    self.queue.put(next(batches))",
        "for batch in self.loader:\n    self.keep(batch)",
    ],
)
def test_a_thread_that_fills_a_queue_is_recognised(producer: str) -> None:
    body = textwrap.indent(producer, " " * 8)
    text = f"""
class Ahead:
    def __init__(self, loader, dataset, order):
        self.loader, self.dataset, self.order = loader, dataset, order
        self.queue = queue.Queue(maxsize=4)
        self.done = threading.Event()
        self.filler = Thread(target=self.fill, daemon=True)
        self.filler.start()

    def fill(self):
{body}

    def keep(self, batch):
        self.queue.put(batch)

    def __iter__(self):
        return iter(self.queue.get, None)
"""
    (found,) = findings(text)
    assert found.why == "threads" and "`prefetch_factor`" in found.message


@pytest.mark.parametrize(
    "text",
    [
        """
        class data_prefetcher:
            def __init__(self, loader):
                self.loader = iter(loader)
                self.stream = torch.cuda.Stream()
                self.preload()

            def preload(self):
                self.next_input, self.next_target = next(self.loader)
                with torch.cuda.stream(self.stream):
                    self.next_input = self.next_input.cuda(non_blocking=True)

            def next(self):
                torch.cuda.current_stream().wait_stream(self.stream)
                found = self.next_input
                self.preload()
                return found
        """,
        """
        def on_device(loader, device):
            stream = torch.cuda.Stream() if device.type == 'cuda' else None
            for x, y in loader:
                with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
                    x = x.to(device, non_blocking=True)
                yield x, y
        """,
    ],
    ids=["next", "generator"],
)
def test_streams_around_a_loader_are_recognised(text: str) -> None:
    (found,) = findings(text)
    assert found.why == "streams" and "chirpid_patch.DevicePrefetcher" in found.message
    assert "(docs/migration-notes.md)" in found.message


def test_a_loader_class_is_told_what_it_can_be_derived_from() -> None:
    source = (ROOT / "fixtures/custom_loader_backend/segmentation/loading.py").read_text(encoding="utf-8")
    texts = {"segmentation/loading.py": source}
    _, (found,) = rewrite_text("segmentation/loading.py", source, Project(texts), rules=[CustomLoadingCode()])
    assert found.why == "streams+workers"
    assert re.fullmatch(
        r"`CropLoader` implements loading with CUDA streams \(line \d+\) and a worker pool \(line \d+\): derive the "
        r"class from `chirpid_patch\.WrappedDataLoader`, which has `pin_memory`, `device` and `num_workers` "
        r"\(docs/migration-notes\.md\)",
        found.message,
    )
    notes = (ROOT / "docs/migration-notes.md").read_text(encoding="utf-8")
    assert all(f"loader.{name}" in notes for name in REMOVED), "they say what replaces each member"


def test_a_script_is_spoken_of_at_its_pool() -> None:
    text = """
        dataset = torch.utils.data.TensorDataset(torch.zeros(4))
        with Threads() as pool:
            samples = list(pool.map(lambda i: dataset[i], range(4)))
    """
    (found,) = findings(text)
    assert found.message.startswith("this script implements loading with a worker pool (line ")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader(x)\n",
        "import torch\n# a Pool of Threads and Streams for the dataset\n",
        "import torch\nfrom torch.nn import AvgPool2d\ny = AvgPool2d(2)(x.to(d))\nfor x in loader: y.append(x)\n",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().map(f, dataset)\n",
    ],
)
def test_files_without_signs_are_not_parsed(text: str) -> None:
    assert not CustomLoadingCode().concerns(text, Project({"a.py": text}))


def test_it_is_one_of_the_rules() -> None:
    assert [type(rule) for rule in all_rules() if rule.code == "CHP023"] == [CustomLoadingCode]
