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
            return i * k
    use(Scaled())
    return DataLoader(Scaled(), num_workers=2)
"""
#: The same without a captured value: the classes of all calls are equal.
CLOSED = LOCAL.replace("i * k", "i * 2")

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
    "held weakly": (DOUBLED, "import weakref\nSEEN = weakref.WeakSet()\ndef use(holder, f):\n    SEEN.add(f)\n"),
    "the class as a key": (LOCAL, "CACHE = {}\ndef use(ds):\n    return CACHE.setdefault(type(ds), ds)\n"),
    "the class kept": (LOCAL, "def use(ds):\n    cls = type(ds)\n    cls.uses = 1\n"),
    "classes counted": (LOCAL, "def use(*all):\n    return len({one.__class__ for one in all})\n"),
    "classes compared": (LOCAL, "def use(a, b=None):\n    return type(a) is type(b)\n"),
    "assigned in the body of a class": (SCALED, "def use(holder, f):\n    class Ops:\n        run = f\n"),
    "assigned to a parameter that is a class": (
        SCALED,
        "class Other: pass\ndef use(holder, f):\n    attach(Other, f)\ndef attach(to, f):\n    to.f = f\n",
    ),
    "assigned to a class beside another": (SCALED, "class Other: pass\ndef use(h, f):\n    Other.f, h.n = f, 1\n"),
    "an entry of the namespace of a class": (SCALED, "def use(holder, f):\n    type('Other', (), {'f': f})\n"),
    "patched into a class": (SCALED, "class Other: pass\ndef use(h, f):\n    patch.object(Other, 'f', f)\n"),
    "bound by the class of methods": (SCALED, "def use(holder, f):\n    type(holder.__len__)(f, holder)\n"),
    "its descriptor read": (SCALED, "def use(holder, f):\n    getattr(f, '__get__')(holder)\n"),
    "checked with a class that a variable holds": (
        SCALED,
        "Function = type(len)\ndef use(holder, f):\n    return isinstance(f, Function)\n",
    ),
    "matched with a class": (SCALED, "def use(holder, f):\n    match f:\n        case Function(): pass\n"),
    "dispatched by its class": (
        SCALED,
        "@functools.singledispatch\ndef size(f):\n    return 1\ndef use(holder, f):\n    size(f)\n",
    ),
    "its class among others": (SCALED, "def use(holder, f):\n    return [*map(type, [f, holder])]\n"),
    "passed on twice and set": (
        DOUBLED,
        "def use(h, f):\n    one(f)\ndef one(a):\n    two(b=a)\ndef two(b):\n    b.uses = 1\n",
    ),
    "an attribute set in a loop": (DOUBLED, "def use(h, f):\n    for n, one in enumerate([f]): one.place = n\n"),
    "its id as a key": (DOUBLED, "SEEN = {}\ndef use(h, f):\n    key = id(f)\n    SEEN[key] = 1\n"),
    "a part of a key": (DOUBLED, "SEEN = {}\ndef use(h, f):\n    SEEN.setdefault((f, 1), 2)\n"),
    "a key under another name": (DOUBLED, "SEEN = {}\ndef use(*all):\n    h, key = all\n    SEEN[key] = 1\n"),
    "a key in a method of a dictionary": (
        DOUBLED,
        "class Seen(dict):\n    def note(self, key): self[key] = 1\ndef use(h, f):\n    Seen().note(f)\n",
    ),
    "an argument of a function with an added cache": (
        DOUBLED,
        "mean = functools.lru_cache(maxsize=None)(plain)\ndef use(h, f):\n    mean(f)\n",
    ),
    "a weak reference": (DOUBLED, "def use(h, f):\n    weakref.finalize(f, print)\n"),
    "kept in a registry and set": (
        DOUBLED,
        "KEPT = []\ndef use(h, f):\n    KEPT.append(f)\ndef number():\n    for n, one in enumerate(KEPT): one.n = n\n",
    ),
    "returned and set": (DOUBLED, "def use(h, f):\n    return f\ndef number(h):\n    use(h, len).n = 1\n"),
    "a field of what may be a key": (
        DOUBLED,
        "@dataclass(frozen=True)\nclass Spec:\n    f: object\ndef use(h, f):\n    Spec(f)\n",
    ),
    "sorted by its id": (DOUBLED, "def use(h, f):\n    return sorted([f, len], key=id)\n"),
    "read by its name and set": (
        DOUBLED,
        "def use(h, f):\n    h.f = f\ndef number(h):\n    operator.attrgetter('f')(h).n = 1\n",
    ),
    "read from the mapping and set": (DOUBLED, "def use(h, f):\n    h.f = f\ndef number(h):\n    vars(h)['f'].n = 1\n"),
    "given to a property": (
        DOUBLED,
        "class H:\n    @property\n    def f(self): return 1\n    @f.setter\n    def f(self, to): to.n = 1\n"
        "def use(h, f):\n    h.f = f\n",
    ),
    "given to a class in a registry": (
        DOUBLED,
        "class Op:\n    def __init__(self, hook): hook.n = 1\nALL = {1: Op}\ndef use(h, f):\n    ALL[1](hook=f)\n",
    ),
    "an element of an iterable object": (
        DOUBLED,
        "class All:\n    def __init__(self, f): self.all = [f]\n    def __iter__(self): return iter(self.all)\n"
        "def use(h, f):\n    for one in All(f): one.n = 1\n",
    ),
    "set by a lambda that is mapped": (DOUBLED, "def use(h, f):\n    [*map(lambda one: setattr(one, 'n', 1), [f])]\n"),
    "set by a lambda that is called": (DOUBLED, "def use(h, f):\n    (lambda one: setattr(one, 'n', 1))(f)\n"),
    "set by a partial": (DOUBLED, "def use(h, f):\n    functools.partial(setattr, f, 'n')(1)\n"),
    "added by another name": (DOUBLED, "SEEN = set()\nnote = SEEN.add\ndef use(h, f):\n    note(f)\n"),
    "sorted by a lambda": (DOUBLED, "def use(h, f):\n    return sorted([f, len], key=lambda one: id(one))\n"),
    "its class by another name": (SCALED, "kind = type\ndef use(h, f):\n    return kind(f) is kind(h)\n"),
    "counted on the class": (LOCAL, "def use(ds):\n    type(ds).uses = 1\n"),
    "the class of each": (LOCAL, "def use(*all):\n    return len(set(map(type, all)))\n"),
    "the class under its name": (LOCAL, "def use(a, b=None):\n    return getattr(a, '__class__') is b\n"),
    "the first of the bases": (LOCAL, "SEEN = {}\ndef use(ds):\n    SEEN[type(ds).__mro__[0]] = 1\n"),
    "the function of a method": (LOCAL, "SEEN = {}\ndef use(ds):\n    SEEN[ds.__getitem__.__func__] = 1\n"),
    "the class of a thing with the name of an error": (
        LOCAL,
        "def use(*all):\n    try: return {type(e) for e in all}\n    except OSError as e: return e\n",
    ),
    "the class by another name": (LOCAL, "kind = type\ndef use(a, b=None):\n    return kind(a) is kind(b)\n"),
    "a function with a self": (LOCAL, "SEEN = {}\ndef use(self):\n    SEEN[type(self)] = 1\n"),
    "the place of the class": (LOCAL, "def use(ds):\n    return type(ds).__qualname__\n"),
    "an object of a class with captured values": (LOCAL, "def use(ds):\n    return type(ds)()\n"),
    "counted on the first base of an equal class": (CLOSED, "def use(ds):\n    type(ds).__mro__[0].uses = 1\n"),
    "counted on an equal class": (CLOSED, "def use(ds):\n    type(ds).uses = 1\n"),
    "counted on an equal class by a variable": (CLOSED, "def use(ds):\n    kind = type(ds)\n    kind.uses = 1\n"),
    "counted on an equal class by a function": (
        CLOSED,
        "def note(kind):\n    setattr(kind, 'uses', 1)\ndef use(ds):\n    note(ds.__class__)\n",
    ),
    "counted on an equal class that is returned": (
        CLOSED,
        "def kind(ds):\n    return ds.__class__\ndef use(ds):\n    kind(ds).uses = 1\n",
    ),
    "counted on equal classes in a list": (
        CLOSED,
        "KINDS = []\ndef use(ds):\n    KINDS.append(type(ds))\n    for kind in KINDS: kind.uses = 1\n",
    ),
    "the place of an equal class": (CLOSED, "def use(ds):\n    return type(ds).__qualname__\n"),
    "the place of an equal class by a variable": (
        CLOSED,
        "def use(ds):\n    kind = ds.__class__\n    return kind.__qualname__\n",
    ),
    "the place of its own class": (
        CLOSED,
        "class Named:\n    def name(self): return type(self).__qualname__\ndef use(ds): pass\n",
    ),
    "an element of a set display": (DOUBLED, "SEEN = []\ndef use(h, f):\n    SEEN.append({f, h})\n"),
    "an element of a set comprehension": (DOUBLED, "def use(h, f):\n    return {one for one in [f]}\n"),
    "each element of a set comprehension": (DOUBLED, "def use(h, f):\n    return {f for one in h}\n"),
    "a key of a dictionary display": (DOUBLED, "def use(h, f):\n    return {f: 1}\n"),
    "a key of a dictionary comprehension": (DOUBLED, "def use(h, f):\n    return {f: n for n in h}\n"),
    "looked up by in": (DOUBLED, "SEEN = {}\ndef use(h, f):\n    return f in SEEN\n"),
    "its hash": (DOUBLED, "def use(h, f):\n    return f.__hash__()\n"),
    "spread from a list and set": (DOUBLED, "def use(h, f):\n    for one in [*[f]]: one.n = 1\n"),
    "spread into a set": (DOUBLED, "def use(h, f):\n    return {*[f]}\n"),
    "named in an expression and set": (DOUBLED, "def use(h, f):\n    if (g := f):\n        g.n = 1\n"),
    "captured by a pattern and set": (DOUBLED, "def use(h, f):\n    match f:\n        case g:\n            g.n = 1\n"),
    "unpacked and set": (DOUBLED, "def use(h, f):\n    first, *rest = [h, f]\n    rest[0].n = 1\n"),
    "unpacked by a star and set": (DOUBLED, "def use(h, f):\n    first, *rest = h, f\n    rest[0].n = 1\n"),
    "held in an element and set": (
        DOUBLED,
        "ALL = {}\ndef use(h, f):\n    ALL['f']['g'] = f\ndef number():\n    ALL['f']['g'].n = 1\n",
    ),
    "held in an element of an attribute and set": (
        DOUBLED,
        "def use(h, f):\n    h.all['f'] = f\ndef number(h):\n    h.all['f'].n = 1\n",
    ),
    "held in the namespace of a class": (SCALED, "class Other: pass\ndef use(h, f):\n    Other.__dict__['f'] = f\n"),
    "held in the variables of an object": (DOUBLED, "def use(h, f):\n    vars(h)['g'] = f\n"),
    "a keyword in the header of a class": (DOUBLED, "def use(h, f):\n    class Other(key=f): pass\n"),
    "updated by name and set": (
        DOUBLED,
        "ALL = {}\ndef use(h, f):\n    ALL.update(g=f)\ndef number():\n    ALL['g'].n = 1\n",
    ),
    "passed to the constructor above": (
        DOUBLED,
        "class Base:\n    def __init__(self, f): f.n = 1\n"
        "class Op(Base):\n    def __init__(self, f): super().__init__(f)\ndef use(h, f):\n    Op(f)\n",
    ),
    "passed to a named constructor above": (
        DOUBLED,
        "class Base:\n    def __init__(self, f): f.n = 1\n"
        "class Op(Base):\n    def __init__(self, f): Base.__init__(self, f)\ndef use(h, f):\n    Op(f)\n",
    ),
    "passed by a class method": (
        DOUBLED,
        "class Op:\n    def __init__(self, f): f.n = 1\n    @classmethod\n    def of(cls, f): return cls(f)\n"
        "def use(h, f):\n    Op.of(f)\n",
    ),
    "passed by the class of self": (
        DOUBLED,
        "class Op:\n    def __init__(self, f): f.n = 1\n    def again(self, f): return type(self)(f)\n"
        "def use(h, f):\n    Op(None).again(f)\n",
    ),
    "spread into arguments": (
        DOUBLED,
        "def use(h, f):\n    one(*[f])\ndef one(*all):\n    for each in all: each.n = 1\n",
    ),
    "spread by keywords": (DOUBLED, "def use(h, f):\n    one(**{'g': f})\ndef one(g=None):\n    g.n = 1\n"),
    "set by a method with a computed name": (DOUBLED, "def use(h, f):\n    setattr(h, str(h), f)\n"),
    "given to a __setattr__": (
        DOUBLED,
        "class H:\n    def __setattr__(self, name, value): value.n = 1\ndef use(h, f):\n    H().f = f\n",
    ),
    "given to a __setitem__": (
        DOUBLED,
        "class H:\n    def __setitem__(self, name, value): value.n = 1\ndef use(h, f):\n    H()[0] = f\n",
    ),
    "checked with classes of a union": (SCALED, "def use(h, f):\n    return isinstance(f, int | type(len))\n"),
    "a default": (DOUBLED, "def use(h, f):\n    def inner(a, b=f): b.n = 1\n    inner(1)\n"),
    "set on an item of a class list": (
        SCALED,
        "class Other: pass\ndef use(h, f):\n    for one in [Other]: one.f = f\n",
    ),
    "set on a chosen class": (SCALED, "class Other: pass\ndef use(h, f):\n    (Other if h else Other).f = f\n"),
    "set on the first class": (SCALED, "class Other: pass\ndef use(h, f):\n    [Other][0].f = f\n"),
    "set on a class named in an expression": (
        SCALED,
        "class Other: pass\ndef use(h, f):\n    if (to := Other):\n        to.f = f\n",
    ),
    "its class by the module of built-in names": (
        LOCAL,
        "import builtins\nSEEN = {}\ndef use(ds):\n    SEEN[builtins.type(ds)] = 1\n",
    ),
    "copied in a file of an old Python": (SCALED, "print 'x'\nimport copy\ndef use(h, f):\n    copy.deepcopy(h)\n"),
    "copied by a function of the name": (SCALED, "def use(h, f): pass\ndef deepcopy(x):\n    return x\n"),
    "its class in a file of an old Python": (LOCAL, "print 'x'\ndef use(ds):\n    SEEN[type(ds)] = 1\n"),
}

UNSEEN = {
    "a check of what is no class": (LOCAL, "def use(ds):\n    return isinstance(ds, type), list[type]\n"),
    "the class of the own object in a function": (
        LOCAL,
        "class A:\n    def use(self, ds):\n        return lambda: type(self)\n",
    ),
    "the class in an output": (LOCAL, "def use(ds):\n    print(type(ds), f'{type(ds)}')\n    type(ds)\n"),
    "a check of its bases": (LOCAL, "def use(ds):\n    return issubclass(type(ds), Dataset)\n"),
    "chosen by a test": (DOUBLED, "def use(h, f):\n    return 1 if f else 2\n"),
    "shown": (DOUBLED, "def use(h, f):\n    print('%s' % f)\n"),
    "checked with none": (SCALED, "def use(h, f):\n    return isinstance(f, int | None)\n"),
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
    "an object of the class": (CLOSED, "def use(ds):\n    return type(ds)()\n"),
    "an equal class as a key": (CLOSED, "CACHE = {}\ndef use(ds):\n    return CACHE.setdefault(type(ds), 1)\n"),
    "equal classes compared": (CLOSED, "def use(a, b=None):\n    return type(a) is type(b), isinstance(a, type(b))\n"),
    "an equal class in a variable": (CLOSED, "def use(ds):\n    kind = type(ds)\n    return kind.__name__, kind()\n"),
    "an attribute of another object": (CLOSED, "def use(ds):\n    kind = type(ds)\n    ds.kind = 1\n"),
    "the place of a function": (CLOSED, "def use(ds):\n    return use.__qualname__\n"),
    "a text with its name": (DOUBLED, "def use(h, f):\n    return {'x': 1}.get('augment_' + f.name)\n"),
    "the key of a sort": (DOUBLED, "def use(h, f):\n    for one in sorted(h, key=f): one.n = 1\n"),
    "an attribute of a class": (SCALED, "class Config: pass\ndef use(h, f, size=1):\n    Config.size = size\n"),
    "an attribute of an object": (SCALED, "def use(holder, f):\n    holder.other = f\n"),
    "a key of the same name": (
        DOUBLED,
        "def use(h, f):\n    pass\ndef other(f, cache):\n    return cache[f], f in cache\n",
    ),
    "an object of the same name": (
        DOUBLED,
        "def use(h, f):\n    pass\ndef other(f):\n    f.uses = 1\n    return type(f)\n",
    ),
    "a new object as a key": (SCALED, "SEEN = {}\ndef use(holder, f):\n    SEEN[f] = 1\n"),
    "other things held weakly": (
        DOUBLED,
        "import weakref\nSEEN = weakref.WeakSet()\ndef use(h, f):\n    SEEN.add(h)\n",
    ),
    "checks for known classes": (
        SCALED,
        "def use(h, f):\n    return isinstance(f, (str, list)) or callable(f) or f is None\n",
    ),
    "checks for a class of the project": (SCALED, "class Op: pass\ndef use(h, f):\n    return isinstance(f, Op)\n"),
    "called by a lambda that is mapped": (DOUBLED, "def use(h, f):\n    return [*map(lambda one: one(1), [f])]\n"),
    "assigned beside a key": (SCALED, "def use(h, f, key=1):\n    h.f, h.key = f, key\n    return {}[h.key]\n"),
    "its class in an error": (SCALED, "def use(h, f):\n    if not callable(f): raise TypeError(type(f).__name__)\n"),
    "a method of the class": (LOCAL, "def use(ds):\n    return type(ds).make(3)\n"),
    "a parameter called type": (LOCAL, "def use(ds, type='x'):\n    return {type: 1}[type], [type]\n"),
    "the class of the own object and another": (
        LOCAL,
        "class A:\n    def use(self, ds):\n        return type(self) == ds.__class__ or isinstance(ds, type(self))\n",
    ),
    "an annotation": (LOCAL, "def use(ds, kind: type = int, kinds: dict[str, type] = {}) -> type | None:\n    pass\n"),
    "the class of the own object": (LOCAL, "class Other:\n    def use(self):\n        return {type(self): 1}\n"),
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


STORED = "class R:\n    def save(self, config):\n        self.config = config\n"
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
        (STORED + "def main(r): print(getattr(r, 'config'))\n", False),
        (STORED + "def main(r):\n    for name in ('config',): print(getattr(r, name))\n", False),
        (STORED + "def main(r): print(r.__getstate__())\n", False),
        (STORED + "def main(r): torch.save(r, 'r.pt')\n", False),
        (STORED + "def main(r):\n    state = {'r': 1}\n    torch.save(state, 'r.pt')\n", True),
        (STORED + "def main(r): print(getattr(r, 'state'), {'config': 1}['config'])\n", True),
        ("def save(config):\n    args.config = config\n    print(args)\n", False),
        ("@logged\ndef save(config):\n    return config['batch_size']\n", False),
        ("@torch.no_grad()\ndef save(config):\n    return config['batch_size']\n", True),
        ("import json\ndef dump(config): pass\ndef save(config):\n    json.dump(config)\n", False),
        ("def save(config):\n    print(locals())\n", False),
        ("def save(config):\n    self.save_hyperparameters()\n", False),
        ("def save(config):\n    return config.__len__()\n", False),
        ("def save(config):\n    return config.setdefault('x', 1)\n", True),
        ("@dataclass\nclass Job:\n    config: dict\ndef save(config): pass\n", False),
        ("config = {}\ndef save(config): pass\nprint(dir(sys))\n", False),
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
        ("def swap(**names): globals().update(names)\nswap(DataLoader=Fake)\n", False),
        ("def swap(**names): NAMES.update(names)\nswap(DataLoader=Fake)\n", True),
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


def test_code_that_an_f_string_prints_stays() -> None:
    text = f"{HEADER}def run(ds):\n    print(f'{{len(DataLoader(ds))=}}', f'{{len(DataLoader(ds))}}')\n"
    after, findings = migrate("CHP001", text)
    assert "{len(DataLoader(ds))=}" in after and "{len(OptimalDataLoaderFactory.create_loader(ds))}" in after
    assert [message.partition(";")[0] for message in reports(findings)] == [
        "not rewritten: an f-string with `=` prints the code"
    ]


@pytest.mark.parametrize(("shown", "changes"), [("{k=}", False), ("{i=} {k}", True)])
def test_a_local_class_that_prints_captured_names_stays(shown: str, changes: bool) -> None:
    text = (
        f"{HEADER}def make(k):\n    class D(Dataset):\n        def __len__(self):\n            return 4\n"
        f"        def __getitem__(self, i):\n            print(f'{shown}')\n            return i * k\n"
        "    return DataLoader(D(), num_workers=2)\n"
    )
    after, _ = migrate("CHP006", text)
    assert (after != text) is changes
