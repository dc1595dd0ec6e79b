"""Find out whether the objects that a program's loader sends to spawned workers can be pickled.

This module runs in a separate process. It reads programs as JSON (lists of files) from standard input. For each
program, it writes the error that occurs when the dataset, ``collate_fn`` and ``worker_init_fn`` are pickled, or "" if
no error occurs.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
import warnings
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

#: Prefix of the answer if the program itself fails.
RAISED = "RAISED"
STUBS = Path(__file__).parent / "stubs"


def error_of(texts: dict[str, str]) -> str:
    """Return the error that occurs when the objects for the workers of a program are pickled; "" for no error.

    Raises:
        Exception: any error that the program itself raises.
    """
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        for path, text in texts.items():
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        sys.path[:0] = [folder]
        importlib.invalidate_caches()
        try:
            loader = importlib.import_module("main").main()
            return _pickled(loader) if loader.num_workers else ""
        finally:
            sys.path.remove(folder)
            os.chdir(before)
            tops = {path.removesuffix(".py").partition("/")[0] for path in texts}
            for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
                del sys.modules[name]


def _pickled(loader: Any) -> str:
    sent = (loader.dataset, loader.collate_fn, loader.worker_init_fn)
    context.set_spawning_popen(_Spawning())  # type: ignore[arg-type]
    try:
        ForkingPickler(io.BytesIO()).dump(sent)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]
    finally:
        context.set_spawning_popen(None)
    return ""


class _Spawning:
    """Stands for a process that is being started. Locks and queues can be pickled only during such a start."""

    @staticmethod
    def DupFd(handle: int) -> int:
        return handle

    def duplicate_for_child(self, handle: int) -> int:
        return handle


def main() -> None:
    """Read programs from standard input, and write the error of each program."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(STUBS))
    sys.dont_write_bytecode = True
    answers = []
    with contextlib.redirect_stdout(sys.stderr):  # output of the programs
        for texts in json.load(sys.stdin):
            try:
                answers.append(error_of(texts))
            except Exception as error:
                answers.append(f"{RAISED} {type(error).__name__}: {error}\n{texts['main.py']}")
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
