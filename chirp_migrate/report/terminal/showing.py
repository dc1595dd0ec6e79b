"""How a verification is shown: progress, what was found, the JSON and the plots."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from chirp_migrate.console import json_file as json_output
from chirp_migrate.console.paint import Paint, wrapped
from chirp_migrate.report.terminal.document import render_verify
from chirp_migrate.report.terminal.verdict import colour_of
from chirp_migrate.verify.document import VerifyReport

__all__ = ["Output"]

_WIDTH = 100
"""Columns of a report that does not go to a terminal."""


@dataclass(frozen=True)
class Output:
    """How a verification is shown.

    Attributes:
        json_file: where the whole document goes, ``-`` for standard output; None for nowhere.
        quiet: the verdict alone.
        verbose: everything that was measured, and what the processes ran in.
        color: ``auto``, ``always`` or ``never``.
        plots: folder for plots; None for none.
    """

    json_file: Path | None = None
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    plots: Path | None = None

    def show(self, report: VerifyReport, *more: str) -> None:
        """Write the document, and print what it says with ``more`` behind it, a sentence each.

        It is printed on standard error where standard output is for the JSON.
        """
        json_output.write(self.json_file, report)
        on_error = self.json_file == json_output.STANDARD_OUTPUT
        stream = sys.stderr if on_error else sys.stdout
        paint = Paint.for_stream(stream, self.color)
        width = shutil.get_terminal_size((_WIDTH, 24)).columns if stream.isatty() else _WIDTH
        lines = list(render_verify(report, width=width, verbose=self.verbose))
        if self.quiet:
            lines = lines[: lines.index("")] if "" in lines else lines
        else:
            lines += [piece for one in more for piece in wrapped(one, "  ", "")]
        plain = f"Verdict: {report.verdict}"
        text = "\n".join(lines).replace(plain, paint(plain, colour_of(report.verdict)), 1)
        click.echo(text, err=on_error, color=paint.on)

    def progress(self, text: str) -> None:
        """One line on standard error, so that a log of it reads as well as a terminal."""
        if not self.quiet:
            click.echo(f"  {text}", err=True)
