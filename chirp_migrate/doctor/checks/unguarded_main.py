"""Find scripts that train again when a worker process imports them."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording


def check(recording: Recording) -> Iterator[Problem]:
    """Find a run that failed before any worker began, because importing the script would start workers again."""
    for loader in recording.loaders:
        has_begun = any(one.number in recording.worker_starts for one in recording.passes_of_loader(loader))
        if not recording.error or not loader.unguarded.file or has_begun:
            continue
        yield Problem.at(
            loader.unguarded,
            "unguarded-main",
            "The script trains when a worker process imports it, so no worker can start.",
            f"The run failed before any worker of {loader} began. Workers started by {loader.start_method} import the "
            "script, and this line then trains again, because no `if` guards it.",
            "Put the code that trains under `if __name__ == '__main__':`. Linux does not fork "
            "workers with Python 3.14 or later, and Windows and macOS never fork them.",
        )
