"""A verification from the options to the document that says what was found: what needs PyTorch."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from chirp_migrate.training.workload.entry_points import Source
from chirp_migrate.verify.build_report import build_report
from chirp_migrate.verify.document import VerifyReport
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.session import measure
from chirp_migrate.verify.sides.baseline import Before
from chirp_migrate.verify.sides.copies import find_training, make_sides
from chirp_migrate.verify.timing.children import Children
from chirp_migrate.verify.trial import fitted, try_out
from chirpid_patch.machine.cpus import usable_cpus

__all__ = ["verification"]


def verification(
    root: Path,
    before: Before,
    files: Mapping[str, str | None],
    options: VerifyOptions,
    progress: Callable[[str], None],
) -> VerifyReport:
    """Measure and judge.

    Args:
        root: the migrated project.
        before: the side before.
        files: SHA-256 of the files that the verdict speaks of, which the report keeps.
        options: what is run.
        progress: called with one line as each step begins or ends.

    Raises:
        WorkloadFailed: the project's code failed on one of the sides.
    """
    options = replace(options, threads=options.threads or usable_cpus())
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-verify-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder).resolve()
        trees, notes = make_sides(root, before, options, scratch)
        for note in notes:
            progress(note)
        discovery = find_training(trees["before"], root, options, progress)
        labels = [entry.label for entry in discovery.entry_points]
        what = f"{len(labels)} entry points" if options.source is Source.FOUND else ", ".join(labels)
        progress(f"verify runs the project's own code in separate processes: {what}")
        deadline = time.monotonic() + options.budget_s
        children = Children(trees, discovery, options)
        trial = try_out(children, discovery, progress)
        if trial.tried:
            options, trial = fitted(options, trial, deadline - time.monotonic(), progress)
            remaining = tuple(one for one in discovery.entry_points if one.label in trial.labels)
            discovery = replace(discovery, entry_points=remaining)
        measurements = measure(trees, discovery, options, progress, trial, deadline)
    return build_report(
        measurements, options, discovery, before=before.described, copies=list(notes), files=dict(files)
    )
