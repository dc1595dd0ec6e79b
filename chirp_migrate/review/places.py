"""Places of findings for programs that show a repository: paths from its top, and lines of the files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import Finding, Plan
from chirp_migrate.source.notebook_json import code_cells
from chirp_migrate.source.text import NEWLINE, SOURCE_LINE, SourceFile, UnreadableSource, decoded

__all__ = ["CheckedFile", "Places", "Region", "top_of"]

_WINDOWS_CODEPAGE = re.compile(r"cp(125\d)")
#: Python's names of encodings that are also IANA names.
_SHARED_NAME = re.compile(r"utf-8|iso8859-\d+")


@dataclass(frozen=True)
class Region:
    """A place in a file: 1-based lines, and the 1-based column (code points) if it is known."""

    line: int
    column: int | None = None
    last_line: int | None = None


def top_of(root: Path) -> Path:
    """Return the folder that paths are relative to.

    It is the top of the git work tree around ``root`` (absolute). Outside of one, it is the current folder if ``root``
    is in it, else ``root``.
    """
    for folder in (root, *root.parents):
        if (folder / ".git").exists():
            return folder
    here = Path.cwd()
    return here if root.is_relative_to(here) else root


@dataclass(frozen=True)
class CheckedFile:
    """A file with findings.

    Attributes:
        data: the bytes of the file.
        encoding: IANA's name of its encoding; ``None`` if only Python has a name for it.
        cells: for a notebook, the lines of its JSON with the code of each cell, by the cell's number.
        lines: the lines of code; for a notebook, those of each cell by its number.
    """

    data: bytes
    encoding: str | None
    cells: Mapping[int, Region]
    lines: Mapping[int | None, Sequence[str]]

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> CheckedFile:
        """Read the file called ``path``.

        Raises:
            UnreadableSource: the bytes are no text, or no notebook.
        """
        if not path.endswith(".ipynb"):
            source = SourceFile.from_bytes(data)
            return cls(data, _registered_name(source.encoding), {}, {None: SOURCE_LINE.findall(source.text)})
        raw = decoded(data)
        found = code_cells(raw)
        regions = {one.number: Region(_line_at(raw, one.start), last_line=_line_at(raw, one.end)) for one in found}
        return cls(data, "utf-8", regions, {one.number: SOURCE_LINE.findall(one.text) for one in found})


def _registered_name(encoding: str) -> str | None:
    name = codecs.lookup(encoding).name
    if name == "ascii":
        return "us-ascii"
    if codepage := _WINDOWS_CODEPAGE.fullmatch(name):
        return f"windows-{codepage[1]}"
    return name.replace("iso8859", "iso-8859") if _SHARED_NAME.fullmatch(name) else None


def _line_at(text: str, offset: int) -> int:
    return len(NEWLINE.findall(text, 0, offset)) + 1


class Places:
    """The files of a plan with findings; files that are not rewritten are read on first use.

    Args:
        plan: the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._root = plan.root
        self._data = {file.path: file.before for file in plan.files if file.before is not None}
        self._files: dict[str, CheckedFile] = {}
        self._prefix = PurePosixPath(plan.root.relative_to(top_of(plan.root)).as_posix())

    def name(self, path: str) -> str:
        """Return a path of the plan, as a posix path from the top of the repository (see :func:`top_of`)."""
        return str(self._prefix / path)

    def file(self, path: str) -> CheckedFile:
        """Return the file at a path of the plan.

        Raises:
            UsageProblem: the file was removed since it was planned, or can no longer be read.
        """
        if path not in self._files:
            try:
                data = self._data.get(path)
                data = (self._root / path).read_bytes() if data is None else data
                self._files[path] = CheckedFile.from_bytes(path, data)
            except (OSError, UnreadableSource) as error:
                raise _change_error(path) from error
        return self._files[path]

    def region(self, finding: Finding) -> Region:
        """Return the place of a finding in the file; in a notebook, the lines of its JSON with the cell's code.

        Raises:
            UsageProblem: the file changed since it was planned.
        """
        file = self.file(finding.path)
        if finding.cell is None:
            return Region(finding.line, finding.column)
        if finding.cell not in file.cells:
            raise _change_error(finding.path)
        return file.cells[finding.cell]

    def line(self, finding: Finding) -> str:
        """Return the line of code that a finding is about, without the space around it.

        Raises:
            UsageProblem: the file changed since it was planned.
        """
        try:
            return self.file(finding.path).lines[finding.cell][finding.line - 1].strip()
        except LookupError as error:
            raise _change_error(finding.path) from error


def _change_error(path: str) -> UsageProblem:
    return UsageProblem(f"{path} was changed while it was checked: run the check again.")
