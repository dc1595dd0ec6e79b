"""Functions, lambdas and classes move only where no one can notice: programs run before and after.

Each program is a module with a function ``main()``. What it returns is the same before and after, whether something was
rewritten or not; and a neighbour that differs in the one point is rewritten.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
from support import imported, migrate

from chirp_migrate.plans.plan import FindingStatus

HEADER = """\
import contextlib, copy, dataclasses, functools, itertools
from torch.utils.data import DataLoader, Dataset

KEPT = []


def store(loader):
    KEPT.append(loader)


def consume(loader):
    again = loader
    return [batch for batch in again]


class Applied(Dataset):
    def __init__(self, data, functions):
        self.data, self.functions = data, functions

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return CALLS


def tried(call):
    try:
        return call()
    except Exception as error:
        return str(type(error))
"""

CODES = "CHP006 CHP007 CHP012"


def behaves(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, calls: str = "0", **others: str) -> bool:
    """See that ``main()`` returns the same before and after; whether something was rewritten.

    Only for what is reported, and says why, nothing is.
    """
    before = HEADER.replace("CALLS", calls) + "\n\n" + textwrap.dedent(text).strip("\n") + "\n"
    after, findings = migrate(CODES, before, **others)
    assert findings
    results = []
    for other, source in others.items():
        (folder / f"{other}.py").write_text(textwrap.dedent(source))
        monkeypatch.delitem(sys.modules, other, raising=False)
        monkeypatch.syspath_prepend(str(folder))
    for source in (before, after):
        module: ModuleType = imported(source, folder=folder, monkeypatch=monkeypatch)
        results.append(plain(module.main()))
    assert results[0] == results[1]
    assert (after != before) is any(one.status is FindingStatus.REWRITE for one in findings)
    return all(one.status is FindingStatus.REWRITE for one in findings)


def plain(value: object) -> object:
    """Tensors as lists, so that results compare."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


#: How a loader with a function that reads ``k`` is made in a loop.
FORMS = {
    "lambda": ("", "DataLoader(data, batch_size=2, collate_fn=lambda b: [x * k for x in b])"),
    "function": ("def collate(b): return [x * k for x in b]", "DataLoader(data, batch_size=2, collate_fn=collate)"),
    "class": (
        "class Local(Dataset):\n    def __len__(self): return len(data)\n"
        "    def __getitem__(self, i): return data[i] * k",
        "DataLoader(Local(), batch_size=2)",
    ),
}

