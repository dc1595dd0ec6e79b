"""Call the user's workload function (hook), which returns the training calls that the commands run.

The setting ``workload`` in ``[tool.chirp-migrate.verify]`` names the workload function. The workload function gets the
sizes of the training, and returns a dictionary of functions without parameters, as in this example::

    def workload(sizes):                  # sizes.samples, .epochs, .batch_size, .seed, .data, …: see WorkloadSizes
        dataset = make_dataset(sizes)     # not timed
        return {"train": lambda: train(dataset, epochs=sizes.epochs)}     # timed; verify compares what train returns

A child process calls the workload function in a copy of the project. Before each training call, the child process calls
the workload function again, so that a training cannot affect later trainings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chirp_migrate.training.errors import TaskNotPossible
from chirp_migrate.training.process.imports import import_object
from chirp_migrate.training.workload.entry_points import WorkloadSizes

_LONGEST_NAME = 60


def is_function_reference(text: str) -> bool:
    """Return whether ``text`` has the form ``package.module:function`` or ``folder/file.py:function``."""
    place, _, name = text.rpartition(":")
    if not name.isidentifier():
        return False
    return _is_file(place) or (bool(place) and all(part.isidentifier() for part in place.split(".")))


def workload_file_candidates(reference: str) -> tuple[str, ...]:
    """Return the paths, relative to the project, of the files that may contain the workload function.

    The workload function is imported from the first of these files that exists.
    """
    place = reference.rpartition(":")[0]
    if _is_file(place):
        return (Path(place).as_posix(),)
    path = place.replace(".", "/")
    return tuple(f"{folder}{path}{end}" for folder in ("", "src/") for end in (".py", "/__init__.py"))


def names_of_training_calls(workload_function: str, sizes: WorkloadSizes) -> list[str]:
    """Call the user's workload function, and return the names of its training calls in the order in which they run.

    Args:
        workload_function: the function, as in ``chirp_verify.py:workload``.
        sizes: the argument of the function.

    Raises:
        NoSuchObject: the workload function does not exist.
        TaskNotPossible: the workload function does not return a dictionary of named calls.
    """
    return [name[:] for name in _calls_of_hook(workload_function, sizes)]  # convert subclasses of str to str


def make_training_call(reference: str, name: str, sizes: WorkloadSizes) -> Callable[[], Any]:
    """Call the user's workload function, and return the training call ``name`` from its result.

    Raises:
        NoSuchObject: the workload function does not exist.
        TaskNotPossible: the workload function does not return a call of this name.
    """
    calls = _calls_of_hook(reference, sizes)
    if name not in calls:
        raise TaskNotPossible(f"{reference} must return a call named {name!r}, but it returned only {', '.join(calls)}")
    return calls[name]


def _calls_of_hook(reference: str, sizes: WorkloadSizes) -> Mapping[str, Callable[[], Any]]:
    calls = import_object(reference, "function")(sizes)
    if not isinstance(calls, Mapping) or not calls:
        raise TaskNotPossible(
            f"{reference} returned {type(calls).__name__}{' without entries' if isinstance(calls, Mapping) else ''}: "
            'it must return a dictionary of functions to call, such as {"train": lambda: train(dataset)}'
        )
    for name, call in calls.items():
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise TaskNotPossible(
                f"{reference} names a call {name!r}: a name must be a text of 1 to 60 printable characters"
            )
        if not callable(call):
            raise TaskNotPossible(
                f"{reference} returns {type(call).__name__} for {name!r}: the value must be a function to call"
            )
    return calls


def _is_file(place: str) -> bool:
    path = Path(place)
    return place.endswith(".py") and path.stem.isidentifier() and not path.is_absolute() and ".." not in path.parts
