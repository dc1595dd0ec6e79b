"""Check that the new files of a plan are valid Python, and that no rule would rewrite these files again.

``apply`` runs the check before it writes the files.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from pathlib import Path

from chirp_migrate.console.progress import Progress, ignore_progress
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import Settings
from chirp_migrate.errors import WriteRefused
from chirp_migrate.plans.plan import NOT_WRITTEN, FindingStatus, Plan


def check_nothing_to_rewrite(
    path: Path,
    plan: Plan,
    settings: Settings,
    *,
    edited_files: frozenset[str] = frozenset(),
    jobs: int | None = None,
    progress: Progress = ignore_progress,
) -> None:
    """Check that the new files of ``plan`` can be compiled, and that no rule would rewrite these files again.

    Args:
        path: the folder or file that the plan was made for.
        plan: the plan that will be written.
        settings: the settings of the plan.
        edited_files: paths of the files in which the user edited a hunk. Such a file must be valid Python, but the
            check accepts that a rule would rewrite the file again.
        jobs: number of processes that run the rules; ``None`` chooses the number by the amount of code.
        progress: function that shows to the user which file is checked.

    Raises:
        WriteRefused: a rewritten file cannot be compiled, or a rule would rewrite the file again. If the user refused a
            rewrite in the file, or the rewrite depends on a file that cannot be written, the check ignores all rewrites
            of the file by the same rule.
    """
    rewritten = {file.path: file.after for file in plan.files if file.hunks}
    if not rewritten:
        return
    for name, after in rewritten.items():
        if name.endswith(".py"):
            _compile(name, after)
    again = plan_tree(path, settings=settings, jobs=jobs, progress=progress, overlay=rewritten)
    refused: dict[str, set[str]] = defaultdict(set)
    for one in plan.findings:
        if one.status is FindingStatus.REFUSED or one.why == NOT_WRITTEN:
            refused[one.path].add(one.rule)
    for one in again.findings:
        if one.status is FindingStatus.REWRITE and one.path not in edited_files and one.rule not in refused[one.path]:
            raise _refusal(one.path, f"{one.rule} would change the file again, in line {one.place} of the result")
    for skipped in again.skipped:
        if skipped.path in rewritten:
            raise _refusal(skipped.path, skipped.reason)


def _compile(name: str, after: bytes) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(after, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise _refusal(name, f"the result is not Python: {error}") from None


def _refusal(name: str, why: str) -> WriteRefused:
    return WriteRefused(
        f"the rewrite of {name} is wrong ({why}), so nothing was changed. Please report this bug. To migrate "
        "the other files, exclude this file in [tool.chirp-migrate], or refuse its hunks in a review."
    )
