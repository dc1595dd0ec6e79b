"""Make the plan of a project before LibCST's tool changes the first file, and pass the plan on as LibCST metadata.

The permitted rewrites of a file depend on other files, which may import a name, re-export the name, or replace the name
in a test. LibCST passes the files to a codemod one at a time, in several processes. So LibCST writes some files before
it reads other files. But before the first file, LibCST collects metadata of the whole repository in one process. The
plan is made in this step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import libcst as cst
from libcst.metadata import BaseMetadataProvider

from chirp_migrate.engine.discover import journal_root
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.engine.settings import read_settings
from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import Edit, Finding, FindingStatus, Plan, sha256
from chirp_migrate.source.diff import whole_line_edits
from chirp_migrate.source.files import read_file
from chirp_migrate.source.text import SourceFile
from chirp_migrate.transaction.journal import has_unfinished_run

_OUTSIDE = (
    "the file is outside of repo_root, {root}, so other code that uses the file is unknown: "
    "run LibCST in the folder of the project, or set repo_root in .libcst.codemod.yaml."
)
_UNFINISHED = (
    "a run of `chirp-migrate apply` in {root} was interrupted, or is still running: wait for a running command, or "
    "undo an interrupted run with `chirp-migrate rollback`."
)


@dataclass(frozen=True)
class ChangesOfFile:
    """The planned changes of one file.

    For every file, LibCST sends the changes of all files to a process. So objects of this class must be small.

    Attributes:
        digest: SHA-256 of the bytes that the file had when the plan was made.
        edits: replacements in the text of the file.
        remarks: for each finding that is not rewritten, a sentence with line and rule.
        obstacle: the reason why the file cannot be rewritten; ``None`` if the file can be rewritten.
    """

    digest: str = ""
    edits: tuple[Edit, ...] = ()
    remarks: tuple[str, ...] = ()
    obstacle: str | None = None


class PlannedChangesProvider(BaseMetadataProvider[ChangesOfFile]):
    """The metadata provider that assigns a :class:`ChangesOfFile` to the module of each file.

    Attributes:
        codes: codes of the rules to run; an empty tuple for the rules that the settings of the project select.
    """

    codes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def gen_cache(
        cls, root_path: Path, paths: list[str], timeout: int | None = None, **options: object
    ) -> Mapping[str, ChangesOfFile]:
        """Plan the files ``paths`` of the project at ``root_path``. LibCST's ``FullRepoManager`` calls this method.

        Raises:
            chirp_migrate.errors.ChirpMigrateError: see :func:`changes_by_file`.
        """
        return changes_by_file(root_path, paths, cls.codes)

    def _gen_impl(self, module: cst.Module) -> None:
        assert isinstance(self.cache, ChangesOfFile)
        self.set_metadata(module, self.cache)


def changes_by_file(root: Path, paths: Sequence[str], codes: Sequence[str] = ()) -> dict[str, ChangesOfFile]:
    """Return a dictionary: path in ``paths`` → changes that ``chirp-migrate apply`` at ``root`` would make to the file.

    The settings in ``pyproject.toml`` apply. For a file that the settings exclude, ``obstacle`` is the reason.

    Args:
        root: folder of the project. The function reads all files of the project, because rewrites depend on other
            files.
        paths: paths of the Python files to plan, as LibCST passes them.
        codes: codes of the rules to run; an empty sequence for the rules that the settings select.

    Raises:
        chirp_migrate.errors.ChirpMigrateError: ``root`` has no Python file, its settings are invalid, or a run of
            ``apply`` in ``root`` was interrupted.
    """
    root = _absolute(root)
    settings = read_settings(root).overridden(select=codes)
    if has_unfinished_run(journal_root(root)):
        raise UsageProblem(_UNFINISHED.format(root=root))
    contents: dict[str, bytes] = {}
    planned: dict[str, ChangesOfFile] = {}
    names: dict[str, str] = {}
    for path in paths:
        absolute = _absolute(path)
        if not absolute.is_relative_to(root):
            planned[path] = ChangesOfFile(obstacle=_OUTSIDE.format(root=root))
            continue
        try:
            data = read_file(absolute)
        except OSError as error:
            planned[path] = ChangesOfFile(obstacle=f"the file cannot be read ({error.strerror}).")
            continue
        names[path] = absolute.relative_to(root).as_posix()
        contents[names[path]] = data
    if contents:
        plan = plan_tree(root, settings=settings, overlay=contents)
        planned |= {path: _planned_file(plan, name, contents[name]) for path, name in names.items()}
    return planned


def _absolute(path: str | Path) -> Path:
    """Return an absolute path without resolving links, because a plan excludes links to files, but not the files."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _planned_file(plan: Plan, name: str, data: bytes) -> ChangesOfFile:
    obstacles = [] if name.endswith(".py") else ["the file is not a .py file."]
    obstacles += [skipped.reason for skipped in plan.skipped if skipped.path == name]
    # An excluded path is the file itself, or a folder that contains the file.
    obstacles += [left.reason for left in plan.left_out if name == left.path or name.startswith(f"{left.path}/")]
    if obstacles:
        return ChangesOfFile(obstacle=obstacles[0])
    edits: tuple[Edit, ...] = ()
    for file in plan.files:
        if file.path == name:
            edits = whole_line_edits(SourceFile.from_bytes(data).text, SourceFile.from_bytes(file.after).text)
    remarks = [_remark(finding) for finding in plan.findings if finding.path == name and finding.status in _SAID]
    remarks += [note for note in plan.notes if note.startswith(f"{name}:")]
    return ChangesOfFile(sha256(data), edits, tuple(remarks))


#: Statuses of the findings that LibCST's tool shows as warnings. Dictionary: status → end of the warning.
_SAID = {
    FindingStatus.REPORT: "",
    FindingStatus.OPT_IN: " (changes what training learns; unsafe = true in [tool.chirp-migrate] applies it)",
}


def _remark(finding: Finding) -> str:
    return f"line {finding.line}: {finding.rule} {' '.join(finding.message.split())}{_SAID[finding.status]}"
