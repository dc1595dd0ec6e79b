"""Whether and how worker processes can be started here."""

from __future__ import annotations

import ast
import math
import multiprocessing
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Seconds that starting a worker takes: known for "fork", far too long for the default time of a trial with the others.
_FORK_SECONDS = 0.2
_SPAWN_SECONDS = 4.0


def default_start_method() -> str:
    """Return the default start method, without fixing it for the program."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def start_method(options: Mapping[str, Any]) -> str:
    """Return the start method of worker processes for a loader with these ``DataLoader`` arguments."""
    context = options.get("multiprocessing_context")
    if context is None:
        return default_start_method()
    return context if isinstance(context, str) else getattr(context, "_name", "spawn")


def start_seconds(method: str) -> float:
    """Return the approximate seconds that starting a worker takes."""
    return _FORK_SECONDS if method == "fork" else _SPAWN_SECONDS


def is_importing_main() -> bool:
    """Return whether this process was started by "spawn" or "forkserver" and still imports its main module.

    Starting a process then raises RuntimeError (the *bootstrapping phase* error of a script without a ``__main__``
    guard).
    """
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def why_no_processes(options: Mapping[str, Any], seconds: float = math.inf) -> str | None:
    """Return why worker processes cannot be started within ``seconds``; None if they can."""
    if multiprocessing.parent_process() is not None:
        return "worker processes are not started by a process that is one itself"
    method = start_method(options)
    if seconds < start_seconds(method):
        return f"{math.ceil(seconds)} s are too short to try worker processes started by {method!r}"
    if method != "fork" and not main_is_guarded():
        return (
            f"worker processes started by {method!r} would run the main script again: "
            'put its code under `if __name__ == "__main__":`'
        )
    return None


def main_is_guarded() -> bool:
    """Return whether a worker process can import the main module without running it: it has a guard, or is no script.

    The function reads the script and does not run it. A script that cannot be read counts as not guarded.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    name = getattr(getattr(main, "__spec__", None), "name", "")
    if path is None or name == "__main__" or name.endswith(".__main__"):
        return True  # interactive or a notebook, or a package run with `python -m`: workers import none of these
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(statement, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(statement.test))
        for statement in tree.body
    )
