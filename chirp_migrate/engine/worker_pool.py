"""Run the rules on all files of a project, in several processes if that takes less time.

While one file is rewritten, all other files have their original text. So the result depends neither on the order of the
files nor on the number of processes.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace

from chirp_migrate.engine.rewrite_file import FileResult, migrate_file
from chirp_migrate.engine.settings import Settings
from chirp_migrate.syntax.name_uses import is_patched
from chirp_migrate.syntax.project import Project

#: Number of characters of source code for each process. The rules need about half a second for this number of
#: characters. With fewer characters, a further process would not save time.
_WORTH_A_PROCESS = 150_000

#: Thresholds of ``gc.set_threshold``. They make garbage collections rare, because parsing creates almost no garbage.
_RARELY = (200_000, 50, 100)

_project: Project
_settings: Settings


def migrate_files(paths: Sequence[str], project: Project, settings: Settings, jobs: int | None) -> Iterator[FileResult]:
    """Yield the result of :func:`~chirp_migrate.engine.rewrite_file.migrate_file` for each file, in any order.

    Args:
        paths: the files of ``project`` in which at least one rule may find something.
        project: the user's project. After the last result, the project contains its original texts again.
        settings: the rules to run, and the findings to suppress.
        jobs: number of processes; ``None`` chooses the number by the amount of code.
    """
    sizes = {path: len(project.text(path)) for path in paths}
    count = _number_of_jobs(sum(sizes.values())) if jobs is None else jobs
    if count < 2 or len(paths) < 2:
        yield from (_migrate(path, project, settings) for path in paths)
        return
    # Begin with the largest files, so that no process works alone on a large file at the end.
    yield from _migrate_in_processes(sorted(paths, key=sizes.__getitem__, reverse=True), project, settings, count)


def _number_of_jobs(size: int) -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, 1 + size // _WORTH_A_PROCESS)


def _migrate_in_processes(paths: list[str], project: Project, settings: Settings, count: int) -> Iterator[FileResult]:
    """Yield the results of all paths, in any order.

    A file whose rewrite crashes its process has a result with ``problem``.
    """
    pool = _pool(project, settings, count)
    started = {pool.submit(_migrate_in_worker, path): path for path in paths}
    try:
        for future in as_completed(started):
            try:
                yield future.result()
            except BrokenProcessPool:
                pool.shutdown(wait=True)  # end the threads of the pool before the next fork
                yield _rewrite_alone(started[future], project, settings)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _rewrite_alone(path: str, project: Project, settings: Settings) -> FileResult:
    """Rewrite one file in a separate process, after a process of the pool has crashed.

    The pool does not show which file caused the crash, so each file without a result is rewritten in its own process.
    """
    with _pool(project, settings, 1) as pool:
        try:
            return pool.submit(_migrate_in_worker, path).result()
        except BrokenProcessPool:
            return FileResult(
                path, project.text(path), problem="the process that rewrote the file died; please report this bug"
            )


def _pool(project: Project, settings: Settings, count: int) -> ProcessPoolExecutor:
    # Fork if possible, so that workers inherit the texts without pickling. The only other thread of this process prints
    # progress, and holds no lock during a fork. On macOS, the default is spawn, because some libraries on macOS do not
    # work after a fork.
    methods = multiprocessing.get_all_start_methods()
    forks = "fork" in methods and methods[0] != "spawn"
    if forks:
        # Load the styles, and find the names that files patch, only once and not in every worker process.
        project.code_style.load()
        project.import_style.load()
        is_patched(project, "data", "DataLoader")
    context = multiprocessing.get_context("fork" if forks else "spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=(project, settings))


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """Make garbage collections rare in a ``with`` block. A collection is slow, because it visits all syntax trees."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _start_worker(project: Project, settings: Settings) -> None:
    global _project, _settings
    gc.set_threshold(*_RARELY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which then ends this process
    _project, _settings = project, settings
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker process when its parent process ends.

    Without this function, the workers of a killed parent would wait for ever.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _migrate_in_worker(path: str) -> FileResult:
    return _migrate(path, _project, _settings)


def _migrate(path: str, project: Project, settings: Settings) -> FileResult:
    text, began = project.text(path), time.monotonic()
    try:
        result = migrate_file(path, text, project, settings)
    finally:
        project.update(path, text)
    return replace(result, seconds=time.monotonic() - began)
