"""The plan of a project as LibCST metadata: made once, before the first file is changed.

The permitted rewrites of a file depend on other files, which may import a name, re-export it, or replace it in a test.
LibCST passes a codemod one file at a time, in several processes, while other files are already being written. But it
collects metadata of the whole repository beforehand, once and in one process.
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
from chirp_migrate.plans.plan import Edit, Finding, Plan, Status, sha256
from chirp_migrate.source.diff import changed_lines
from chirp_migrate.source.files import read_file
from chirp_migrate.source.text import SourceFile
from chirp_migrate.transaction.journal import is_unfinished

__all__ = ["BackendPlan", "PlannedFile", "planned_files"]

_OUTSIDE = (
    "it is outside of repo_root, {root}, so other code that uses it is unknown: "
    "run this from the folder of the project, or set repo_root in .libcst.codemod.yaml."
)
_UNFINISHED = (
    "a run of chirp-migrate apply was interrupted in {root}, or is still running: wait for it, or finish it "
    "with `chirp-migrate rollback`."
)


@dataclass(frozen=True)
class PlannedFile:
    """The planned changes of one file; small, since LibCST sends all of them with every file.

    Attributes:
        digest: SHA-256 of the bytes that the plan was made from.
        edits: replacements in its text.
        remarks: findings that are not rewritten, one sentence each with line and rule.
        obstacle: why the file cannot be rewritten, or ``None``.
    """

    digest: str = ""
    edits: tuple[Edit, ...] = ()
    remarks: tuple[str, ...] = ()
    obstacle: str | None = None


class BackendPlan(BaseMetadataProvider[PlannedFile]):
    """The metadata provider that assigns a :class:`PlannedFile` to the module of each file.

    Attributes:
        codes: the rules to run; empty means the rules that the settings of the project select.
    """

    codes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def gen_cache(
        cls, root_path: Path, paths: list[str], timeout: int | None = None, **options: object
    ) -> Mapping[str, PlannedFile]:
        """Plan ``paths`` as files of the project at ``root_path``; called by LibCST's ``FullRepoManager``.

        Raises:
            chirp_migrate.errors.ChirpMigrateError: see :func:`planned_files`.
        """
        return planned_files(root_path, paths, cls.codes)

    def _gen_impl(self, module: cst.Module) -> None:
        assert isinstance(self.cache, PlannedFile)
        self.set_metadata(module, self.cache)


def planned_files(root: Path, paths: Sequence[str], codes: Sequence[str] = ()) -> dict[str, PlannedFile]:
    """Return the changes of ``chirp-migrate apply`` at ``root`` to the Python files at ``paths``.

    The settings in ``pyproject.toml`` apply. For excluded files, the exclusion is the obstacle.

    Args:
        root: folder of the project, in which every file is read.
        paths: files to plan, as LibCST names them.
        codes: the rules to run; empty means the rules that the settings select.

    Raises:
        chirp_migrate.errors.ChirpMigrateError: ``root`` is no project, its settings are invalid, or a run of ``apply``
            there was interrupted.
    """
    root = _absolute(root)
    settings = read_settings(root).overridden(select=codes)
    if is_unfinished(journal_root(root)):
        raise UsageProblem(_UNFINISHED.format(root=root))
    contents: dict[str, bytes] = {}
    planned: dict[str, PlannedFile] = {}
    names: dict[str, str] = {}
    for path in paths:
        absolute = _absolute(path)
        if not absolute.is_relative_to(root):
            planned[path] = PlannedFile(obstacle=_OUTSIDE.format(root=root))
            continue
        try:
            data = read_file(absolute)
        except OSError as error:
            planned[path] = PlannedFile(obstacle=f"it cannot be read ({error.strerror}).")
            continue
        names[path] = absolute.relative_to(root).as_posix()
        contents[names[path]] = data
    if contents:
        plan = plan_tree(root, settings=settings, overlay=contents)
        planned |= {path: _planned_file(plan, name, contents[name]) for path, name in names.items()}
    return planned


def _absolute(path: str | Path) -> Path:
    """Return an absolute path without resolving links, because a link to a file is not the file."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _planned_file(plan: Plan, name: str, data: bytes) -> PlannedFile:
    obstacles = [] if name.endswith(".py") else ["it is not a .py file."]
    obstacles += [skipped.reason for skipped in plan.skipped if skipped.path == name]
    # The excluded path is the file, or a folder around it.
    obstacles += [left.reason for left in plan.left_out if name == left.path or name.startswith(f"{left.path}/")]
    if obstacles:
        return PlannedFile(obstacle=obstacles[0])
    edits: tuple[Edit, ...] = ()
    for file in plan.files:
        if file.path == name:
            edits = changed_lines(SourceFile.from_bytes(data).text, SourceFile.from_bytes(file.after).text)
    remarks = [_remark(finding) for finding in plan.findings if finding.path == name and finding.status in _SAID]
    remarks += [note for note in plan.notes if note.startswith(f"{name}:")]
    return PlannedFile(sha256(data), edits, tuple(remarks))


#: Findings that LibCST's tool shows as warnings.
_SAID = {
    Status.REPORT: "",
    Status.OPT_IN: " (changes what training learns; unsafe = true in [tool.chirp-migrate] applies it)",
}


def _remark(finding: Finding) -> str:
    return f"line {finding.line}: {finding.rule} {' '.join(finding.message.split())}{_SAID[finding.status]}"
