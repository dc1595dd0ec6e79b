"""Takes turns: a child gets ready, says so, and does what is timed only when it is told to; again and again.

Both children of a round can so start and import beside each other and then train one entry point after the other in
turn, while what trains has the machine to itself: the threads of two trainings on the same cores would wait for each
other most of the time. A machine's speed drifts within seconds, so what is compared is timed right after each other.
Files carry the messages, because they work alike on every system and leave the standard streams to the training.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.training.process.messages import write_json

__all__ = ["Turns"]

_POLL_S = 0.01


@dataclass
class Turns:
    """The files of one child; both it and its parent have such an object.

    Attributes:
        folder: an existing folder of the child's own.
        number: of the next turn.
    """

    folder: Path
    number: int = 0

    @property
    def _ready(self) -> Path:
        return self.folder / f"ready-{self.number}.json"

    @property
    def _go(self) -> Path:
        return self.folder / f"go-{self.number}"

    def take(self) -> None:
        """In the child: say that it is ready for its next turn, and wait for it.

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
        self.number += 1

    def ready(self) -> float | None:
        """In the parent: CPU seconds that the child had used when it was ready for its next turn; None before.

        Those of processes it started count from their end on.
        """
        try:
            return float(json.loads(self._ready.read_text(encoding="utf-8"))["cpu_s"])
        except FileNotFoundError:
            return None

    def ready_since(self) -> float:
        """In the parent: time stamp (``time.time()``) of the moment when the child was ready for its next turn."""
        return self._ready.stat().st_mtime

    def give(self) -> None:
        """In the parent: let the child go on, up to the turn after."""
        self._go.touch()
        self.number += 1
