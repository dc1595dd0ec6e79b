"""Find objects of a loader that cannot be pickled for worker processes."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, Recording

_FIXES = {
    "lambda": "Use a function at module level, or functools.partial of such a function.",
    "local function": "Move the function to module level, and bind its captured values with functools.partial.",
    "open file": "Open the file in the process that reads it: on first use in __getitem__, not in __init__.",
    "generator": "Keep a list, or create the generator in the method that uses it.",
    "module": "Import the module where it is used; do not keep it as an attribute.",
    "view of a dictionary": "Keep a list of the entries: list(…).",
}
_OTHERWISE = "Create the object in the worker, on first use in __getitem__, and remove it in __getstate__."


def check(recording: Recording) -> Iterator[Problem]:
    """Report the objects that ``pickle`` refuses, for loaders with worker processes."""
    for loader in recording.loaders:
        for one in loader.unpicklable:
            at = f", {one.place}" if one.place.file else ""
            yield Problem.at(
                one.place if one.place.file else loader.place,
                "not-picklable",
                f"Worker processes started by spawn cannot receive {one.path} ({one.kind}{at}).",
                f"Pickling the object raised {one.error}. {_describe_start_method(loader)}",
                next((fix for kind, fix in _FIXES.items() if one.kind.startswith(kind)), None)
                or ("Move the class to module level." if one.kind.startswith("local class") else _OTHERWISE),
            )


def _describe_start_method(loader: LoaderInfo) -> str:
    if loader.start_method != "fork":
        return f"Here {loader} uses {loader.start_method}, so its workers cannot start."
    workers = pluralize(loader.num_workers, "worker")
    return (
        f"Here {loader} forks {workers}, and forked workers need no pickle; Windows, macOS and Linux with Python 3.14 "
        "or later do not fork by default."
    )
