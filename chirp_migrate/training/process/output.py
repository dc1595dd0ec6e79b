"""What a child process prints, kept within bounds: of any amount only the end is held, and nothing is on disk."""

from __future__ import annotations

import threading
from typing import IO

__all__ = ["Output"]

_KEPT_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_CLOSES_WITHIN_S = 5.0


class Output:
    """The standard output of a process, read in a thread so that the process never waits for a reader.

    Use as a context manager that is left once the process has ended.

    Args:
        pipe: the unbuffered pipe that the process prints to.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._kept = b""
        self._total = 0
        self._thread = threading.Thread(target=self._drain, name="verify-output", daemon=True)

    def __enter__(self) -> Output:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Read what is left; a process that got away with the other end of the pipe is not waited for."""
        self._thread.join(_CLOSES_WITHIN_S)

    def tail(self, lines: int, most_bytes: int) -> str:
        """The last ``lines`` lines of at most ``most_bytes`` bytes, and how much came before where some is left out."""
        kept = self._kept[-most_bytes:]
        shown = kept.decode("utf-8", errors="replace").splitlines()[-lines:]
        if self._total > _KEPT_BYTES:
            shown.insert(0, f"[the end of {self._total / 1e6:.1f} MB]")
        return "\n".join(shown)

    def _drain(self) -> None:
        with self._pipe:
            while content := self._pipe.read(_READ_BYTES):
                self._total += len(content)
                self._kept = (self._kept + content)[-_KEPT_BYTES:]
