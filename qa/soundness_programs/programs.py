"""Generate a small random program from a number, with datasets, wrappers, augmenters, closures and lists.

Each program has code that a rule looks for, with details that may make the rewrite wrong. Such details are side
effects, names that are bound again, attributes that are assigned later, subclasses, base classes that use random
numbers or counters, and unusual kinds of samples. ``main()`` returns all values that the program computes. It does not
read the class name of a dataset that ``type()`` creates, because rule CHP005 changes this name.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from qa.soundness_programs.hoisting import make_hoisting
from qa.soundness_programs.names_in_strings import make_names_in_strings
from qa.soundness_programs.old_pickles import unpickled, with_workers

_HEAD = '''
import copy, pickle, random
import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

shift = 0.5
switch = True


def double(x):
    return x * 2


def wipe(x):
    x[:1] = 0
    return x


class Plus:
    def __init__(self, n=1):
        self.n = n

    def __call__(self, x):
        return x + self.n

    def __len__(self):
        return 0


class Counting(Dataset):
    def __init__(self, n=9):
        self.n = n
        self.read = []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        self.read.append(int(i))
        return torch.rand(3) + i, i


def kept(dataset):
    """What can be seen of a dataset."""
    return sorted(vars(dataset)), type(dataset).__name__, len(dataset)


def tried(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__
'''

_BASES = (
    "TensorDataset(torch.randn(9, 3, 4), torch.arange(9))",
    "TensorDataset(torch.randn(9, 3, 4), torch.arange(9))",
    "TensorDataset(torch.randn(9, 3), torch.arange(9))",
    "Subset(TensorDataset(torch.randn(9, 3, 4), torch.arange(9)), [8, 1, 2, 3, 4, 5, 6, 7, 0])",
    "TensorDataset(torch.randn(9, 3, dtype=torch.float64), torch.arange(9))",
    "TensorDataset(torch.arange(27).reshape(9, 3), torch.arange(9))",
    "TensorDataset(torch.randn(9, 3), torch.arange(9), torch.arange(9))",
    "[(torch.full((3,), float(n)), n) for n in range(9)]",
    "[(np.full(3, n, dtype=np.float32), n) for n in range(9)]",
    "Counting()",
)
_INDICES = ("[8, 0, 3, 3]", "(1, 2, 5)", "range(7)", "np.array([4, 2, 0])", "torch.tensor([4, 2, 8])", "[-1, 2]")
_STATISTICS = ("0.25", "2", "torch.tensor(0.5)", "np.float64(0.3)", "torch.full((3, 1), 0.5)", "np.full(3, 0.5)")


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        number: number from which the program is generated.
        family: subject of the program.
        text: text of its module.
        files: name → text of its other files: modules (names without a suffix) and data.
        saves: whether its function ``saved`` makes a pickle for the variable ``SAVED`` of a later run.
        allowed: names of documented differences (in docs/differences.md) that the program may show.
    """

    number: int
    family: str
    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    saves: bool = False
    allowed: frozenset[str] = frozenset()


def make_program(number: int) -> Program:
    """Return the program with this number. Programs with odd numbers are about values that are bound early."""
    rng = random.Random(number)
    if number % 2:
        family, text, files = make_hoisting(rng)
        return Program(number, family, text, files)
    if number % 16 == 2:
        return Program(number, "names in strings", *make_names_in_strings(rng))
    if number % 16 == 6:
        text = _HEAD + rng.choice(_DATASETS)(rng)
        return Program(number, "old pickles", unpickled(rng, text), saves=True)
    if number % 32 == 10:
        text = with_workers(rng, _HEAD + rng.choice((*_DATASETS, _closing, _holding))(rng))
        return Program(number, "workers", text, allowed=frozenset({"sent-to-workers", "dead-workers"}))
    family, make = rng.choice(_FAMILIES)
    allowed = frozenset({"augmented-draws"}) if family in _DRAWING else frozenset()
    return Program(number, family, _HEAD + make(rng), allowed=allowed)


def _indented(lines: list[str], depth: int) -> str:
    return textwrap.indent("\n".join(lines), depth * "    ")


def _some(rng: random.Random, chance: float, *choices: str) -> list[str]:
    """Return one of ``choices``, with probability ``chance``, or nothing."""
    return [rng.choice(choices)] if rng.random() < chance else []


def _mostly(rng: random.Random, usual: str, *others: str) -> str:
    """Return ``usual`` or, rarely, one of the other arguments."""
    return rng.choice(others) if rng.random() < 0.12 else usual


# --- datasets ---------------------------------------------------------------------------------------------------


def _effects(rng: random.Random) -> list[str]:
    """Return statements with side effects that other code could see."""
    return _some(
        rng,
        0.25,
        "chance = random.random()",
        "print('read', idx)",
        "self.reads = getattr(self, 'reads', 0) + 1",
        "note = self.note(idx)",
        "idx = int(idx)",
        "x = x.clone()",
        "x = x.contiguous()",
        "before, x = x, x + 0",
        "if self.checked: pass",
        "first = x, y",
        "torch.manual_seed(idx)",
    )


