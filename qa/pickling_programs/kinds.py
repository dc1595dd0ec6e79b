"""Kinds of objects that a dataset may contain, and the code that creates these objects.

No table lists which objects can be pickled, because the check tries to pickle each object. In each program, generated
names replace the words that begin with ``~``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """The code that creates an object.

    Attributes:
        name: name of the kind for tables.
        expression: expression that creates the object.
        imports: import statements that the expression needs.
        top: definitions at the top level of the module that the expression needs.
        local: statements that the expression needs before it, in the same function.
        is_called: whether the object can be called with one argument, as a transform or a ``collate_fn``.
        stands_in: whether the object comes from a stub, which replaces a library.
        family: name of the group of similar kinds, for tables.
    """

    name: str
    expression: str
    imports: tuple[str, ...] = ()
    top: str = ""
    local: str = ""
    is_called: bool = False
    stands_in: bool = False
    family: str = ""


def _function(name: str, expression: str, *imports: str, top: str = "", local: str = "") -> Kind:
    return Kind(name, expression, imports, top, local, is_called=True)


_DEF = "def ~f(~v):\n    return ~v"
_CALLABLE = "class ~C:\n    def __init__(self, scale=2):\n        self.scale = scale\n\n    def __call__(self, ~v):\n        return ~v"
_H5 = ("import h5py",)
_NC = ("import netCDF4",)
_LM = ("import lmdb",)
_NP = ("import numpy as np",)
_NPZ = 'np.savez("~f.npz", x=np.zeros(3), y=np.ones(2))'

# fmt: off
_FAMILIES: dict[str, tuple[Kind, ...]] = {
    "functions": (
    _function("lambda", "lambda ~v: ~v"),
    _function("lambda that captures", "lambda ~v: (~v, ~k)", local="~k = 3"),
    _function("lambda by a name", "~g", local="~g = lambda ~v: ~v"),
    _function("lambda at module level", "~g", top="~g = lambda ~v: ~v"),
    _function("local function", "~f", local=_DEF),
    _function("local function that captures", "~f", local="~k = 2\n\n\ndef ~f(~v):\n    return (~v, ~k)"),
    _function("function that a function makes", "~m(2)", top="def ~m(~k):\n    def ~f(~v):\n        return (~v, ~k)\n\n    return ~f"),
    _function("lambda that a function makes", "~m(2)", top="def ~m(~k):\n    return lambda ~v: (~v, ~k)"),
    _function("partial over a lambda", "partial(lambda ~k, ~v: ~v, 2)", "from functools import partial"),
    _function("partial over a local function", "functools.partial(~f)", "import functools", local=_DEF),
    _function("wrapped by a decorator without its name", "~f",
              top="def ~m(~g):\n    def ~k(*args):\n        return ~g(*args)\n\n    return ~k\n\n\n@" + "~m\n" + _DEF),
    _function("module function", "~f", top=_DEF),
    _function("partial over a module function", "partial(~f)", "from functools import partial", top=_DEF),
    _function("wrapped by a decorator with its name", "~f", "import functools",
              top="def ~m(~g):\n    @" + "functools.wraps(~g)\n    def ~k(*args):\n        return ~g(*args)\n\n    return ~k\n\n\n@" + "~m\n" + _DEF),
    _function("static method", "~C.~f", top="class ~C:\n    @" + "staticmethod\n    def ~f(~v):\n        return ~v"),
    _function("class method", "~C.~f", top="class ~C:\n    @" + "classmethod\n    def ~f(cls, ~v):\n        return ~v"),
    _function("builtin function", "math.sqrt", "import math"),
    _function("operator.itemgetter", "itemgetter(0)", "from operator import itemgetter"),
    _function("operator.attrgetter", "operator.attrgetter('real')", "import operator"),
    _function("PyTorch's function", "torch.relu", "import torch"),
    ),
    "objects and classes": (
    _function("object of a local class", "~C(4)", local=_CALLABLE),
    _function("object of a class with a local base", "~C(4)", local="class ~B:\n    def __call__(self, ~v):\n        return ~v\n\n\nclass ~C(~B):\n    def __init__(self, ~k):\n        self.~k = ~k"),
    _function("object of a class that a function makes", "~m(~B)()",
              top="class ~B:\n    def __call__(self, ~v):\n        return ~v\n\n\ndef ~m(~k):\n    class ~C(~k):\n        pass\n\n    return ~C"),
    _function("local class", "~C", local="class ~C:\n    def __init__(self, ~v):\n        self.~v = ~v"),
    _function("object of a module class", "~C(4)", top=_CALLABLE),
    _function("module class", "~C", top=_CALLABLE),
    _function("bound method of a module class", "~C(2).~f", top="class ~C:\n    def __init__(self, ~k):\n        self.~k = ~k\n\n    def ~f(self, ~v):\n        return ~v"),
    _function("bound method of an object with a lock", "~C().~f", "import threading", top="class ~C:\n    def __init__(self):\n        self.guard = threading.Lock()\n\n    def ~f(self, ~v):\n        return ~v"),
    _function("module of PyTorch", "torch.nn.Linear(2, 2)", "import torch"),
    _function("sequence of modules with a lambda", "~C(lambda ~v: ~v)", "import torch",
              top="class ~C(torch.nn.Module):\n    def __init__(self, ~k):\n        super().__init__()\n        self.~k = ~k\n\n    def forward(self, ~v):\n        return self.~k(~v)"),
    Kind("dataclass", "~C(1, [2])", ("from dataclasses import dataclass",), "@dataclass\nclass ~C:\n    a: int\n    b: list"),
    Kind("named tuple", "~C(1, 2)", ("from typing import NamedTuple",), "class ~C(NamedTuple):\n    a: int\n    b: int"),
    Kind("named tuple made in a function", "~C(1, 2)", ("from collections import namedtuple",), local='~C = namedtuple("~C", "a b")'),
    Kind("member of an enumeration", "~C.A", ("from enum import Enum",), "class ~C(Enum):\n    A = 1"),
    ),
    "iterators and views": (
    Kind("generator expression", "(~v * 2 for ~v in range(3))"),
    Kind("generator", "~m(3)", top="def ~m(~k):\n    for ~v in range(~k):\n        yield ~v"),
    Kind("dict.keys()", "~d.keys()", local="~d = {'a': 1, 'b': 2}"),
    Kind("dict.values()", "dict(a=1).values()"),
    Kind("dict.items()", "~d.items()", local="~d = dict(zip('ab', range(2)))"),
    Kind("keys of a default dict", "~d.keys()", ("from collections import defaultdict",), local="~d = defaultdict(list)\n~d['a'].append(1)"),
    Kind("glob.iglob", "glob.iglob('*.py')", ("import glob",)),
    Kind("map of a lambda", "map(lambda ~v: ~v, [1, 2])"),
    Kind("list of keys", "list(~d.keys())", local="~d = {'a': 1}"),
    Kind("sorted items", "sorted(~d.items(), key=lambda ~v: ~v[1])", local="~d = {'a': 1}"),
    Kind("list of a generator", "list(~v * 2 for ~v in range(3))"),
    Kind("map of a builtin", "map(int, ['1'])"),
    Kind("range", "range(9)"),
    Kind("iterator over a list", "iter([1, 2])"),
    ),
    "containers": (
    Kind("defaultdict with a lambda", "defaultdict(lambda: [])", ("from collections import defaultdict",)),
    Kind("defaultdict in a defaultdict", "collections.defaultdict(lambda: collections.defaultdict(int))", ("import collections",)),
    Kind("defaultdict with a local function", "defaultdict(~f)", ("from collections import defaultdict",), local="def ~f():\n    return 0"),
    Kind("defaultdict with a type", "defaultdict(list)", ("from collections import defaultdict",)),
    Kind("defaultdict with a function", "defaultdict(~f)", ("from collections import defaultdict",), "def ~f():\n    return 0"),
    Kind("deque", "deque([1, 2], maxlen=3)", ("from collections import deque",)),
    Kind("mapping proxy", "types.MappingProxyType({'a': 1})", ("import types",)),
    Kind("counter", "Counter('aab')", ("from collections import Counter",)),
    Kind("dict of lists", "{'a': [1, 2], 'b': []}"),
    Kind("result of a lambda", "(lambda ~v: ~v + 1)(2)"),
    ),
    "modules": (
    Kind("module", "json", ("import json",)),
    Kind("module under another name", "~g", ("import math as ~g",)),
    Kind("submodule", "functional", ("from torch.nn import functional",)),
    Kind("constant of a module", "math.pi", ("import math",)),
    ),
    "files": (
    Kind("open file", "open(__file__)"),
    Kind("open binary file", 'open(__file__, "rb")'),
    Kind("file opened by a path", "Path(__file__).open()", ("from pathlib import Path",)),
    Kind("file opened by a helper", "~m(__file__)", top="def ~m(~k):\n    return open(~k, 'rb')"),
    Kind("file opened by io", "io.open(__file__)", ("import io",)),
    Kind("gzip file", "gzip.open('~f.gz', 'wb')", ("import gzip",)),
    Kind("zip file", "zipfile.ZipFile(io.BytesIO(), 'w')", ("import io", "import zipfile")),
    Kind("csv reader", "csv.reader(open(__file__))", ("import csv",)),
    Kind("temporary file", "tempfile.TemporaryFile()", ("import tempfile",)),
    Kind("content of a file", "open(__file__).read()"),
    Kind("lines of a file", "~f.readlines()", local="with open(__file__) as ~f:\n    ~k = 1\n~f = open(__file__)"),
    Kind("bytes in memory", "io.BytesIO(b'abc')", ("import io",)),
    Kind("path", "Path(__file__)", ("from pathlib import Path",)),
    Kind(".npz archive", 'np.load("~f.npz")', _NP, local=_NPZ),
    Kind(".npz archive by a path", "np.load(~k)", _NP, local=f'{_NPZ}\n~k = "~f.npz"'),
    Kind("array of a .npz archive", 'np.load("~f.npz")["x"]', _NP, local=_NPZ),
    Kind(".npy array", 'np.load("~f.npy")', _NP, local='np.save("~f.npy", np.zeros(3))'),
    Kind("memory map of NumPy", 'np.load("~f.npy", mmap_mode="r")', _NP, local='np.save("~f.npy", np.zeros(3))'),
    Kind("HDF5 file", 'h5py.File("~f.h5", "r")', _H5, stands_in=True),
    Kind("HDF5 file by a variable", "~k", _H5, local='~k = h5py.File("~f.h5", "r")', stands_in=True),
    Kind("dataset of an HDF5 file", 'h5py.File("~f.h5", "r")["x"]', _H5, stands_in=True),
    Kind("array of an HDF5 file", 'h5py.File("~f.h5", "r")["x"][:]', _H5, stands_in=True),
    Kind("LMDB environment", 'lmdb.open("~f", readonly=True)', _LM, stands_in=True),
    Kind("LMDB transaction", "~k.begin(write=False)", _LM, local='~k = lmdb.open("~f")', stands_in=True),
    Kind("value from LMDB", '~k.begin().get(b"a")', _LM, local='~k = lmdb.open("~f")', stands_in=True),
    Kind("netCDF dataset", 'netCDF4.Dataset("~f.nc")', _NC, stands_in=True),
    Kind("variable of a netCDF dataset", 'netCDF4.Dataset("~f.nc").variables["t2m"]', _NC, stands_in=True),
    Kind("array of a netCDF dataset", 'netCDF4.Dataset("~f.nc").variables["t2m"][:]', _NC, stands_in=True),
    Kind("mmap", "mmap.mmap(-1, 16)", ("import mmap",)),
    Kind("memory view", "memoryview(b'abc')"),
    ),
    "threads, connections and others": (
    Kind("lock", "threading.Lock()", ("import threading",)),
    Kind("lock by its name", "RLock()", ("from threading import RLock",)),
    Kind("condition", "threading.Condition()", ("import threading",)),
    Kind("thread-local data", "threading.local()", ("import threading",)),
    Kind("queue of threads", "queue.Queue(3)", ("import queue",)),
    Kind("simple queue of threads", "SimpleQueue()", ("from queue import SimpleQueue",)),
    Kind("thread pool", "ThreadPoolExecutor(1)", ("from concurrent.futures import ThreadPoolExecutor",)),
    Kind("lock of multiprocessing", "multiprocessing.get_context('spawn').Lock()", ("import multiprocessing",)),
    Kind("queue of multiprocessing", "multiprocessing.get_context('spawn').Queue()", ("import multiprocessing",)),
    Kind("SQLite connection", "sqlite3.connect(':memory:')", ("import sqlite3",)),
    Kind("SQLite cursor", "~k.cursor()", ("import sqlite3",), local="~k = sqlite3.connect(':memory:')"),
    Kind("rows of SQLite", "sqlite3.connect(':memory:').execute('select 1').fetchall()", ("import sqlite3",)),
    Kind("weak reference", "weakref.ref(~f)", ("import weakref",), _DEF),
    Kind("struct", "struct.Struct('<i')", ("import struct",)),
    Kind("hash", "hashlib.sha256(b'a')", ("import hashlib",)),
    Kind("digest of a hash", "hashlib.sha256(b'a').hexdigest()", ("import hashlib",)),
    Kind("match of a pattern", "re.match('a', 'ab')", ("import re",)),
    Kind("groups of a match", "re.match('(a)', 'ab').groups()", ("import re",)),
    Kind("pattern", "re.compile('a+')", ("import re",)),
    Kind("log handler", "logging.StreamHandler()", ("import logging",)),
    Kind("logger", "logging.getLogger(__name__)", ("import logging",)),
    ),
    "data": (
    Kind("tensor", "torch.zeros(3)", ("import torch",)),
    Kind("array", "np.arange(4)", _NP),
    Kind("random generator of NumPy", "np.random.default_rng(3)", _NP),
    Kind("random generator of Python", "random.Random(3)", ("import random",)),
    Kind("date", "datetime.date(2020, 1, 1)", ("import datetime",)),
    Kind("text", "'abc'.upper()"),
    Kind("largest by a lambda", "max([1, 2], key=lambda ~v: -~v)"),
    ),
}
# fmt: on

#: All kinds, with their families.
KINDS: tuple[Kind, ...] = tuple(replace(one, family=name) for name, kinds in _FAMILIES.items() for one in kinds)
