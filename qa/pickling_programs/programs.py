"""Generate programs that build a loader for a dataset that contains an object of a given kind at a given position."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from qa.pickling_programs.kinds import KINDS, Kind

__all__ = ["PLACES", "Program", "every_pair", "make_program"]

_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "kappa",
    "sigma",
    "omega",
    "north",
    "south",
    "field",
    "window",
    "signal",
    "frame",
    "track",
    "scale",
    "level",
    "shift",
    "merge",
    "local",
    "outer",
    "inner",
    "first",
    "extra",
    "final",
    "spare",
    "basic",
    "quick",
    "steady",
    "border",
    "margin",
    "corner",
]
#: Names that statements around the position use.
_TAKEN = ["order", "lines", "total", "names", "scale", "kind", "next", "rates"]
_CLASSES = [
    "Store",
    "Reader",
    "Series",
    "Archive",
    "Holder",
    "Bundle",
    "Record",
    "Gauge",
    "Filter",
    "Mapper",
    "Panel",
    "Chart",
    "Ledger",
    "Vessel",
]


@dataclass(frozen=True)
class Program:
    """A program; ``main()`` of ``main.py`` returns its loader.

    Attributes:
        kind: kind of the object.
        place: position of the object in the dataset or loader.
        seed: seed of its names and structure.
        texts: path → text of its files.
    """

    kind: str
    place: str
    seed: int
    texts: dict[str, str]


class _Names:
    """The names that a program already uses."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._taken = draw, {"self", "main", "size", *_TAKEN}

    def variable(self) -> str:
        """Return a new name for a variable or function."""
        return self._new(lambda: self._draw.choice(_WORDS) + self._draw.choice(["", "_" + self._draw.choice(_WORDS)]))

    def title(self) -> str:
        """Return a new name for a class."""
        return self._new(lambda: self._draw.choice(_WORDS).title() + self._draw.choice(_CLASSES))

    def _new(self, draw: Callable[[], str]) -> str:
        name = draw()
        while name in self._taken:
            name = draw()
        self._taken.add(name)
        return name


@dataclass
class _Parts:
    """The parts from which the text of ``main.py`` is built.

    Attributes:
        init: statements of the dataset's constructor.
        parameters: parameters of the constructor in addition to ``size``.
        methods: other members of the dataset's class.
        base: base class of the dataset.
        supers: call of the base class's constructor.
        top: definitions above the dataset's class.
        setup: statements of ``main`` before the dataset is created.
        later: statements of ``main`` after the dataset is created.
        given: arguments of the dataset's class in addition to its size.
        made: expression that creates the dataset; "" for a call of the dataset's class.
        loaded: expression for the first argument of the loader.
        loader: further arguments of the loader.
        workers: argument with the loader's number of workers.
        imports: import statements in addition to the imports of every program.
        files: path of another file → its text. The text with the path "" is placed below the dataset's class.
    """

    init: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    base: str = "Dataset"
    supers: str = "super().__init__()"
    top: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    made: str = ""
    loaded: str = "~data"
    loader: list[str] = field(default_factory=list)
    workers: str = "num_workers=2"
    imports: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


#: Function that puts an object at a position. The arguments are the parts of the program, the statements that the
#: object's expression needs, the expression, and a random generator.
_Place = Callable[[_Parts, list[str], str, random.Random], None]
PLACES: dict[str, _Place] = {}
#: Positions of callable objects.
_FOR_FUNCTIONS: set[str] = set()


def _place(name: str, for_functions: bool = False) -> Callable[[_Place], _Place]:
    def keep(place: _Place) -> _Place:
        PLACES[name] = place
        if for_functions:
            _FOR_FUNCTIONS.add(name)
        return place

    return keep


