"""What Python does with a command line, for a process that was forked."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_python(
    command: Sequence[str], environment: Mapping[str, str], tree: Path, folder: Path, needed: Sequence[str]
) -> None:
    """Run ``PROGRAM ARGUMENTS…`` in ``folder``, with modules of ``tree`` and no warnings.

    Where one of the modules ``needed`` cannot be imported, ``folder/cannot-import`` says why, and nothing is run. A
    program that does not end shows where it waits.
    """
    faulthandler.dump_traceback_later(240)
    os.chdir(folder)
    os.environ.update(
        environment,
        OUTCOMES=str(folder),
        CUDA_VISIBLE_DEVICES="",
        TORCHINDUCTOR_CACHE_DIR=str(tree.parent / "inductor"),
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
    sys.argv = list(command)
    runpy.run_path(sys.argv[0], run_name="__main__")