def _standardizing(rng: random.Random) -> str:
    data, ids = rng.choice(("dataset", "base", "source")), rng.choice(("indices", "ids"))
    mean, std = rng.choice((("mean", "std"), ("mu", "sigma"), ("m", "s")))
    init = [f"self.{data} = dataset", f"self.{ids} = indices", f"self.{mean} = mean", f"self.{std} = std"]
    rng.shuffle(init)
    init[rng.randrange(5) : 0] = _some(
        rng,
        0.4,
        "super().__init__()",
        "indices = sorted(indices)",
        "mean = mean * 2",
        f"self.{ids} = list(indices)",
        "self.tag = np.random.rand()",
        "print('made')",
        f"self.{data}, self.other = dataset, None",
    )
    body = {
        "plain": ["x = (x - self.M) / (self.S + 1e-8)", "return x, y"],
        "methods": ["return x.sub(self.M).div(self.S + 1e-8), y"],
        "functions": ["return torch.div(torch.sub(x, self.M), self.S), y"],
        "in place": ["x.sub_(self.M)", "return x / self.S, y"],
        "temporary": ["return x.sub(self.M).div_(self.S), y"],
        "helper": ["return self.scale(x), y"],
        "global": ["return (x - shift) / (self.S + 1e-8), y"],
        "other order": ["return y, (x - self.M) / self.S"],
        "inverse": ["return (x - self.M) * (1 / self.S), y"],
        "flag": ["if self.checked:", "    return x, y", "return (x - self.M) / self.S, y"],
    }[rng.choice(("plain", "plain", "methods", "functions", "in place", "temporary", "helper", "helper", "global",
                  "other order", "inverse", "flag"))]  # fmt: skip
    read = rng.choice(
        ("x, y = self.D[self.I[idx]]", "x, y = self.D[self.I[idx]]", "row = self.I[idx]\nx, y = self.D[row]",
         "sample = self.D[self.I[idx]]\nx, y = sample[0], sample[1]", "x, y = self.D[self.I[idx]][:2]",
         "x = self.D[self.I[idx]][0]\ny = self.D[self.I[idx]][1]")
    ).split("\n")  # fmt: skip
    getitem = [*read, *_effects(rng), *body]
    scale = rng.choice(("return (x - self.M) / (self.S + 1e-8)", "return (x - self.M) / self.S"))
    text = f"""
class Scaled(Dataset):
    checked = False

    def __init__(self, dataset, indices, mean, std):
{_indented(init, 2)}

    def __len__(self):
        return len(self.I)

    def note(self, idx):
        return print('note', idx)

    def scale(self, x):
        {scale}

    def __getitem__(self, idx):
{_indented(getitem, 2)}
"""
    if rng.random() < 0.8:
        text = text.replace("    checked = False\n\n", "")
    for short, name in {"D": data, "I": ids, "M": mean, "S": std}.items():
        text = text.replace(f"self.{short}", f"self.{name}")
    kind = "Scaled"
    if rng.random() < 0.25:
        kind = "Other"
        own = rng.choice(("pass", "def scale(self, x):\n        return x * 100", f"{mean} = property(lambda self: 3.0)",
                          "def __getitem__(self, idx):\n        return super().__getitem__(idx)[0]"))  # fmt: skip
        text += f"\n\nclass Other(Scaled):\n    {own}\n"
    values = ", ".join((rng.choice(_BASES), rng.choice(_INDICES), rng.choice(_STATISTICS), rng.choice(_STATISTICS)))
    changes = [
        f"made.{mean} = 5.0", f"setattr(made, '{std}', 0.125)", f"made.{ids} = [0, 0, 1]", f"made.{data} = Counting()",
        f"tried(lambda: made.{mean}.add_(1))", f"tried(lambda: delattr(made, '{mean}'))",
        f"(made.{mean}, made.unused) = (1.5, 2)", "made = copy.deepcopy(made)", "made = pickle.loads(pickle.dumps(made))",
        "made.scale = double", f"for made.{std} in (3.0, 4.0): pass", "vars(made).update(extra=1)",
    ]  # fmt: skip
    return text + _main(rng, f"{kind}({values})", changes)


def _augmenting(rng: random.Random) -> str:
    apply = {
        "always": ["x = self.first(x)"],
        "unless none": ["if self.first is not None:", "    x = self.first(x)"],
        "if true": ["if self.first:", "    x = self.first(x)"],
        "switched": ["if self.on:", "    x = self.first(x)"],
        "switched oddly": ["if self.on is not None:", "    x = self.first(x)"],
        "conditional": ["x = self.first(x) if self.on else x"],
        "twice": ["x = self.first(self.first(x))"],
        "clone": ["x = self.first(x.clone())"],
        "dead": ["z = self.first(x)", "x = self.second(x)"],
        "both": ["x = self.second(self.first(x))"],
        "chance": ["if random.random() < 0.5:", "    x = self.first(x)"],
        "helper": ["x = self.apply(x)"],
        "global": ["if switch:", "    x = self.first(x)"],
    }[rng.choice(("always", "unless none", "if true", "switched", "switched oddly", "conditional", "twice", "clone",
                  "dead", "both", "chance", "helper", "global"))]  # fmt: skip
    flag = rng.choice(("training", "train", "enabled"))
    gate = _some(rng, 0.3, f"if not self.{flag}: return x, y", f"if self.{flag} == False: return x, y")
    transforms = ("double", "Plus(2)", "None", "False", "torch.neg", "wipe", "nn.Identity()")
    text = f"""
class Shaken(Dataset):
    def __init__(self, base, first, second=double, on=True, {flag}=True):
        self.base = base
        self.first = first
        self.second = second
        self.on = on
        self.{flag} = {flag}

    def __len__(self):
        return len(self.base)

    def note(self, idx):
        return print('note', idx)

    def apply(self, x):
        if self.first is not None:
            x = self.first(x)
        return x

    def __getitem__(self, idx):
        x, y = self.base[idx]
{_indented([*_effects(rng), *gate, *apply], 2)}
        return x, y


class Other(Shaken):
    def apply(self, x):
        return x - 7
"""
    made = f"{rng.choice(('Shaken', 'Shaken', 'Other'))}({rng.choice(_BASES)}, {rng.choice(transforms)}"
    made += f", {rng.choice(transforms)}, {rng.choice(('True', 'False', 'None', '[]', '1'))})"
    changes = [
        "made.first = Plus(3)", "made.first, made.second = made.second, made.first", f"made.{flag} = False",
        "setattr(made, 'on', False)", "made.base = Counting()", "made = copy.copy(made)", "made.first = None",
        "made.apply = torch.abs", "global switch\n    switch = False",
    ]  # fmt: skip
    return text + _main(rng, made, changes)


