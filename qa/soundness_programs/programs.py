"""Generate a small random program from a number.

Each program has code that a rule looks for, with details that may make the rewrite wrong. Such details are side
effects, names that are bound again, attributes that are assigned later, subclasses, base classes that use random
numbers or counters, and unusual kinds of samples. The folder ``families/`` has one template for each subject. Programs
with odd numbers show a difference if a rewrite binds a value too early: a value that is bound earlier may stay alive
longer, or other code may see the wrong value. ``main()`` of a program returns all values that the program computes. It
does not read the class name of a dataset that ``type()`` creates, because rule CHP005 changes this name.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jinja2

from benchmarks.harness import template_environment
from qa.soundness_programs.old_pickles import unpickled, with_workers

_T = TypeVar("_T")

#: Subjects of programs with odd and with even numbers. Each subject is the name of a template.
_EARLY = (
    *["lifetime"] * 3,
    *("definedness", "class state", "copies", "names", "calls", "replacements", "nested functions"),
    *("function attributes", "loader class"),
)
#: Families of programs whose ``main`` first creates a dataset.
_DATASETS = ("standardising", "augmenting", "listing", "chained")
_FAMILIES = (
    *("standardising", "standardising", "augmenting", "augmenting", "listing", "chained", "stacked", "wrapper"),
    *("closure", "list", "augmenter", "held function", "guarded masks", "masked images"),
)
#: Families in which batches use another random generator after the migration.
_DRAWING = frozenset({"augmenter", "guarded masks", "masked images"})

#: Datasets of nine pairs, and further datasets.
_PAIRS = (
    "TensorDataset(torch.randn(9, 3, 4), torch.arange(9))",
    "TensorDataset(torch.randn(9, 3, 4), torch.arange(9))",
    "TensorDataset(torch.randn(9, 3), torch.arange(9))",
    "Subset(TensorDataset(torch.randn(9, 3, 4), torch.arange(9)), [8, 1, 2, 3, 4, 5, 6, 7, 0])",
    "TensorDataset(torch.randn(9, 3, dtype=torch.float64), torch.arange(9))",
    "TensorDataset(torch.arange(27).reshape(9, 3), torch.arange(9))",
)
_OTHERS = (
    "[(torch.full((3,), float(n)), n) for n in range(9)]",
    "[(np.full(3, n, dtype=np.float32), n) for n in range(9)]",
    "Counting()",
)
_VALUES: dict[str, Any] = {
    "PAIRS": (*_PAIRS, *_OTHERS),
    "BASES": (*_PAIRS, "TensorDataset(torch.randn(9, 3), torch.arange(9), torch.arange(9))", *_OTHERS),
    "INDICES": ("[8, 0, 3, 3]", "(1, 2, 5)", "range(7)", "np.array([4, 2, 0])", "torch.tensor([4, 2, 8])", "[-1, 2]"),
    "STATISTICS": ("0.25", "2", "torch.tensor(0.5)", "np.float64(0.3)", "torch.full((3, 1), 0.5)", "np.full(3, 0.5)"),
}


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
        family = rng.choice(_EARLY)
        return Program(number, family, *_rendered(family, rng))
    if number % 16 == 2:
        return Program(number, "names in strings", *_rendered("names in strings", rng))
    if number % 16 == 6:
        text = _text_of(_DATASETS, rng)
        return Program(number, "old pickles", unpickled(rng, text), saves=True)
    if number % 32 == 10:
        text = with_workers(rng, _text_of((*_DATASETS, "closure", "held function"), rng))
        return Program(number, "workers", text, allowed=frozenset({"sent-to-workers", "dead-workers"}))
    family = rng.choice(_FAMILIES)
    allowed = frozenset({"augmented-draws"}) if family in _DRAWING else frozenset()
    return Program(number, family, _text_of([family], rng), allowed=allowed)


def _text_of(families: Sequence[str], rng: random.Random) -> str:
    """Return the text of a program of one of the families. A program of the only family needs no random number."""
    family = rng.choice(families) if len(families) > 1 else families[0]
    head = _environment().get_template("head.py.jinja").render()
    return head + _rendered(family, rng)[0]


def _rendered(family: str, rng: random.Random) -> tuple[str, dict[str, str]]:
    """Return the text of a program, and name → text of its other files.

    In a template, a line ``=== NAME ===`` begins another file.
    """
    draws = _Draws(rng)
    functions = {name: getattr(draws, name) for name in dir(draws) if not name.startswith("_")}
    template = _environment().get_template(f"{family.replace(' ', '_')}.py.jinja")
    text, *files = re.split(r"^=== (\S+) ===\n", template.render(functions), flags=re.MULTILINE)
    return text, dict(zip(files[::2], files[1::2], strict=True))


@cache
def _environment() -> jinja2.Environment:
    environment = template_environment(Path(__file__).parent / "families")
    environment.globals |= {**_VALUES, "indented": _indented, "nested": _nested, "holds": _holds, "called": _called}
    environment.filters["renamed"] = _renamed
    return environment


def _indented(lines: Iterable[str], depth: int) -> str:
    return textwrap.indent("\n".join(lines), depth * "    ")


def _nested(lines: Iterable[str]) -> list[str]:
    return ["    " + line for line in lines]


def _holds(text: str, *words: str) -> bool:
    return any(word in text for word in words)


def _called(times: int, first: int) -> str:
    """Return calls with the numbers from ``first``: ``(2)(3)``."""
    return "".join(f"({first + number})" for number in range(times))


def _renamed(text: str, **names: str) -> str:
    """Return the text with other names for attributes of ``self``."""
    for short, name in names.items():
        text = text.replace(f"self.{short}", f"self.{name}")
    return text


class _Draws:
    """The functions with random results that templates call."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choice(self, values: Sequence[_T]) -> _T:
        return self._rng.choice(values)

    def random(self) -> float:
        return self._rng.random()

    def randrange(self, stop: int) -> int:
        return self._rng.randrange(stop)

    def shuffle(self, values: MutableSequence[Any]) -> None:
        self._rng.shuffle(values)

    def some(self, chance: float, *choices: str) -> list[str]:
        """Return one of ``choices``, with probability ``chance``, or nothing."""
        return [self._rng.choice(choices)] if self._rng.random() < chance else []

    def mostly(self, usual: str, *others: str) -> str:
        """Return ``usual`` or, rarely, one of the other arguments."""
        return self._rng.choice(others) if self._rng.random() < 0.12 else usual

    def either(self, usual: Sequence[str], others: Sequence[str], chance: float) -> str:
        """Return one of ``others``, with probability ``chance``, or one of ``usual``."""
        return self._rng.choice(others if self._rng.random() < chance else usual)

    def effects(self) -> list[str]:
        """Return statements with side effects that other code could see, or nothing."""
        return self.some(
            0.25,
            *("chance = random.random()", "print('read', idx)", "self.reads = getattr(self, 'reads', 0) + 1"),
            *("note = self.note(idx)", "idx = int(idx)", "x = x.clone()", "x = x.contiguous()", "before, x = x, x + 0"),
            *("if self.checked: pass", "first = x, y", "torch.manual_seed(idx)"),
        )

    def holder(self, value: str, data: str = "data") -> tuple[str, str]:
        """Return a definition, and an expression that creates a loader whose batches depend on ``value``."""
        loader = f"DataLoader({data}, batch_size=2, collate_fn={{}})"
        body = f"[x * {value} for x in b]"
        local = (
            f"class Local(Dataset):\n    def __len__(self): return len({data})\n"
            f"    def __getitem__(self, i): return {data}[i] * {value}"
        )
        return self.choice(
            (
                ("", loader.format(f"lambda b: {body}")),
                ("", loader.format(f"lambda b: {body}")),
                (f"def collate(b): return {body}", loader.format("collate")),
                (f'def collate(b):\n    """Scale."""\n    return {body}', loader.format("collate")),
                (f"collate = lambda b: {body}", loader.format("collate")),
                (local, "DataLoader(Local(), batch_size=2)"),
                ("", f"DataLoader(Applied({data}, lambda x: x * {value}), batch_size=2)"),
                ("", loader.format(f"lambda b, by={value}: [x * by for x in b]")),
                ("", loader.format(f"lambda b, *, by={value}: [x * by for x in b]")),
                ("", loader.format(f"partial(lambda by, b: {body}, 1)")),
            )
        )

    def main(self, made: str, changes: Sequence[str]) -> str:
        """Return the function ``main``, with loaders before and after changes of the dataset."""
        options = self.choice(
            ("batch_size=2", "batch_size=4, shuffle=True", "batch_size=3, drop_last=True", "batch_size=None")
        )
        lines = [f"made = {made}", f"loader = DataLoader(made, {options})"]
        lines += ["seen = [tried(lambda: list(loader)), tried(lambda: made[0]), kept(made)]"]
        for change in self._rng.sample(changes, self._rng.randrange(3)):
            lines.insert(0 if change.startswith("global") else len(lines), change.replace("\n    ", "\n"))
            lines.append(
                f"seen += [tried(lambda: list(DataLoader(made, {options}))), tried(lambda: list(loader)), kept(made)]"
            )
        lines += ["seen.append(tried(lambda: (made.base if hasattr(made, 'base') else made.dataset).read))"]
        return "\n\ndef main():\n" + _indented([*lines, "return seen"], 1)
