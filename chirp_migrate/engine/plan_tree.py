"""Plan the rewrites of a tree of files: read the files, run the rules on each file, and collect edits and findings.

The module reads files and returns a :class:`~chirp_migrate.plans.plan.Plan`. The module writes no files, and neither
imports nor runs the user's code.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from shlex import quote

from msgspec import structs

from chirp_migrate.console.progress import Progress, ProgressStep, ignore_progress
from chirp_migrate.console.text import pluralize
from chirp_migrate.engine.discover import discover_files
from chirp_migrate.engine.rewrite_file import FileResult, applicable_rules
from chirp_migrate.engine.settings import Settings
from chirp_migrate.engine.settings_loaders import find_loaders_in_config_file
from chirp_migrate.engine.worker_pool import collect_garbage_rarely, migrate_files
from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, Plan, PlanOptions, SkippedFile
from chirp_migrate.rules import Rule
from chirp_migrate.source.notebook import NotebookSource, has_stored_outputs, remove_stored_outputs
from chirp_migrate.source.text import SourceFile, UnreadableSource
from chirp_migrate.syntax.code_style import CodeStyle
from chirp_migrate.syntax.import_sorting import ImportStyle
from chirp_migrate.syntax.project import Project

Source = SourceFile | NotebookSource
#: Time limit in seconds for one file. If the rules need more time for a file, the terminal shows the name of the file.
_LONG_S = 5.0
_STORED = "the stored outputs would no longer match the code; --notebooks includes such notebooks"
#: Text of a notebook that mentions a data loader, or PyTorch's module of datasets and loaders.
_LOADS_DATA = re.compile(r"(?i:data_?loader)|\btorch\.utils\s*(?:\.\s*data|import\s+data)\b")


@collect_garbage_rarely()
def plan_tree(
    root: Path,
    *,
    settings: Settings | None = None,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
    overlay: Mapping[str, bytes] | None = None,
) -> Plan:
    """Plan the migration of every Python file and notebook under ``root``.

    Each rule has trigger words, such as ``DataLoader``. The function does not parse files without any trigger word,
    and reports no syntax errors in such files.

    Args:
        root: folder of the project, or one Python file or notebook.
        settings: files to check and rules to run; None for all files and rules. If the settings copy the runtime into
            ``root`` (``vendor``), the rewrite sorts imports of the runtime like imports of the project's own modules.
        jobs: number of processes; ``None`` chooses the number by the amount of code.
        progress: function that shows to the user which file is planned.
        overlay: new contents of files, by posix path relative to the root. A plan with ``overlay`` covers only these
            files. ``None`` plans all files, with the bytes on disk.

    Raises:
        chirp_migrate.errors.ChirpMigrateError: the path ``root`` does not exist, or contains no Python file and no
            notebook.
    """
    settings = settings or Settings()
    rules = settings.rules
    found = discover_files(root, notebooks=settings.notebooks is not False, reason_to_exclude=settings.why_left_out)
    left_tests = [path for path in found.context if path.endswith(".py") and settings.leaves_as_test(path)]
    read = _FileReader(found.root, overlay or {})
    progress(ProgressStep(f"reading {pluralize(len(found.files) + len(found.notebooks) + len(found.context), 'file')}"))
    sources, unread = _read_all(read, (one for one in (*found.files, *found.context) if one.endswith(".py")))
    raw = {one: read.raw_text(one) for one in (*found.notebooks, *found.context) if one.endswith(".ipynb")}
    worded = [one for one in found.notebooks if _contains_rule_word(raw[one], rules)]
    stored = {one for one in worded if settings.notebooks is None and root.is_dir() and has_stored_outputs(raw[one])}
    books, unread_books = _read_all(read, (one for one in worded if one not in stored))
    sources |= books
    texts = {path: source.text for path, source in sources.items()}
    held_settings = {path: read.raw_text(path) for path in found.settings}
    project = Project(
        texts,
        {path: remove_stored_outputs(text) for path, text in raw.items()},
        _package_name(found.root),
        ImportStyle(found.root, settings.vendor),
        CodeStyle(found.root),
        held_settings,
    )
    planned = (path for path in (*found.files, *found.notebooks) if overlay is None or path in overlay)
    looked_at = [path for path in planned if path in sources]
    # Most files contain no trigger word of any rule. For each remaining file, `rewrite_in_hunks` selects the rules.
    words = {word for rule in rules for word in rule.trigger}
    named = set(project.paths_containing(*set().union(*(rule.names(project) for rule in rules))))
    concerned = [path for path in looked_at if path in named or any(word in texts[path] for word in words)]
    # Report a file that cannot be decoded only if the file contains a trigger word of a rule.
    skipped = [
        SkippedFile(path, _reason_of_error(error))
        for path, error in (unread | unread_books).items()
        if path not in found.context
        and (isinstance(error, OSError) or applicable_rules(rules, path, read.raw_text(path), project))
    ]

    files: list[FilePlan] = []
    findings: list[Finding] = []
    notes: list[str] = []
    doing, began = "planning" if overlay is None else "checking", time.monotonic()
    progress(ProgressStep(doing, 0, len(concerned)))
    results: dict[str, FileResult] = {}
    read_size, size = 0, sum(len(texts[path]) for path in concerned)
    for result in migrate_files(concerned, project, settings, jobs):
        results[result.path] = result
        read_size += len(texts[result.path])
        if overlay is None and result.seconds > _LONG_S:
            progress(
                f"planning {result.path} took {result.seconds:.0f} s. To skip the file: --exclude {quote(result.path)}"
            )
        left_s = (time.monotonic() - began) * (size / read_size - 1)
        progress(ProgressStep(f"{doing} {result.path}", len(results), len(concerned), left_s))
    for result in (results[path] for path in concerned):
        source, problem = sources[result.path], result.problem
        if problem is None and result.text != source.text:
            try:
                after = source.encode(result.text)
                files.append(FilePlan(result.path, source.data, after, "rewrite", result.hunks, result.public))
            except UnreadableSource as error:
                problem = str(error)
        notes += [*result.notes, *_unchecked_cells(result.path, source, rules)]
        if problem is None:
            findings += _locate_findings(result.findings, source)
        else:
            skipped.append(SkippedFile(result.path, problem))
    files = _hunks_joined_across_files(files)
    if overlay is None:
        findings += (
            one for path, text in held_settings.items() for one in find_loaders_in_config_file(path, text, rules)
        )
    if any(hunk.imports for file in files for hunk in file.hunks) and project.import_style.problem:
        notes.append(f"{project.import_style.problem}: the rewrite sorts imports by isort's defaults.")
    skipped.sort(key=lambda one: one.path)
    left_out = tuple(
        sorted(
            (*found.left_out, *(SkippedFile(one, _STORED) for one in stored if _LOADS_DATA.search(raw[one]))),
            key=lambda one: one.path,
        )
    )
    if left_tests and overlay is None:
        progress(ProgressStep("counting loaders in tests"))
        left_out = _omit_tests_without_loaders(left_out, left_tests, texts, project, settings, jobs)
    options = PlanOptions(
        rules=None if settings.codes is None else tuple(sorted(settings.codes)),
        unsafe=settings.unsafe,
        notebooks=settings.notebooks,
        vendor=settings.vendor,
        tests=settings.tests,
        exclude=settings.excluded,
        all_loaders=settings.all_loaders,
    )
    return Plan(found.root, tuple(files), tuple(findings), tuple(skipped), tuple(notes), left_out, options)


def _hunks_joined_across_files(files: Sequence[FilePlan]) -> list[FilePlan]:
    """Keep in the attribute ``together`` of each hunk only calls that hunks of several files list.

    The attribute joins hunks of different files. Within one file, rewrites that belong together are already in the same
    hunk.
    """
    named = Counter(one for file in files for one in frozenset[str]().union(*(hunk.together for hunk in file.hunks)))
    shared = frozenset(one for one, number in named.items() if number > 1)
    return [
        replace(file, hunks=tuple(replace(hunk, together=hunk.together & shared) for hunk in file.hunks))
        for file in files
    ]


def _package_name(folder: Path) -> str:
    """Return the dotted import name of the package in a folder; "" if the folder is not a package."""
    around = takewhile(lambda one: (one / "__init__.py").exists(), (folder, *folder.parents))
    return ".".join(reversed([one.name for one in around]))


def decode_source(path: str, data: bytes) -> Source:
    """Decode the bytes of a Python file or notebook.

    Raises:
        UnreadableSource: the bytes are not text, encoding the decoded text yields other bytes than the file has, or the
            file is a notebook of another language than Python.
    """
    return NotebookSource.from_bytes(data) if path.endswith(".ipynb") else SourceFile.from_bytes(data)


def _omit_tests_without_loaders(
    left_out: Sequence[SkippedFile],
    tests: Sequence[str],
    texts: Mapping[str, str],
    project: Project,
    settings: Settings,
    jobs: int | None,
) -> tuple[SkippedFile, ...]:
    """Return the excluded files, except test files without loaders.

    For a test file with loaders, ``loaders`` of its entry is the number of these loaders.
    """
    settings = replace(settings, codes=frozenset(rule.code for rule in settings.rules if rule.counts_sites))
    worded = [path for path in tests if any(rule.concerns(texts.get(path, ""), project) for rule in settings.rules)]
    loaders = {
        result.path: sum(one.status in (FindingStatus.REWRITE, FindingStatus.REPORT) for one in result.findings)
        for result in migrate_files(worded, project, settings, jobs)
    }
    counted = (structs.replace(one, loaders=loaders.get(one.path, 0)) for one in left_out)
    return tuple(one for one in counted if one.loaders or one.path not in tests)


class _FileReader:
    """Reads the files of a tree. For a file in ``overlay``, the bytes in ``overlay`` replace the bytes on disk."""

    def __init__(self, root: Path, overlay: Mapping[str, bytes]) -> None:
        self._root, self._overlay = root, overlay

    def source(self, path: str) -> Source:
        data = self._overlay.get(path)
        return decode_source(path, (self._root / path).read_bytes() if data is None else data)

    def raw_text(self, path: str) -> str:
        """Return the text of a file for a search for words; "" if the file cannot be read.

        The text has a replacement character for each part that is not UTF-8.
        """
        try:
            data = self._overlay.get(path)
            return ((self._root / path).read_bytes() if data is None else data).decode("utf-8", errors="replace")
        except OSError:
            return ""


def _read_all(
    read: _FileReader, paths: Iterable[str]
) -> tuple[dict[str, Source], dict[str, UnreadableSource | OSError]]:
    """Return the decoded files, and the error for each file that cannot be read."""
    sources: dict[str, Source] = {}
    unread: dict[str, UnreadableSource | OSError] = {}
    for path in paths:
        try:
            sources[path] = read.source(path)
        except (UnreadableSource, OSError) as error:
            unread[path] = error
    return sources, unread


def _contains_rule_word(text: str, rules: Sequence[Rule]) -> bool:
    """Return whether a text contains a trigger word of any rule. Only such texts are parsed."""
    return any(word in text for rule in rules for word in rule.trigger)


def _locate_findings(findings: Iterable[Finding], source: Source) -> list[Finding]:
    """Return the findings with the places that users see: in a notebook, the cell and the line in the cell."""
    if isinstance(source, SourceFile):
        return list(findings)
    places = [(finding, source.locate(finding.line)) for finding in findings]
    return [replace(finding, cell=cell, line=line) for finding, (cell, line) in places]


def _unchecked_cells(path: str, source: Source, rules: Sequence[Rule]) -> list[str]:
    """Return a note for each notebook cell that may build a loader, but cannot be checked."""
    if isinstance(source, SourceFile):
        return []
    reasons = dict(source.unreadable)
    counting = [rule for rule in rules if rule.counts_sites]
    cells = sorted({cell for cell, _, text in source.masked if _contains_rule_word(text, counting)})
    return [
        f"{path}: cell {cell} is not valid Python and is not checked: {reasons[cell]}."
        if cell in reasons
        else f"{path}: magics and shell commands in cell {cell} are not checked."
        for cell in cells
    ]


def _reason_of_error(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