def _listing(rng: random.Random) -> str:
    item = rng.choice(("return self.samples[idx]", "x, y = self.samples[idx]\n        return x, y",
                       "x, y = self.samples[idx]\n        return x.clone(), y", "return self.samples[idx][0]",
                       "print(idx)\n        return self.samples[idx]", "return self.samples[idx % 3]"))  # fmt: skip
    text = f"""
class Listed(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        {item}


class Edits(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, idx):
        x, y = self.inner[idx]
        x += 1
        return x, y
"""
    made = f"Listed({rng.choice(_BASES)})"
    made = f"Edits({made})" if rng.random() < 0.3 else made
    changes = ["made.samples = [(torch.zeros(1), 0)]", "made = copy.deepcopy(made)",
               "tried(lambda: made[0][0].add_(1))"]  # fmt: skip
    return text + _main(rng, made, changes)


def _chaining(rng: random.Random) -> str:
    """Return a program with datasets that apply transforms, which classes of the program chain."""
    loop = _mostly(rng, "for transform in self.transforms:\n    x = transform(x)\nreturn x",
                   "for transform in self.transforms:\n    if transform is not None:\n        x = transform(x)\nreturn x",
                   "for transform in reversed(self.transforms):\n    x = transform(x)\nreturn x",
                   "for transform in self.transforms:\n    x = transform(x)\n    self.called = 1\nreturn x",
                   "for self.last in self.transforms:\n    x = self.last(x)\nreturn x")  # fmt: skip
    kept = _mostly(rng, "self.transforms = transforms", "self.transforms = list(transforms)", "self.transforms = transforms\nself.called = 0",
                   "super().__init__()\nself.transforms = transforms", "self.transforms = [*transforms, double]")  # fmt: skip
    bases = _mostly(rng, "", "(object)", "(Plus)", "(nn.Module)", "(Named)")
    call = "forward" if bases == "(nn.Module)" and "super" in kept else "__call__"
    more = _some(rng, 0.4, "def __len__(self):\n    return len(self.transforms)", "def __getattr__(self, name):\n    return name",
                 "def __getitem__(self, i):\n    return self.transforms[i]", "transforms = ()", "def __bool__(self):\n    return False")  # fmt: skip
    below = _some(rng, 0.4, "class Later(Chain):\n    def __call__(self, x):\n        return super().__call__(x) - 3",
                  "Later = type('Later', (Chain,), {'__call__': lambda self, x: Chain.__call__(self, x) * 3})",
                  "class Later(Chain):\n    transforms = property(lambda self: [double], lambda self, value: None)",
                  "Chain.__call__ = wipe", "Chain.extra = 3")  # fmt: skip
    title = "Later" if any("Later" in one for one in below) and rng.random() < 0.7 else "Chain"
    transforms = rng.choice(("[double]", "[torch.abs, double]", "(Plus(2), torch.sqrt)", "[]", "[Once(double), Plus(1)]", "[wipe, None]",
                        "[Once(wipe)]", "[Chain([double]), torch.neg]", "iter([double])"))  # fmt: skip
    text = f"""
class Named:
    name = "named"

    def __init__(self, *more):
        self.name = "own"


class Chain{bases}:
    def __init__(self, transforms):
{_indented(kept.split(chr(10)), 2)}

    def {call}(self, x):
{_indented(loop.split(chr(10)), 2)}

{_indented([line for one in more for line in one.split(chr(10))], 1)}


class RandomNoise:
    def __init__(self, std):
        self.std = std

    def __call__(self, x):
        return x + self.std * torch.randn_like(x)


class Once:
    def __init__(self, function):
        self.function = function

    def __call__(self, x):
        return self.function(x)


class Shaken(Dataset):
    def __init__(self, base, first):
        self.base = base
        self.first = first

    def __len__(self):
        return len(self.base)

    def __getitem__(self, idx):
        x, y = self.base[idx]
        if self.first is not None:
            x = self.first(x)
        return x, y


{chr(10).join(below)}
"""
    changes = [
        "tried(lambda: made.first.transforms.append(torch.neg))", "made.first.transforms = [torch.abs]", "made = copy.deepcopy(made)",
        "made = pickle.loads(pickle.dumps(made))", "tried(lambda: delattr(made.first, 'transforms'))", "made.first.extra = 2",
        "made.first = Once(made.first)", "tried(lambda: made.first.transforms.clear())",
    ]  # fmt: skip
    return text + _main(rng, f"Shaken({rng.choice(_BASES)}, {title}({transforms}))", changes)


