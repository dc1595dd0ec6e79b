"""Show the progress of a long operation in one line of a terminal.

A thread draws the line, so that the time in the line keeps running during a long step.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.console.text import escape_invisible

#: Seconds before the line appears, and seconds between two updates of the line.
_PATIENCE_S, _EVERY_S = 2.0, 0.25
#: Widths in columns: a terminal of unknown width, the longest line, the shortest text, and the bar.
_USUAL_WIDTH, _WIDEST, _LEAST_TEXT, _BAR = 80, 100, 14, 10

#: A thread holds this lock while it draws the line. ``os.fork`` waits for the lock, because a lock that is held during
#: the fork would stay locked in the child process.
_drawing = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_drawing.acquire, after_in_parent=_drawing.release, after_in_child=_drawing.release)


class LiveProgressLine(threading.Thread):
    """A context manager that shows a progress line on a terminal. The object is also the progress callback.

    The end of the context removes the line. The cursor stays at the beginning of the line, so that other output, such
    as ``^C``, overwrites the line.
    """

    def __init__(self, stream: TextIO, doing: str) -> None:
        super().__init__(name="progress", daemon=True)
        self._stream = stream
        self._full, self._empty, self._more = "█░…" if stream.encoding.lower().startswith("utf") else "#.>"
        self._began = time.monotonic()
        self._step = ProgressStep(doing)
        self._least = self._most = 0.0  # bounds of the time at which the operation ends; 0 for an unknown bound
        self._shown = ""
        self._over = threading.Event()

    def __enter__(self) -> LiveProgressLine:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self.join()
        self._draw("")

    def __call__(self, what: str | ProgressStep) -> None:
        """Show a step in the progress line, or print a string above the progress line."""
        if isinstance(what, str):
            self._draw(self._shown, above=f"  {escape_invisible(what)}\x1b[K\n")
            return
        now = time.monotonic()
        self._least = self._least if what.left_s is None else now + what.left_s
        self._most = self._most if what.most_s is None else now + what.most_s
        self._step = what

    def run(self) -> None:
        """Redraw the line every 0.25 seconds until the context ends."""
        pause_s = _PATIENCE_S
        while not self._over.wait(pause_s):
            pause_s = _EVERY_S
            self._draw(self._line(self._step))

    def _draw(self, line: str, above: str = "") -> None:
        with _drawing:
            if above or line != self._shown:  # write only changes, and in one call, so that the line does not flicker
                self._stream.write(f"\r{above}{line}\x1b[K\r")
                self._stream.flush()
                self._shown = line

    def _line(self, step: ProgressStep) -> str:
        """Return the text of the line: the step, a bar and numbers such as ``3/10``, and the remaining or elapsed time.

        The bar and the numbers are omitted if they do not fit, or if the total number of parts is unknown.
        """
        now = time.monotonic()
        right = _describe_time_left(self._least - now, self._most - now) or f"{_clock(now - self._began)} so far"
        room = min(os.get_terminal_size(self._stream.fileno()).columns or _USUAL_WIDTH, _WIDEST) - 3
        if step.total:
            full = _BAR * min(step.done, step.total) // step.total
            for more in (f"{step.done}/{step.total}  ", f"{self._full * full}{self._empty * (_BAR - full)} "):
                right = f"{more}{right}" if room - len(more + right) >= _LEAST_TEXT else right
        room, text = room - len(right), escape_invisible(step.text)
        text = text if cell_len(text) <= room else set_cell_size(text, room - 1) + self._more
        return f"{set_cell_size(text, room)}  {right}"


def _describe_time_left(least_s: float, most_s: float) -> str:
    """Return the remaining time as text, or an empty string if the time is unknown or shorter than a second."""
    if least_s >= 1:
        return f"about {_clock(least_s)}{f' to {_clock(most_s)}' if most_s > least_s + 1 else ''} left"
    return f"at most about {_clock(most_s)} left" if most_s >= 1 else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
