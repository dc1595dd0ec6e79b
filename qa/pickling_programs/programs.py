"""Generate programs that build a loader for a dataset that contains an object of a given kind at a given position."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from textwrap import indent

from chirp_migrate.source.toml import parse_toml
from qa.pickling_programs.kinds import KINDS, Kind

__all__ = ["PLACES", "Program", "every_pair", "make_program"]

_TABLE = parse_toml((Path(__file__).parent / "places.toml").read_text(encoding="utf-8"))
_WORDS, _CLASSES = (_TABLE["names"][kind].split() for kind in ("words", "classes"))
#: Statements of a constructor that look similar, but store no object that cannot be pickled, and the names in them.
_DECOYS, _TAKEN = _TABLE["decoys"]["statements"], _TABLE["decoys"]["names"].split()
#: Name of a position → its parts in ``places.toml``.
PLACES = {name: {"init": f"LOCAL\n{text}"} for name, text in _TABLE["statements"].items()} | _TABLE["parts"]

_LOCAL = re.compile(r"^( *)LOCAL(?:\n|\Z)", re.MULTILINE)


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


@dataclass(frozen=True)
class _Place:
    """A position in the dataset or loader, as the parts from which the text of ``main.py`` is built.

    Attributes:
        init: statements of the dataset's constructor.
        parameters: parameter of the constructor in addition to ``size``.
        methods: another member of the dataset's class.
        base: base class of the dataset.
        supers: call of the base class's constructor.
        top: definition above the dataset's class.
        below: definition below the dataset's class.
        setup: statements of ``main`` before the dataset is created.
        later: statements of ``main`` after the dataset is created.
        given: argument of the dataset's class in addition to its size.
        made: expression that creates the dataset; "" for a call of the dataset's class.
        loaded: expression for the first argument of the loader.
        loader: further argument of the loader.
        workers: argument with the loader's number of workers.
        imports: import statement in addition to the imports of every program.
        helpers: text of ``helpers.py``; "" without this file.
    """

    init: str = ""
    parameters: str = ""
    methods: str = ""
    base: str = "Dataset"
    supers: str = "super().__init__()"
    top: str = ""
    below: str = ""
    setup: str = ""
    later: str = ""
    given: str = ""
    made: str = ""
    loaded: str = "~data"
    loader: str = ""
    workers: str = "num_workers=2"
    imports: str = ""
    helpers: str = ""


def _placed(kind: Kind, place: str, draw: random.Random) -> _Place:
    """Return the parts of a program with an object of a kind at a position."""
    parts = dict(PLACES[place])
    parts.pop("for_functions", None)
    with_local = parts.pop("with_local", {})
    drawn = {name: text for some in parts.pop("draws", ()) for name, text in draw.choice(some).items()}
    parts |= with_local if kind.local else {}

    def filled(text: str) -> str:
        text = re.sub(r"<(\w+)>", lambda found: drawn[found[1]], text)
        text = _LOCAL.sub(lambda found: indent(f"{kind.local}\n", found[1]) if kind.local else "", text)
        return text.replace("$", kind.expression)

    return _Place(**{name: filled(text) for name, text in parts.items()})


def every_pair() -> list[tuple[Kind, str]]:
    """Return every kind of object with every position that it can have."""
    return [
        (kind, place)
        for kind, place in product(KINDS, PLACES)
        if kind.is_called or "for_functions" not in PLACES[place]
    ]


def make_program(kind: Kind, place: str, seed: int) -> Program:
    """Return the program with an object of a kind at a position. The seed determines names and structure."""
    draw = random.Random(f"{kind.name} {place} {seed}")
    parts = _placed(kind, place, draw)
    names = _Names(draw)
    texts = {"main.py": _main(parts, kind, draw)}
    if parts.helpers:
        texts["helpers.py"] = parts.helpers.replace("IMPORTS", "\n".join(kind.imports)).replace("TOP", kind.top)
    chosen: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        word = found.group(1)
        if word not in chosen:
            chosen[word] = names.title() if word[0].isupper() else names.variable()
        return chosen[word]

    return Program(
        kind.name, place, seed, {path: _tidy(re.sub(r"~([A-Za-z]\w*)", name, text)) for path, text in texts.items()}
    )


def _tidy(text: str) -> str:
    return re.sub(r"\n{4,}", "\n\n\n", text).strip() + "\n"


def _indented(*texts: str) -> str:
    return indent("\n".join(text.strip("\n") for text in texts if text), "    ")


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _main(parts: _Place, kind: Kind, draw: random.Random) -> str:
    """Return the text of ``main.py``."""
    imports = [
        "import torch",
        "from torch.utils.data import DataLoader, Dataset, IterableDataset",
        *kind.imports,
        *([parts.imports] if parts.imports else []),
    ]
    supers = parts.supers if draw.random() < 0.5 or parts.supers != "super().__init__()" else ""
    body = ["self.size = size", *draw.sample(_DECOYS, 2), parts.init]
    body = [*body, supers] if parts.base == "~P" else [supers, *body]
    members = [
        f"def __init__({_joined('self', 'size', parts.parameters)}):\n{_indented(*body)}",
        "def __len__(self):\n    return self.size",
    ]
    if "__getitem__" not in parts.methods:
        members.append("def __getitem__(self, ~i):\n    return torch.tensor(float(~i))")
    members += [parts.methods] if parts.methods else []
    shuffle = ""
    if parts.base != "IterableDataset" and "sampler" not in parts.loader:
        shuffle = draw.choice(["", "shuffle=True"])
    arguments = _joined(parts.loaded, "batch_size=2", shuffle, parts.workers, parts.loader)
    made = parts.made or f"~D({_joined('3', parts.given)})"
    pieces = [
        "\n".join(dict.fromkeys(imports)),
        "" if parts.helpers else kind.top,
        parts.top,
        f"class ~D({parts.base}):\n" + _indented("\n\n".join(members)),
        parts.below,
        "def main():\n" + _indented(parts.setup, f"~data = {made}", parts.later, f"return DataLoader({arguments})"),
        'if __name__ == "__main__":\n    for ~i in main():\n        print(~i)',
    ]
    return "\n\n\n".join(filter(None, pieces))
