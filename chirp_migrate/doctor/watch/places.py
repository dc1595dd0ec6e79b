"""Lines of the user's code: where a loader is built, and where a class or function is defined."""

from __future__ import annotations

import ast
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
        """Return the innermost line on the call stack that is in the folder; an empty place without one."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            place = self._place(frame.f_code.co_filename, frame.f_lineno)
            if place.file:
                return place
            frame = frame.f_back
        return Place()

    def of_unguarded_main(self) -> Place:
        """Return the line of the main script on the call stack that also runs when a worker imports the script.

        Lines under any ``if`` do not count. Workers do not import the script of a package, ``__main__.py``.
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            place = self._place(frame.f_code.co_filename, frame.f_lineno)
            is_main = frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"
            if is_main and place.file and Path(place.file).name != "__main__.py":
                return Place() if _is_under_if(self._tree / place.file, place.line) else place
            frame = frame.f_back
        return Place()

    def of_definition(self, value: Any) -> Place:
        """Return the definition of a function or class; an empty place if it is not in the folder."""
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


def _is_under_if(path: Path, line: int) -> bool:
    blocks = (one for one in ast.walk(ast.parse(path.read_bytes())) if isinstance(one, ast.If))
    return any(one.lineno <= line <= (one.end_lineno or line) for one in blocks)
