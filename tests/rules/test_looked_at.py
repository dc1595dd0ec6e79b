"""No rule rewrites a function, class, configuration or name where code of another file would see the difference."""

from __future__ import annotations

import pytest
from support import migrate, reports

HEADER = "from torch.utils.data import DataLoader, Dataset\n"
#: A dataset that holds a lambda with a captured value, which becomes a `partial`.
SCALED = f"""{HEADER}from other import use
class Scaled(Dataset):
    def __init__(self, fn):
        self.fn = fn
        use(self, fn)
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return self.fn(i)
def make(k):
    return DataLoader(Scaled(lambda x: x * k), num_workers=2)
"""
#: The same without a captured value: it becomes a function of the module.
DOUBLED = SCALED.replace("x * k", "x * 2")
LOCAL = f"""{HEADER}from other import use
def make(k):
    class Scaled(Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, i):
            return i * 2
    use(Scaled())
    return DataLoader(Scaled(), num_workers=2)
"""

SEEN = {
    "stored on a class": (SCALED, "def use(holder, function):\n    type(holder).fn = function\n"),
    "stored by a class method": (SCALED, "class Other:\n    @classmethod\n    def use(cls, f):\n        cls.f = f\n"),
    "stored on a named class": (SCALED, "class Other: pass\ndef use(holder, f):\n    Other.f = f\n"),
    "stored by setattr": (SCALED, "def use(holder, f):\n    setattr(holder.__class__, 'fn', f)\n"),
    "bound to an object": (SCALED, "def use(holder, f):\n    holder.fn = f.__get__(holder)\n"),
    "its class read": (SCALED, "def use(holder, given):\n    print(type(given))\n"),
    "its class compared": (
        SCALED,
        "def use(holder, f):\n    return isinstance(f, type(make)) or type(f) is type(use)\n",
    ),
    "the class of each of many": (SCALED, "def use(holder, f):\n    return [one.__class__ for one in (f, holder)]\n"),
    "an attribute set": (DOUBLED, "def use(holder, target):\n    setattr(target, 'uses', 1)\n"),
    "an attribute set in its mapping": (DOUBLED, "def use(holder, target):\n    vars(target)['uses'] = 1\n"),
    "the key of a dictionary": (DOUBLED, "CACHE = {}\ndef use(holder, f):\n    CACHE[f] = 1\n"),
    "an element of a set": (DOUBLED, "SEEN = set()\ndef use(holder, f):\n    SEEN.add(f)\n"),
    "an argument of a cached function": (
        DOUBLED,
        "import functools\n@functools.lru_cache\ndef mean(f):\n    return f(1)\ndef use(holder, f):\n    mean(f)\n",
    ),
    "held weakly": (DOUBLED, "import weakref\nSEEN = weakref.WeakSet()\ndef use(holder, f):\n    pass\n"),
    "the class as a key": (LOCAL, "CACHE = {}\ndef use(ds):\n    return CACHE.setdefault(type(ds), ds)\n"),
    "the class kept": (LOCAL, "def use(ds):\n    cls = type(ds)\n    cls.uses = 1\n"),
    "classes counted": (LOCAL, "def use(*all):\n    return len({one.__class__ for one in all})\n"),
    "classes compared": (LOCAL, "def use(a, b=None):\n    return type(a) is type(b)\n"),
}

UNSEEN = {
    "the class of another object": (SCALED, "def use(holder, f):\n    print(type(holder).__name__)\n"),
    "the class of an object in an error": (SCALED, "def use(holder, f, n=1):\n    raise TypeError(type(n))\n"),
    "a constant stored on a class": (SCALED, "class Other: pass\ndef use(holder, f):\n    Other.ready = True\n"),
    "a cached function of other things": (
        SCALED,
        "import functools\n@functools.lru_cache\ndef mean(n):\n    return n\ndef use(holder, f):\n    mean(3)\n",
    ),
    "an item of the same name": (DOUBLED, "def use(holder, f, names=()):\n    return {'f': 1}['f'], list(names)\n"),
    "the name of the class": (LOCAL, "def use(ds):\n    return type(ds).__module__\n"),
    "the class and a named one": (LOCAL, "def use(ds):\n    return type(ds) is dict or type(ds) in (list, tuple)\n"),
    "an object of the class": (LOCAL, "def use(ds):\n    return type(ds)()\n"),
    "the class of an error": (LOCAL, "def use(ds):\n    try: len(ds)\n    except E as error: LOG[type(error)] = 1\n"),
}


def rewritten(text: str, other: str) -> bool:
    after, findings = migrate("CHP006 CHP007", text, other=other)
    assert (after == text) is bool(reports(findings)), "either rewritten or reported"
    return after != text


@pytest.mark.parametrize("name", SEEN)
def test_what_other_code_may_see_stays(name: str) -> None:
    assert not rewritten(*SEEN[name])


@pytest.mark.parametrize("name", UNSEEN)
def test_what_no_code_can_see_is_rewritten(name: str) -> None:
    assert rewritten(*UNSEEN[name])


TRAINING = f"""{HEADER}from other import save
def train(ds, config=None):
    default_config = {{"batch_size": 2, "num_epochs": 1, "learning_rate": 0.1}}
    config = {{**default_config, **(config or {{}})}}
    DataLoader(ds, num_workers=config.get("num_workers", 0))
    return save(config=config)
"""


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        ("def save(config):\n    return config['batch_size']\n", True),
        ("def save(*, config):\n    return config['batch_size']\n", True),
        ("def save(**things):\n    print(things)\n", False),
        ("class Result:\n    def save(self, config):\n        self.config = config\n", True),
        (
            "class Result:\n    def save(self, config):\n        self.config = config\n        print(vars(self))\n",
            False,
        ),
        ("class R:\n    def save(self, config):\n        self.config = config\n        print(self.__dict__)\n", False),
        (
            "class R:\n    def save(self, config):\n        self.config = config\ndef main(args): print(vars(args))",
            True,
        ),
    ],
)
def test_a_configuration_that_is_shown_gets_no_further_keys(other: str, changes: bool) -> None:
    after, _ = migrate("CHP008", TRAINING, other=other)
    assert (after != TRAINING) is changes


SWAPS = "def swapped(module, **names):\n    for name, value in names.items(): setattr(module, name, value)\n"


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        (f"{SWAPS}swapped(a, DataLoader=Fake)\n", False),
        ("def swap(module, name, value): setattr(module, name, value)\nswap(a, 'DataLoader', Fake)\n", False),
        (f"{SWAPS}swapped(a, Loader=Fake)\n", True),
        ("build(DataLoader=Fake)\n", True),
    ],
)
def test_a_name_that_a_helper_sets_is_not_rewritten(other: str, changes: bool) -> None:
    text = f"{HEADER}def run(ds):\n    return list(DataLoader(ds))\n"
    after, _ = migrate("CHP001", text, other=other)
    assert (after != text) is changes


def test_a_long_call_in_an_f_string_stays_on_its_line() -> None:
    text = (
        f"{HEADER}def run(ds, batch_size, config):\n    config.get('a', 1)\n"
        "    print(f'number of batches in the loader: {len(DataLoader(ds, batch_size=batch_size, drop_last=True))}')\n"
    )
    after, _ = migrate("CHP001", text)
    assert "{len(OptimalDataLoaderFactory.create_loader(ds, batch_size=batch_size, drop_last=True))}" in after
