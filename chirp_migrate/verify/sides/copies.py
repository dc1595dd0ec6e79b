"""Copy both versions to a separate folder, and find the entry points to train."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.training.errors import NoTrainingFound
from chirp_migrate.training.process.snapshot import copy_tree, store_original_files
from chirp_migrate.training.workload.choosing import select_entry_points
from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, TrainingSource
from chirp_migrate.training.workload.hook import workload_file_candidates
from chirp_migrate.verify.options import VerifyOptions, entry_points_from_options
from chirp_migrate.verify.sides.baseline import OriginalVersion
from chirp_migrate.verify.spec import JobKind, RunSpec
from chirp_migrate.verify.timing.children import make_child


def copy_both_versions(
    root: Path, before: OriginalVersion, options: VerifyOptions, scratch: Path
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Copy both versions to ``scratch``. If the old version lacks the file of the workload function, add the file.

    Returns:
        The folders of ``before`` and ``after``, and one sentence for each file that is missing or was added.
    """
    # Both paths have the same length, because the length of a path changes where other data is in memory.
    trees = {"before": scratch / "side1" / "tree", "after": scratch / "side2" / "tree"}
    notes: list[str] = []
    too_large = sorted({*copy_tree(root, trees["after"]), *before.write(trees["before"])})
    if too_large:
        notes.append(f"too large, so not copied: {', '.join(too_large)}")
    if options.entry is not None and options.entry.hook:
        candidates = workload_file_candidates(options.entry.hook)
        own = next((name for name in candidates if (trees["after"] / name).is_file()), None)
        if own is not None and not any((trees["before"] / name).is_file() for name in candidates):
            (trees["before"] / own).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(trees["after"] / own, trees["before"] / own)
            notes.append(f"{own} is not in the version before the migration, so both versions use the current one")
    for tree in trees.values():
        store_original_files(tree)
    return trees, tuple(notes)


def find_entry_points_before(
    tree: Path, root: Path, before: OriginalVersion, options: VerifyOptions, progress: Progress
) -> DiscoveredEntryPoints:
    """Find the entry points in the version before the migration; a workload function runs in a child process.

    Raises:
        UsageProblem: no entry point is selected, or the workload function does not exist.
        NoTrainingFound: no entry point is found, or the file of the workload function does not exist.
        WorkloadFailed: the workload function failed.
    """
    try:
        found = entry_points_from_options(tree, root, options)
    except NoTrainingFound as problem:
        if options.source is not TrainingSource.FOUND:
            raise
        # The message omits ``tree``, a temporary folder that users do not know.
        raise NoTrainingFound(
            f"found no training in {before.described}: pass the original project as --baseline."
        ) from problem
    if options.source is TrainingSource.HOOK:
        (entry,) = found.entry_points
        progress(f"calling {entry.hook} for its training calls")
        progress(ProgressStep(f"calling {entry.hook}"))
        with make_child(RunSpec(str(tree), found, options, JobKind.NAMES), "before") as child:
            names = child.result().names
        found = replace(found, entry_points=tuple(replace(entry, name=name) for name in names))
    return select_entry_points(found, options.select)
