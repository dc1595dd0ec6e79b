"""Run a training script of the user, such as ``python train.py …`` or ``python -m package.train …``.

``verify``, ``doctor`` and ``tune`` run the script in a child process, in which they can observe the loaders of the
script. The script gets the arguments from the user's command line, and no arguments of these commands. A command ends
the script as soon as the script has run the epochs that the command needs, or when its time is over.
"""

from __future__ import annotations

import re
import runpy
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from chirp_migrate.training.process.imports import check_runnable_module

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)*)?(\.exe)?", re.IGNORECASE)
_FLAGS = frozenset({"-u", "-B", "-O", "-OO", "-s", "-E", "-I", "-q", "-v"})


class Script(NamedTuple):
    """A script file or a module to run, and its arguments.

    Attributes:
        file: path of the script; an empty string for the form ``python -m MODULE``.
        module: import name of the module; an empty string for the form ``python FILE``.
        arguments: the command-line arguments of the script, which are ``sys.argv`` without its first element.
    """

    file: str
    module: str
    arguments: tuple[str, ...]


def script_of_command(command: Sequence[str]) -> Script:
    """Return the script that a command line such as ``python train.py --epochs 3`` runs.

    Raises:
        ValueError: the command line does not run a Python script. The message of the error is one sentence for the
            user.
    """
    if not command or not _PYTHON.fullmatch(Path(command[0]).name):
        other = f"{command[0]} is not Python, and " if command else ""
        raise ValueError(f"{other}the command after -- must be `python FILE.py …` or `python -m MODULE …`")
    rest = list(command[1:])
    while rest and rest[0] in _FLAGS:
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return Script("", rest[1], tuple(rest[2:]))
    if not rest or rest[0].startswith("-"):
        raise ValueError("the command after -- must name a script: `python FILE.py …` or `python -m MODULE …`")
    return Script(rest[0], "", tuple(rest[1:]))


def prepare_script(command: Sequence[str]) -> Callable[[], Any]:
    """Return a function that runs the script of a command line as the module ``__main__``.

    The returned function raises :class:`~chirp_migrate.training.errors.NoSuchObject` if the module does not exist.
    """
    script = script_of_command(command)

    def run() -> None:
        argv, path = sys.argv, list(sys.path)
        sys.argv = [script.file or script.module, *script.arguments]
        try:
            if script.module:
                check_runnable_module(script.module)
                runpy.run_module(script.module, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(script.file).resolve().parent))
                _run_file(script.file)
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
        finally:
            sys.argv, sys.path[:] = argv, path

    return run


def _run_file(file: str) -> None:
    """Run a file like ``python FILE``.

    The variable ``__file__`` must be an absolute path, so that spawned worker processes find the main module. But
    ``sys.argv[0]`` must be the path that the user typed. The function :func:`runpy.run_path` would set both values to
    the same path, so this function does not use it.
    """
    path = Path(file).absolute()
    if zipfile.is_zipfile(path):
        runpy.run_path(file, run_name="__main__")
        return
    main = ModuleType("__main__")
    main.__file__ = str(path)
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(main))
    finally:
        sys.modules["__main__"] = before