#: What is done with the loader, in the loop and after it; and whether that ends before ``k`` is bound again.
USES = {
    "iterated over": ("out += loader", "", False),
    "listed": ("out += list(loader)", "", True),
    "read by a loop": ("for b in loader:\n    out.append(b)", "", True),
    "measured": ("out.append(len(loader))", "", True),
    "read by a comprehension": ("out.append([b for b in loader])", "", True),
    "numbered": ("for i, b in enumerate(loader):\n    out.append((i, b))", "", True),
    "read by a function that keeps nothing": ("out += consume(loader)", "", True),
    "read in a branch": ("if len(loader) > 1:\n    out += list(loader)", "", True),
    "returned": ("if k == 2:\n    again = loader\n    return list(again)", "", True),
    "deleted": ("out += list(loader)\ndel loader", "", True),
    "asked for its dataset": ("out.append(len(loader.dataset))", "", True),
    "read after the loop": ("", "out += list(loader)", False),
    "kept as the best": ("if k < 3:\n    best = loader", "out += list(best)", False),
    "kept by a function": ("store(loader)", "out += [list(one) for one in KEPT]", False),
    "kept in a list": ("made.append(loader)", "out += [list(one) for one in made]", False),
    "kept under a key": ("found[k] = loader", "out += [list(one) for one in found.values()]", False),
    "kept by a method": ("found.__setitem__(k, loader)", "out += [list(one) for one in found.values()]", False),
    "kept by an iterator": ("best = iter(loader)", "out += list(best)", False),
    "kept by a generator": ("best = (b for b in loader)", "out += list(best)", False),
    "kept by a function of its own": ("made.append(lambda: list(loader))", "out += [one() for one in made]", False),
    "read while `k` changes": ("for b in loader:\n    k = k + 1\n    out.append(b)", "", False),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", USES)
def test_a_loader_of_an_iteration_is_used_up_in_it(
    form: str, use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, made = FORMS[form]
    inside, after, is_used_up = USES[use]
    lines = "\n".join(one for one in (definition, f"loader = {made}", inside) if one)
    text = (
        "def run(data):\n    out, made, found, best = [], [], {}, None\n    for k in (1, 2, 3):\n"
        + textwrap.indent(lines, "        ")
        + ("\n" + textwrap.indent(after, "    ") if after else "")
        + "\n    return out\n\n\ndef main():\n    return tried(lambda: run([1, 2, 3]))\n"
    )
    assert behaves(text, tmp_path, monkeypatch) is is_used_up


@pytest.mark.parametrize(
    "head",
    [
        "for b in loader or ():\n    out.append(b)",
        "while loader:\n    out += list(loader)\n    break",
        "if loader and list(loader):\n    out.append(list(loader))",
        "with contextlib.nullcontext(loader) as last:\n    out.append(last and list(last))",
        "out.append(tried(lambda: list(loader)))",
    ],
)
def test_the_next_iteration_may_read_the_loader_of_the_last_one(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def run(data):\n    out, loader = [], None\n    for k in (1, 2, 3):\n{}        loader = DataLoader(data, "
    text += "batch_size=2, collate_fn=lambda b: [x * k for x in b])\n        out += [list(loader)]\n    return out\n"
    main = "\n\ndef main():\n    return run([1, 2, 3])\n"
    assert not behaves(text.format(textwrap.indent(head, "        ") + "\n") + main, tmp_path, monkeypatch)
    assert behaves(text.format("") + main, tmp_path, monkeypatch)


#: What binds ``n``, and whether it always does.
BINDINGS = [
    ("with contextlib.suppress(KeyError):\n    n = config['n']", False),
    ("with Own():\n    n = config['n']", False),
    ("with contextlib.nullcontext():\n    n = config['n']", True),
    ("with Own(), contextlib.nullcontext(config['n']) as n:\n    pass", False),
    ("with contextlib.nullcontext(config.get('n')) as n, Own():\n    config['n']", True),
    ("z = (n := 4) if config else 0", False),
    ("z = 4 if (n := config) else 0", True),
    ("z = config and (n := 4)", False),
    ("z = (n := config) and 4", True),
    ("z = 0 < len(config) < (n := 4)", False),
    ("z = 0 < (n := len(config)) < 4", True),
    ("z = [(n := one) for one in config.values()]", False),
    ("assert True, (n := 4)", False),
    ("assert (n := 4)", True),
    ("if config and (n := 5):\n    pass", False),
    ("if (n := len(config)) > 3:\n    pass", True),
    ("while (n := 3) < 3:\n    pass", True),
    ("while config and (n := 3) < 3:\n    pass", False),
    ("n: int", False),
    ("n: int = 3", True),
    ("match config:\n    case {'n': n}:\n        pass", False),
    ("try:\n    n = config['n']\nexcept KeyError:\n    n = 2", True),
    ("try:\n    n = config['n']\nexcept KeyError:\n    pass", False),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("binding", "is_bound"), BINDINGS)
def test_a_name_has_a_value_on_every_path(
    form: str, binding: str, is_bound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, made = (one.replace("* k", "* n if config else x") for one in FORMS[form])
    definition = definition.replace("else x", "else 0")
    made = made.replace("for x in b]", "for x in b] if config else b").replace("x * n if config else x", "x * n")
    lines = "\n".join(one for one in (binding, definition, f"return {made}") if one)
    text = (
        "class Own:\n    def __enter__(self): return self\n    def __exit__(self, *error): return True\n\n\n"
        "def build(data, config):\n" + textwrap.indent(lines, "    ") + "\n\n\ndef main():\n"
        "    return [tried(lambda: list(build([1, 2], one))) for one in ({}, {'n': 2}, {'m': 3})]\n"
    )
    if is_bound:
        assert behaves(text, tmp_path, monkeypatch)
    else:
        assert not behaves(text, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("method", "moves"),
    [
        ("def bump(self):\n    type(self).count += 1\n    return self.count", False),
        ("def bump(self):\n    self.__class__.count += 1\n    return self.count", False),
        ("@classmethod\ndef bump(cls):\n    cls.count = cls.count + 1\n    return cls.count", False),
        ("def bump(self):\n    own = type(self)\n    own.count += 2\n    return own.count", False),
        ("@classmethod\n@functools.lru_cache(None)\ndef bump(cls):\n    return next(NUMBERS)", False),
        ("def bump(self):\n    return sorted(vars(self))", False),
        ("def bump(self):\n    return sorted(self.__dict__)", False),
        ("def bump(self):\n    own = self\n    type(own).count += 1\n    return own.count", False),
        ("def bump(self):\n    x = 3\n    return type(x) is int", True),
        ("def bump(self):\n    touch(self)\n    return self.count", True),
        ("def bump(self):\n    Base.count += 1\n    return self.count", True),
        ("def bump(self):\n    return type(self).__name__, self.__class__.count", True),
        ("@classmethod\ndef bump(cls):\n    return cls.count, cls(3).__len__()", False),  # `n` is an argument, too
        ("@classmethod\ndef bump(cls):\n    return cls.count, cls.__name__", True),
    ],
)
@pytest.mark.parametrize("touch", ["pass", "type(one).count += 1"])
def test_state_of_a_class_is_looked_for_in_its_bases(
    method: str, moves: bool, touch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        f"NUMBERS = itertools.count()\n\n\ndef touch(one):\n    {touch}\n\n\n"
        "class Base(Dataset):\n    count = 0\n\n" + textwrap.indent(method, "    ") + "\n\n\n"
        "class Middle(Base):\n    pass\n\n\ndef make(n):\n    class Local(Middle):\n"
        "        def __len__(self): return n\n        def __getitem__(self, i): return i\n    return Local()\n\n\n"
        "def main():\n    a, b = make(2), make(3)\n"
        "    return [tried(one.bump) for one in (a, b, a)], Base.count, len(b)\n"
    )
    assert behaves(text, tmp_path, monkeypatch) is (moves and touch == "pass")


@pytest.mark.parametrize(
    ("member", "moves"),
    [
        ("mean = OncePerClass()", False),
        ("mean: object = OncePerClass()", False),
        ("mean = made()", False),
        ("mean = SHARED", False),
        ("mean = (again := SHARED)", False),
        ("mean, other = 3, OncePerClass()", False),
        ("mean = 3", True),
        ("mean = sum([1, 2], start=len('a'))", True),
        ("mean = property(operator.attrgetter('n'))\n    n = 3", True),
        ("mean = OncePerClass", True),
        ("mean = made", True),
    ],
)
def test_an_attribute_of_a_base_may_see_the_class_it_is_asked_for_on(
    member: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""\
import operator

NUMBERS = itertools.count()


class OncePerClass:
    def __get__(self, one, owner):
        if getattr(owner, "found", None) is None:
            owner.found = next(NUMBERS)
        return owner.found


def made():
    return OncePerClass()


SHARED = made()


class Base(Dataset):
    {member}


def make(n):
    class Local(Base):
        def __len__(self): return n
        def __getitem__(self, i): return i
    return Local()


def main():
    return [one.mean if isinstance(one.mean, int) else 0 for one in (make(2), make(3), make(4))]
"""
    assert behaves(text, tmp_path, monkeypatch) is moves


@pytest.mark.parametrize(
    ("held", "moves"),
    [
        ("copy.deepcopy({'a': LOADER})['a']", False),
        ("copy.deepcopy(Holder(LOADER)).one", False),
        ("dataclasses.asdict(Holder(LOADER))['one']", False),
        ("dataclasses.astuple(Holder(LOADER))[0]", False),
        ("list(map(copy.deepcopy, [LOADER]))[0]", False),
        ("given(LOADER)", False),
        ("[copy.deepcopy(state), list(LOADER)][1]", True),
        ("copy.copy(LOADER)", False),
        ("Holder(LOADER).one", False),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_copy_may_reach_stays(
    form: str, held: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, made = (one.replace("* k", "* state[0]") for one in FORMS[form])
    lines = "\n".join(one for one in (definition, f"return {held.replace('LOADER', made)}") if one)
    holder = "@dataclasses.dataclass\nclass Holder:\n    one: object\n\n\n"
    copying = "def given(one):\n    return copy.deepcopy(one)\n\n\n"
    main = "\n\n\ndef main():\n    s = [1]\n    made = build([1, 2, 3], s)\n    s[0] = 5\n    return list(made)\n"
    build = "def build(data, state):\n" + textwrap.indent(lines, "    ")
    assert behaves(holder + copying + build + main, tmp_path, monkeypatch) is moves
    if "copy." not in held and "dataclasses." not in held and "given" not in held:
        assert behaves(holder + build + main, tmp_path, monkeypatch)


@pytest.mark.parametrize("clone", ["type(self)()", "self.__class__()", "self.made()"])
@pytest.mark.parametrize("in_base", [False, True])
@pytest.mark.parametrize("factor", ["k", "2"])
def test_a_class_that_constructs_its_own_objects_takes_no_captured_values(
    clone: str, in_base: bool, factor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = f"    def again(self): return {clone}\n    @classmethod\n    def made(cls): return cls()\n"
    base = f"class Base(Dataset):\n{again if in_base else '    pass'}\n"
    own = "" if in_base else textwrap.indent(again, "    ")
    text = (
        f"{base}\n\ndef build(k):\n    class Local(Base):\n        def __len__(self): return 3\n"
        f"        def __getitem__(self, i): return i * {factor}\n{own}    return Local()\n\n\n"
        "def main():\n    return [list(DataLoader(build(k).again())) for k in (1, 2)]\n"
    )
    assert behaves(text, tmp_path, monkeypatch) is (factor == "2")


#: A function that trains with a loader of one of two calls, and a helper that iterates over a progress bar.
TRAINING = """
def shown(loader):
    loader = tqdm.tqdm(loader, disable=True)
    return [batch for batch in loader]


def train(data, scale, few):
    seen = []

    def collate(batch):
        return [x * scale[0] for x in batch]

    if few:
        loader = DataLoader(data, batch_size=1, collate_fn=collate)
    else:
        loader = DataLoader(data, batch_size=2, collate_fn=collate)
    for epoch in range(2):
        scale[0] += 1
        USE
    return seen


def main():
    return [train([1, 2, 3], [5], few) for few in (True, False)]
"""


@pytest.mark.parametrize(
    ("use", "moves"),
    [
        ("seen += list(loader)", True),
        ("bar = tqdm.tqdm(loader, disable=True); bar.set_description(str(epoch)); seen += [one for one in bar]", True),
        ("seen += shown(loader)", True),
        ("isinstance(loader, DataLoader) and seen.append(len(loader.sampler))", True),
        ("seen.append(loader.batch_size)", True),
        ("seen += copy.deepcopy(loader)", False),
        ("seen += list(copy.deepcopy(loader.sampler))", False),
        ("note = tqdm.tqdm(loader, disable=True).set_description; seen.append(len(note.__self__.iterable))", False),
        ("bar = tqdm.tqdm(loader, disable=True); seen += copy.deepcopy(bar.iterable)", False),
        ("seen.append(copy.deepcopy(loader.collate_fn)([epoch]))", False),
    ],
)
def test_a_loader_whose_uses_can_be_traced_is_not_copied(
    use: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = "import tqdm\n\n\ndef copied(model):\n    return copy.deepcopy(model)\n\n\n"
    assert behaves(copying + TRAINING.strip().replace("USE", use), tmp_path, monkeypatch) is moves


@pytest.mark.parametrize(
    "calls",
    [
        "[f(self.data[i]) for f in self.functions]",
        "[f(self.data[i], 5) for f in self.functions]",
        "[f(*(self.data[i], 6)) for f in self.functions]",
        "[f(self.data[i], by=6) for f in self.functions]",
        "[list(map(f, self.data, self.data)) for f in self.functions]",
        "[functools.reduce(f, self.data) for f in self.functions]",
        "[list(itertools.starmap(f, [(2, 3)])) for f in self.functions]",
    ],
)
def test_a_default_may_be_given_in_every_way(calls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "def build(data, low):\n    return DataLoader(Applied(data, [lambda x{}by=low: x + by]), batch_size=None)\n\n\n"
        "def main():\n    return tried(lambda: list(build([1, 2], 9)))\n"
    )
    assert not behaves(text.format(", "), tmp_path, monkeypatch, calls)
    assert behaves(text.format(", *, "), tmp_path, monkeypatch, calls)


def test_a_default_of_what_only_loaders_call_may_be_given_by_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "def build(data):\n    out = []\n    for k in (1, 2):\n"
        "        store(DataLoader(data, batch_size=2, collate_fn=lambda b, k=k: [x * k for x in b]))\n\n\n"
        "def main():\n    build([1, 2, 3])\n    return [(list(one), {}) for one in KEPT]\n"
    )
    assert behaves(text.format("0"), tmp_path, monkeypatch)
    assert not behaves(text.format("one.collate_fn([1], 7)"), tmp_path, monkeypatch)
    assert not behaves(text.format("getattr(one, 'collate_fn')([1], 7)"), tmp_path, monkeypatch)


@pytest.mark.parametrize("called", ["float(x)", "abs(x)", "doubled(x)", "Kind(x).x"])
def test_a_lambda_becomes_a_function_and_nothing_else(
    called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "def doubled(x): return x * 2\n\n\nclass Kind:\n    def __init__(self, x=7): self.x = x\n\n\n"
        "def resolved(one): return one() if isinstance(one, type) else one\n\n\n"
        "class Taking(Dataset):\n    def __init__(self, transform): self.transform = resolved(transform)\n"
        "    def __len__(self): return 2\n    def __getitem__(self, i): return self.transform(i)\n\n\n"
        f"def main():\n    global doubled\n    made = Taking(transform=lambda x: {called})\n    seen = [made[1]]\n"
        "    doubled = str\n    return [*seen, made[1], list(DataLoader(made, batch_size=None))]\n"
    )
    assert behaves(text, tmp_path, monkeypatch)


@pytest.mark.parametrize("star", ["above", "below"])
@pytest.mark.parametrize("public", ["", "__all__ = ['collate', '_collate', 'Local', '_Local']\n"])
@pytest.mark.parametrize("form", ["function", "class"])
def test_a_star_import_does_not_bind_the_new_name(
    form: str, star: str, public: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpers = f"{public}def collate(b): return 'no'\n_collate = collate\nclass Local: pass\n_Local = Local\n"
    definition, made = (one.replace("* k", "* 2") for one in FORMS[form])
    text = "def build(data):\n" + textwrap.indent(f"{definition}\nreturn {made}", "    ")
    text += "\n\n\ndef main():\n    return list(build([1, 2, 3]))\n"
    line = "from helpers import *\n"
    text = line + text if star == "above" else f"{text}\n\n{line}"
    assert behaves(text, tmp_path, monkeypatch, helpers=helpers)


@pytest.mark.parametrize("star", ["above", "below"])
def test_a_star_import_may_bring_another_function_of_pythons_name(
    star: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "def run(data):\n    for k in (1, 2):\n"
        "        loader = DataLoader(data, batch_size=2, collate_fn=lambda b: [x * k for x in b])\n"
        "        list(loader)\n\n\n"
        "def main():\n    import tools\n    tools.SEEN.clear()\n    run([1, 2, 3])\n"
        "    return [[*one] for one in tools.SEEN]\n"
    )
    line = "from tools import *\n"
    text = line + text if star == "above" else f"{text}\n\n{line}"
    keeps = "SEEN = []\ndef list(one):\n    SEEN.append(one)\n"
    assert not behaves(text, tmp_path, monkeypatch, tools=keeps)
    assert behaves(text, tmp_path, monkeypatch, tools="SEEN = []\n")


#: A name that a function imports, code that may give it another value later, and whether it does.
IMPORTED = {
    "a function": ("from tools import scale", "scale(x)", "", True),
    "a constant": ("from tools import BY", "x * BY", "", True),
    "a module": ("import tools", "x * tools.BY", "tools.BY = 7", True),
    "a constant that is set": ("from tools import BY", "x * BY", "tools.BY = 7", False),
    "a name that is set by a function": ("from tools import STATE", "x * STATE", "tools.change()", False),
    "a function that is patched": (
        "from tools import scale",
        "scale(x)",
        "mock.patch('tools.scale', abs).start()",
        False,
    ),
    "a module that is replaced": (
        "import tools",
        "x * tools.BY",
        "mock.patch.dict(sys.modules, tools=Other).start()",
        False,
    ),
}


@pytest.mark.parametrize("name", IMPORTED)
def test_an_import_that_moves_gives_what_it_gave(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement, used, change, moves = IMPORTED[name]
    tools = (
        "BY, STATE = 3, 4\n\n\ndef scale(x):\n    return x * BY\n\n\ndef change():\n    global STATE\n    STATE = 8\n"
    )
    text = (
        "import importlib, sys\nfrom unittest import mock\n\n\nclass Other:\n    BY = 9\n\n\n"
        f"def build(data):\n    {statement}\n"
        f"    return DataLoader(data, collate_fn=lambda b: [{used} for x in b])\n\n\n"
        f"def main():\n    import tools\n    importlib.reload(tools)\n    loader = build([1, 2])\n    {change}\n"
        "    result = list(loader)\n    mock.patch.stopall()\n    return result\n"
    )
    assert behaves(text, tmp_path, monkeypatch, tools=tools) is moves


#: What a loader's function or dataset gives back, whether that reads ``k`` later, and how it is read then.
GIVEN_BACK = {
    "a list": ("collate_fn=lambda b: [x * k for x in b]", "one", True),
    "a sum": ("collate_fn=lambda b: sum(x * k for x in b)", "one", True),
    "what is sorted": ("collate_fn=lambda b: sorted(b, key=lambda x: x * k)", "one", True),
    "what is mapped": ("collate_fn=lambda b: list(map(lambda x: x * k, b))", "one", True),
    "a generator": ("collate_fn=lambda b: (x * k for x in b)", "list(one)", False),
    "a function": ("collate_fn=lambda b: lambda: b[0] * k", "one()", False),
    "a map": ("collate_fn=lambda b: map(lambda x: x * k, b)", "list(one)", False),
    "functions in a list": ("collate_fn=lambda b: max([lambda: k], key=id)", "one()", False),
}


@pytest.mark.parametrize("name", GIVEN_BACK)
def test_batches_that_read_a_name_later_see_its_last_value(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argument, read, moves = GIVEN_BACK[name]
    text = (
        "def run(data):\n    kept = []\n    for k in (1, 2, 3):\n"
        f"        kept += list(DataLoader(data, batch_size=2, {argument}))\n"
        f"    return [{read} for one in kept]\n\n\ndef main():\n    return run([1, 2, 3])\n"
    )
    assert behaves(text, tmp_path, monkeypatch) is moves


#: Methods of a dataset in a loop over ``k``, how a sample is read after the loop, and whether that sees no later ``k``.
METHODS = {
    "a method is called": (
        "def __getitem__(self, i):\n    return self.scaled(i)\ndef scaled(self, i):\n    return i * k",
        "one",
        True,
    ),
    "a sample is read": ("def __getitem__(self, i):\n    return i * k if i < len(self) else self[0]", "one", True),
    "itself": ("def __getitem__(self, i):\n    return self\ndef read(self):\n    return k", "one.read()", False),
    "a method": ("def __getitem__(self, i):\n    return self.read\ndef read(self):\n    return k", "one()", False),
    "a function": (
        "def __getitem__(self, i):\n    return lambda: self.read()\ndef read(self):\n    return k",
        "one()",
        False,
    ),
    "a generator": ("def __getitem__(self, i):\n    yield k", "next(one)", False),
    "kept elsewhere": (
        "def __getitem__(self, i):\n    store(self)\n    return i\ndef read(self):\n    return k",
        "KEPT[-3].read()",
        False,
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_samples_that_hold_their_dataset_see_the_last_value(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods, read, moves = METHODS[name]
    text = (
        "def alone(sample):\n    return (sample,)\n\n\n"
        "def run(data):\n    kept = []\n    for k in (1, 2, 3):\n        class Local(Dataset):\n"
        "            def __len__(self):\n                return len(data)\n"
        + textwrap.indent(methods, " " * 12)
        + "\n        kept += list(DataLoader(Local(), batch_size=None, collate_fn=alone))\n"
        f"    return [{read} for (one,) in kept]\n\n\ndef main():\n    return run([1, 2])\n"
    )
    assert behaves(text, tmp_path, monkeypatch) is moves


LOADING = """
class Loading:
    def __init__(self, k):
        self.k = k

    def build(self, data):
        return DataLoader(data, batch_size=2, collate_fn=lambda b: [x * self.k for x in b])


class Other:
    k = 5


{others}


def main():
    return list({use}), len(KEPT)
"""


@pytest.mark.parametrize(
    ("others", "use", "moves"),
    [
        ("", "Loading(3).build([1, 2])", True),
        (
            "class Faster(Loading):\n    def build(self, data):\n        return Loading.build(self, data[:1])",
            "Faster(3).build([1, 2])",
            True,
        ),
        ("", "Loading.build(Other(), [1, 2])", False),
        ("another = Other()", "Loading.build(another, [1, 2])", False),
        ("", "getattr(Loading, 'build')(Other(), [1, 2])", False),
        ("", "type(Loading(3)).build(Other(), [1, 2])", False),
        ("class Borrowing(Other):\n    build = Loading.build", "Borrowing().build([1, 2])", False),
        (
            "class Watched(Loading):\n    def __getattribute__(self, name):\n        KEPT.append(name)\n"
            "        return super().__getattribute__(name)",
            "Watched(3).build([1, 2])",
            False,
        ),
    ],
    ids=["own", "base", "other", "named", "getattr", "type", "borrowed", "watched"],
)
def test_a_method_may_have_an_object_of_another_class(
    others: str, use: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert behaves(LOADING.format(others=others, use=use), tmp_path, monkeypatch) is moves


def test_a_method_is_called_as_none_of_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        from torch import nn


        class Net(nn.Module):
            def __init__(self, k):
                super().__init__()
                self.k, self.linear = k, nn.Linear(1, 1)

            def build(self, data):
                def apply(batch):
                    return [x * self.k for x in batch]
                return DataLoader(data, batch_size=2, collate_fn=apply)


        def main():
            net = Net(3)
            return list(net.double().build([1, 2])), str(net.linear.weight.dtype)
    """
    assert behaves(text, tmp_path, monkeypatch)


def test_names_that_python_reads_as_one_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "def build({}):\n    return DataLoader([1, 2], batch_size=2, collate_fn=lambda b: [x * field for x in b])\n\n\n"
        "def main():\n    return list(build(3))\n"
    )
    assert not behaves(text.format("ﬁeld"), tmp_path, monkeypatch)
    assert behaves(text.format("field"), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("head", "inside", "moves"),
    [
        (
            "class Meta(type):\n    def __init__(cls, name, bases, body): SEEN.append(sorted(body))\n",
            ", metaclass=Meta",
            False,
        ),
        ("class Base:\n    def __init_subclass__(cls): SEEN.append(sorted(vars(cls)))\n", ", Base", False),
        ("class Base:\n    pass\n", ", Base", True),
    ],
)
def test_a_class_whose_methods_are_looked_at_gets_none(
    head: str, inside: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        f"SEEN = []\n\n\n{head}\n\nclass Scaled(Dataset{inside}):\n    def __init__(self, n):\n        self.n = n\n"
        "        self.f = lambda x: x * self.n\n\n    def __len__(self): return 2\n\n"
        "    def __getitem__(self, i): return self.f(i)\n\n\n"
        "def main():\n    return SEEN, list(DataLoader(Scaled(3), batch_size=None))\n"
    )
    assert behaves(text, tmp_path, monkeypatch) is moves


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("gap", ["", "\n\n"])
def test_functions_inside_functions_move_one_by_one(
    depth: int, gap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is inserted at one place does not run together: methods of a class, and functions that follow it."""
    heads = "".join(f"lambda p{n}: " for n in range(depth))
    calls = "".join(f"({n})" for n in range(depth))
    names = " + ".join(f"p{n}" for n in range(depth))
    text = (
        "class Maker:\n    def __init__(self, data):\n        self.k = 3\n"
        f"        self.collate_fn = {heads}lambda b: [x * self.k + {names} for x in b]\n"
        f"        self.loader = DataLoader(data, batch_size=2, collate_fn=self.collate_fn{calls})\n{gap}"
        f"def get_collate(k):\n    return {heads}lambda b: [x * k + {names} for x in b]\n{gap}"
        "def local(data, k):\n    class Local(Dataset):\n        def __len__(self): return 2\n"
        "        def __getitem__(self, i): return data[i] * k\n    return DataLoader(Local(), batch_size=2)\n\n\n"
        "def main():\n    data = [1, 2, 3]\n"
        f"    loader = DataLoader(data, batch_size=2, collate_fn=get_collate(4){calls})\n"
        "    return list(Maker(data).loader), list(loader), list(local(data, 2))\n"
    )
    assert behaves(text, tmp_path, monkeypatch)


@pytest.mark.parametrize(("asked", "moves"), [("__doc__", False), ("__annotations__", False), ("__call__([4])", True)])
def test_what_a_partial_has_not_is_not_asked_for(
    asked: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        'def build(data, k):\n    def collate(b) -> list:\n        """Scale."""\n        return [x * k for x in b]\n'
        "    return DataLoader(data, batch_size=2, collate_fn=collate)\n\n\n"
        f"def main():\n    return tried(lambda: str(build([1, 2], 3).collate_fn.{asked}))\n"
    )
    assert behaves(text, tmp_path, monkeypatch) is moves


def test_a_docstring_that_is_read_keeps_its_indentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        'def build(data):\n    class Local(Dataset):\n        """Local.\n\n            Indented.\n        """\n\n'
        "        def __len__(self): return 2\n        def __getitem__(self, i): return data[i]\n"
        "    return Local()\n\n\ndef main():\n    return type(build([1, 2])).__doc__\n"
    )
    assert behaves(text, tmp_path, monkeypatch)


@pytest.mark.parametrize("setting", ["made.collate_fn.calls = 5", "setattr(made.collate_fn, 'calls', 5)"])
def test_attributes_of_functions_are_not_shared(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "def build(data):\n    return DataLoader(data, batch_size=2, collate_fn=lambda b: list(b))\n\n\n"
        "def main():\n    made, other = build([1, 2]), build([3])\n    {}\n"
        "    return [tried(lambda: one.collate_fn.calls) for one in (made, other)]\n"
    )
    assert not behaves(text.format(setting), tmp_path, monkeypatch)
    assert behaves(text.format("pass"), tmp_path, monkeypatch)
