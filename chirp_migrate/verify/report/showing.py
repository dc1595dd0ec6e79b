"""How a verification is shown: progress, the report in the terminal, and where the raw values go."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from chirp_migrate.console import json_file as json_output
from chirp_migrate.console.paint import Paint
from chirp_migrate.verify.verdict import Verdict

__all__ = ["TABLE_WIDTH", "Output"]

TABLE_WIDTH = 100
"""Columns that the tables of the report take."""

_COLOURS = {
    Verdict.FASTER: "1;32",
    Verdict.UNDECIDED: "1;33",
    Verdict.NOT_SHOWN: "1;33",
    Verdict.MODEL_BOUND: "1;33",
    Verdict.SLOWER: "1;31",
    Verdict.NOT_EQUIVALENT: "1;31",
    Verdict.FAILED: "1;31",
}


@dataclass(frozen=True)
class Output:
    """How a verification is shown.

    Attributes:
        json_file: where all raw values go, ``-`` for standard output; None for nowhere.
        quiet: the verdict alone.
        verbose: everything that was measured, and what the processes ran in.
        color: ``auto``, ``always`` or ``never``.
    """

    json_file: Path | None = None
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"

    def show(self, text: str, verdict: Verdict) -> None:
        """Print a report that begins with its verdict; on standard error where standard output is for the JSON."""
        on_error = self.json_file == json_output.STANDARD_OUTPUT
        paint = Paint.for_stream(sys.stderr if on_error else sys.stdout, self.color)
        plain = f"Verdict: {verdict.text}"
        text = text.partition("\n\n")[0] if self.quiet else text.rstrip("\n")
        click.echo(text.replace(plain, paint(plain, _COLOURS[verdict]), 1), err=on_error, color=paint.on)

    def narrow_width(self) -> int | None:
        """Columns of the terminal, where the tables of the report are wider than it; None elsewhere."""
        if self.json_file == json_output.STANDARD_OUTPUT or not sys.stdout.isatty():
            return None
        columns = shutil.get_terminal_size().columns
        return columns if columns < TABLE_WIDTH else None

    def progress(self, text: str) -> None:
        """One line on standard error, so that a log of it reads as well as a terminal."""
        if not self.quiet:
            click.echo(f"  {text}", err=True)
