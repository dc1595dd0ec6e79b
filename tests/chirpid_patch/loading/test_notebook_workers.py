"""What a notebook defines reaches workers that are not forked: by value with cloudpickle, else an error names it."""

from __future__ import annotations

import multiprocessing
import sys
import textwrap
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

#: The faster one of the methods that pickle what a worker receives.
METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"

# Its processes get datasets as spawned ones do, by pickling, but import torch only once.
multiprocessing.set_forkserver_preload(["chirpid_patch"])

IMPORTS = """
import collections, enum, functools, os, threading
from dataclasses import dataclass
from typing import NamedTuple
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, get_worker_info
from chirpid_patch import BatchedDataLoader, OptimalDataLoaderFactory

class Numbers(Dataset):
    def __init__(self, n):
        self.n = n
        self.x = torch.arange(float(n))
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return self.x[i]

class Scaled(Numbers):
    def __init__(self, n):
        super().__init__(n)
    def __getitem__(self, i):
        assert get_worker_info() is not None
        return super().__getitem__(i) * FACTOR

FACTOR = 2
options = {"batch_size": 2, "num_workers": 1, "multiprocessing_context": METHOD}
"""


class Session:
    """An interactive session in this process: its ``__main__`` has no file, as that of a notebook."""

    def __init__(self) -> None:
        self.main = ModuleType("__main__")
        vars(self.main).update(METHOD=METHOD)
        self.run(IMPORTS)

    def run(self, cell: str) -> None:
        exec(compile(textwrap.dedent(cell), "<cell>", "exec"), vars(self.main))

    def __call__(self, expression: str) -> Any:
        return eval(expression, vars(self.main))

    def batches(self, loader: str) -> list[Any]:
        return [batch.tolist() for batch in self(loader)]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    session = Session()
    monkeypatch.setitem(sys.modules, "__main__", session.main)
    return session


@pytest.fixture
def without_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)


# -- with cloudpickle


def test_classes_and_functions_of_a_notebook_reach_workers(session: Session) -> None:
    session.run("""
        def init_with(offset):
            def init(worker_id):
                get_worker_info().dataset.x += offset
            return init
    """)
    arguments = "Scaled(5), collate_fn=lambda b: torch.stack(b) + FACTOR, worker_init_fn=init_with(10), **options"
    expected = [[22, 24], [26, 28], [30]]
    assert session.batches(f"OptimalDataLoaderFactory.create_loader({arguments})") == expected


@pytest.mark.parametrize("kept", ["persistent_workers=True", "keep_workers=True", "timeout=60"])
def test_every_epoch_is_sent_what_is_defined_then(session: Session, kept: str) -> None:
    session.run(f"loader = BatchedDataLoader(Scaled(3), {kept}, **options)")
    assert [session.batches("loader") for _ in range(2)] == [[[0, 2], [4]]] * 2
    session.run("FACTOR = 3")
    assert session.batches("loader") == ([[0, 3], [6]] if "timeout" in kept else [[0, 2], [4]])
    session.run("loader.shutdown()")


def test_a_class_that_a_later_cell_defines_again_is_sent_as_it_is_then(session: Session) -> None:
    session.run("old = Scaled(2)")
    session.run("class Scaled(Numbers):\n    def __getitem__(self, i):\n        return super().__getitem__(i) + 70")
    assert session.batches("BatchedDataLoader(Scaled(2), **options)") == [[70, 71]]
    assert session.batches("BatchedDataLoader(old, **options)") == [[0, 2]]


def test_batches_and_errors_of_a_class_of_the_notebook_come_back(session: Session) -> None:
    session.run("""
        class Kind(enum.Enum):
            EVEN = 0
            ODD = 1
        @dataclass
        class Batch:
            x: torch.Tensor
            kinds: list
        class Missing(LookupError):
            pass
        class Holes(Scaled):
            def __getitem__(self, i):
                if i == 2:
                    raise Missing(i)
                return super().__getitem__(i)
        def collate(b):
            return Batch(torch.stack(b), [Kind(int(x) // FACTOR % 2) for x in b])
        batches = iter(BatchedDataLoader(Holes(4), collate_fn=collate, **options))
    """)
    first = session("next(batches)")
    assert type(first) is session("Batch") and first.kinds == session("[Kind.EVEN, Kind.ODD]")
    with pytest.raises(session("Missing")):
        session("next(batches)")
    session.run("del batches")


def test_cached_functions_and_properties_reach_workers(session: Session) -> None:
    session.run("""
        @functools.lru_cache(maxsize=3)
        def fibonacci(i):
            return i if i < 2 else fibonacci(i - 1) + fibonacci(i - 2)
        class Cached(Scaled):
            @functools.cached_property
            def offset(self):
                return 100
            @functools.cache
            def sample(self, i):
                return fibonacci(i) + self.offset
            def __getitem__(self, i):
                return self.sample(i) + fibonacci.cache_parameters()["maxsize"]
    """)
    assert session.batches("BatchedDataLoader(Cached(4), **options)") == [[103, 104], [104, 105]]


def test_tensors_are_shared_and_objects_stay_the_same_object(session: Session) -> None:
    session.run("""
        class Collate:
            def __init__(self, table):
                self.table = table
            def __call__(self, b):
                self.table += 1
                return get_worker_info().dataset.table is self.table, self.table
        class Tabled(Numbers):
            def __init__(self, table):
                super().__init__(2)
                self.table = table
        table = torch.zeros(3)
        (same, seen), = BatchedDataLoader(Tabled(table), collate_fn=Collate(table), **options)
    """)
    assert session("table.is_shared()") and session("same")
    assert session("table").tolist() == session("seen").tolist() == [1, 1, 1]  # written by the worker


