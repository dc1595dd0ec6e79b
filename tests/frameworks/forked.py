"""What Python does with a command line, for a process that was forked."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path


def run_python(command: Sequence[str], tree: Path, folder: Path, needed: Sequence[str]) -> None:
    """Run ``PROGRAM ARGUMENTS…`` or ``-m MODULE ARGUMENTS…`` in ``folder``, with modules of ``tree`` and no warnings.

    Where one of the modules ``needed`` cannot be imported, ``folder/cannot-import`` says why, and nothing is run.
    """
    os.chdir(folder)
    os.environ.update(
        OUTCOMES=str(folder), CUDA_VISIBLE_DEVICES="", TORCHINDUCTOR_CACHE_DIR=str(tree.parent / "inductor")
    )
    default, *_ = multiprocessing.get_all_start_methods()
    multiprocessing.set_start_method(default, force=True)  # otherwise as this process was started
    warnings.simplefilter("ignore")
    for module in needed:
        try:
            importlib.import_module(module)
        except (ImportError, OSError, RuntimeError) as error:  # a wheel for CUDA may lack its libraries
            Path("cannot-import").write_text(f"{module}: {error}")
            return
    sys.path.insert(0, str(tree))
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        runpy.run_path(sys.argv[0], run_name="__main__")
