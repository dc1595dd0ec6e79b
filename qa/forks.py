"""Run a function in a fork of this process, with a time limit."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

if sys.platform == "win32":
    raise ImportError("programs are run in forks of this process: use Linux or macOS")


def in_fork(action: Callable[[], Any], seconds: float) -> Any:
    """Return the result of ``action`` in a fork; None if the fork dies or takes too long.

    The output of the fork is discarded, and all its processes are killed at the end.
    """
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        _be_child(action, send)
    os.close(send)
    try:
        content = _read(receive, seconds)
    finally:
        os.close(receive)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return pickle.loads(content) if content else None


def _be_child(action: Callable[[], Any], send: int) -> NoReturn:
    """Call ``action``, send the result, and end this process."""
    code = 1
    try:
        os.setpgid(0, 0)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        found = action()
        with os.fdopen(send, "wb") as pipe:
            pickle.dump(found, pipe)
        code = 0
    finally:
        os._exit(code)


def _read(receive: int, seconds: float) -> bytes:
    """Return all data until the other end closes the pipe. If this takes too long, return no data."""
    chunks: list[bytes] = []
    deadline = time.monotonic() + seconds
    while select.select([receive], [], [], max(deadline - time.monotonic(), 0))[0]:
        chunk = os.read(receive, 1 << 16)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
    return b""
