"""A story in a terminal: the verdict first, then figures, the account, and every change with its rule."""

from __future__ import annotations

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import count
from chirp_migrate.report.story import Story
from chirp_migrate.report.terminal.changes import show_run
from chirp_migrate.report.terminal.summary import show_summary
from chirp_migrate.report.terminal.verdict_lines import show_details, show_head, style_of
from chirp_migrate.report.terminal.words import show_words
from chirp_migrate.verify.document import VerifyReport

__all__ = ["show_story", "show_verify"]


def show_story(story: Story, screen: Screen, *, quiet: bool = False, verbose: bool = False) -> None:
    """Print the report; where the screen has at least 160 columns, changes stand side by side.

    Args:
        story: what is to be told.
        screen: where to.
        quiet: the verdict and its figures alone.
        verbose: every word explained as well.
    """
    screen.text(f"Migration of {story.name}", style="bold")
    if not quiet:
        screen.text(_contents(story))
    screen.line()
    if story.verdict is not None:
        show_head(story.verdict, screen)
    elif story.is_plan:
        screen.text("Verdict: none. `chirp-migrate verify` measures what is applied.")
    else:
        screen.text(
            "Verdict: none yet. `chirp-migrate verify` trains the project as it was before and as it is now, and says "
            "whether it is faster and still the same training."
        )
    for notice in story.notices:
        screen.item("!", notice, indent=0, style="bold yellow")
    if story.verdict is not None:
        screen.title("The verdict in figures")
        show_details(story.verdict, screen)
    for run in () if quiet else story.runs:
        show_run(run, screen)
    if verbose:
        show_words(story, screen)


def show_verify(report: VerifyReport, screen: Screen, *, quiet: bool = False, verbose: bool = False) -> None:
    """Print what ``verify`` found in at most 25 lines; ``quiet`` the verdict alone, ``verbose`` all behind it."""
    show_summary(report, screen, style_of(report.verdict), quiet=quiet)
    if verbose:
        if report.simulated is not None:
            screen.text(report.simulated.what)
        show_details(report, screen)


def _contents(story: Story) -> str:
    """What comes below, for somebody who has only seen the first lines."""
    hunks = sum(hunk.kind == "rewrite" for run in story.runs for file in run.files for hunk in file.hunks)
    figures = "the verdict and its figures, " if story.verdict is not None else ""
    return f"Below: {figures}what became of the loaders, the rules and {count(hunks, 'hunk')}; -v explains the words."
