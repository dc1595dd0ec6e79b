"""One program before and after its migration, each in a process of its own with the same seeds."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import pickle
import random
import signal
import sys
import types
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, set_start_method
from typing import Any

import numpy as np
import torch

from chirp_migrate.engine.rewrite_file import rewrite
from chirp_migrate.plans.plan import Status
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project
from soundness_bench.programs import Program, make_program

_NAME = "made_up"
_SECONDS = 60


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    Attributes:
        after: its text after the migration.
        rewritten: how often each rule rewrote something of it; refused: how often each only reported.
        difference: what differs, in words; "" if nothing does.
    """

    program: Program
    after: str
    rewritten: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    difference: str = ""


def run_programs(
    numbers: Iterable[int], jobs: int, codes: Collection[str] = (), start: str = "fork"
) -> Iterator[Outcome]:
    """The outcomes of the programs with these numbers, in this order (see :func:`outcome_of`)."""
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("fork"), initializer=partial(torch.set_num_threads, 1)
    ) as pool:
        yield from pool.map(partial(outcome_of, codes=codes, start=start), numbers, chunksize=4)


def outcome_of(number: int, codes: Collection[str] = (), start: str = "fork") -> Outcome:
    """Migrate and run the program with this number.

    Args:
        number: that of the program.
        codes: the rules that migrate it; none: all.
        start: how the program starts worker processes, unless it says otherwise.
    """
    program = make_program(number)
    path = f"{_NAME}.py"
    beside = {f"{name}.py": text for name, text in program.files.items()}
    try:
        rules = [one for one in all_rules() if one.code in codes] if codes else None
        project = Project({**beside, path: program.text})
        after, findings = rewrite(path, program.text, project, unsafe=False, rules=rules)
    except Exception as error:
        return Outcome(program, program.text, difference=f"not migrated: {type(error).__name__}: {error}")
    rewritten = Counter(one.rule for one in findings if one.status is Status.REWRITE)
    refused = Counter(one.rule for one in findings if one.status is not Status.REWRITE)
    difference = ""
    if after != program.text:
        difference = _difference(program, *(_seen(text, program.files, start) for text in (program.text, after)))
    return Outcome(program, after, rewritten, refused, difference)


def _difference(program: Program, before: Any, after: Any) -> str:
    for what, one, other in zip(("result", "printed", "random states"), before, after, strict=True):
        if one != other and not (program.draws and what == "random states"):
            return f"{what}: {str(one)[:1500]}\n    after: {str(other)[:1500]}"
    return ""


def _seen(text: str, files: Mapping[str, str], start: str) -> tuple[Any, str, str]:
    """What ``main`` of a program returns or raises, what it prints, and the random states afterwards."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        signal.alarm(_SECONDS)
        set_start_method(start, force=True)
        with os.fdopen(sending, "wb") as pipe:
            pickle.dump(_run(text, files), pipe)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)  # killed by its alarm if it went on and on
    seen: tuple[Any, str, str] = pickle.loads(data) if data else ("died", "", "")
    return seen


def _run(text: str, files: Mapping[str, str]) -> tuple[Any, str, str]:
    warnings.simplefilter("ignore")
    logging.disable()
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    for name, helping in files.items():
        sys.modules[name] = types.ModuleType(name)
        exec(compile(helping, f"{name}.py", "exec"), vars(sys.modules[name]))
    module = types.ModuleType(_NAME)
    sys.modules[_NAME] = module
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(text, f"{_NAME}.py", "exec"), vars(module))
            result = _plain(vars(module)["main"]())
        except Exception as error:
            result = "raised", type(error).__name__
    kind, keys, *rest = np.random.get_state()
    states = random.getstate(), kind, keys.tobytes(), rest, torch.get_rng_state().numpy().tobytes()
    return result, printed.getvalue(), hashlib.sha256(repr(states).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """``value`` as something that compares equal only if it is the same to the bit, and pickles."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), tuple(value.shape), value.detach().contiguous().numpy().tobytes()
    if isinstance(value, np.ndarray | np.generic):
        return "array", str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return "dict", [(_plain(key), _plain(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [_plain(one) for one in value]
    return type(value).__name__, repr(value)
