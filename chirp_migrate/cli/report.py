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
from chirp_migrate.report.contents import ReportContents
from chirp_migrate.report.page.render import render_page
from chirp_migrate.report.reading import read_report_contents
from chirp_migrate.report.terminal.render import show_report


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "reported",
            ExitCode.USAGE: "nothing was applied at PATH, or an option is wrong",
            ExitCode.REFUSED: "an interrupted run, or a damaged journal",
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
@output_options("all that the report contains", "Print only the verdict and its figures.", "Also explain the terms.")
def report(path: Path, page_file: Path | None, output: Output) -> None:
    """Report the last verdict of the project at PATH, its loading problems, and every change with its reason.

    Reads the journal that `apply`, `verify` and `doctor` write; the project's code is never imported or run. Prints to
    the terminal unless -o names a file. On a terminal with 160 columns or more, diffs are printed side by side.
    """
    check_writable(page_file)
    if page_file is not None and page_file == output.json_file:
        raise UsageProblem("--json and --output name the same file: choose another file for one of them.")
    with output.progress("reading the run and its findings"):
        story = read_report_contents(path)
    if output.json_file is not None:
        output.write(
            {"schema": SCHEMA, "tool": f"chirp-migrate {__version__}", **_report_as_json(to_json_values(story))}
        )
    if page_file is None:
        show_report(story, output.screen(prose=False))
        return
    with output.progress("writing the page"):
        page = render_page(story).encode("utf-8")
    write_bytes(page_file, page)
    if page_file != STANDARD_OUTPUT and not output.quiet:
        output.screen().line(_describe_page(page_file, story))


def _describe_page(output: Path, story: ReportContents) -> str:
    changes = pluralize(sum(len(file.hunks) for file in story.files), "change")
    verdict = "not verified yet" if story.verdict is None else f"verdict: {story.verdict.verdict}"
    what = f"{changes} in {pluralize(len(story.files), 'file')}, {verdict}"
    return f"Wrote {output}: {what}. Open it in a browser; it needs no network."


def _report_as_json(value: Any) -> Any:
    """Return a copy of the report data for JSON. Tokens of lines and repeated reasons of findings are omitted."""
    if isinstance(value, dict):
        copies = ("words", "reason") if "rule" in value else ("words",)
        return {name: _report_as_json(one) for name, one in value.items() if name not in copies}
    return [_report_as_json(one) for one in value] if isinstance(value, list | tuple) else value