def _add_statement(name: str, text: str) -> None:
    """Add a position: the statement ``text`` of the constructor, in which the object's expression replaces ``$``."""

    def put(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
        parts.init += [*local, text.replace("$", made)]

    PLACES[name] = put


_add_statement("attribute", "self.~a = $")
_add_statement("list", "self.~a = [1, $]")
_add_statement("dict", "self.~a = {'x': $, 'y': 2}")
_add_statement("tuple in a list", "self.~a = [('x', $), ('y', 2)]")
_add_statement("dict of dicts", "self.~a = dict(x={'y': $})")
_add_statement("annotated attribute", "self.~a: object = $")
_add_statement("one of two", "self.~a = $ if size else None")
_add_statement("second name", "self.~b = ~c = $")
_add_statement("unpacked", "self.~a, self.~b = $, 3")
_add_statement("appended to a variable", "~c = []\n~c.append($)\nself.~a = ~c")
_add_statement("appended to an attribute", "self.~a = []\nself.~a.append($)")
_add_statement("extended", "self.~a = [1]\nself.~a += [$]")
_add_statement("under a key", "self.~a = {}\nself.~a['x'] = $")
_add_statement("update of a dict", "self.~a = {}\nself.~a.update(x=$)")
_add_statement("setattr", "setattr(self, '~a', $)")
_add_statement("in a loop", "self.~a = []\nfor ~i in range(2):\n    self.~a.append($)")
_add_statement("comprehension", "self.~a = [$ for ~i in range(2)]")
_add_statement("local variable", "~c = $\nself.~b = 3")
_add_statement("set, then None", "self.~a = $\nself.~b = 2\nself.~a = None")
_add_statement("set, then deleted", "self.~a = $\nself.~b = 2\ndel self.~a")
_add_statement("argument of a call that keeps nothing", "self.~a = len([$])")
_add_statement("behind a flag that is off", "~c = False\nif ~c:\n    self.~a = $")


@_place("by a method")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init += ["self.~a = []", *local, f"self.~h({made})"]
    parts.methods.append("def ~h(self, ~c):\n    self.~a.append(~c)")


@_place("set by a method of the constructor")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init.append("self.~h()")
    parts.methods.append("def ~h(self):\n" + _indented([*local, f"self.~a = {made}"]))


@_place("own Compose")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.top.append(
        "class ~P:\n    def __init__(self, ~b):\n        self.~b = ~b\n\n    def __call__(self, ~c):\n        return ~c"
    )
    parts.parameters.append("~t=None")
    parts.init.append("self.~a = ~t")
    parts.setup += local
    parts.given.append(f"~P([{made}])")


@_place("Compose of torchvision")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.imports.append("from torchvision import transforms")
    parts.parameters.append("transform=None")
    parts.init.append("self.transform = transform")
    parts.setup += local
    parts.given.append(f"transform=transforms.Compose([{made}])")


@_place("argument of super().__init__")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.top.append("class ~P(Dataset):\n    def __init__(self, ~t=None):\n        self.~a = ~t")
    parts.base = "~P"
    parts.init += local
    parts.supers = f"super().__init__(~t={made})"


@_place("argument of the dataset")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.parameters.append("~t")
    parts.init.append("self.~a = ~t")
    parts.setup += local
    parts.given.append(made)


@_place("keyword of the dataset")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.parameters.append("~t=None")
    parts.init.append("self.~a = ~t")
    parts.setup += [*local, f"~c = {{'~t': {made}}}"]
    parts.given.append("**~c")


@_place("through a function's parameter")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.parameters.append("~t=None")
    parts.init.append("self.~a = ~t")
    parts.methods.append("")
    parts.setup += local
    parts.made = f"~m2(3, {made})"
    parts.files[""] = "def ~m2(~n, ~c):\n    return ~D(~n, ~t=~c)"


@_place("returned by a helper")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.top.append("def ~h():\n" + _indented([*local, f"return {made}"]))
    parts.init.append("self.~a = ~h()")


@_place("returned by a helper of another file")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.files["helpers.py"] = "IMPORTS\n\n\nTOP\n\n\ndef ~h(~b=1):\n" + _indented([*local, f"return {made}"])
    parts.imports.append("from helpers import ~h")
    parts.init.append("self.~a = ~h()")


@_place("held by an object")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.top.append("class ~P:\n    def __init__(self, ~b, ~c=2):\n        self.~b = ~b\n        self.~c = ~c")
    parts.init += [*local, f"self.~a = ~P({made})"]


@_place("made by an object")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.top.append("class ~P:\n    def __init__(self):\n" + _indented([*local, f"self.~b = {made}"], 8))
    parts.init.append("self.~a = {'x': ~P()}")


@_place("dataclass")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.imports.append("from dataclasses import dataclass")
    parts.top.append("@dataclass\nclass ~P:\n    ~b: object\n    ~c: int = 2")
    parts.init += [*local, f"self.~a = ~P({made})"]


@_place("attribute set afterwards")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.later += [*local, f"~data.~a = {made}"]


@_place("attribute of a wrapped dataset")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.imports.append("from torch.utils.data import " + draw.choice(["Subset", "ConcatDataset"]))
    parts.init += [*local, f"self.~a = {made}"]
    parts.loaded = "Subset(~data, [0, 1])" if "Subset" in parts.imports[-1] else "ConcatDataset([~data])"


@_place("attribute of a dataset in a dataset")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.top.append(
        "class ~P(Dataset):\n    def __init__(self, ~b):\n        self.~b = ~b\n\n    def __len__(self):\n        return len(self.~b)\n\n    def __getitem__(self, ~i):\n        return self.~b[~i]"
    )
    parts.init += [*local, f"self.~a = {made}"]
    parts.loaded = "~P(~data)"


@_place("chosen from a dict of classes")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init += [*local, f"self.~a = {made}"]
    parts.made = "{'x': ~D}['x'](3)"


@_place("__getstate__ that forgets it")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init += ["self.~b = 1", *local, f"self.~a = {made}"]
    parts.methods.append("def __getstate__(self):\n    ~c = self.__dict__.copy()\n    ~c['~b'] = None\n    return ~c")


@_place("iterable dataset")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.base = "IterableDataset"
    parts.init += [*local, f"self.~a = {made}"]
    parts.methods.append("def __iter__(self):\n    return iter(range(3))")


@_place("elements of a list that is the dataset")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.setup += local
    parts.made = f"[{made}, 2]"


@_place("collate_fn", for_functions=True)
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.later += local
    parts.loader.append(f"collate_fn={made}")


@_place("worker_init_fn", for_functions=True)
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.later += local
    parts.loader.append(f"worker_init_fn={made}")


@_place("keyword of the loader by a dict", for_functions=True)
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.later += [*local, f"~c = dict(collate_fn={made})"]
    parts.loader.append("**~c")


# Positions that workers do not need.


@_place("class attribute")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    if local:
        parts.init += ["self.~a = 2"]
        parts.top.append("def ~h():\n" + _indented([*local, f"return {made}"]))
        parts.methods.append("~c = ~h()")
    else:
        parts.methods.append(f"~c = {made}")


@_place("property")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.methods.append("@property\ndef ~h(self):\n" + _indented([*local, f"return {made}"]))


@_place("opened lazily")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init.append("self.~a = None")
    parts.methods.append(
        "def __getitem__(self, ~i):\n    if self.~a is None:\n"
        + _indented([*local, f"self.~a = {made}"], 8)
        + "\n    return ~i"
    )


@_place("removed by __getstate__")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init += [*local, f"self.~a = {made}"]
    remove = draw.choice(["~c['~a'] = None", "del ~c['~a']", "~c.pop('~a')", "~c.pop('~a', None)"])
    copy = draw.choice(["self.__dict__.copy()", "dict(self.__dict__)", "{**self.__dict__}"])
    parts.methods.append(f"def __getstate__(self):\n    ~c = {copy}\n    {remove}\n    return ~c")


@_place("left out by __reduce__")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init += [*local, f"self.~a = {made}"]
    parts.methods.append("def __reduce__(self):\n    return (~D, (self.size,))")


@_place("None before the loader")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init += [*local, f"self.~a = {made}"]
    parts.later.append("~data.~a = None")


@_place("sampler")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.imports.append("from torch.utils.data import Sampler")
    parts.top.append(
        "class ~P(Sampler):\n    def __init__(self, ~b):\n        self.~b = ~b\n\n    def __iter__(self):\n        return iter([0, 1])\n\n    def __len__(self):\n        return 2"
    )
    parts.later += local
    parts.loader.append(f"sampler=~P({made})")


@_place("loader without workers")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.init += [*local, f"self.~a = {made}"]
    parts.workers = draw.choice(["num_workers=0", ""])


@_place("object that no dataset has")
def _(parts: _Parts, local: list[str], made: str, draw: random.Random) -> None:
    parts.top.append("class ~P:\n    def __init__(self, ~b):\n        self.~b = ~b")
    parts.later += [*local, f"~c = ~P({made})", "assert ~c is not None"]


def _indented(lines: list[str], by: int = 4) -> str:
    return "\n".join(f"{' ' * by}{line}" if line else "" for text in lines for line in text.split("\n"))


def every_pair() -> list[tuple[Kind, str]]:
    """Return every kind of object with every position that it can have."""
    return [(kind, place) for kind, place in product(KINDS, PLACES) if kind.is_called or place not in _FOR_FUNCTIONS]


def make_program(kind: Kind, place: str, seed: int) -> Program:
    """Return the program with an object of a kind at a position. The seed determines names and structure."""
    draw = random.Random(f"{kind.name} {place} {seed}")
    parts = _Parts()
    PLACES[place](parts, [kind.local] if kind.local else [], kind.expression, draw)
    names = _Names(draw)
    texts = {"main.py": _main(parts, kind, draw)}
    if other := parts.files.pop("helpers.py", None):
        texts["helpers.py"] = other.replace("IMPORTS", "\n".join(kind.imports)).replace("TOP", kind.top)
    chosen: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        word = found.group(1)
        if word not in chosen:
            chosen[word] = names.title() if word[0].isupper() else names.variable()
        return chosen[word]

    return Program(
        kind.name, place, seed, {path: _tidy(re.sub(r"~([A-Za-z]\w*)", name, text)) for path, text in texts.items()}
    )


_DECORATORS = ("functools", "dataclass", "property", "staticmethod", "classmethod")


def _tidy(text: str) -> str:
    return re.sub(r"\n{4,}", "\n\n\n", text).strip() + "\n"


def _main(parts: _Parts, kind: Kind, draw: random.Random) -> str:
    """Return the text of ``main.py``."""
    imports = [
        "import torch",
        "from torch.utils.data import DataLoader, Dataset, IterableDataset",
        *kind.imports,
        *parts.imports,
    ]
    parameters = ", ".join(["self", "size", *parts.parameters])
    before = [parts.supers] if draw.random() < 0.5 or parts.supers != "super().__init__()" else []
    decoys = draw.sample(_DECOYS, 2)
    init = [*parts.init[: len(parts.init)]]
    supers_first = [*before] if parts.base != "~P" else []
    supers_last = [] if parts.base != "~P" else [*before]
    body = [*supers_first, "self.size = size", *decoys, *init, *supers_last]
    members = [f"def __init__({parameters}):\n" + _indented(body), "def __len__(self):\n    return self.size"]
    if not any("__getitem__" in one for one in parts.methods):
        members.append("def __getitem__(self, ~i):\n    return torch.tensor(float(~i))")
    members += [one for one in parts.methods if one]
    dataset = f"class ~D({parts.base}):\n" + _indented(["\n\n".join(members)])
    made = parts.made or f"~D({', '.join(['3', *parts.given])})"
    shuffle = (
        []
        if parts.base == "IterableDataset" or any("sampler" in one for one in parts.loader)
        else draw.choice([[], ["shuffle=True"]])
    )
    arguments = [parts.loaded, "batch_size=2", *shuffle, parts.workers, *parts.loader]
    statements = [
        *parts.setup,
        f"~data = {made}",
        *parts.later,
        f"return DataLoader({', '.join(filter(None, arguments))})",
    ]
    main = "def main():\n" + _indented(statements)
    top = [one for one in (kind.top if "helpers.py" not in parts.files else "", *parts.top) if one]
    pieces = [*top, dataset, *([parts.files[""]] if "" in parts.files else []), main]
    guard = 'if __name__ == "__main__":\n    for ~i in main():\n        print(~i)'
    return "\n\n\n".join(["\n".join(dict.fromkeys(imports)), *pieces, guard])


#: Statements of a constructor that look similar, but store no object that cannot be pickled.
_DECOYS = (
    "self.order = sorted(range(size), key=lambda ~w: -~w)",
    "with open(__file__) as ~w2:\n    self.lines = ~w2.read().count('x')",
    "self.total = sum(~w3 for ~w3 in range(size))",
    "self.names = list({'a': 1, 'b': 2}.keys())",
    "self.scale = (lambda ~w4: ~w4 * 2)(size)",
    "self.kind = type(self).__name__",
    "def ~w5(~w6):\n    return ~w6 + 1\n\n\nself.next = ~w5(size)",
    "self.rates = dict(zip('ab', map(lambda ~w7: ~w7 / 2, [1, 2])))",
)
