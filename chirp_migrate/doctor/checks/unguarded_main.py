"""Find scripts without a ``__main__`` guard, so that the training starts again when a worker imports the script."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording


def check(recording: Recording) -> Iterator[Problem]:
    """Report a script without a ``__main__`` guard if its training failed before any worker of a loader started.

    A worker imports the script, and the import starts the training again. So the worker cannot start, and the training
    fails.
    """
    for loader in recording.loaders:
        has_begun = any(one.number in recording.worker_starts for one in recording.passes_of_loader(loader))
        if not recording.error or not loader.unguarded.file or has_begun:
            continue
        yield Problem.at(
            loader.unguarded,
            "unguarded-main",
            "Importing the script starts the training. So a worker process, which imports the script, cannot start.",
            f"The run failed before any worker of {loader} began. Workers that start with {loader.start_method} import "
            "the script, and the import runs the reported line again, because no `if` guards the line.",
            "Put the code that trains under `if __name__ == '__main__':`. By default, workers are not forked on "
            "Windows, on macOS, and on Linux with Python 3.14 or later.",
        )
