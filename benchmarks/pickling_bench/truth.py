"""The oracle: whether workers that are spawned can be sent what a program's loader sends them.

Run in a separate process: it reads programs from standard input as JSON (lists of files) and writes what pickling
each one's dataset, collate function and worker function raises ("" if nothing).
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

#: How an answer begins where the program fails by itself.
RAISED = "RAISED"
STUBS = Path(__file__).parent / "stubs"


def error_of(texts: dict[str, str]) -> str:
    """What pickling what a program sends its workers raises, as text; "" if nothing.

    Raises:
        Exception: whatever the program raises by itself.
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
    """What locks and queues ask for that are handed to a process while it is started."""

    @staticmethod
    def DupFd(handle: int) -> int:
        return handle

    def duplicate_for_child(self, handle: int) -> int:
        return handle


def main() -> None:
    """Answer for the programs on standard input."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(STUBS))
    sys.dont_write_bytecode = True
    answers = []
    with contextlib.redirect_stdout(sys.stderr):  # what programs print
        for texts in json.load(sys.stdin):
            try:
                answers.append(error_of(texts))
            except Exception as error:
                answers.append(f"{RAISED} {type(error).__name__}: {error}\n{texts['main.py']}")
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
