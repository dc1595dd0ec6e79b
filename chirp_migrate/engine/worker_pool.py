"""Running the rules on all files of a run, in several processes if that takes less time.

Every file is rewritten with the original text of all other files, so that the result depends on neither the order nor
the number of processes.
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
from chirp_migrate.syntax.project import Project

__all__ = ["collect_garbage_rarely", "migrate_files"]

#: Code points of source for which a second process pays: about half a second of work.
_WORTH_A_PROCESS = 150_000

#: Garbage collection at a hundredth of the usual rate, because parsing creates next to no garbage.
_RARELY = (200_000, 50, 100)

_project: Project
_settings: Settings


def migrate_files(paths: Sequence[str], project: Project, settings: Settings, jobs: int | None) -> Iterator[FileResult]:
    """Yield the results of :func:`~chirp_migrate.engine.rewrite_file.migrate_file`, each as soon as it is ready.

    Args:
        paths: files of ``project`` in which any rule may find something.
        project: the backend, with its original texts again after the last result.
        settings: which rules to run, and which findings to suppress.
        jobs: number of processes; ``None`` chooses.
    """
    sizes = {path: len(project.text(path)) for path in paths}
    count = _number_of_jobs(sum(sizes.values())) if jobs is None else jobs
    if count < 2 or len(paths) < 2:
        yield from (_migrate(path, project, settings) for path in paths)
        return
    # The largest first, so that no process works alone on one of them at the end.
    yield from _in_processes(sorted(paths, key=sizes.__getitem__, reverse=True), project, settings, count)


def _number_of_jobs(size: int) -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, 1 + size // _WORTH_A_PROCESS)


def _in_processes(paths: list[str], project: Project, settings: Settings, count: int) -> Iterator[FileResult]:
    """Yield the results of all paths, in any order; a file that ends its process gets a result with a problem."""
    pool = _pool(project, settings, count)
    started = {pool.submit(_migrate_here, path): path for path in paths}
    try:
        for future in as_completed(started):
            try:
                yield future.result()
            except BrokenProcessPool:
                pool.shutdown(wait=True)  # no thread of it is left that a fork could interrupt
                yield _rewrite_alone(started[future], project, settings)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _rewrite_alone(path: str, project: Project, settings: Settings) -> FileResult:
    """Rewrite one file in a separate process, because this file or another one ended the shared process."""
    with _pool(project, settings, 1) as pool:
        try:
            return pool.submit(_migrate_here, path).result()
        except BrokenProcessPool:
            return FileResult(path, project.text(path), problem="the process that read it died; please report it")


def _pool(project: Project, settings: Settings, count: int) -> ProcessPoolExecutor:
    # The only thread here draws progress and has no lock during a fork. So forking is safe if the platform's libraries
    # permit it, and the texts need not be sent. On platforms whose libraries do not (macOS), spawn is the default.
    methods = multiprocessing.get_all_start_methods()
    forks = "fork" in methods and methods[0] != "spawn"
    if forks:
        project.load_styles()  # takes a tenth of a second: once, instead of in every process
    context = multiprocessing.get_context("fork" if forks else "spawn")
    return ProcessPoolExecutor(count, mp_context=context, initializer=_start, initargs=(project, settings))


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """Collect garbage rarely: a collection visits all nodes of a tree, which takes as long as parsing it."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _start(project: Project, settings: Settings) -> None:
    global _project, _settings
    gc.set_threshold(*_RARELY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is notified, and ends this process
    _project, _settings = project, settings
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker with its parent: a killed parent cannot end its workers, which would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _migrate_here(path: str) -> FileResult:
    return _migrate(path, _project, _settings)


def _migrate(path: str, project: Project, settings: Settings) -> FileResult:
    text, began = project.text(path), time.monotonic()
    try:
        result = migrate_file(path, text, project, settings)
    finally:
        project.update(path, text)
    return replace(result, seconds=time.monotonic() - began)
