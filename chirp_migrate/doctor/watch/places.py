"""Lines of the user's code: where a loader is built, and where a class or function is defined."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from chirp_migrate.doctor.recording import Place

__all__ = ["Places"]


class Places:
    """Finds lines of the code in a folder.

    Args:
        tree: the folder, an absolute path.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def of_caller(self) -> Place:
        """The innermost line on the call stack that is in the folder; an empty place if there is none."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            place = self._place(frame.f_code.co_filename, frame.f_lineno)
            if place.file:
                return place
            frame = frame.f_back
        return Place()

    def of_definition(self, value: Any) -> Place:
        """Where a function or class is defined; an empty place if that is not in the folder."""
        if isinstance(value, FunctionType):
            return self._place(value.__code__.co_filename, value.__code__.co_firstlineno)
        if not isinstance(value, type):
            return Place()
        try:
            return self._place(inspect.getsourcefile(value) or "", inspect.findsource(value)[1] + 1)
        except (OSError, TypeError):
            return Place()

    def _place(self, file: str, line: int) -> Place:
        path = self._tree / file
        if not file or file.startswith("<") or not path.is_relative_to(self._tree) or not path.is_file():
            return Place()
        return Place(path.relative_to(self._tree).as_posix(), line)
