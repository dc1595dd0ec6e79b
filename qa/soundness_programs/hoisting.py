"""Programs that show a difference if a rewrite binds a value too early.

A value that is bound earlier may stay alive longer, or other code may see the wrong value. The programs reproduce
earlier faults of the rules: objects that outlive an iteration, names that may have no value, state of classes, copies,
names that other code sets, calling conventions, lambdas inside lambdas, and methods that code stores on the class of
loaders.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Mapping

#: Function that generates a program: its text, and name → text of its other files.
Make = Callable[[random.Random], tuple[str, Mapping[str, str]]]

_HEAD = '''
import contextlib, copy, dataclasses, functools, heapq, inspect, io, itertools, pickle, random, sys
from functools import partial, reduce
from unittest import mock
import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

DATA = [1, 2, 3, 4, 5]
KEPT = []
REGISTRY = {}
SCALE = 3


class Holder:
    """Anything with attributes."""


class Suppressing:
    def __init__(self, *errors):
        self.errors = errors

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return True


class Passing(Suppressing):
    def __exit__(self, kind, error, trace):
        return None


class Applied(Dataset):
    def __init__(self, data, transform=None):
        self.data, self.transform = data, transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.transform(self.data[i])


def store(one):
    KEPT.append(one)


def consumed(one):
    return [batch for batch in one]


def measured(one, times=1):
    return len(one) * times


def forwarded(one):
    again = one
    return consumed(again)


def given_back(one):
    return one


def lazily(one):
    for batch in one:
        yield batch


def times_ten(x):
    return x * 10


def resolved(one):
    return one() if isinstance(one, type) else one


def failures(function):
    """How many examples of a docstring fail."""
    import doctest

    (test,) = doctest.DocTestFinder(recurse=False).find(function, 'function')
    return doctest.DocTestRunner().run(test, out=lambda text: None).failed


def tried(call):
    try:
        return call()
    except Exception as error:
        return str(type(error))


def shown(one):
    return tried(lambda: list(one))
'''

_MAIN = "\n\ndef main():\n    return {}\n"


def _block(lines: str, depth: int = 1) -> str:
    return textwrap.indent(textwrap.dedent(lines).strip("\n"), "    " * depth) + "\n"


def _mostly(rng: random.Random, usual: tuple[str, ...], other: tuple[str, ...], chance: float) -> str:
    return rng.choice(other if rng.random() < chance else usual)


def _holder(rng: random.Random, value: str, data: str = "data") -> tuple[str, str]:
    """Return a definition, and an expression that creates a loader whose batches depend on ``value``."""
    loader = f"DataLoader({data}, batch_size=2, collate_fn={{}})"
    body = f"[x * {value} for x in b]"
    return rng.choice(
        (
            ("", loader.format(f"lambda b: {body}")),
            ("", loader.format(f"lambda b: {body}")),
            (f"def collate(b): return {body}", loader.format("collate")),
            (f'def collate(b):\n    """Scale."""\n    return {body}', loader.format("collate")),
            (f"collate = lambda b: {body}", loader.format("collate")),
            (
                f"class Local(Dataset):\n    def __len__(self): return len({data})\n"
                f"    def __getitem__(self, i): return {data}[i] * {value}",
                "DataLoader(Local(), batch_size=2)",
            ),
            ("", f"DataLoader(Applied({data}, lambda x: x * {value}), batch_size=2)"),
            ("", loader.format(f"lambda b, by={value}: [x * by for x in b]")),
            ("", loader.format(f"lambda b, *, by={value}: [x * by for x in b]")),
            ("", loader.format(f"partial(lambda by, b: {body}, 1)")),
        )
    )


_AT_ONCE = (
    "out.append(list(loader))",
    "for b in loader:\n    out.append(b)",
    "out.append(len(loader))",
    "out += consumed(loader)",
    "out.append(measured(loader, times=2))",
    "out.append(forwarded(loader))",
    "out.append([b for b in loader])",
    "out.append(sum(map(sum, loader)))",
    "out.append(next(iter(loader)))",
    "for i, b in enumerate(loader):\n    out.append((i, b))",
    "batches = iter(loader)\nout.append(next(batches))",
    "twice = [tuple(loader), list(loader)]\nout += twice",
    "if len(loader) > 1:\n    out.append(list(loader))",
    "return [*out, list(loader)]",
)
_KEEPING = (
    "store(loader)",
    "heapq.heappush(heap, (len(heap), loader))",
    "setattr(holder, 'loader', loader)",
    "REGISTRY.__setitem__(len(REGISTRY), loader)",
    "REGISTRY[k] = loader",
    "holder.loader = loader",
    "KEPT += [loader]",
    "best = loader",
    "best = loader if k < 3 else best",
    "best = best or loader",
    "if k == 2: best = loader",
    "best = iter(loader)",
    "best = lazily(loader)",
    "best = (b for b in loader)",
    "best = map(list, loader)",
    "best = given_back(loader)",
    "best = zip(loader, loader)",
    "KEPT.append(lambda: list(loader))",
    "best, loader = loader, best",
    "KEPT.extend([(k, loader)][0][1:])",
    "for b in loader:\n    k = k + 1\n    out.append(b)",
    "for b in loader:\n    s = 50\n    out.append(b)",
    "best = max([loader], key=len)",
    "holder.__dict__['loader'] = loader",
    "reader = lambda one=loader: list(one)\nKEPT.append(reader)",
    "[best := one for one in [loader]]",
    "match loader:\n    case best:\n        pass",
)
_NEXT = (
    "",
    "",
    "",
    "for b in loader or ():\n    out.append(b)",
    "while loader is not None:\n    out.append(list(loader))\n    break",
    "if loader is not None and list(loader):\n    out.append(len(loader))",
    "with contextlib.nullcontext(loader) as last:\n    out.append(last and list(last))",
    "out.append(best and shown(best))",
    "out.append(tried(lambda: list(loader)))",
    "if k == 3 and loader:\n    out += list(loader)",
)
_PLACES = (
    "{}",
    "{}",
    "{}",
    "if k != 2:\n    {}",
    "if k % 2:\n    {}\nelse:\n    loader = []",
    "try:\n    {}\n    if k == 2:\n        raise ValueError\nexcept ValueError:\n    continue",
    "with contextlib.nullcontext():\n    {}",
    "for _ in range(2):\n    {}",
)


def _lifetime(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with a loader that is created in a loop."""
    value = rng.choice(("k", "k", "s", "s", "fixed", "late"))
    definition, made = _holder(rng, value)
    place = rng.choice(_PLACES).replace("{}", "loader = " + made)
    if rng.random() < 0.1:
        place = f"loader = {made} if k != 2 else loader"
    # Code that runs in each iteration only.
    uses = [_mostly(rng, _AT_ONCE, _KEEPING, 0.35) for _ in range(rng.choice((1, 1, 2)))]
    inside = place.split("\n")[-1].strip() if "    loader" in place and rng.random() < 0.5 else ""
    if inside and "continue" not in place:  # in the same block as the loader
        indented = place.replace(
            inside, "\n    ".join([inside, *(line for use in uses for line in use.split("\n"))]), 1
        )
        body = indented
    else:
        body = "\n".join([place, *uses])
    head = _mostly(rng, ("",), _NEXT, 0.3)
    loop = rng.choice(
        (
            "for k in (1, 2, 3):",
            "for k in (1, 2, 3):",
            "for k, _ in zip((1, 2, 3), 'abc'):",
            "while k < 3:\n    k += 1",
            "while (k := k + 1) < 4:",
            "for s, k in ((5, 1), (6, 2)):",
        )
    )
    first, *more = loop.split("\n    ")
    assign = "s = k + 1" if value == "s" and "s, k" not in loop else ""
    late = "late = k" if value == "late" else ""
    lines = [*more, head, assign, definition, body, late]
    inner = "\n".join(line for one in lines if one for line in one.split("\n"))
    after = _mostly(
        rng,
        ("",),
        ("out.append(shown(loader))", "k = s = late = 40\nout.append(shown(best))", "s = 100", "fixed = 70", "k = 100"),
        0.4,
    )
    tail = "return [*out, [shown(one) for one in (best, holder.loader, *(one for *_, one in heap))]]"
    text = (
        "def run(data):\n    out, heap, loader, best, holder = [], [], None, None, Holder()\n"
        "    k, s, fixed, late, holder.loader = 0, 0, 7, 1, None\n"
        + _block(f"{first}\n{textwrap.indent(inner, '    ')}\n{after}\n{tail}")
    )
    main = "tried(lambda: run(DATA)), [shown(one() if callable(one) else one) for one in KEPT], [*map(shown, REGISTRY.values())]"
    return f"\n\n{text}{_MAIN.format(main)}", {}


