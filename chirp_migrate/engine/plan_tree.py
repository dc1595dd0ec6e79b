"""Plan the rewrites of a tree of files: read the files, run the rules on each file, and collect edits and findings.

The module reads files and returns a :class:`~chirp_migrate.plans.plan.Plan`. The module writes no files, and neither
imports nor runs the user's code.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from msgspec import structs

from chirp_migrate.console.progress import Progress, ProgressStep, ignore_progress
from chirp_migrate.engine.project_files import ProjectFiles, Source, contains_rule_word, read_project_files
from chirp_migrate.engine.rewrite_file import FileResult, applicable_rules
from chirp_migrate.engine.settings import Settings
from chirp_migrate.engine.settings_loaders import find_loaders_in_config_file
from chirp_migrate.engine.worker_pool import collect_garbage_rarely, migrate_files
from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, Plan, PlanOptions, SkippedFile
from chirp_migrate.rules import Rule
from chirp_migrate.source.text import SourceFile, UnreadableSource
from chirp_migrate.syntax.project import Project

#: Time limit in seconds for one file. If the rules need more time for a file, the terminal shows the name of the file.
_LONG_S = 5.0


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
    files = read_project_files(root, settings, overlay or {}, progress)
    project = files.to_project(settings)
    planned = [path for path in files.readable if overlay is None or path in overlay]
    concerned = _concerned_files(planned, files, project, settings.rules)
    skipped = _undecodable_files(files, project, settings.rules)
    rewritten: list[FilePlan] = []
    findings: list[Finding] = []
    notes: list[str] = []
    for result in _run_rules(concerned, project, settings, jobs, progress, is_check=overlay is not None):
        source, problem = files.sources[result.path], result.problem
        notes += [*result.notes, *_unchecked_cells(result.path, source, settings.rules)]
        if problem is None and result.text != source.text:
            try:
                rewritten.append(_file_plan(result, source))
            except UnreadableSource as error:
                problem = str(error)
        if problem is None:
            findings += _locate_findings(result.findings, source)
        else:
            skipped.append(SkippedFile(result.path, problem))
    left_out = [*files.found.left_out, *files.left_out_notebooks]
    if overlay is None:
        for path, text in files.settings.items():
            findings += find_loaders_in_config_file(path, text, settings.rules)
        left_out = _omit_tests_without_loaders(left_out, files, project, settings, jobs, progress)
    if any(hunk.imports for file in rewritten for hunk in file.hunks) and project.import_style.problem:
        notes.append(f"{project.import_style.problem}: the rewrite sorts imports by isort's defaults.")
    return Plan(
        files.found.root,
        tuple(_hunks_joined_across_files(rewritten)),
        tuple(findings),
        tuple(sorted(skipped, key=lambda one: one.path)),
        tuple(notes),
        tuple(sorted(left_out, key=lambda one: one.path)),
        _plan_options(settings),
    )


def _plan_options(settings: Settings) -> PlanOptions:
    return PlanOptions(
        rules=None if settings.codes is None else tuple(sorted(settings.codes)),
        unsafe=settings.unsafe,
        notebooks=settings.notebooks,
        vendor=settings.vendor,
        tests=settings.tests,
        exclude=settings.excluded,
        all_loaders=settings.all_loaders,
    )


def _concerned_files(paths: Sequence[str], files: ProjectFiles, project: Project, rules: Sequence[Rule]) -> list[str]:
    """Return the files in which a rule may find something. ``rewrite_in_hunks`` selects the rules for each file.

    Most files contain no trigger word of any rule.
    """
    named = set(project.paths_containing(*set().union(*(rule.names(project) for rule in rules))))
    return [path for path in paths if path in named or contains_rule_word(files.sources[path].text, rules)]


def _undecodable_files(files: ProjectFiles, project: Project, rules: Sequence[Rule]) -> list[SkippedFile]:
    """Return the files that cannot be read, or that cannot be decoded and contain a trigger word of a rule."""
    return [
        SkippedFile(path, error.strerror or str(error) if isinstance(error, OSError) else str(error))
        for path, error in files.unread.items()
        if path not in files.found.context
        and (isinstance(error, OSError) or applicable_rules(rules, path, files.raw_text(path), project))
    ]


def _run_rules(
    paths: Sequence[str], project: Project, settings: Settings, jobs: int | None, progress: Progress, *, is_check: bool
) -> list[FileResult]:
    """Run the rules on the files at ``paths``, and return the results in the order of ``paths``.

    Args:
        paths: the files.
        project: the user's project.
        settings: the rules to run.
        jobs: number of processes; None chooses the number by the amount of code.
        progress: function that shows to the user which file is planned.
        is_check: whether the project contains the texts of a finished plan, in which nothing should be left to rewrite.
    """
    doing, began = "checking" if is_check else "planning", time.monotonic()
    sizes = {path: len(project.text(path)) for path in paths}
    results: dict[str, FileResult] = {}
    read_size, size = 0, sum(sizes.values())
    progress(ProgressStep(doing, 0, len(paths)))
    for result in migrate_files(paths, project, settings, jobs):
        results[result.path] = result
        read_size += sizes[result.path]
        if not is_check and result.seconds > _LONG_S:
            progress(
                f"planning {result.path} took {result.seconds:.0f} s. To skip the file: --exclude {quote(result.path)}"
            )
        left_s = (time.monotonic() - began) * (size / read_size - 1)
        progress(ProgressStep(f"{doing} {result.path}", len(results), len(paths), left_s))
    return [results[path] for path in paths]


def _file_plan(result: FileResult, source: Source) -> FilePlan:
    """Return the plan of a rewritten file.

    Raises:
        UnreadableSource: the encoding of the file has no bytes for the new text.
    """
    after = source.encode(result.text)
    return FilePlan(result.path, source.data, after, "rewrite", result.hunks, result.public)


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


def _omit_tests_without_loaders(
    left_out: Sequence[SkippedFile],
    files: ProjectFiles,
    project: Project,
    settings: Settings,
    jobs: int | None,
    progress: Progress,
) -> list[SkippedFile]:
    """Return the excluded files, except test files without loaders.

    For a test file with loaders, ``loaders`` of its entry is the number of these loaders.
    """
    tests = [path for path in files.found.context if path.endswith(".py") and settings.leaves_as_test(path)]
    if not tests:
        return list(left_out)
    progress(ProgressStep("counting loaders in tests"))
    settings = replace(settings, codes=frozenset(rule.code for rule in settings.rules if rule.counts_sites))
    read = [path for path in tests if path in files.sources]
    worded = [path for path in read if any(rule.concerns(project.text(path), project) for rule in settings.rules)]
    loaders = {
        result.path: sum(one.status in (FindingStatus.REWRITE, FindingStatus.REPORT) for one in result.findings)
        for result in migrate_files(worded, project, settings, jobs)
    }
    counted = (structs.replace(one, loaders=loaders.get(one.path, 0)) for one in left_out)
    return [one for one in counted if one.loaders or one.path not in tests]


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
    cells = sorted({cell for cell, _, text in source.masked if contains_rule_word(text, counting)})
    return [
        f"{path}: cell {cell} is not valid Python and is not checked: {reasons[cell]}."
        if cell in reasons
        else f"{path}: magics and shell commands in cell {cell} are not checked."
        for cell in cells
    ]
