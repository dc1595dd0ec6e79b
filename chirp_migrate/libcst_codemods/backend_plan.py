"""Plan all changes of a project before LibCST changes the first file, and provide the changes as LibCST metadata.

Whether a rewrite of a file is safe depends on other files. For example, another file may import a name, or a test may
replace a name. But LibCST passes single files to a codemod, in several processes. So LibCST has already changed some
files when the codemod gets other files. Before the first change, LibCST collects metadata of the whole repository in
one process. So this module makes the plan during this step.
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
    "the file is outside of LibCST's repo_root ({root}), so the code that uses the file is not known: "
    "run LibCST in the folder of the project, or set repo_root in .libcst.codemod.yaml."
)
_UNFINISHED = (
    "a run of `chirp-migrate apply` in {root} is still running or was interrupted: wait until the run ends, or undo an "
    "interrupted run with `chirp-migrate rollback`."
)


@dataclass(frozen=True)
class ChangesOfFile:
    """The planned changes of a single file.

    Objects of this class must be small: for each file that a process rewrites, LibCST sends the objects of all files
    to the process.

    Attributes:
        digest: hexadecimal SHA-256 of the bytes that the file had when the plan was made.
        edits: the replacements in the text of the file.
        remarks: a sentence with line and rule for each finding that is not rewritten.
        obstacle: the reason why the file cannot be rewritten; None if the file can be rewritten.
    """

    digest: str = ""
    edits: tuple[Edit, ...] = ()
    remarks: tuple[str, ...] = ()
    obstacle: str | None = None


class PlannedChangesProvider(BaseMetadataProvider[ChangesOfFile]):
    """Provides a :class:`ChangesOfFile` as LibCST metadata of each module.

    Attributes:
        codes: codes of the rules to run, such as ``CHP007``; an empty tuple runs the rules that the project's settings
            select.
    """

    codes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def gen_cache(
        cls, root_path: Path, paths: list[str], timeout: int | None = None, **options: object
    ) -> Mapping[str, ChangesOfFile]:
        """Plan the changes of the files ``paths`` before LibCST changes the first file.

        LibCST's ``FullRepoManager`` calls this method.

        Raises:
            chirp_migrate.errors.ChirpMigrateError: see :func:`changes_by_file`.
        """
        return changes_by_file(root_path, paths, cls.codes)

    def _gen_impl(self, module: cst.Module) -> None:
        assert isinstance(self.cache, ChangesOfFile)
        self.set_metadata(module, self.cache)


def changes_by_file(root: Path, paths: Sequence[str], codes: Sequence[str] = ()) -> dict[str, ChangesOfFile]:
    """Return, for each path in ``paths``, the changes that ``chirp-migrate apply`` would make to this file.

    The function uses the settings in ``pyproject.toml``. If a file cannot be rewritten, the attribute ``obstacle`` of
    its changes is the reason, for example that the settings exclude the file.

    Args:
        root: folder of the project. The function reads all files in this folder, because the rewrites of a file depend
            on other files.
        paths: absolute paths of the Python files, or paths relative to the current folder. The keys of the result are
            the same paths.
        codes: codes of the rules to run; an empty sequence runs the rules that the settings select.

    Raises:
        chirp_migrate.errors.ChirpMigrateError: the folder ``root`` contains no Python file, its settings are invalid,
            or a run of ``apply`` in ``root`` is still running or was interrupted.
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
    """Return ``path`` as an absolute path, without resolving symbolic links.

    If a file is a link, the plan lists the path of the link as excluded. Resolving the link would hide this exclusion.
    """
    return Path(os.path.abspath(path))  # noqa: PTH100


def _planned_file(plan: Plan, name: str, data: bytes) -> ChangesOfFile:
    obstacles = [] if name.endswith(".py") else ["the file name does not end in .py."]
    obstacles += [skipped.reason for skipped in plan.skipped if skipped.path == name]
    # The path of an exclusion is the file itself, or a folder that contains the file.
    obstacles += [left.reason for left in plan.left_out if name == left.path or name.startswith(f"{left.path}/")]
    if obstacles:
        return ChangesOfFile(obstacle=obstacles[0])
    edits: tuple[Edit, ...] = ()
    for file in plan.files:
        if file.path == name:
            edits = whole_line_edits(SourceFile.from_bytes(data).text, SourceFile.from_bytes(file.after).text)
    remarks = [_remark(finding) for finding in plan.findings if finding.path == name and finding.status in _WARNINGS]
    remarks += [note for note in plan.notes if note.startswith(f"{name}:")]
    return ChangesOfFile(sha256(data), edits, tuple(remarks))


#: Dictionary: status of a finding that LibCST's tool shows as a warning → end of the warning.
_WARNINGS = {
    FindingStatus.REPORT: "",
    FindingStatus.OPT_IN: " (this rewrite changes what training learns: to apply it, set unsafe = true in "
    "[tool.chirp-migrate])",
}


def _remark(finding: Finding) -> str:
    return f"line {finding.line}: {finding.rule} {' '.join(finding.message.split())}{_WARNINGS[finding.status]}"
