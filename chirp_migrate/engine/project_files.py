"""Read the files of a project before planning: Python files, notebooks and configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.console.text import pluralize
from chirp_migrate.engine.discover import DiscoveredFiles, discover_files
from chirp_migrate.engine.settings import Settings
from chirp_migrate.plans.plan import SkippedFile
from chirp_migrate.rules import Rule
from chirp_migrate.source.notebook import NotebookSource, has_stored_outputs, remove_stored_outputs
from chirp_migrate.source.text import SourceFile, UnreadableSource
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.project import Project

Source = SourceFile | NotebookSource

_STORED = "the stored outputs would no longer match the code; --notebooks includes such notebooks"
#: Text of a notebook that mentions a data loader, or PyTorch's module of datasets and loaders.
_LOADS_DATA = re.compile(r"(?i:data_?loader)|\btorch\.utils\s*(?:\.\s*data|import\s+data)\b")


class _FileReader:
    """Reads the files of a tree. For a file in ``overlay``, the bytes in ``overlay`` replace the bytes on disk."""

    def __init__(self, root: Path, overlay: Mapping[str, bytes]) -> None:
        self._root, self._overlay = root, overlay

    def _data(self, path: str) -> bytes:
        data = self._overlay.get(path)
        return (self._root / path).read_bytes() if data is None else data

    def source(self, path: str) -> Source:
        return decode_source(path, self._data(path))

    def raw_text(self, path: str) -> str:
        """Return the text of a file for a search for words; "" if the file cannot be read.

        The text has a replacement character for each part that is not UTF-8.
        """
        try:
            return self._data(path).decode("utf-8", errors="replace")
        except OSError:
            return ""

    def sources(self, paths: Iterable[str]) -> tuple[dict[str, Source], dict[str, UnreadableSource | OSError]]:
        """Return the decoded files, and the error for each file that cannot be read or decoded."""
        sources: dict[str, Source] = {}
        unread: dict[str, UnreadableSource | OSError] = {}
        for path in paths:
            try:
                sources[path] = self.source(path)
            except (UnreadableSource, OSError) as error:
                unread[path] = error
        return sources, unread


@dataclass(frozen=True)
class ProjectFiles:
    """The files of a project, as read. All paths are posix paths relative to the root of the project.

    Attributes:
        found: the paths of the files, and the excluded files.
        sources: the decoded Python files, and the decoded notebooks to check, by path.
        unread: the error for each of these files that cannot be read or decoded, by path.
        notebooks: the JSON texts of all notebooks, by path.
        settings: the texts of configuration files, by path.
        left_out_notebooks: the notebooks that load data, and are excluded because they have stored outputs.
    """

    found: DiscoveredFiles
    sources: Mapping[str, Source]
    unread: Mapping[str, UnreadableSource | OSError]
    notebooks: Mapping[str, str]
    settings: Mapping[str, str]
    left_out_notebooks: Sequence[SkippedFile]
    _reader: _FileReader

    @property
    def readable(self) -> list[str]:
        """Return the paths of the files to check that were read and decoded: Python files, then notebooks."""
        return [path for path in (*self.found.files, *self.found.notebooks) if path in self.sources]

    def raw_text(self, path: str) -> str:
        """Return the text of a file for a search for words; "" if the file cannot be read."""
        return self._reader.raw_text(path)

    def to_project(self, settings: Settings) -> Project:
        """Return the project that rules read."""
        return Project(
            {path: source.text for path, source in self.sources.items()},
            {path: remove_stored_outputs(text) for path, text in self.notebooks.items()},
            _package_name(self.found.root),
            ImportStyle(self.found.root, settings.vendor),
            CodeStyle(self.found.root),
            self.settings,
        )


def read_project_files(
    root: Path, settings: Settings, overlay: Mapping[str, bytes], progress: Progress
) -> ProjectFiles:
    """Find and read the files of a project.

    The function decodes a notebook only if the notebook contains a trigger word of a rule. By default, the function
    does not decode notebooks with stored outputs, unless ``root`` is such a notebook.

    Args:
        root: folder of the project, or one Python file or notebook.
        settings: files to check and rules to run.
        overlay: new contents of files, by posix path relative to the root.
        progress: function that shows to the user how many files are read.

    Raises:
        chirp_migrate.errors.ChirpMigrateError: the path ``root`` does not exist, or contains no Python file and no
            notebook.
    """
    found = discover_files(root, notebooks=settings.notebooks is not False, reason_to_exclude=settings.why_left_out)
    every = (*found.files, *found.notebooks, *found.context)
    progress(ProgressStep(f"reading {pluralize(len(every), 'file')}"))
    reader = _FileReader(found.root, overlay)
    sources, unread = reader.sources(one for one in (*found.files, *found.context) if one.endswith(".py"))
    raw = {one: reader.raw_text(one) for one in every if one.endswith(".ipynb")}
    worded = [one for one in found.notebooks if contains_rule_word(raw[one], settings.rules)]
    stored = {one for one in worded if settings.notebooks is None and root.is_dir() and has_stored_outputs(raw[one])}
    books, unread_books = reader.sources(one for one in worded if one not in stored)
    return ProjectFiles(
        found,
        sources | books,
        unread | unread_books,
        raw,
        {path: reader.raw_text(path) for path in found.settings},
        [SkippedFile(one, _STORED) for one in stored if _LOADS_DATA.search(raw[one])],
        reader,
    )


def decode_source(path: str, data: bytes) -> Source:
    """Decode the bytes of a Python file or notebook.

    Raises:
        UnreadableSource: the bytes are not text, encoding the decoded text yields other bytes than the file has, or the
            file is a notebook of another language than Python.
    """
    return NotebookSource.from_bytes(data) if path.endswith(".ipynb") else SourceFile.from_bytes(data)


def contains_rule_word(text: str, rules: Sequence[Rule]) -> bool:
    """Return whether a text contains a trigger word of any rule. Only such texts are parsed."""
    return any(word in text for word in {word for rule in rules for word in rule.trigger})


def _package_name(folder: Path) -> str:
    """Return the dotted import name of the package in a folder; "" if the folder is not a package."""
    around = takewhile(lambda one: (one / "__init__.py").exists(), (folder, *folder.parents))
    return ".".join(reversed([one.name for one in around]))
