"""Find objects in a loader, or in its dataset, that cannot be pickled for worker processes."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, Recording

_BY_APPLY = "`chirp-migrate apply` makes this change if the result is provably the same."
_FIXES = {
    "lambda": f"Replace the lambda by a function at module level, or by functools.partial of it. {_BY_APPLY}",
    "local function": f"Move the function to module level, and bind captured values by functools.partial. {_BY_APPLY}",
    "local class": f"Move the class to module level. {_BY_APPLY}",
    "open file": "Open the file in the process that reads it: on first use in __getitem__, not in __init__.",
    "generator": "Store a list instead of the generator, or create the generator in the method that uses it.",
    "module": "Import the module where it is used, and do not store the module in an attribute.",
    "view of a dictionary": "Store a list, such as list(d.items()), instead of the view.",
}
_OTHERWISE = "Create the object in the worker, on first use in __getitem__, and do not return it from __getstate__."


def check(recording: Recording) -> Iterator[Problem]:
    """Report each object that ``pickle`` cannot pickle, in all loaders with worker processes."""
    for loader in recording.loaders:
        for one in loader.unpicklable:
            at = f", {one.place}" if one.place.file else ""
            yield Problem.at(
                one.place if one.place.file else loader.place,
                "not-picklable",
                f"Worker processes that start with spawn cannot receive {one.path} ({one.kind}{at}).",
                f"Pickling the object raised {one.error}. {_describe_start_method(loader)}",
                next((fix for kind, fix in _FIXES.items() if one.kind.startswith(kind)), _OTHERWISE),
            )


def _describe_start_method(loader: LoaderInfo) -> str:
    if loader.start_method != "fork":
        return f"Because {loader} uses {loader.start_method}, its workers cannot start."
    workers = pluralize(loader.num_workers, "worker")
    return (
        f"On this machine, {loader} forks {workers}, which works without pickle. But Windows, macOS, and Linux with "
        "Python 3.14 or later do not fork workers by default."
    )