def _stacking(rng: random.Random) -> str:
    """Return a program that stacks samples of datasets that end early, use random numbers, count or fail."""
    item = rng.choice(("return torch.full((3,), float(i)), i", "return torch.rand(3) + i, i", "return np.full(3, i), i",
                       "return torch.full((i + 1,), 1.0), i", "return torch.full((3,), float(i), requires_grad=True), i"))  # fmt: skip
    ending = rng.choice(
        (
            "if i >= 4: raise IndexError(i)",
            "if i >= 4: raise StopIteration",
            "if i >= 4: raise ValueError(i)",
            "if i >= 6: raise IndexError(i)",
        )
    )
    iterated = _some(rng, 0.3, "def __iter__(self):\n    return iter([self[2], self[0]])", "__iter__ = None",
                     "def __getitems__(self, indices):\n    return [self[2] for i in indices]")  # fmt: skip
    source = rng.choice(
        ("Ending()", "Ending()", rng.choice(_BASES), "Subset(Ending(), [1, 0, 1])", "iter([(torch.ones(2), 0)])")
    )
    stacked = rng.choice(("torch.stack([x for x, _ in dataset])", "torch.stack([dataset[i][0] for i in range(len(dataset))])",
                          "torch.stack([x for x, y in dataset if y != 1])", "torch.stack([one[0] for one in dataset], dim=1)",
                          "torch.stack([x for x, _ in dataset]).float()", "torch.stack([x * 2 for x, _ in dataset])",
                          "torch.stack([dataset[i][0] for i in (2, 0, 1)])", "torch.stack(tuple(x for x, _ in dataset))",
                          "np.stack([x for x, _ in dataset])", "torch.tensor([y for _, y in dataset])"))  # fmt: skip
    return f"""
class Ending(Dataset):
    def __init__(self):
        self.read = []

    def __len__(self):
        return 6

    def __getitem__(self, i):
        self.read.append(i)
        {ending}
        {item}

{_indented([line for one in iterated for line in one.split(chr(10))], 1)}


def stacked(dataset):
    found = {stacked}
    return found


def main():
    dataset = {source}
    seen = [tried(lambda: stacked(dataset)), getattr(dataset, "read", None), torch.rand(1)]
    return [*seen, tried(lambda: stacked(dataset)), tried(lambda: list(DataLoader(dataset, batch_size=2)))]
"""


def _main(rng: random.Random, made: str, changes: list[str]) -> str:
    """Return the text of ``main``, with loaders before and after changes of the dataset."""
    options = rng.choice(
        ("batch_size=2", "batch_size=4, shuffle=True", "batch_size=3, drop_last=True", "batch_size=None")
    )
    lines = [f"made = {made}", f"loader = DataLoader(made, {options})"]
    lines += ["seen = [tried(lambda: list(loader)), tried(lambda: made[0]), kept(made)]"]
    for change in rng.sample(changes, rng.randrange(3)):
        lines.insert(0 if change.startswith("global") else len(lines), change.replace("\n    ", "\n"))
        lines.append(
            f"seen += [tried(lambda: list(DataLoader(made, {options}))), tried(lambda: list(loader)), kept(made)]"
        )
    lines += ["seen.append(tried(lambda: (made.base if hasattr(made, 'base') else made.dataset).read))"]
    body = "\n".join(lines)
    if "global switch\n" in body:  # the declaration must be the first statement
        body = "global switch\n" + body.replace("global switch\n", "", 1)
    return "\n\ndef main():\n" + textwrap.indent(body + "\nreturn seen", "    ") + "\n"


# --- wrappers, closures, lists ------------------------------------------------------------------------------------


def _wrapping(rng: random.Random) -> str:
    later = _some(
        rng, 0.5, "mean = 9.0", "augment = torch.abs", "training = False", "dataset = Counting()", "chosen.append(1)"
    )
    nonlocal_ = rng.random() < 0.2
    getitem = rng.choice(
        (["x, y = dataset[idx]", "return augment(x), y"],
         ["x, y = dataset[idx]", "if training:", "    x = augment(x)", "return x, y"],
         ["x, y = dataset[idx]", "return (x - mean) / (std + 1e-8), y"],
         ["x, y = dataset[ids[idx % len(ids)]]", "return (x - mean) / std, y"],
         ["x, y = dataset[idx]", "if chosen:", "    x = augment(x)", "return x, y"],
         ["x, y = dataset[idx]", "if switch:", "    x = augment(x)", "return x, y"],
         ["x, y = dataset[idx]", "print(idx)", "return augment(x), y"])
    )  # fmt: skip
    by_type = rng.choice(("apply(*dataset[idx])", "(augment(dataset[idx][0]), dataset[idx][1])",
                          "apply(*dataset[idx]) if training else dataset[idx]"))  # fmt: skip
    apply = rng.choice((["return augment(x), y"], ["if augment is not None:", "    x = augment(x)", "return x, y"],
                        ["if augment:", "    x = augment(x)", "return x, y"],
                        ["z = augment(x)", "return x, y"]))  # fmt: skip
    init = _some(
        rng,
        0.4,
        "def __init__(self):\n            print('made')",
        "def __init__(self):\n            self.n = len(dataset)",
    )
    if rng.random() < 0.6:
        wrapper = "class Wrapper(Dataset):\n" + "".join(f"        {one}\n\n" for one in init)
        wrapper += (
            "        def __len__(self):\n            return len(dataset)\n\n        def __getitem__(self, idx):\n"
        )
        wrapper += _indented(getitem, 3) + "\n"
        made = "Wrapper()"
    else:
        wrapper = "def apply(x, y):\n" + _indented(apply, 2) + "\n"
        made = f"type('Wrapper', (Dataset,), {{'__len__': lambda self: len(dataset), '__getitem__': lambda self, idx: {by_type}}})()"
    change = "def change(value):\n        nonlocal mean\n        mean = value\n" if nonlocal_ else "change = print\n"
    # The dataset of the runtime raises the same error for a sample with three parts.
    bases = _BASES if made == "Wrapper()" else tuple(one for one in _BASES if one.count("arange(9)") < 2)
    text = f"""
def wrap(dataset, augment, mean, std, ids, training=True):
    chosen = []
    {change}
    {wrapper}
    made = {made}
{_indented(later, 1)}
    return made, change


def main():
    global switch
    made, change = wrap({rng.choice(bases)}, {rng.choice(("double", "Plus(2)", "torch.neg", "wipe"))}, 0.5, 2.0, [3, 1])
    loader = DataLoader(made, batch_size=3)
    seen = [tried(lambda: list(loader)), tried(lambda: made[1]), len(made)]
    change(4.0)
    switch = False
    return [*seen, tried(lambda: list(loader))]
"""
    return text