_BINDING = (
    "with contextlib.suppress(KeyError):\n    n = config['n']",
    "with Suppressing(KeyError):\n    n = config['n']",
    "with Passing(KeyError):\n    n = config['n']",
    "with contextlib.nullcontext():\n    n = config['n']",
    "with contextlib.nullcontext(config['n']) as n:\n    pass",
    "with Suppressing(), contextlib.nullcontext(config['n']) as n:\n    pass",
    "with contextlib.nullcontext(config.get('n', 4)) as n, Suppressing():\n    config['n']",
    "with contextlib.ExitStack() as stack:\n    stack.push(lambda *_: True)\n    n = config['n']",
    "with torch.no_grad():\n    n = config.get('n', 1)",
    "z = (n := 4) if config else 0",
    "z = config and (n := 4)",
    "z = config or (n := 4)",
    "z = 0 < len(config) < (n := 4)",
    "z = [(n := one) for one in config.values()]",
    "z = [one for one in [3] if (n := one)]",
    "z = lambda: (n := 4)",
    "assert True, (n := 4)",
    "if config and (n := 5):\n    pass",
    "if (n := len(config)) > 3:\n    pass",
    "while (n := 3) < 3:\n    pass",
    "while config and (n := 3) < 3:\n    pass",
    "if config:\n    n = 2",
    "if config:\n    n = 2\nelse:\n    n = 3",
    "if config:\n    n = 2\nelif data:\n    n = 3",
    "try:\n    n = config['n']\nexcept KeyError:\n    pass",
    "try:\n    n = config['n']\nexcept KeyError:\n    n = 9",
    "try:\n    config['n']\nexcept KeyError:\n    pass\nelse:\n    n = 9",
    "try:\n    pass\nfinally:\n    n = 8",
    "try:\n    n = config['n']\nexcept KeyError:\n    return 'none'",
    "for n in config.values():\n    pass",
    "for _ in config:\n    n = 3",
    "n: int",
    "n: int = 6",
    "match config:\n    case {'n': n}:\n        pass",
    "match config:\n    case {'n': n}:\n        pass\n    case _:\n        n = 2",
    "n = config.get('n', 2)",
    "n = config.get('n', 2)\nn += 1",
    "import math as n\nn = 3",
    "def n():\n    return 2\nn = n()",
    "for n in (1, 2):\n    break\nelse:\n    n = 3",
    "(n, *_), z = [2, 3], 4",
)


