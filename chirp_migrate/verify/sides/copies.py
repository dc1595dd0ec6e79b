"""Copy both versions of a project to separate folders, and find the entry points (training functions or a script)."""

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
from chirp_migrate.verify.timing.process_turns import make_child_process


def copy_both_versions(
    root: Path, original: OriginalVersion, options: VerifyOptions, scratch_folder: Path
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Copy both versions of a project to the folder ``scratch_folder``.

    If the version before the migration lacks the file of the user's workload function, the copy of this version gets
    the current file.

    Returns:
        Two values. The first value is a dictionary: version (``before`` or ``after``) → folder with its copy. The
        second value contains sentences on files that were not copied, or that were added to the version before the
        migration.
    """
    # The paths have equal lengths, because the length of a path affects memory addresses, and these affect speed.
    trees = {"before": scratch_folder / "side1" / "tree", "after": scratch_folder / "side2" / "tree"}
    notes: list[str] = []
    too_large = sorted({*copy_tree(root, trees["after"]), *original.write(trees["before"])})
    if too_large:
        notes.append(f"too large, so not copied: {', '.join(too_large)}")
    if options.entry is not None and options.entry.hook:
        candidates = workload_file_candidates(options.entry.hook)
        own = next((name for name in candidates if (trees["after"] / name).is_file()), None)
        if own is not None and not any((trees["before"] / name).is_file() for name in candidates):
            (trees["before"] / own).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(trees["after"] / own, trees["before"] / own)
            notes.append(f"{own} is not in the version before the migration, so both versions use the current file")
    for tree in trees.values():
        store_original_files(tree)
    return trees, tuple(notes)


def find_entry_points_before(
    tree: Path, root: Path, original: OriginalVersion, options: VerifyOptions, progress: Progress
) -> DiscoveredEntryPoints:
    """Find the entry points in the version before the migration.

    If the user has a workload function, a child process calls the workload function to get the names of the training
    calls.

    Raises:
        UsageProblem: the expression ``options.select`` matches no entry point, or the workload function does not exist.
        NoTrainingFound: no entry point is found, or the file of the workload function does not exist.
        WorkloadFailed: the workload function failed.
    """
    try:
        found = entry_points_from_options(tree, root, options)
    except NoTrainingFound as problem:
        if options.source is not TrainingSource.FOUND:
            raise
        # The message does not name ``tree``, because users do not know this temporary folder.
        raise NoTrainingFound(
            f"found no training in {original.described}: pass the original project as --baseline."
        ) from problem
    if options.source is TrainingSource.HOOK:
        (entry,) = found.entry_points
        progress(f"calling {entry.hook}, which returns the training calls")
        progress(ProgressStep(f"calling {entry.hook}"))
        with make_child_process(RunSpec(str(tree), found, options, JobKind.NAMES), "before") as child:
            names = child.result().names
        found = replace(found, entry_points=tuple(replace(entry, name=name) for name in names))
    return select_entry_points(found, options.select)
