"""Find the lines of the user's code that build a loader, or that define a class or function."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from chirp_migrate.doctor.recording import CodeLine


class LineFinder:
    """Finds lines of the user's code: the line of a definition, or the line that is running now.

    Args:
        tree: absolute path of the folder with the user's code.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def line_of_caller(self) -> CodeLine:
        """Return the innermost line of the user's code on the call stack.

        If no line of the user's code is on the call stack, the result is an empty ``CodeLine``.
        """
        for _, place in self._running_lines():
            return place
        return CodeLine()

    def line_of_unguarded_main(self) -> CodeLine:
        """Return the running line of the main script, if a worker would run this line again when it imports the script.

        The result is an empty ``CodeLine`` for a line under an ``if``, because the ``if`` may prevent the second run.
        The result is also empty for the ``__main__.py`` of a package, because workers do not import this file.
        """
        for frame, place in self._running_lines():
            is_main = frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"
            if is_main and Path(place.file).name != "__main__.py":
                return CodeLine() if _is_under_if(self._tree / place.file, place.line) else place
        return CodeLine()

    def line_of_definition(self, value: Any) -> CodeLine:
        """Return the line of the user's code that defines a function or class.

        If the function or class is not defined in the user's code, the result is an empty ``CodeLine``.
        """
        if isinstance(value, FunctionType):
            return self._place(value.__code__.co_filename, value.__code__.co_firstlineno)
        if not isinstance(value, type):
            return CodeLine()
        try:
            return self._place(inspect.getsourcefile(value) or "", inspect.findsource(value)[1] + 1)
        except (OSError, TypeError):
            return CodeLine()

    def _running_lines(self) -> Iterator[tuple[FrameType, CodeLine]]:
        """Yield the frames of the user's code on the call stack with their running lines, the innermost first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            place = self._place(frame.f_code.co_filename, frame.f_lineno)
            if place.file:
                yield frame, place
            frame = frame.f_back

    def _place(self, file: str, line: int) -> CodeLine:
        path = self._tree / file
        if not file or file.startswith("<") or not path.is_relative_to(self._tree) or not path.is_file():
            return CodeLine()
        return CodeLine(path.relative_to(self._tree).as_posix(), line)


def _is_under_if(path: Path, line: int) -> bool:
    blocks = (one for one in ast.walk(ast.parse(path.read_bytes())) if isinstance(one, ast.If))
    return any(one.lineno <= line <= (one.end_lineno or line) for one in blocks)
