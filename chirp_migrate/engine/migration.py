"""Plan the whole migration of a project: rewritten files, added files, and the runtime as a dependency or as a copy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from chirp_migrate import __version__
from chirp_migrate.additions.dependency import (
    dependency_plan,
    dependency_removal,
    folders_outside_package,
    has_dependency_file,
    imports_runtime,
    runtime_requirement,
)
from chirp_migrate.additions.scaffold import has_training_modules, scaffold_files
from chirp_migrate.additions.vendor import PACKAGE, vendor_files
from chirp_migrate.console.progress import Progress, ignore_progress
from chirp_migrate.engine.discover import discover_files, journal_root
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import Settings
from chirp_migrate.plans.plan import FilePlan, Plan
from chirp_migrate.source.files import read_file
from chirp_migrate.syntax.code_style import CodeStyle

_NO_PLACE = "--scaffold needs a folder utils/, which does not exist: nothing was added."


def plan_migration(
    path: Path,
    *,
    settings: Settings | None = None,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
) -> Plan:
    """Return the plan of all changes that ``apply`` makes at ``path``.

    Args:
        path: folder of the project, or one Python file or notebook. For a single file, the plan adds no files and no
            dependency.
        settings: files to check, rules to run and files to add (see
            :func:`~chirp_migrate.engine.settings.read_settings`); None for all files and rules. The plan copies the
            runtime or adds a dependency only if a file imports the runtime after the migration.
        jobs: number of processes that run the rules; ``None`` chooses the number by the amount of code.
        progress: function that shows to the user which file is planned.

    Raises:
        chirp_migrate.errors.ChirpMigrateError: the file or folder ``path`` does not exist, or contains no Python.
    """
    settings = settings or Settings()
    scaffold, vendor = settings.scaffold, settings.vendor
    plan = plan_tree(path, settings=settings, jobs=jobs, progress=progress)
    root = plan.root
    files = list(plan.files)
    notes = list(plan.notes)
    if path.is_dir() and not files and vendor and _imports_runtime(plan, settings):
        files += _plan_vendoring(root)
    elif path.is_dir() and files:
        is_used = any(imports_runtime(file.after) for file in files)
        if scaffold is None:
            scaffold = is_used and has_training_modules(root)
        if scaffold:
            added = [FilePlan(name, None, text.encode("utf-8"), "scaffold") for name, text in scaffold_files(root)]
            files += added
            notes += [] if added or (root / "utils").is_dir() else [_NO_PLACE]
            is_used |= bool(added)
        if not is_used:
            pass
        elif vendor:
            files += _plan_vendoring(root)
        elif not (root / "chirpid_patch").is_dir():
            dependency, more = _plan_dependency(root, files)
            files += dependency
            notes += more
    options = structs.replace(plan.options, scaffold=bool(scaffold))
    return replace(plan, files=tuple(files), notes=tuple(notes), options=options)


def _plan_dependency(root: Path, files: Sequence[FilePlan]) -> tuple[list[FilePlan], list[str]]:
    """Return the edits that add the runtime as a dependency, such as in ``pyproject.toml``, and notes for the user."""
    top = journal_root(root)
    project = root if has_dependency_file(root) else top
    importing = [root / file.path for file in files if imports_runtime(file.after)]
    wanted = runtime_requirement(__version__)
    folders = folders_outside_package(project, [one.relative_to(project).as_posix() for one in importing])
    if folders:
        where = " and ".join(f"{one}/" for one in folders)
        return [], [
            f"Only files in {where} import chirpid_patch, so the dependencies of the project's package stay unchanged. "
            f'To run these files, install the runtime: pip install "{wanted}"'
        ]
    added, note = dependency_plan(project, __version__, CodeStyle(project).configured_length)
    if added and project != root:
        where = " and ".join(os.path.relpath(project / one.path, root) for one in added)
        added, note = [], f"The changed files import chirpid_patch: add {wanted} to {where}."
    return added, [] if note is None else [note]


def _plan_vendoring(root: Path) -> list[FilePlan]:
    """Return the files of the copied runtime, and the edits that remove the dependency on the runtime.

    A copied runtime needs no dependency. The edits remove only dependencies that an earlier ``apply`` added.
    """
    return [*vendor_files(root), *dependency_removal(root)]


def _imports_runtime(plan: Plan, settings: Settings) -> bool:
    """Return whether a file of the project already imports the runtime, because an earlier run migrated the project."""
    found = discover_files(
        plan.root, notebooks=settings.notebooks is not False, reason_to_exclude=settings.why_left_out
    )
    for path in (*found.files, *found.notebooks):
        try:
            if not path.startswith(f"{PACKAGE}/") and imports_runtime(read_file(plan.root / path)):
                return True
        except OSError:
            continue
    return False
