"""Put other load on the machine, so that recordings have the disturbances that users have."""

from __future__ import annotations

import random
import subprocess
import sys
from types import TracebackType

__all__ = ["OtherLoad"]

# The process ends when its parent ends, for any reason.
_BUSY = """
import os, random, sys, time
lot = random.Random(sys.argv[1])
parent = os.getppid()
while os.getppid() == parent:
    until = time.monotonic() + lot.uniform(1, 20)
    while time.monotonic() < until:
        sum(range(100_000))
    time.sleep(lot.uniform(1, 40))
"""


class OtherLoad:
    """Context manager with a process that keeps one core busy for 1 to 20 s, then sleeps 1 to 40 s, and so on."""

    def __enter__(self) -> OtherLoad:
        self._process = subprocess.Popen([sys.executable, "-c", _BUSY, str(random.Random(435).random())])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
