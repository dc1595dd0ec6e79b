"""What a verification is to do: options of the command line, over ``[tool.chirp-migrate.verify]``, over defaults.

The keys are documented in docs/settings.md; they are the options' names.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

from chirp_migrate.engine.settings import read_verify_table
from chirp_migrate.errors import UsageProblem
from chirp_migrate.stats.looks import MIN_ROUNDS
from chirp_migrate.training.errors import InvalidTree
from chirp_migrate.training.workload.choosing import parse_expression
from chirp_migrate.training.workload.entry_points import Discovery, EntryPoint, Sizes, Source, discover
from chirp_migrate.training.workload.hook import file_of, is_reference
from chirp_migrate.verify.verdict import MARGIN

__all__ = ["DEFAULT_WORKERS", "DEFAULT_WORKLOAD", "LEAST_SAMPLES", "VerifyOptions", "resolve", "training_of"]

DEFAULT_WORKLOAD = "chirp_verify.py"
"""File of a project that is asked for its workload (function ``workload``) where nothing else is said."""

DEFAULT_WORKERS = (0, 2, 4, 8, 12)
"""Worker counts that the requirements name (R-000-5.1: 8 and more)."""

LEAST_SAMPLES = 48
"""Samples below which found entry points cannot be split and trained sensibly."""

_TABLE = "[tool.chirp-migrate.verify]"
_SIZES = Sizes()
_FIELDS = {
    "model": "model",
    "max-rounds": "rounds",
    "time-budget": "budget_s",
    "min-saving": "threshold_percent",
    "threads": "threads",
    "timeout": "timeout_s",
    "per-entry": "each",
    "select": "select",
    "margin": "margin_percent",
}
#: Options that stand in no settings file, checked by the command line.
_MEASURING = {"simulate-step-ms": "simulate_step_ms", "num-workers": "worker_counts", "measure-seconds": "extra_s"}
#: Names of settings in the last release, and what they are called now.
_FORMER = {"rounds": "max-rounds", "budget": "time-budget", "threshold": "min-saving", "each": "per-entry"}


@dataclass(frozen=True)
class VerifyOptions:
    """What is run, how often, and what is measured; see ``chirp-migrate verify --help``.

    Attributes:
        sizes: how much is trained, and on what.
        entry: the hook (its calls still unnamed) or the command; None where entry points are found.
        model: ``module:ClassName`` instead of the model that is found; None for that one.
        rounds: timed pairs of runs that count, at most; at least :data:`.looks.MIN_ROUNDS` are made.
        budget_s: seconds for everything from the first training on; no round begins that would probably end later.
        threshold_percent: percent of the training time that must be saved.
        margin_percent: percent of the time by which an entry point must be slower to count as slower.
        threads: compute threads on each side; 0 takes every usable CPU.
        timeout_s: seconds after which one process counts as hung.
        each: whether rounds are made for each entry point's own verdict, too.
        select: expression over the labels of the entry points that are run; None for all.
        simulate_step_ms: milliseconds of a simulated device step for each training batch; 0 for none.
        worker_counts: numbers of workers that migrated datasets are tried with; empty for none.
        extra_s: seconds that each side may spend on its datasets, beyond training: enough for a first look.
    """

    sizes: Sizes = _SIZES
    entry: EntryPoint | None = None
    model: str | None = None
    rounds: int = 20
    budget_s: float = 150.0
    threshold_percent: float = 20.0
    threads: int = 0
    timeout_s: float = 600.0
    each: bool = False
    select: str | None = None
    margin_percent: float = 100 * MARGIN
    simulate_step_ms: float = 0.0
    worker_counts: tuple[int, ...] = ()
    extra_s: float = 4.0

    @property
    def source(self) -> Source:
        """Where the training comes from."""
        return Source.FOUND if self.entry is None else self.entry.source

    @property
    def threshold(self) -> float:
        """Share of the time that must be saved, 0 to 1."""
        return self.threshold_percent / 100

    @property
    def margin(self) -> float:
        """Share of the time by which an entry point must be slower to count as slower."""
        return self.margin_percent / 100

    @property
    def simulates(self) -> bool:
        """Whether device steps are simulated."""
        return self.simulate_step_ms > 0


def resolve(root: Path, given: Mapping[str, Any]) -> VerifyOptions:
    """Options for a verification of ``root``.

    Args:
        root: the project.
        given: values of the command line by the name of the option; None for those that were not given.

    Raises:
        UsageProblem: an option or a setting is unknown, wrong, or at odds with another one.
        InvalidData: the arrays of ``data`` cannot be used.
    """
    file, table = read_verify_table(root)
    measuring = {field: given[key] for key, field in _MEASURING.items() if key in given}
    said = {
        key: _checked(key, value, f"--{key}")
        for key, value in given.items()
        if value is not None and key not in _MEASURING
    }
    called = {_FORMER.get(key, key): (key, value) for key, value in table.items()}
    settings = {name: _checked(name, value, f"{file}: {_TABLE} {key}") for name, (key, value) in called.items()}
    if "data" in settings:
        settings["data"] = file.parent / settings["data"]
    if "workload" in said or "command" in said:
        settings = {key: value for key, value in settings.items() if key not in ("workload", "command", "result")}
    values = {**settings, **said}
    if "workload" in values and "command" in values:
        raise UsageProblem(f"both a workload and a command are given (options or {file}): keep one of them.")
    if "result" in values and "command" not in values:
        raise UsageProblem("result names what a command writes: it needs a command.")
    entry = _entry(root, values)
    sizes = _sizes(values, entry)
    asked = {field: values[key] for key, field in _FIELDS.items() if key in values}
    return VerifyOptions(sizes, entry, **asked, **measuring)


def training_of(tree: Path, root: Path, options: VerifyOptions) -> Discovery:
    """What is trained in ``tree``, ``root`` or a copy of it; a hook's calls have no names yet.

    Raises:
        InvalidTree: nothing is found, or no file is where the hook is said to be.
    """
    if options.entry is None:
        return replace(discover(tree, options.model), origin=str(root))
    hook = options.entry.hook
    if hook.rpartition(":")[0].endswith(".py") and not (tree / file_of(hook)[0]).is_file():
        raise InvalidTree(
            f"there is no {file_of(hook)[0]} in {root}: say with --workload or in {_TABLE} where the workload is, or "
            f"run `chirp-migrate init-workload {root}`."
        )
    return Discovery((options.entry,), origin=str(root))


def _entry(root: Path, values: Mapping[str, Any]) -> EntryPoint | None:
    if "command" in values:
        return EntryPoint("", "command", command=values["command"], result=values.get("result", ""))
    if "workload" in values:
        return EntryPoint("", "", hook=values["workload"])
    if (root / DEFAULT_WORKLOAD).is_file():
        return EntryPoint("", "", hook=f"{DEFAULT_WORKLOAD}:workload")
    return None


def _sizes(values: Mapping[str, Any], entry: EntryPoint | None) -> Sizes:
    names = ("samples", "epochs", "batch-size", "folds", "shape", "classes", "seed")
    sizes = replace(_SIZES, **{name.replace("-", "_"): values[name] for name in names if name in values})
    data = values.get("data")
    if data is not None:
        data = data.absolute()
        if not data.exists():
            raise UsageProblem(f"{data} does not exist: give --data the file or folder of your samples.")
        if entry is not None:
            return replace(sizes, data=str(data))
        for name in ("shape", "classes"):
            if name in values:
                raise UsageProblem(f"{name} is what the samples in {data} have: leave it out.")
        from chirp_migrate.training.workload.arrays import with_data  # NumPy, which a document that is read needs not

        sizes = with_data(sizes, data)
    if entry is None and sizes.samples < LEAST_SAMPLES:
        raise UsageProblem(f"{sizes.samples} samples are too few to split and train on: {LEAST_SAMPLES} are needed.")
    return sizes


def _checked(key: str, value: Any, where: str) -> Any:
    if key not in _CHECKS:
        near = get_close_matches(key, _CHECKS, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(_CHECKS)}."
        raise UsageProblem(f"{where} is unknown; {meant}")
    try:
        return _CHECKS[key](value)
    except ValueError as error:
        raise UsageProblem(f"{where} {error}.") from None


def _number(kind: type[int | float], least: float, below: float = math.inf) -> Callable[[Any], int | float]:
    what = "a whole number" if kind is int else "a number"
    end = "" if below == math.inf else f" and below {below:g}"

    def check(value: Any) -> int | float:
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not least <= value < below:
            raise ValueError(f"must be {what} of at least {least:g}{end}")
        return kind(value)

    return check


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _text(fits: Callable[[str], Any], must: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not fits(value):
            raise ValueError(must)
        return value

    return check


def _command(value: Any) -> tuple[str, ...]:
    words = value
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"cannot be split into words ({error})") from None
    if (
        not isinstance(words, list)
        or not words
        or not all(isinstance(word, str) and "\0" not in word for word in words)
    ):
        raise ValueError('must be a program and its arguments, such as ["{python}", "train.py"]')
    return tuple(words)


def _result(value: Any) -> str:
    path = PurePosixPath(value) if isinstance(value, str) else None
    if path is None or not value or path.is_absolute() or ".." in path.parts or "\0" in value:
        raise ValueError("must be the path of a file that the command writes, relative to the project")
    return str(path)


def _expression(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    parse_expression(value)
    return value


def _data(value: Any) -> Path:
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise ValueError("must be the path of a file or folder")
    return Path(value)


def _shape(value: Any) -> tuple[int, int, int]:
    """``1x224x313``, ``224x313`` for one channel, or a list, as (channels, frequency bins, time frames)."""
    text = "x".join(map(str, value)) if isinstance(value, list) else value
    if not isinstance(text, str) or not re.fullmatch(r"([1-9]\d{0,4}x){1,2}[1-9]\d{0,4}", text):
        raise ValueError("must be a shape such as 1x224x313")
    channels, bins, frames = (1, *map(int, text.split("x")))[-3:]
    return channels, bins, frames


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "workload": _text(is_reference, 'must name a function as "package.module:function" or "folder/file.py:function"'),
    "command": _command,
    "result": _result,
    "model": _text(
        re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*").fullmatch,
        'must name a class as "package.module:ClassName"',
    ),
    "data": _data,
    "samples": _number(int, 1),
    "epochs": _number(int, 1),
    "batch-size": _number(int, 1),
    "folds": _number(int, 2),
    "shape": _shape,
    "classes": _number(int, 2),
    "max-rounds": _number(int, MIN_ROUNDS),
    "time-budget": _number(float, 0),
    "min-saving": _number(float, 0, 100),
    "margin": _number(float, 0, 100),
    "threads": _number(int, 1),
    "timeout": _number(float, 1),
    "per-entry": _yes_or_no,
    "select": _expression,
    "seed": _number(int, 0),
}
