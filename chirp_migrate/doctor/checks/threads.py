"""Find loaders whose workers together compute with more threads than the training has CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import Recording


def check(recording: Recording) -> Iterator[Problem]:
    """Count the threads that use CPU time in all workers of each loader."""
    for loader in recording.loaders:
        for one in recording.passes_of_loader(loader):
            runs = [run for run in recording.runs_of(one) if run.tasks and run.worker >= 0]
            # Each worker computes in its main thread, too.
            threads = [1 + max(task.native_threads for task in run.tasks) for run in runs]
            if len(threads) < 2 or min(threads) < 2 or sum(threads) <= recording.cpus:
                continue
            yield Problem.at(
                loader.place,
                "threads",
                "Worker processes compute with more threads than there are CPUs, so the threads wait for each other.",
                f"{len(threads)} workers computed with {sum(threads)} threads in total, on "
                f"{recording.cpus} CPUs ({loader}).",
                "Limit the threads of each worker in worker_init_fn: torch.set_num_threads(1), cv2.setNumThreads(0), "
                "or threadpoolctl.threadpool_limits(1).",
            )
            break
