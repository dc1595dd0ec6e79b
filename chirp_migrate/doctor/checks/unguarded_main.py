"""Scripts that train when worker processes import them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chirp_migrate.doctor.document import Problem
from chirp_migrate.doctor.recording import Place, Recording

__all__ = ["check"]

_BOOTSTRAPPING = "finished its bootstrapping phase"
_AT_IMPORT = re.compile(r'File "([^"<>]+)", line (\d+), in <module>')


def check(seen: Recording) -> Iterator[Problem]:
    """Look for Python's error in what the workers printed: a worker that imports the script began to start workers."""
    before, found, _ = seen.by_workers.partition(_BOOTSTRAPPING)
    if not found:
        return
    loader = next((one for one in reversed(seen.loaders) if one.num_workers), None)
    lines = [Place(file, int(line)) for file, line in _AT_IMPORT.findall(before) if not file.startswith(("/", "\\"))]
    place = lines[-1] if lines else loader.place if loader is not None else Place()
    how = "" if loader is None else f", which {loader} starts by {loader.start_method},"
    yield Problem.at(
        place,
        "unguarded-main",
        "The script trains when a worker process imports it, so no worker can start.",
        f"The workers{how} ended with Python's error about the bootstrapping phase of a process.",
        "Put the code that trains under `if __name__ == '__main__':`. Linux starts workers like this from Python 3.14 "
        "on, and Windows and macOS always do.",
    )