def _closing(rng: random.Random) -> str:
    lambda_ = rng.choice(
        ("lambda batch: torch.stack([x for x, y in batch]) * factor", "lambda batch, k=factor: torch.stack([x for x, y in batch]) * k",
         "lambda batch: collate(batch)", "lambda batch: (print(len(batch)), collate(batch))[1]",
         "lambda batch: collate(batch)[0] + self_like.n", "lambda batch: [x + shift for x, y in batch]")
    )  # fmt: skip
    after = _some(rng, 0.5, "factor = 7", "self_like.n = 4", "for factor in (2, 3): pass", "del factor")
    direct = _some(rng, 0.4, "seen.append(tried(lambda: function([dataset[0]], 5)))", "seen.append(tried(lambda: function([dataset[0]])))",
                   "seen.append(tried(lambda: function.__name__))")  # fmt: skip
    text = f"""
def collate(batch):
    return torch.stack([x for x, y in batch]), [y for x, y in batch]


def load(dataset, factor):
    self_like = Plus(1)
    seen = []
    function = {lambda_}
{_indented(direct, 1)}
    loader = DataLoader(dataset, batch_size=2, collate_fn=function)
{_indented(after, 1)}
    return loader, seen


def loads(dataset, factor):
    def gathered(batch):
        return torch.stack([x for x, y in batch]) - factor

    loaders = []
    for factor in (factor, 5):
        loaders.append(DataLoader(dataset, batch_size=4, collate_fn=gathered))
    return loaders


def main():
    dataset = {rng.choice(_BASES[:6])}
    loader, seen = load(dataset, 3)
    return [seen, tried(lambda: list(loader)), [tried(lambda: list(one)) for one in loads(dataset, 2)]]
"""
    return text


def _collecting(rng: random.Random) -> str:
    element = rng.choice(("((dataset[i][0] - mean) / (std + 1e-8), dataset[i][1])", "((dataset[i][0] - mean) / std, dataset[i][1])",
                          "((dataset[i][0] - shift) / std, dataset[i][1])"))  # fmt: skip
    loop = rng.choice((["x, y = dataset[i]", "samples.append(((x - mean) / std, y))"],
                       ["sample = dataset[i]", "x = (sample[0] - mean) / (std + 1e-8)", "samples.append((x, sample[1]))"],
                       ["x, y = dataset[i]", "note = print(i)", "samples.append(((x - mean) / std, y))"],
                       ["x, y = dataset[i]", "x = x - mean", "samples.append((x / std, y))"]))  # fmt: skip
    build = rng.choice(
        (f"samples = [{element} for i in indices]", "samples = [((x - mean) / std, y) for x, y in dataset]",
         "samples = []\n    for i in indices:\n" + _indented(loop, 2))
    )  # fmt: skip
    after = _some(rng, 0.6, "dataset.tensors[0].mul_(3)", "samples[0][0].zero_()", "samples.append((0, 0))", "mean = 100",
                  "dataset.tensors[1].add_(1)")  # fmt: skip
    return f"""
def build(dataset, indices, mean, std):
    {build}
{_indented(after, 1)}
    return samples


def main():
    dataset = {rng.choice(_BASES)}
    made = tried(lambda: build(dataset, {rng.choice(_INDICES)}, {rng.choice(_STATISTICS)}, {rng.choice(_STATISTICS)}))
    seen = [made, getattr(dataset, 'read', None)]
    if isinstance(made, list) and made:
        seen += [len(made), type(made[0]).__name__, tried(lambda: list(DataLoader(made, batch_size=2)))]
        tried(lambda: made[0][0].add_(1))
        seen += [made, dataset.tensors if hasattr(dataset, 'tensors') else None]
    return seen
"""


