"""Takes turns: a child gets ready, says so, and does what is timed only when it is told to.

Both children of a round can so start and import beside each other, while what trains has the machine to itself:
the threads of two trainings on the same cores would wait for each other most of the time.
Files carry the messages, because they work alike on every system and leave the standard streams to the training.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.verify.spec import write_json

__all__ = ["Turn"]

_POLL_S = 0.01


@dataclass(frozen=True)
class Turn:
    """The two files of one child.

    Attributes:
        folder: an existing folder of the child's own.
    """

    folder: Path

    @property
    def _ready(self) -> Path:
        return self.folder / "ready.json"

    @property
    def _go(self) -> Path:
        return self.folder / "go"

    def take(self) -> None:
        """In the child: say that it is ready, and wait.

        Raises:
            SystemExit: the parent is gone, and with it whoever would want the result.
        """
        parent, times = os.getppid(), os.times()
        used = times.user + times.system + times.children_user + times.children_system
        write_json(self._ready, {"cpu_s": used})
        while not self._go.exists():
            if os.getppid() != parent:
                raise SystemExit("the verification has ended")
            time.sleep(_POLL_S)

    def ready(self) -> float | None:
        """In the parent: CPU seconds that the child and those it started had used when it was ready; None before."""
        try:
            return float(json.loads(self._ready.read_text(encoding="utf-8"))["cpu_s"])
        except FileNotFoundError:
            return None

    def ready_since(self) -> float:
        """In the parent: time stamp (``time.time()``) of the moment when the child was ready."""
        return self._ready.stat().st_mtime

    def give(self) -> None:
        """In the parent: let the child go on."""
        self._go.touch()