def test_pipes_and_locks_are_handed_over(session: Session) -> None:
    session.run("""
        import multiprocessing
        context = multiprocessing.get_context(METHOD)
        class Counted(Scaled):
            def __init__(self, n):
                super().__init__(n)
                self.seen, self.count = context.Queue(), context.Value("i", 0)
            def __getitem__(self, i):
                with self.count.get_lock():
                    self.count.value += 1
                self.seen.put(i)
                return super().__getitem__(i)
        dataset = Counted(3)
    """)
    assert session.batches("BatchedDataLoader(dataset, **options)") == [[0, 2], [4]]
    assert session("dataset.count.value") == 3 and [session("dataset.seen").get(timeout=60) for _ in range(3)] == [
        0,
        1,
        2,
    ]


@pytest.mark.slow  # a worker that another process started is seen to be dead after five seconds
def test_fresh_workers_are_sent_it_again_when_one_dies(session: Session, tmp_path: Path) -> None:
    session.main.__dict__["mark"] = tmp_path / "died"
    session.run("""
        class Dying(Scaled):
            def __getitem__(self, i):
                if i == 2 and not mark.exists():
                    mark.touch()
                    os._exit(1)
                return super().__getitem__(i)
    """)
    assert session.batches("BatchedDataLoader(Dying(5), **options)") == [[0, 2], [4, 6], [8]]


def test_an_iterable_dataset_reaches_workers(session: Session) -> None:
    session.run("""
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(3))
    """)
    assert session.batches("OptimalDataLoaderFactory.create_loader(Stream(), **options)") == [[0, 1], [2]]


def test_a_file_is_not_sent_as_a_copy_of_its_contents(session: Session, tmp_path: Path) -> None:
    session.main.__dict__["path"] = tmp_path / "data.txt"
    session.run("""
        path.write_text("1")
        class Holding(Scaled):
            def __init__(self):
                super().__init__(2)
                self.file = path.open()
    """)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The dataset itself raises AssertionError where it is read in this process.
        with pytest.raises((TypeError, AssertionError)):
            session.batches("BatchedDataLoader(Holding(), **options)")


# -- without cloudpickle


@pytest.mark.usefixtures("without_cloudpickle")
def test_samples_in_memory_are_loaded_here_with_a_warning_that_names_the_function(session: Session) -> None:
    session.run("""
        def collate(b):
            assert get_worker_info() is None
            return torch.stack([x for x, in b]) * FACTOR
        loader = BatchedDataLoader(TensorDataset(torch.arange(3)), collate_fn=collate, **options)
    """)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [session.batches("loader") for _ in range(2)] == [[[0, 2], [4]]] * 2
    (warning,) = caught
    assert warning.category is RuntimeWarning
    for part in ("function `collate` (line 2)", "pip install cloudpickle", "move the function to a module"):
        assert part in str(warning.message)


@pytest.mark.usefixtures("without_cloudpickle")
@pytest.mark.parametrize(
    ("loader", "named"),
    [
        ("BatchedDataLoader(Scaled(2), **options)", "class `Scaled`"),
        ("BatchedDataLoader(Subset(Scaled(2), [1]), keep_workers=True, **options)", "class `Scaled`"),
        ("OptimalDataLoaderFactory.create_loader(Stream(), **options)", "class `Stream`"),
        ("BatchedDataLoader(memory, worker_init_fn=init, **options)", "function `init`"),
        ("BatchedDataLoader(memory, worker_init_fn=print, collate_fn=lambda b: b, **options)", "function `<lambda>`"),
    ],
)
def test_data_that_might_be_other_data_here_is_an_error(session: Session, loader: str, named: str) -> None:
    session.run("""
        memory = TensorDataset(torch.arange(3))
        class Stream(IterableDataset):
            def __iter__(self):
                raise AssertionError
        def init(worker_id):
            raise AssertionError
    """)
    with pytest.raises(RuntimeError, match=f"{named}.*pip install cloudpickle"):
        session.batches(loader)


@pytest.mark.usefixtures("without_cloudpickle")
def test_what_workers_can_import_reaches_them(session: Session) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (batch,) = session("BatchedDataLoader(TensorDataset(torch.arange(2)), **options)")
    assert batch[0].tolist() == [0, 1]


# -- where nothing changes


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_worker_is_sent_nothing(session: Session) -> None:
    session.run("""
        class Unsendable(Scaled):
            def __reduce_ex__(self, protocol):
                raise AssertionError
    """)
    options = '{**options, "multiprocessing_context": "fork"}'
    assert session.batches(f"BatchedDataLoader(Unsendable(3), **{options})") == [[0, 2], [4]]


def local_collate() -> Any:
    """A function that no other process can import, of a module."""
    return lambda batch: batch


def test_what_modules_define_keeps_the_error_of_pickle(session: Session) -> None:
    session.main.__dict__["collate"] = local_collate()
    assert "local object" in problem(session, "collate")


def test_a_script_keeps_the_error_of_pickle(session: Session, tmp_path: Path) -> None:
    session.main.__dict__["__file__"] = str(tmp_path / "train.py")
    assert "Can't pickle" in problem(session, "lambda batch: batch")


def problem(session: Session, collate: str) -> str:
    """The error or the warnings of loading with a function that cannot be sent."""
    session.run(f"loader = BatchedDataLoader(TensorDataset(torch.arange(2)), collate_fn={collate}, **options)")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            list(session("loader"))
        except Exception as error:
            return str(error)
    return " ".join(str(one.message) for one in caught)