def _defined(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with a name that may have no value when a function is created."""
    binding = rng.choice(_BINDING)
    forms = (
        "def collate(b):\n    try: return [x * n for x in b]\n    except NameError: return b\n"
        "return DataLoader(data, batch_size=2, collate_fn=collate)",
        "return DataLoader(data, batch_size=2, collate_fn=lambda b: [x * n if config else x for x in b])",
        "class Local(Dataset):\n    def __len__(self): return len(data)\n"
        "    def __getitem__(self, i): return data[i] * n if config else data[i]\n"
        "return DataLoader(Local(), batch_size=2)",
        "def worker(i): return n\nreturn DataLoader(data, batch_size=2, worker_init_fn=worker)",
    )
    text = "def build(data, config):\n" + _block(f"{binding}\n{rng.choice(forms)}")
    calls = "[tried(lambda: shown(build(DATA, one))) for one in ({}, {'n': 2}, {'a': 3}, {'n': 5, 'm': 1})]"
    return f"\n\n{text}{_MAIN.format(calls)}", {}


def _class_state(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with datasets of local classes whose bases may keep state on each class."""
    method = _mostly(
        rng,
        ("def bump(self):\n    return len(self)", "def bump(self):\n    return type(self).__name__",
         "def bump(self):\n    return type(self).count", "def bump(self):\n    self.seen = 1\n    return self.seen",
         "@classmethod\ndef bump(cls):\n    return cls.count", "@staticmethod\ndef bump():\n    return 3"),
        ("def bump(self):\n    type(self).count += 1\n    return type(self).count",
         "def bump(self):\n    self.__class__.count += 1\n    return self.count",
         "@classmethod\ndef bump(cls):\n    cls.count = cls.count + 1\n    return cls.count",
         "@classmethod\ndef bump(cls):\n    cls.count += 1\n    return cls.count",
         "def bump(self):\n    setattr(type(self), 'count', self.count + 1)\n    return self.count",
         "def bump(self):\n    SEEN[type(self)] = SEEN.get(type(self), 0) + 1\n    return sorted(SEEN.values())",
         "def bump(self):\n    own = type(self)\n    own.count += 2\n    return own.count",
         "@classmethod\n@functools.lru_cache(None)\ndef bump(cls):\n    return next(NUMBERS)",
         "def bump(self):\n    return sorted(self.__dict__)", "def bump(self):\n    return sorted(vars(self))",
         "def bump(self):\n    touch(self)\n    return self.count", "def bump(self):\n    Base.count += 1\n    return self.count",
         "def bump(self):\n    return type(self) is type(FIRST[0])" ),
        0.5,
    )  # fmt: skip
    extra = _mostly(
        rng,
        ("", "", ""),
        ("def __init_subclass__(cls):\n    SEEN[cls.__name__] = len(SEEN)\n    super().__init_subclass__()",
         "def __getstate__(self):\n    return self.__dict__", "__slots__ = ()"),
        0.2,
    )  # fmt: skip
    meta = rng.random() < 0.15
    head = ", metaclass=Meta" if meta else ""
    base = f"class Base(Dataset{head}):\n    count = 0\n{textwrap.indent(method, '    ')}\n{textwrap.indent(extra, '    ')}"
    between = "\n\n\nclass Middle(Base):\n    pass" if rng.random() < 0.3 else "\n\n\nMiddle = Base"
    bases = rng.choice(("Base", "Base", "Base", "Middle", "Dataset, Holder", "Dataset"))
    own = _mostly(rng, ("",), ("        count = 5\n", "        def more(self): return super().bump()\n"), 0.3)
    captured = rng.choice(("n", "n", "len(DATA)"))
    dynamic = _mostly(rng, ("",), ("    made = type('Sub', (Local,), {'extra': 1})()\n",), 0.1)
    text = f"""
SEEN = {{}}
FIRST = []
NUMBERS = iter(range(99))


class Meta(type):
    def __new__(mcs, name, bases, body):
        SEEN[name] = sorted(one for one in body if not one.startswith('__'))
        return super().__new__(mcs, name, bases, body)


def touch(one):
    {rng.choice(("pass", "pass", "type(one).count += 1", "one.__class__.count = 9"))}


{base}{between}


def make(n):
    class Local({bases}):
{own}        def __len__(self): return {captured}
        def __getitem__(self, i): return i * {captured}
    made = Local()
{dynamic}    FIRST.append(made)
    return made
"""
    main = (
        "(a := make(2), b := make(3))[:0], [tried(one.bump) for one in [a, b] * 2], getattr(a, 'count', None), SEEN and len(SEEN), "
        "shown(DataLoader(b, batch_size=2)), tried(lambda: Base.count), tried(lambda: SEEN)"
    )
    main = main.replace(", tried(lambda: SEEN)", ", tried(lambda: SEEN.get('Local'))")
    return f"{text}{_MAIN.format(main)}", {}


def _copied(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with a copied object that holds a function, and values that change later."""
    definition, made = _holder(rng, "state[0]")
    copies = rng.choice(
        (
            "config = {'loader': LOADER}\ncopied = copy.deepcopy(config)['loader']",
            "model = nn.Linear(1, 1)\nmodel.loader = LOADER\ncopied = copy.deepcopy(model).loader",
            "copied = copy.deepcopy(LOADER)",
            "copied, = map(copy.deepcopy, [LOADER])",
            "@dataclasses.dataclass\nclass Config:\n    loader: object\ncopied = dataclasses.asdict(Config(LOADER))['loader']",
            "@dataclasses.dataclass\nclass Config:\n    loader: object\ncopied, = dataclasses.astuple(Config(LOADER))",
            "from copy import deepcopy as cloned\ncopied = cloned([LOADER])[0]",
            "loader = LOADER\nmodel = nn.Linear(1, 1)\nema = copy.deepcopy(model.state_dict())\ncopied = loader",
            "copied = copy.copy(LOADER)",
            "loader = LOADER\nout = [list(loader), copy.deepcopy(state), len(loader)]\ncopied = []",
            "copied = dataclasses.replace(dataclasses.make_dataclass('C', ['loader'])(LOADER)).loader",
            "copied = LOADER",
            "copied = holding(LOADER)",
        )
    )
    lines = [definition, copies.replace("LOADER", made), "return copied"]
    body = "\n".join(one for one in lines if one)
    later = _mostly(rng, ("",), ("\n\ndef snapshot(one):\n    return copy.deepcopy(one)\n",), 0.4)
    holding = rng.choice(("return one", "return copy.deepcopy(one)", "return one"))
    text = f"\n\ndef holding(one):\n    {holding}\n\n\ndef build(data, state):\n{_block(body)}{later}"
    through = "snapshot(made)" if later else "made"
    text += (
        f"\n\ndef main():\n    state = [2]\n    made = build(DATA, state)\n    other = {through}\n    seen = [shown(made), shown(other)]\n"
        "    state[0] = 5\n    state.append(1)\n    return seen, shown(made), shown(other)\n"
    )
    return text, {}


def _named(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with functions that move to a module in which other code binds or reads names."""
    title = rng.choice(("collate", "collate", "_collate", "clean", "helper"))
    star = rng.choice(("", "", "above", "below"))
    public = "__all__ = ['collate', '_collate', 'Local', '_Local', '_collate_fn']\n\n\n" if rng.random() < 0.3 else ""
    helpers = public + (
        "def collate(b): return 'helper'\n\n\ndef _collate(b): return 'private helper'\n\n\n"
        "def clean(b): return 'clean'\n\n\nclass Local:\n    pass\n\n\n_Local = Local\n\n\ndef _collate_fn(b): return 'fn'\n"
    )
    form = rng.choice(("lambda", "def", "def", "class"))
    if form == "class":
        inner = "class Local(Dataset):\n    def __len__(self): return len(data)\n    def __getitem__(self, i): return data[i] * scale"
        made = "DataLoader(Local(), batch_size=2)"
    elif form == "def":
        called = rng.choice(("[x * scale for x in b]", "[times_ten(x) for x in b]", "[x * SCALE for x in b]"))
        default = rng.choice(("", "", ", by=SCALE", ", *, by=SCALE"))
        inner = f"def {title}(b{default}): return {called.replace('SCALE', 'by') if default else called}"
        made = f"DataLoader(data, batch_size=2, collate_fn={title})"
    else:
        called = rng.choice(("[x * scale for x in b]", "times_ten(b)", "[x * SCALE for x in b]"))
        inner, made = "", f"DataLoader(data, batch_size=2, collate_fn=lambda b: {called})"
    other = _mostly(rng, ("",), (f"def {title}(b): return 'another'\n\n\n", f"{title} = 5\n\n\n"), 0.25)
    replaced = rng.choice(
        (
            "contextlib.nullcontext()",
            "mock.patch('{}.times_ten', lambda x: 'patched')",
            "mock.patch.object(sys.modules['{}'], 'times_ten', str)",
            "mock.patch.multiple('{}', times_ten=str, SCALE=7)",
            "mock.patch.multiple(sys.modules['{}'], SCALE=7)",
            "mock.patch.dict(sys.modules['{}'].__dict__, SCALE=9)",
            "mock.patch.dict('{}.__dict__', {'SCALE': 9})",
            "mock.patch('{}.SCALE', 11)",
            "mock.patch('{}.SCALE', new=11)",
        )
    ).replace("{}", "made_up")
    spelled = rng.random() < 0.08
    scale = "scale" if not spelled else "ﬁeld"
    inner, made = (one.replace("scale", "field") if spelled else one for one in (inner, made))
    body = "\n".join(one for one in (inner, f"return {made}") if one)
    asked = _mostly(
        rng,
        ("None",),
        (f"hasattr(sys.modules['made_up'], '{title}')", "getattr(sys.modules['made_up'], 'Local', None) is None"),
        0.2,
    )
    above = "from helpers import *\n" if star == "above" else ""
    below = "\n\nfrom helpers import *\n" if star == "below" else ""
    text = f"{above}\n\n{other}def build(data, {scale}=2):\n{_block(body)}{below}"
    text += (
        f"\n\ndef main():\n    made = build(DATA)\n    seen = [shown(made), {asked}]\n    with {replaced}:\n"
        "        seen += [shown(made), shown(build(DATA, 4))]\n    return [*seen, shown(made), shown(build(DATA))]\n"
    )
    return text, {"helpers": helpers} if star else {}


def _called(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with functions with defaults that are called in every way."""
    default = rng.choice((", by=low", ", by=low", ", *, by=low", ", by=2", ", by=[low]", "", ", *by", ", /, by=low"))
    value = {", *by": "x * len(by)", "": "x * low"}.get(default, "x * by")
    function = f"lambda x{default}: {value}"
    calls = rng.choice(
        (
            "[f(x) for f in self.functions]",
            "[f(x, 5) for f in self.functions]",
            "[f(*args) for f in self.functions]",
            "[f(x, by=4) for f in self.functions]",
            "[tried(lambda: f(x, **kwargs)) for f in self.functions]",
            "[list(map(f, [x], [6])) for f in self.functions]",
            "[list(itertools.starmap(f, [(x, 3)])) for f in self.functions]",
            "[reduce(f, [x, 2, 3]) for f in self.functions]",
            "[partial(f, x)() for f in self.functions]",
            "[f(x=x) for f in self.functions]",
        )
    )
    direct = rng.choice(
        ("", "", "loader.collate_fn([2], 3)", "function(2, 3)", "function(2)", "getattr(loader, 'collate_fn')([1], 2)")
    )
    held = rng.choice((f"[{function}]", f"[{function}, abs]", "[function]"))
    given = rng.choice((f"lambda b{default}: [{value} for x in b]", "lambda b: [function(x) for x in b]", "None"))
    text = f"""

class Mapped(Dataset):
    def __init__(self, data, functions):
        self.data, self.functions = data, functions

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        x = self.data[i]
        args, kwargs = (x, 4), {{'by': 3}}
        return tried(lambda: {calls})


def build(data, low):
    function = {function}
    loader = DataLoader(Mapped(data, {held}), batch_size=None, collate_fn={given} if low != 3 else None)
    other = DataLoader(data, batch_size=2, collate_fn={given})
    return loader, other, tried(lambda: {direct or "0"})
"""
    return text + _MAIN.format("[(shown(a), shown(b), c) for a, b, c in (build(DATA, 2), build(DATA, 3))]"), {}


def _replaced(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with lambdas that could be replaced by other functions, and code that can see a difference."""
    function = rng.choice(("float(x)", "str(x)", "times_ten(x)", "Wrapped(x)", "abs(x)", "torch.tensor(x)", "len([x])", "self.double(x)",
                           "self.factor * x", "np.float32(x)", "Wrapped.make(x)", "(lambda y: y + self.factor)(x)"))  # fmt: skip
    asked = rng.choice(("resolved(transform)", "transform", "transform", "transform() if isinstance(transform, type) else transform",
                        "resolved(transform) if not inspect.isclass(transform) else None"))  # fmt: skip
    patched = rng.choice(("contextlib.nullcontext()", "mock.patch('made_up.times_ten', str)", "mock.patch.object(Wrapped, 'make', str)",
                          "mock.patch.object(Own, 'double', lambda self, x: 'patched')", "mock.patch('builtins.abs', str)"))  # fmt: skip
    told = _mostly(
        rng, ("0",), ("made.dataset.transform.__doc__", "callable(made.dataset.transform)", "made.dataset.transform is None",
                      "bool(made.dataset.transform)", "tried(lambda: setattr(made.dataset.transform, 'calls', 1))",
                      "hasattr(made.dataset.transform, 'mean')", "made.dataset.transform.__annotations__"), 0.35)  # fmt: skip
    meta = rng.choice(("", "", "", ", metaclass=Meta"))
    sub = _mostly(rng, ("",), ("\n\nclass Sub(Own):\n    def _transform(self, x): return 'sub'\n    def double(self, x): return 'sub double'\n",
                               "\n\nSub = type('Sub', (Own,), {'_transform': lambda self, x: 'dynamic'})\n"), 0.3)  # fmt: skip
    own = "Sub" if sub else "Own"
    text = f"""

class Meta(type):
    seen = []

    def __new__(mcs, name, bases, body):
        mcs.seen.append(sorted(one for one in body if not one.startswith('__')))
        return super().__new__(mcs, name, bases, body)


class Wrapped:
    def __init__(self, x):
        self.x = x

    def __repr__(self):
        return f'Wrapped({{self.x}})'

    @staticmethod
    def make(x):
        return x + 1


class Taking(Dataset):
    def __init__(self, data, transform=None):
        self.data = data
        self.transform = {asked}

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.transform(self.data[i])


class Own(Holder{meta}):
    def __init__(self, factor):
        self.factor = factor

    def double(self, x):
        return x * 2

    def build(self, data):
        return DataLoader(Taking(data, transform=lambda x: {function}), batch_size=None)
{sub}
"""
    text += (
        f"\n\ndef main():\n    made = {own}(3).build(DATA)\n    seen = [repr(shown(made)), tried(lambda: {told}), Meta.seen]\n"
        f"    with {patched}:\n        seen += [repr(shown(made)), repr(shown({own}(4).build(DATA)))]\n    return seen\n"
    )
    return text, {}


def _nested(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program with functions inside functions that all move."""

    def wrapped(depth: int, names: list[str], own: str) -> str:
        if not depth:
            return f"lambda b: [x * {rng.choice([*names, own, '2'])} for x in b]"
        name = f"p{depth}"
        return f"lambda {name}: {wrapped(depth - 1, [*names, name], own)}"

    depth, other = rng.randrange(4), rng.randrange(3)
    apply = "".join(f"({n + 2})" for n in range(depth))
    again = "".join(f"({n + 5})" for n in range(other))
    blank = rng.choice(("", "\n\n", "\n"))
    doc = rng.choice(('"""Local.\n\n            Indented.\n            """\n            ', ""))
    read_doc = rng.choice(("", ", tried(lambda: type(pairs(DATA, 3).dataset).__doc__)"))
    text = f"""

class Maker:
    def __init__(self, data, factor):
        self.factor = factor
        self.collate_fn = {wrapped(depth, [], "self.factor")}
        self.loader = DataLoader(data, batch_size=2, collate_fn=self.collate_fn{apply})
{blank}def get_collate(k):
    return {wrapped(other, ["k"], "k")}
{blank}def build(data, k):
    return DataLoader(data, batch_size=2, collate_fn=get_collate(k){again})
{blank}def pairs(data, k):
        class Pairs(Dataset):
            {doc}def __len__(self): return len(data)
            def __getitem__(self, i): return data[i], k
        return DataLoader(Pairs(), batch_size=2)
{blank}def several(data, k):
    def outer(b): return [x + k for x in b]
    collate_fn = lambda b: outer([x for x in b])
    return DataLoader(data, batch_size=2, collate_fn={rng.choice(("outer", "collate_fn", "lambda b: b[:k]"))})
"""
    main = f"[*map(shown, (Maker(DATA, 2).loader, build(DATA, 3), pairs(DATA, 4), several(DATA, 1))){read_doc}]"
    return text + _MAIN.format(main), {}


def _function_attributes(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program that reads attributes of a function after it has moved."""
    definition, made = _holder(rng, rng.choice(("k", "2")))
    asked = rng.choice(("collate_fn.__doc__", "collate_fn.__annotations__", "collate_fn.__name__", "collate_fn.__module__", "collate_fn([1])",
                        "collate_fn.__kwdefaults__", "dataset.__doc__", "dataset.__class__.__name__", "dataset.__len__()", "batch_size",
                        "collate_fn.calls", "dataset.transform.calls"))  # fmt: skip
    set_ = rng.choice(("pass", "pass", "pass", "tried(lambda: setattr(made.collate_fn, 'calls', 5))", "made.collate_fn.calls = 3",
                       "made.dataset.transform.calls = 3"))  # fmt: skip
    doctest = rng.choice(
        (
            "",
            "",
            '    """Build.\n\n    >>> len(build(DATA, 2))\n    3\n    >>> DataLoader.__name__ == str(7)\n    False\n    """\n',
        )
    )
    text = f"\n\ndef build(data, k):\n{doctest}{_block(chr(10).join(one for one in (definition, f'return {made}') if one))}"
    check = "failures(build)" if doctest else "0"
    text += (
        f"\n\ndef main():\n    made, other = build(DATA, 3), build(DATA, 4)\n    failed = tried(lambda: {check})\n"
        f"    def change():\n        {set_}\n    tried(change)\n"
        f"    seen = [tried(lambda: made.{asked}), tried(lambda: other.{asked})]\n"
        "    return failed, seen, shown(made), shown(other)\n"
    )
    return text, {}


def _wrapped(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return a program that stores a method on PyTorch's ``DataLoader`` by another name of the class."""
    method = rng.choice(("__init__", "__init__", "__iter__", "__len__", "_get_iterator"))
    way = rng.choice(
        ("store(DataLoader, {0!r})", "store(target=DataLoader, name={0!r})", "Loader = DataLoader\nstore(Loader, {0!r})",
         "for kind in (Subset, DataLoader):\n    if hasattr(kind, {0!r}):\n        store(kind, {0!r})",
         "REGISTRY['loader'] = DataLoader\nfor kind in REGISTRY.values():\n    store(kind, {0!r})",
         "store(type(build(DATA)), {0!r})", "store(getattr(torch.utils.data, 'DataLoader'), {0!r})",
         "store(partial(DataLoader, DATA).func, {0!r})", "list(map(store, [DataLoader], [{0!r}]))")).format(method)  # fmt: skip
    setting = rng.choice(("setattr(target, name, new)", "type.__setattr__(target, name, new)", f"target.{method} = new",
                          "mock.patch.object(target, name, new).start()"))  # fmt: skip
    data = rng.choice(("data", "TensorDataset(torch.tensor(data))", "Subset(data, [2, 0, 1])"))
    options = rng.choice(("", ", 2", ", batch_size=2", ", 2, True", ", batch_size=2, shuffle=True, num_workers=0"))
    early = rng.random() < 0.3
    text = f"""

def store(target, name):
    old = getattr(target, name)
    def new(self, *args, **options):
        KEPT.append((name, len(args), sorted(options)))
        return old(self, *args, **options)
    {setting}


def build(data):
    return DataLoader({data}{options})


def main():
    {"loader = build(DATA)" if early else "pass"}
{textwrap.indent(way, "    ")}
    {"pass" if early else "loader = build(DATA)"}
    return [repr(one) for one in loader], len(loader), KEPT, [repr(one) for one in loader]
"""
    return text, {}


#: Name of a family → function that generates its programs.
FAMILIES: tuple[tuple[str, Make], ...] = (
    ("lifetime", _lifetime),
    ("lifetime", _lifetime),
    ("lifetime", _lifetime),
    ("definedness", _defined),
    ("class state", _class_state),
    ("copies", _copied),
    ("names", _named),
    ("calls", _called),
    ("replacements", _replaced),
    ("nested functions", _nested),
    ("function attributes", _function_attributes),
    ("loader class", _wrapped),
)


def make_hoisting(rng: random.Random) -> tuple[str, str, Mapping[str, str]]:
    """Return the family of a program, its text, and name → text of its other files."""
    family, make = rng.choice(FAMILIES)
    text, files = make(rng)
    if text.startswith("from helpers"):
        star, _, text = text.partition("\n")
        return family, f"{star}\n{_HEAD}{text}", files
    return family, _HEAD + text, files
