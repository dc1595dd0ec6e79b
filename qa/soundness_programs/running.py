"""Run one program before and after its migration, each in a separate process with the same seeds."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import logging
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, set_start_method
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import FindingStatus
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project
from qa.forks import in_fork
from qa.soundness_programs.programs import Program, make_program

_NAME = "made_up"
#: Seconds after which a program is killed. The limit is long, because starting workers may take seconds.
_SECONDS = 150
#: Name of a documented difference → text that a program returns instead of its result. A program returns this text if
#: it stops before its migration, and the difference lets it continue after its migration.
_STOPS = {"sent-to-workers": "cannot be pickled", "dead-workers": "a worker died"}
#: Observations of a program: its result or error, its output, and the random states afterwards.
_Seen = tuple[Any, str, str]
_DIED: _Seen = ("died", "", "")


@dataclass(frozen=True)
class Outcome:
    """The result of a program.

    Attributes:
        program: the program.
        after: text of the program after the migration.
        rewritten: number of findings that each rule rewrote.
        refused: number of findings that each rule reported and did not rewrite.
        difference: description of the difference; "" if there is none.
        shown: names of the documented differences that the program shows.
    """

    program: Program
    after: str
    rewritten: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    difference: str = ""
    shown: frozenset[str] = frozenset()


def run_programs(
    numbers: Iterable[int], jobs: int, codes: Collection[str] = (), start: str = "fork"
) -> Iterator[Outcome]:
    """Yield the results of the programs with these numbers, in this order (see :func:`outcome_of`)."""
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("fork"), initializer=partial(torch.set_num_threads, 1)
    ) as pool:
        yield from pool.map(partial(outcome_of, codes=codes, start=start), numbers, chunksize=4)


def start_method(number: int, start: str) -> str:
    """Return the start method for the workers of program ``number``.

    If ``start`` is "both", every fifth program uses spawn, and all other programs use fork.
    """
    return start if start != "both" else "spawn" if number % 5 == 0 else "fork"


def outcome_of(number: int, codes: Collection[str] = (), start: str = "fork") -> Outcome:
    """Migrate and run the program with this number.

    Args:
        number: number of the program.
        codes: codes of the rules that migrate the program; empty for all rules.
        start: start method of the worker processes (see :func:`start_method`). A start method that the program sets
            has priority.
    """
    program, start = make_program(number), start_method(number, start)
    path = f"{_NAME}.py"
    texts = {f"{name}.py": text for name, text in program.files.items() if "." not in name} | {path: program.text}
    settings = {name: text for name, text in program.files.items() if "." in name}
    try:
        rules = [one for one in all_rules() if one.code in codes] if codes else None
        after, findings = rewrite_text(path, program.text, Project(texts, settings=settings), unsafe=False, rules=rules)
    except Exception as error:
        return Outcome(program, program.text, difference=f"not migrated: {type(error).__name__}: {error}")
    rewritten = Counter(one.rule for one in findings if one.status is FindingStatus.REWRITE)
    refused = Counter(one.rule for one in findings if one.status is not FindingStatus.REWRITE)
    difference, shown = "", frozenset[str]()
    if after != program.text:
        saved = _in_child(program, program.text, start, _saved) if program.saves else b""
        saved = saved if isinstance(saved, bytes) else b""
        before, later = (_in_child(program, text, start, partial(_run, saved)) for text in (program.text, after))
        difference, shown = _difference(program, before or _DIED, later or _DIED)
    return Outcome(program, after, rewritten, refused, difference, shown)


def documented() -> frozenset[str]:
    """Return the names of the differences that docs/differences.md lists."""
    page = Path(__file__).resolve().parents[2] / "docs" / "differences.md"
    return frozenset(re.findall(r"^\| `([\w-]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE))


def _difference(program: Program, before: _Seen, after: _Seen) -> tuple[str, frozenset[str]]:
    """Return a description of undocumented differences, and the names of documented differences that occur."""
    stopped = (name for name, note in _STOPS.items() if _differs_only_at(note, before[0], after[0]))
    stop = next(stopped, "") if before[0] != after[0] else ""
    shown = set()
    for what, one, other in zip(("result", "printed", "random states"), before, after, strict=True):
        name = stop or ("augmented-draws" if what == "random states" else "")
        if one != other and name not in program.allowed & documented():
            return f"{what}: {str(one)[:1500]}\n    after: {str(other)[:1500]}", frozenset()
        if one != other:
            shown.add(name)
    return "", frozenset(shown)


def _differs_only_at(note: str, before: Any, after: Any) -> bool:
    """Return whether two results differ only in places where the result before the migration is ``note``."""
    if before == ("str", repr(note)):
        return True
    if isinstance(before, list | tuple) and type(before) is type(after) and len(before) == len(after):
        return all(_differs_only_at(note, one, other) for one, other in zip(before, after, strict=True))
    return bool(before == after)


def _in_child(program: Program, text: str, start: str, action: Callable[[ModuleType], Any]) -> Any:
    """Call ``action`` with the module of a program in a separate process; return None if the process dies."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**program.files, _NAME: text}.items():
            Path(folder, name if "." in name else f"{name}.py").write_text(content, encoding="utf-8")
        return in_fork(partial(_loaded, folder, start, action), _SECONDS)


def _loaded(folder: str, start: str, action: Callable[[ModuleType], Any]) -> Any:
    """Call ``action`` with the module of a program in ``folder``; if the import fails, return the error."""
    set_start_method(start, force=True)
    main = sys.modules["__main__"]
    main.__spec__ = None
    vars(main).pop("__file__", None)  # workers need the program, and not this benchmark
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    logging.disable()
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    try:
        module = importlib.import_module(_NAME)
    except Exception as error:
        return ("raised", type(error).__name__), "", ""
    return action(module)


def _saved(module: ModuleType) -> bytes:
    """Return the pickle of an earlier run of a program; empty bytes if pickling fails."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            pickled: bytes = vars(module)["saved"]()
        except Exception:
            return b""
    return pickled


def _run(saved: bytes, module: ModuleType) -> _Seen:
    """Return the result or error of ``main``, its output, and the random states afterwards."""
    vars(module)["SAVED"] = saved
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = _plain(vars(module)["main"]())
        except Exception as error:
            result = "raised", type(error).__name__
    numpy_state: Any = np.random.get_state()
    kind, keys, *rest = numpy_state
    states = random.getstate(), kind, keys.tobytes(), rest, torch.get_rng_state().numpy().tobytes()
    return result, printed.getvalue(), hashlib.sha256(repr(states).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Convert ``value`` to an object that can be pickled and is equal only to the same value, to the bit."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), tuple(value.shape), value.detach().contiguous().numpy().tobytes()
    if isinstance(value, np.ndarray | np.generic):
        return "array", str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return "dict", [(_plain(key), _plain(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [_plain(one) for one in value]
    return type(value).__name__, repr(value)
