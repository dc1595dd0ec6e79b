"""Run the user's own command as the training, in a copy of each version. ``verify`` times the whole command."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from chirp_migrate.training.errors import TaskNotPossible
from chirp_migrate.training.process.exit_status import describe_exit
from chirp_migrate.training.process.imports import PACKAGE_ROOT
from chirp_migrate.training.workload.entry_points import EntryPoint, WorkloadSizes

PLACEHOLDERS = ("python", "samples", "epochs", "batch_size", "folds", "classes", "seed", "data")
"""Placeholders in a command, such as ``{epochs}``: the path of this Python interpreter, and the sizes."""


def run_command(entry: EntryPoint, sizes: WorkloadSizes) -> dict[str, Any]:
    """Run the command of ``entry`` in the working directory and wait for it.

    Returns:
        A dictionary with ``exit code`` and, if the user names a result file, ``result``: the contents of the file. If
        the file is not JSON, ``result`` is its SHA-256.

    Raises:
        TaskNotPossible: the command is not found, ends with an exit code other than 0, or does not write its result
            file.
    """
    result = Path(entry.result) if entry.result else None
    if result is not None:
        result.unlink(missing_ok=True)  # remove the result of an earlier run
    words = [_fill_placeholders(word, sizes) for word in entry.command]
    try:
        ended = subprocess.run(words, env=_command_environment(entry), check=False)
    except OSError as error:
        raise TaskNotPossible(f"{words[0]} cannot be run ({error.strerror})") from None
    if ended.returncode != 0:
        raise TaskNotPossible(f"the command ended with {describe_exit(ended.returncode)}")
    return {"exit code": 0} if result is None else {"exit code": 0, "result": _result_content(result)}


def _fill_placeholders(word: str, sizes: WorkloadSizes) -> str:
    values = {"python": sys.executable, **{name: getattr(sizes, name) for name in PLACEHOLDERS[1:]}}
    for name, value in values.items():
        word = word.replace("{" + name + "}", "" if value is None else str(value))
    return word


def _command_environment(entry: EntryPoint) -> dict[str, str]:
    """Return the environment variables of the command, so that its Python code can import ``chirpid_patch``."""
    environment = dict(os.environ)
    if entry.command[0] == "{python}":
        paths = [path for path in (environment.get("PYTHONPATH"), str(PACKAGE_ROOT)) if path]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def _result_content(result: Path) -> Any:
    try:
        content = result.read_bytes()
    except OSError as error:
        raise TaskNotPossible(f"the command did not write {result} ({error.strerror})") from None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return hashlib.sha256(content).hexdigest()