def _drawing(rng: random.Random) -> str:
    """Return a program with an augmenter whose parameters make the order of random calls irrelevant."""
    start = rng.choice(
        ("if random.random() > self.p:\n            return x", "if random.random() >= self.p:\n            return x")
    )
    extra = _some(rng, 0.4, "x = x * 2", "if not self.training:\n            return x", "if x.shape[-1] < 5:\n            return x",
                  "print('noise')", "x = x + 0")  # fmt: skip
    result = rng.choice(("torch.clamp(x + torch.randn_like(x) * self.std, 0, 1)", "(x + self.std * torch.randn_like(x)).clamp(0.0, 1.0)",
                         "torch.clamp(x + torch.randn_like(x) * self.std, -1, 1)", "x + torch.randn_like(x) * self.std"))  # fmt: skip
    clone = rng.choice(("x = x.clone()", "x = x.clone()", "pass", "x = x.clone() * 1"))
    end = rng.choice(("return x", "return x", "return x.squeeze(0)", "return x * 2"))
    middle = _some(rng, 0.3, "x = x.flip(-1)", "if x.shape[-1] < 50:\n            return x")
    lines = "\n".join(f"        {one}" for one in extra)
    return f"""
class Noise(nn.Module):
    def __init__(self, std=0.02, p=0.8):
        super().__init__()
        self.std = std
        self.p = p

    def forward(self, x):
        {start}
{lines}
        return {result}


class Masks(nn.Module):
    def __init__(self, time_mask_param=40, freq_mask_param=15, num_time_masks=1, num_freq_masks=1, mask_value=0.0, p=0.8):
        super().__init__()
        self.time_mask_param = time_mask_param
        self.freq_mask_param = freq_mask_param
        self.num_time_masks = num_time_masks
        self.num_freq_masks = num_freq_masks
        self.mask_value = mask_value
        self.p = p

    def forward(self, x):
        {start}
        {clone}
        for _ in range(self.num_time_masks):
            w = random.randint(0, min(self.time_mask_param, x.shape[-1]))
            s = random.randint(0, x.shape[-1] - w)
            x[..., s:s + w] = self.mask_value
{"".join(f"        {one}" + chr(10) for one in middle)}\
        for _ in range(self.num_freq_masks):
            w = random.randint(0, min(self.freq_mask_param, x.shape[-2]))
            s = random.randint(0, x.shape[-2] - w)
            x[..., s:s + w, :] = self.mask_value
        {end}


def main():
    x = torch.linspace(-0.5, 1.5, 24).reshape(1, 4, 6)
    noise, masks, none = Noise(0.0, 1.0), Masks(0, 0, p=1.0), Masks(p=0.0)
    whole = Masks(time_mask_param=6, freq_mask_param=4, num_time_masks=60, num_freq_masks=60, mask_value=-1.0, p=1.0)
    seen = [noise(x.clone()), masks(x.clone()), none(x.clone()), noise.eval()(x.clone()), whole(x).shape]
    # Sixty masks of each axis leave nothing uncovered.
    return [*seen, x, whole(torch.rand(1, 4, 6)), Noise(0.0, 0.0)(x.clone())]
"""


def _holding(rng: random.Random) -> str:
    """Return a program with functions inside functions that a loader or a dataset keeps."""
    for_loader = rng.random() < 0.6
    given, of_one = ("batch", "[x for x, y in batch]") if for_loader else ("x", "[x]")
    body = rng.choice(
        ([f"return torch.stack({of_one}) * factor"],
         [f"return [one + own.n for one in {of_one}]"],
         ["own.n += 1", f"return torch.stack({of_one}) + own.n"],
         [f"print(len({of_one}), factor)", f"return torch.stack({of_one})"],
         [f"seen.append(len({of_one}))", f"return torch.stack({of_one}) - shift"],
         ["if switch:", f"    return torch.stack({of_one})", f"return torch.stack({of_one}) * factor"],
         ["total = factor", f"for one in {of_one}:", "    total = total + one.sum()", "return total"],
         [f"return helper(torch.stack({of_one}), factor)"],
         ["def inner(one):", "    return one - factor", "", f"return torch.stack([inner(one) for one in {of_one}])"],
         ["nonlocal factor", "factor += 1", f"return torch.stack({of_one}) * factor"],
         [f"if len({given}) > 2:", f"    return held({given}[:2])", f"return torch.stack({of_one}) + factor"],
         ["limit = factor", f"return torch.stack({of_one}).clamp(max=limit)"])
    )  # fmt: skip
    parameters = given + rng.choice(
        ("", "", "", ", scale=factor", ", *more", ", *, flag=True", ", own=own", ", factor=2")
    )
    decorator = rng.choice(("", "", "", "", "@torch.no_grad()", "@functools.wraps(double)"))
    before = _some(rng, 0.3, "factor = factor + 1", "if factor > 2:\n    factor = 5", "for factor in (1, 2): pass", "own.n = 7",
                   "own = Plus(factor)", "factor, rest = 2, 3", "import operator")  # fmt: skip
    after = _some(rng, 0.35, "factor = 7", "own.n = 4", "own = Plus(9)", "del factor", "held.note = 3", "held = double",
                  "for factor in (4, 6): pass", "seen.append(tried(lambda: held([(torch.ones(3), 0)] * 2, 5)))",
                  f"seen.append(tried(lambda: held({given}=[(torch.ones(3), 0)] * 2)))", "helper = double",
                  "seen.append(held is held)")  # fmt: skip
    kept = (
        "DataLoader(dataset, batch_size=2, collate_fn=held)"
        if for_loader
        else "DataLoader(Keeping(dataset, held), batch_size=None)"
    )
    definition = [*([decorator] if decorator else []), f"def held({parameters}):", *("    " + one for one in body)]
    place = rng.random()
    if place < 0.2:  # one loader in each iteration
        turn = rng.choice((f"loaders.append({kept})", f"seen.append(tried(lambda: list({kept})))"))
        lines = ["for factor in (2, 3):", *("    " + one for one in definition), f"    {turn}"]
    elif place < 0.3:
        lines = [
            "if factor:",
            *("    " + one for one in definition),
            "else:",
            "    held = double",
            f"loaders.append({kept})",
        ]
    elif place < 0.4:
        lines = [f"loaders += [{kept}]", *definition]  # the definition comes too late
        lines = [*definition, *lines[:1], *definition] if rng.random() < 0.5 else lines
    else:
        lines = [*definition, f"loaders.append({kept})"]
    inside = [one for line in (*before, *lines, *after) for one in line.split("\n")]
    unlike = ("nonlocal", "for factor", "factor, rest", "factor=", "del factor")
    if rng.random() < 0.25 and not any(word in line for line in inside for word in unlike):
        inside = [line.replace("factor", "self.factor") for line in inside]  # captured from the object
    return f"""
import functools, operator


class Keeping(Dataset):
    def __init__(self, dataset, transform):
        self.dataset = dataset
        self.transform = transform

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        x, y = self.dataset[index]
        return self.transform(x), y


class Maker:
    def __init__(self, factor):
        self.factor = factor

    def loaders(self, dataset, factor, seen, helper=operator.mul):
        own = Plus(1)
        loaders = []
{_indented(inside, 2)}
        return loaders


def main():
    seen = []
    dataset = {rng.choice(_BASES[:6])}
    made = tried(lambda: Maker(3).loaders(dataset, 3, seen))
    if not isinstance(made, list):
        return [made, seen]
    return [made.__len__(), seen, [tried(lambda: list(one)) for one in made], [tried(lambda: list(one)) for one in made], seen]
"""


