"""``chirp-migrate check PATH``: report code that ``apply`` would rewrite, for CI and commit hooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from chirp_migrate.cli.options import CommandWithOptionGroups, option, output_options
from chirp_migrate.cli.planning import PlanRequest, looking_options
from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.console.output import STANDARD_OUTPUT, Output, write_bytes
from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import escape_invisible, pluralize, to_one_line
from chirp_migrate.engine.add_ignore import plan_ignore_comments
from chirp_migrate.engine.checking import CheckReport
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.plans.plan import Finding, FindingStatus
from chirp_migrate.report.formats.github import workflow_commands
from chirp_migrate.report.formats.sarif import sarif_of_check
from chirp_migrate.report.terminal import applied
from chirp_migrate.review.plan_file import plan_document, run_document
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.journal import APPLIED_PLAN, has_unfinished_run

#: Text after a finding in the output, by status of the finding. Findings that ``apply`` would rewrite have no text.
_STATUS_TEXTS = {
    FindingStatus.OPT_IN: "suggestion, --unsafe applies it",
    FindingStatus.REPORT: "listed only",
    FindingStatus.SUPPRESSED: "suppressed",
    FindingStatus.REFUSED: "refused",
    FindingStatus.UNCHANGED: "unchanged",
}


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "clean",
            ExitCode.WORK_REMAINS: "work remains: something to rewrite, or a file that could not be handled",
            ExitCode.USAGE: "PATH cannot be checked, or an option or setting is wrong",
            ExitCode.REFUSED: "the journal at PATH is damaged, or --add-ignore could not add comments",
        },
        "chirp-migrate check project/",
        "chirp-migrate check --add-ignore project/",
        "chirp-migrate check --strict --format github .",
        "chirp-migrate check --format sarif . > chirp-migrate.sarif",
    ),
)
@looking_options
@option(
    "--format", "output_format", type=click.Choice(["text", "json", "sarif", "github"]),
    default="text", show_default=True,
    help="Print a line for each finding, the JSON of `apply --json`, SARIF 2.1.0 with fixes, or GitHub annotations.",
)  # fmt: skip
@option(
    "--add-ignore", is_flag=True,
    help="First write `# chirp: ignore[CODE]` above every finding, so that later checks count only new findings.",
)  # fmt: skip
@option("--strict", is_flag=True, help="Also exit with 1 for remarks, advice and suggestions.")
@output_options("the findings (with any --format)")
def check(request: PlanRequest, output_format: str, add_ignore: bool, strict: bool, output: Output) -> None:
    """Exit with 1 if `apply` would change anything at PATH.

    The command never runs the project's code. It changes no file of PATH, except with --add-ignore, which writes
    comments. `rollback` removes these comments.

    The exit code is 1 if at least one finding counts. A finding counts if `apply` with the same options and settings
    would rewrite its code. A file that could not be handled, for example because of a syntax error, also counts.
    Remarks, advice and suggestions, which `apply` reports but does not rewrite, count only with --strict. A finding
    never counts if a comment `# chirp: ignore[CODE]` or a setting suppresses the finding.
    """
    is_text = output_format == "text"
    if output.json_is_printed and not is_text:
        raise UsageProblem("`--json -` and --format both print to standard output: use `--json FILE`.")
    project = request.journal
    if has_unfinished_run(project):  # a check of files that are only partly rewritten has no meaning
        raise UsageProblem(
            "a run of apply or rollback was interrupted here, or is still running: wait for the end of the run. If it "
            f"was interrupted, undo or complete it with `chirp-migrate rollback {request.quoted_path}`."
        )
    found = _run_check(request, output, strict=strict)
    if add_ignore and found.work:
        click.echo(_add_ignores(found, project, output), err=True)
        found = _run_check(request, output, strict=strict)
    result = run_document(found.plan.seen_from(project), strict=strict, exit_code=int(found.exit_code))
    output.write(result)
    if output.json_is_printed:  # standard output is only for the JSON document
        for line in _lines_of_findings(found, request.folder, output.screen()):
            click.echo(line, err=True)
        lines = []
    elif is_text:
        lines = list(_lines_of_findings(found, request.folder, output.screen(err=False)))
    elif output_format == "github":
        lines = list(workflow_commands(found, verbose=output.verbose))
    else:
        lines = to_json_bytes(result if output_format == "json" else sarif_of_check(found)).decode("ascii").splitlines()
    write_bytes(STANDARD_OUTPUT, "".join(f"{line}\n" for line in lines).encode("utf-8", errors="backslashreplace"))
    if not output.quiet:
        # Another program may read the document from standard output, so print the summary to standard error.
        click.echo(_summary(found, request.quoted_path), err=not is_text or output.json_is_printed)
    sys.exit(found.exit_code)


def _run_check(request: PlanRequest, output: Output, *, strict: bool) -> CheckReport:
    settings = request.settings
    with output.progress("checking") as progress:
        plan = plan_tree(request.path, settings=settings, jobs=request.jobs, progress=progress)
    return CheckReport(plan, settings, strict)


def _add_ignores(found: CheckReport, project: Path, output: Output) -> str:
    """Write comments that suppress every finding that counts, and return a sentence with their number.

    The journal of ``project`` records the comments like a run of ``apply``, so that ``rollback`` can remove the
    comments.
    """
    recorded = plan_ignore_comments(found.plan, found.work).seen_from(project)
    with output.progress("writing comments") as step:
        result = commit_plan(recorded, on_step=step, documents={APPLIED_PLAN: to_json_bytes(plan_document(recorded))})
    written = {project / file.path for file in result.applied}
    findings = sum(found.plan.root / finding.path in written for finding in found.work)
    return f"Suppressed with comments: {pluralize(findings, 'finding')} in {pluralize(len(written), 'file')}."


def _lines_of_findings(found: CheckReport, base: Path, screen: Screen) -> Iterator[str]:
    """Yield a line for each finding to show, and for each file that could not be processed."""
    shown = {
        *found.work,
        *found.fork_only,
        *((*found.remarks, *found.suppressed, *found.unchanged) if screen.verbose else ()),
    }
    for finding in found.plan.findings:
        if finding in shown:
            yield _line_of_finding(finding, base, screen)
    for skipped in found.plan.skipped:
        name, reason = (
            screen.styled(escape_invisible(str(base / skipped.path)), "bold"),
            escape_invisible(skipped.reason),
        )
        yield f"{name}: {screen.styled('not handled', 'red')}: {reason}"
    if not screen.quiet:
        yield from (escape_invisible(note) for note in found.plan.notes)


def _line_of_finding(finding: Finding, base: Path, screen: Screen) -> str:
    place = f"{finding.line}:{finding.column}" if finding.cell is None else finding.place
    mark = f" [{_STATUS_TEXTS[finding.status]}]" if finding.status in _STATUS_TEXTS else ""
    name = screen.styled(escape_invisible(str(base / finding.path)), "bold")
    return f"{name}:{place}: {screen.styled(finding.rule, 'cyan')} {to_one_line(finding.message)}{mark}"


def _summary(found: CheckReport, quoted_path: str) -> str:
    """Return the last lines of the output: the numbers of findings that count and that do not count."""
    plan = found.plan
    files = len({finding.path for finding in found.work})
    parts = [f"{pluralize(len(found.work), 'finding')} in {pluralize(files, 'file')}"] if found.work else []
    parts += [f"{pluralize(len(plan.skipped), 'file')} not handled"] if plan.skipped else []
    fork_warning = f"Without `fork`, workers may not start ({pluralize(len(found.fork_only), 'finding')} listed above)."
    clean = f"Nothing to rewrite. {fork_warning}" if found.fork_only else "Clean: nothing to rewrite."
    verdict = f"Work remains: {', '.join(parts)}." if parts else clean
    if plan.files:
        verdict += f" To rewrite: chirp-migrate apply {quoted_path}"
    uncounted = [f"{len(found.remarks)} remarks or suggestions (--strict counts them)"] if found.remarks else []
    uncounted += [f"{len(found.suppressed)} suppressed"] if found.suppressed else []
    uncounted += [f"{len(found.unchanged)} unchanged (a rewrite has no gain)"] if found.unchanged else []
    in_tests = applied.loaders_in_tests_line(plan)
    verdict += f"\n{in_tests}" if in_tests else ""
    return f"{verdict}\nNot counted: {', '.join(uncounted)}; --verbose shows them." if uncounted else verdict
