"""Functions that find out whether worker processes can be started, and with which start method."""

from __future__ import annotations

import ast
import math
import multiprocessing
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Seconds that starting a worker takes with "fork", and with the other start methods. ``_SPAWN_SECONDS`` is longer than
#: the default of ``tune_seconds``, so that a measurement with the default omits worker processes.
_FORK_SECONDS = 0.2
_SPAWN_SECONDS = 4.0


def default_start_method() -> str:
    """Return the default start method.

    After a call of this function, the program can still call ``multiprocessing.set_start_method``. A call of
    ``multiprocessing.get_start_method()`` would prevent this.
    """
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def start_method(options: Mapping[str, Any]) -> str:
    """Return the start method of a loader's worker processes; ``options`` are the arguments of the loader, by name."""
    context = options.get("multiprocessing_context")
    if context is None:
        return default_start_method()
    return context if isinstance(context, str) else getattr(context, "_name", "spawn")


def worker_start_seconds(method: str) -> float:
    """Return the approximate seconds that starting a worker takes."""
    return _FORK_SECONDS if method == "fork" else _SPAWN_SECONDS


def is_importing_main() -> bool:
    """Return whether this process was started with "spawn" or "forkserver", and is still importing its main module.

    If the result is True, starting another process raises RuntimeError with a message about the *bootstrapping phase*.
    The usual reason is a script without an ``if __name__ == "__main__":`` guard.
    """
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def why_workers_cannot_start(options: Mapping[str, Any], seconds: float = math.inf) -> str | None:
    """Return why a loader cannot start worker processes; None if the loader can start worker processes.

    ``options`` are the arguments of the loader, by name. One possible reason is that starting a worker takes longer
    than ``seconds``.
    """
    if multiprocessing.parent_process() is not None:
        return "multiprocessing has started this process, so no further worker processes are tried"
    method = start_method(options)
    if seconds < worker_start_seconds(method):
        return f"{math.ceil(seconds)} s are not enough to try worker processes with the start method {method!r}"
    if method != "fork" and not main_is_guarded():
        return (
            f"worker processes with the start method {method!r} would run the main script again: "
            'put its code under `if __name__ == "__main__":`'
        )
    return None


def main_is_guarded() -> bool:
    """Return whether a worker process can import the main module without running the program again.

    The result is True if the main module has an ``if __name__ == "__main__":`` guard. The result is also True if
    workers do not import the main module, as in a notebook, at a prompt, or with ``python -m package``. The function
    reads the source code of the script, without running the script. For a script that cannot be read, the result is
    False.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    name = getattr(getattr(main, "__spec__", None), "name", "")
    if path is None or name == "__main__" or name.endswith(".__main__"):
        return True  # workers do not import a notebook, a prompt, or a package that `python -m` runs
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(statement, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(statement.test))
        for statement in tree.body
    )