def _guarding(rng: random.Random) -> str:
    """Return a program with masks that have guards; its parameters make the random numbers irrelevant."""
    first = _mostly(rng, "if random.random() > self.p:", "if random.random() >= self.p:",
                    "if not self.training or random.random() > self.p:")  # fmt: skip
    lifted = rng.random() < 0.85
    flag = ["flat = False", "if x.dim() == 2:", "    x = x.unsqueeze(0)", "    flat = True"] if lifted else []
    end = (
        [
            "if flat:",
            f"    out = {_mostly(rng, 'out.squeeze(0)', 'out.squeeze()', 'out[0]')}",
        ]
        if lifted
        else []
    )
    clone = _mostly(rng, "x.clone()", "x", "x.clone() * 1")
    sizes = _mostly(rng, "_, bins, frames = out.shape", "_, bins, frames = x.shape", "bins, frames = out.shape[-2:]",
                    "bins, frames = out.shape[-2], out.shape[-1]")  # fmt: skip
    guard = rng.choice(("{p} > 0 and {n} > {p}", ""))
    guard = _mostly(rng, guard, "{n} > {p}", "{p} > 0", "{n} > {p} and {p} > 0", "{p} > 0 and {n} >= {p}",
                    "{p} > 0 or {n} > {p}")  # fmt: skip
    drawn = rng.random() < 0.6
    lines: list[str] = []
    for axis, (param, size) in enumerate((("self.freq_mask_param", "bins"), ("self.time_mask_param", "frames"))):
        place = ("out[:, start:start + width, :]", "out[:, :, start:start + width]")[axis]
        mask = [f"start = random.randint(0, {size} - width)", f"{place} = self.mask_value"]
        inner = [f"width = random.randint(0, min({param}, {size}))"]
        inner += ["if width > 0:", *("    " + one for one in mask)] if drawn else mask
        if guard:
            inner = [f"if {guard.format(p=param, n=size)}:", *("    " + one for one in inner)]
        count = ("self.num_freq_masks", "self.num_time_masks")[axis]
        lines += [f"for _ in range({count}):", *("    " + one for one in inner)]
    extra = _some(
        rng, 0.2, "out = out + 0", "print(bins)", "if frames < 5:\n    return x", "bins = bins - 1", "self.calls = 1"
    )
    text = "\n".join([first, "    return x", *flag, f"out = {clone}", sizes, *extra, *lines, *end, "return out"])
    shape = rng.choice(
        ("9, 1, 4, 6", "9, 1, 4, 6", "9, 3, 4, 6", "9, 4, 6", "9, 2, 1, 4, 6", "9, 6", "9, 1, 1, 1", "9, 1, 0, 6")
    )
    given = rng.choice(
        (
            "p=0.0",
            "0, 0, p=1.0",
            "5, 3, 300, 300, -1.0, 1.0",
            "6, 4, 300, 300, 0.5, 1.0",
            # Masks are larger than the axes, which the guard skips.
            "40, 15, p=1.0" if "{n} > {p}" in guard and " or " not in guard else "p=0.0",
            "6, 2, 0, 0, 0.0, 1.0",
        )
    )
    later = _some(rng, 0.4, "masks.p = 0.0", "masks.eval()", "masks.mask_value = 'none'", "masks.time_mask_param = 0",
                  "masks.mask_value = None", "masks.register_forward_hook(lambda m, i, o: o * 2)",
                  "masks.forward = double", "masks.num_time_masks = 2.5", "masks.freq_mask_param = -1")  # fmt: skip
    return f"""
class Masks(nn.Module):
    def __init__(self, time_mask_param=40, freq_mask_param=15, num_time_masks=1, num_freq_masks=1, mask_value=0.0, p=0.8):
        super().__init__()
        self.time_mask_param = time_mask_param
        self.freq_mask_param = freq_mask_param
        self.num_time_masks = num_time_masks
        self.num_freq_masks = num_freq_masks
        self.mask_value = mask_value
        self.p = p

    def forward(self, x):
{_indented(text.split(chr(10)), 2)}


class Augmented(Dataset):
    def __init__(self, base, transform):
        self.base = base
        self.transform = transform

    def __len__(self):
        return len(self.base)

    def __getitem__(self, idx):
        x, y = self.base[idx]
        return self.transform(x), y


def main():
    masks = Masks({given})
    base = TensorDataset(torch.rand({shape}), torch.arange(9))
    alone = Masks(3, 2, 2, 2, -1.0, 0.7)
    seen = [tried(lambda: alone(torch.rand(one))) for one in ((1, 4, 6), (4, 6), (3, 4, 6), (6,), (1, 2, 3), (2, 1, 4, 6))]
    seen += [random.random(), torch.rand(1)]
    made = Augmented(base, masks)
    seen += [tried(lambda: made[1]), tried(lambda: list(DataLoader(made, batch_size=4)))]
{_indented(later, 1)}
    return [*seen, tried(lambda: made[2]), tried(lambda: list(DataLoader(made, batch_size=4))), base.tensors]
"""


