"""One process of a side: in a fresh copy of its tree, with everything pinned that could differ between the sides."""

from __future__ import annotations

from pathlib import Path

from chirp_migrate.training.process.child import Child, Role
from chirp_migrate.training.process.snapshot import freshen
from chirp_migrate.verify.spec import RunResult, RunSpec

__all__ = ["child_of", "run_child"]

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def child_of(spec: RunSpec, side: str, timeout_s: float) -> Child[RunResult]:
    """A process that is about to be started.

    Args:
        side: ``before`` or ``after``, for messages.
        timeout_s: seconds after which it counts as hung, without those in which it waits for a turn.
    """
    freshen(Path(spec.tree))
    role = Role(f"The {side} side", f"The {side} side failed: ", "--samples and --epochs", side)
    environment = dict.fromkeys(_THREAD_SETTINGS, str(spec.threads))
    environment["PYTHONHASHSEED"] = str(spec.hash_seed)
    return Child("chirp_migrate.verify.runner", spec, RunResult, role, timeout_s, environment)


def run_child(spec: RunSpec, side: str, timeout_s: float) -> RunResult:
    """Run one child from its start to its end; see :func:`child_of`.

    Raises:
        WorkloadFailed: the backend's code raised, crashed the interpreter, or did not end in time.
    """
    with child_of(spec, side, timeout_s) as child:
        return child.result()
