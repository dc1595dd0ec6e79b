"""How a verification is shown: progress, what was found, the JSON and the plots."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from chirp_migrate.console import output as json_output
from chirp_migrate.console.screen import open_screen, steps_within
from chirp_migrate.report.terminal.document import show_verify
from chirp_migrate.verify.document import VerifyReport

__all__ = ["Output"]


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
        """Print what the document says, with ``more`` after it, a sentence each.

        It is printed on standard error where standard output is for the JSON.
        """
        on_error = self.json_file == json_output.STANDARD_OUTPUT
        screen = open_screen(self.color, err=on_error)
        show_verify(report, screen, quiet=self.quiet, verbose=self.verbose)
        for one in () if self.quiet else more:
            screen.text(one, hang=2)

    def steps(self, limit_s: float) -> AbstractContextManager[Callable[[str], None]]:
        """Gives what shows one step of something long; on a terminal, with how much of ``limit_s`` seconds is left."""
        return nullcontext(self.progress) if self.quiet else steps_within(limit_s)

    def progress(self, text: str) -> None:
        """One line on standard error, so that a log of it reads as well as a terminal."""
        if not self.quiet:
            click.echo(f"  {text}", err=True)
