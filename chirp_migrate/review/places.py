"""Find the path and the lines of each finding, for programs that show findings in a repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import Finding, Plan
from chirp_migrate.source.git import work_tree_top
from chirp_migrate.source.notebook_json import code_cells
from chirp_migrate.source.text import NEWLINE, SOURCE_LINE, SourceFile, UnreadableSource, decode_text


@dataclass(frozen=True)
class FileRegion:
    """A position or a range of lines in a file.

    Attributes:
        line: number of the first line, counted from 1.
        column: column in the first line in characters, counted from 1; None if the column is not known.
        last_line: number of the last line; None if the region has only one line.
    """

    line: int
    column: int | None = None
    last_line: int | None = None


def base_of_report_paths(root: Path) -> Path:
    """Return the folder to which the paths in SARIF documents and GitHub annotations are relative.

    The result is the top folder of the git work tree that contains ``root`` (an absolute path). Without such a work
    tree, the result is the current folder if this folder contains ``root``. Otherwise, the result is ``root`` itself.
    """
    top = work_tree_top(root)
    if top is not None:
        return top
    here = Path.cwd()
    return here if root.is_relative_to(here) else root


@dataclass(frozen=True)
class FileWithFindings:
    """All lines of a file in which rules found something. In a notebook, the lines belong to code cells.

    Attributes:
        cells: dictionary, number of a notebook cell → the lines of the notebook's JSON file that contain the code of
            this cell. The dictionary is empty for a Python file.
        lines: dictionary, number of a notebook cell → lines of code in this cell. For a Python file, the only key is
            None.
    """

    cells: Mapping[int, FileRegion]
    lines: Mapping[int | None, Sequence[str]]

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> FileWithFindings:
        """Split the file ``path``, whose bytes are ``data``, into lines and notebook cells.

        Raises:
            UnreadableSource: the bytes are not text, or a file with the suffix ``.ipynb`` is not a notebook.
        """
        if not path.endswith(".ipynb"):
            return cls({}, {None: SOURCE_LINE.findall(SourceFile.from_bytes(data).text)})
        raw = decode_text(data)
        found = code_cells(raw)
        regions = {one.number: FileRegion(_line_at(raw, one.start), last_line=_line_at(raw, one.end)) for one in found}
        return cls(regions, {one.number: SOURCE_LINE.findall(one.text) for one in found})


def _line_at(text: str, offset: int) -> int:
    return len(NEWLINE.findall(text, 0, offset)) + 1


class FindingPlaces:
    """Finds the place of each finding of a plan in its file.

    The plan contains the bytes of the files that it rewrites. The object reads all other files when their lines are
    needed.

    Args:
        plan: the plan with the findings.
    """

    def __init__(self, plan: Plan) -> None:
        self._root = plan.root
        self._data = {file.path: file.before for file in plan.files if file.before is not None}
        self._files: dict[str, FileWithFindings] = {}
        self._prefix = PurePosixPath(plan.root.relative_to(base_of_report_paths(plan.root)).as_posix())

    def name(self, path: str) -> str:
        """Convert a path of the plan to a posix path relative to the folder from :func:`base_of_report_paths`."""
        return str(self._prefix / path)

    def file(self, path: str) -> FileWithFindings:
        """Return the lines of the file at a path of the plan.

        Raises:
            UsageProblem: after the plan was made, the file was removed or became unreadable.
        """
        if path not in self._files:
            try:
                data = self._data.get(path)
                data = (self._root / path).read_bytes() if data is None else data
                self._files[path] = FileWithFindings.from_bytes(path, data)
            except (OSError, UnreadableSource) as error:
                raise _change_error(path) from error
        return self._files[path]

    def region(self, finding: Finding) -> FileRegion:
        """Return the place of a finding. In a notebook, the place is the range of JSON lines with the cell's code.

        Raises:
            UsageProblem: the file changed after the plan was made.
        """
        file = self.file(finding.path)
        if finding.cell is None:
            return FileRegion(finding.line, finding.column)
        if finding.cell not in file.cells:
            raise _change_error(finding.path)
        return file.cells[finding.cell]

    def line(self, finding: Finding) -> str:
        """Return the line of code with the finding, without white space at both ends.

        Raises:
            UsageProblem: the file changed after the plan was made.
        """
        try:
            return self.file(finding.path).lines[finding.cell][finding.line - 1].strip()
        except LookupError as error:
            raise _change_error(finding.path) from error


def _change_error(path: str) -> UsageProblem:
    return UsageProblem(f"{path} changed while chirp-migrate checked the project: run the check again.")