def _imaging(rng: random.Random) -> str:
    """Return a program that augments 8-bit images; its parameters make the random numbers irrelevant."""
    usual = "self.{k}_mask_param > 0 and {n} > self.{k}_mask_param"
    guard = _mostly(rng, usual, "{n} > 0")
    image = _mostly(rng, "Image.fromarray(pixels)", "Image.fromarray(pixels, mode='L')", "pixels")
    flat = rng.choice(
        (["x_np = x.squeeze().numpy() if x.dim() > 2 else x.numpy()"], ["x_np = x.squeeze(0).numpy()"],
         ["if x.dim() > 2:", "    x_np = x.squeeze().numpy()", "else:", "    x_np = x.numpy()"], ["x_np = x[0].numpy()"])
    )  # fmt: skip
    eps = rng.choice(("", "", " + 1e-8", " + 1"))
    scaled = f"(x_np - x_np.min()) / (x_np.max() - x_np.min(){eps}) * 255"
    levels = _mostly(
        rng, f"({scaled}).astype(np.uint8)", f"({scaled}).round().astype(np.uint8)", "(x_np * 255).astype(np.uint8)"
    )
    tensor = "torch.from_numpy(np.array(img)).float()"
    back = _mostly(rng, f"{tensor}.unsqueeze(0)", f"{tensor}.unsqueeze(0) / 255.0", tensor)
    asked = rng.choice(
        ("self.training", "self.training and self.augmenter is not None and isinstance(x, torch.Tensor)")
    )
    asked = _mostly(rng, asked, "self.augmenter is not None", "self.training and self.augmenter")
    shape = rng.choice(
        (
            "9, 1, 4, 6",
            "9, 1, 4, 6",
            "9, 1, 4, 6",
            "9, 4, 6",
            "9, 3, 4, 6",
            "9, 1, 1, 6",
            "9, 1, 4, 6, dtype=torch.float64",
        )
    )
    samples = rng.choice((f"torch.rand({shape})", f"torch.rand({shape})", f"torch.randn({shape}) * 1e3", f"torch.ones({shape})",
                          f"torch.rand({shape}).index_fill_(0, torch.tensor([2]), float('inf'))",
                          f"torch.rand({shape}).index_fill_(0, torch.tensor([2]), float('nan'))",
                          f"torch.rand({shape}).index_fill_(0, torch.tensor([2]), 0.5)"))  # fmt: skip
    small = "40, 15, p=1.0" if guard == usual else "p=0.0"  # larger than the axes, which the guard skips
    given = rng.choice(("p=0.0", small, "0, 0, p=1.0", "5, 3, 300, 300, 7, 1.0"))
    later = _some(rng, 0.5, "made.training = False", "made.augmenter = None", "masks.p = 0.0", "masks.mask_value = 300",
                  "masks.mask_value = 2.5", "masks.mask_value = -1", "made.augmenter = double", "made.training = 1",
                  "base.tensors[0].mul_(2)", "masks.time_mask_param = -1")  # fmt: skip
    return f"""
from PIL import Image


class Masks:
    def __init__(self, time_mask_param=40, freq_mask_param=15, num_time_masks=1, num_freq_masks=1, mask_value=0, p=0.8):
        self.time_mask_param = time_mask_param
        self.freq_mask_param = freq_mask_param
        self.num_time_masks = num_time_masks
        self.num_freq_masks = num_freq_masks
        self.mask_value = mask_value
        self.p = p

    def __call__(self, image):
        if random.random() > self.p:
            return image
        pixels = np.array(image)
        height, width = pixels.shape
        for _ in range(self.num_freq_masks):
            if {guard.format(k="freq", n="height")}:
                f = random.randint(0, min(self.freq_mask_param, height))
                if f > 0:
                    f0 = random.randint(0, height - f)
                    pixels[f0:f0 + f, :] = self.mask_value
        for _ in range(self.num_time_masks):
            if {guard.format(k="time", n="width")}:
                t = random.randint(0, min(self.time_mask_param, width))
                if t > 0:
                    t0 = random.randint(0, width - t)
                    pixels[:, t0:t0 + t] = self.mask_value
        return {image}


class Augmented(Dataset):
    def __init__(self, base, augmenter, training=True):
        self.base = base
        self.augmenter = augmenter
        self.training = training

    def __len__(self):
        return len(self.base)

    def __getitem__(self, idx):
        x, y = self.base[idx]
        if {asked}:
{_indented(flat, 3)}
            x_np = {levels}
            img = Image.fromarray(x_np)
            img = self.augmenter(img)
            x = {back}
        return x, y


def main():
    masks = Masks({given})
    base = TensorDataset({samples}, torch.arange(9))
    alone = Augmented(base, Masks(3, 2, 2, 2, 9, 0.7))
    seen = [tried(lambda: alone[i]) for i in range(9)]
    seen += [random.random(), torch.rand(1)]
    made = Augmented(base, masks)
    seen += [tried(lambda: made[1]), tried(lambda: list(DataLoader(made, batch_size=4)))]
{_indented(later, 1)}
    return [*seen, tried(lambda: made[2]), tried(lambda: list(DataLoader(made, batch_size=4))), base.tensors]
"""


_FAMILIES: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("standardising", _standardizing),
    ("standardising", _standardizing),
    ("augmenting", _augmenting),
    ("augmenting", _augmenting),
    ("listing", _listing),
    ("chained", _chaining),
    ("stacked", _stacking),
    ("wrapper", _wrapping),
    ("closure", _closing),
    ("list", _collecting),
    ("augmenter", _drawing),
    ("held function", _holding),
    ("guarded masks", _guarding),
    ("masked images", _imaging),
)
#: Families of programs whose ``main`` first creates a dataset.
_DATASETS = (_standardizing, _augmenting, _listing, _chaining)
#: Families in which batches use another random generator after the migration.
_DRAWING = frozenset({"augmenter", "guarded masks", "masked images"})
