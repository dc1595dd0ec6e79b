"""``chirp-migrate report PATH``: print a report on a project, or write it to one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from chirp_migrate import __version__
from chirp_migrate.cli.options import CommandWithOptionGroups, FilePath, option, output_options, path_argument
from chirp_migrate.console.json_document import to_json_values
from chirp_migrate.console.output import STANDARD_OUTPUT, Output, check_writable, write_bytes
from chirp_migrate.console.text import pluralize
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.plans.plan import SCHEMA
from chirp_migrate.report.contents import RunDetails
from chirp_migrate.report.page.changes import PageContents
from chirp_migrate.report.page.render import render_page
from chirp_migrate.report.reading import read_report_contents
from chirp_migrate.report.terminal.render import show_report
from chirp_migrate.review.plan_file import run_document


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "reported",
            ExitCode.USAGE: "nothing was applied at PATH, or an option is wrong",
            ExitCode.REFUSED: "a run was interrupted, or the journal is damaged",
        },
        "chirp-migrate report project/ | less -R",
        "chirp-migrate report project/ -o report.html",
    ),
)
@path_argument
@option(
    "-o", "--output", "page_file", type=FilePath(allow_dash=True), metavar="FILE",
    help="Write one self-contained HTML file ('-': standard output).",
)  # fmt: skip
@output_options(
    "the report", "Print only the verdict.", "Also print all measurements, every finding, and the diff of each run."
)
def report(path: Path, page_file: Path | None, output: Output) -> None:
    """Report on the project at PATH: the last results of `verify` and `doctor`, and the changes of each run of `apply`.

    The command reads the journal that `apply`, `verify` and `doctor` write. It never imports or runs the project's
    code. Without -o, it prints the report to the terminal.
    """
    check_writable(page_file)
    if page_file is not None and page_file == output.json_file:
        raise UsageProblem("--json and --output name the same file: choose another file for one of them.")
    with output.progress("reading the run and its findings"):
        contents = read_report_contents(path)
    if output.json_file is not None:
        output.write(
            {
                "schema": SCHEMA,
                "tool": f"chirp-migrate {__version__}",
                "name": contents.name,
                "runs": [*map(_run_as_json, contents.runs)],
                "verdict": contents.verdict,
                "doctor": contents.doctor,
                "notices": contents.notices,
            }
        )
    if page_file is None:
        show_report(contents, output.screen(prose=False))
        return
    with output.progress("writing the page"):
        page_contents = PageContents.of(contents)
        page = render_page(page_contents).encode("utf-8")
    write_bytes(page_file, page)
    if page_file != STANDARD_OUTPUT and not output.quiet:
        output.screen().line(_describe_page(page_file, page_contents))


def _describe_page(output: Path, contents: PageContents) -> str:
    changes = pluralize(sum(len(file.hunks) for file in contents.files), "change")
    found = contents.report.verdict
    verdict = "not verified yet" if found is None else f"verdict: {found.verdict}"
    what = f"{changes} in {pluralize(len(contents.files), 'file')}, {verdict}"
    return f"Wrote {output}: {what}. Open the file in a browser; no network is needed."


def _run_as_json(run: RunDetails) -> dict[str, Any]:
    """Return the JSON document that ``apply --json`` writes for a run, with the number and the time of the run."""
    document = {**to_json_values(run_document(run.plan)), "tool": run.tool}
    if not run.has_plan:
        document["ledger"] = None
    return {"number": run.number, "created": run.created, **document}
