"""Put additional load on the machine, so that recorded times have the same disturbances as on the machines of users."""

from __future__ import annotations

import random
import subprocess
import sys
from types import TracebackType

__all__ = ["OtherLoad"]

# The process ends when its parent ends, for any reason.
_BUSY = """
import os, random, sys, time
lot, rest_s = random.Random(sys.argv[1]), float(sys.argv[2])
parent = os.getppid()
while os.getppid() == parent:
    until = time.monotonic() + lot.uniform(1, 20)
    while time.monotonic() < until:
        sum(range(100_000))
    time.sleep(lot.uniform(0, rest_s))
"""


class OtherLoad:
    """Context manager with a process that keeps one core busy for 1 to 20 s, then sleeps, and so on.

    Args:
        rest_s: largest number of seconds of a sleep; 0 keeps the core busy all the time.
    """

    def __init__(self, rest_s: float = 40.0) -> None:
        self._rest_s = rest_s

    def __enter__(self) -> OtherLoad:
        arguments = (str(random.Random(435).random()), str(self._rest_s))
        self._process = subprocess.Popen([sys.executable, "-c", _BUSY, *arguments])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
