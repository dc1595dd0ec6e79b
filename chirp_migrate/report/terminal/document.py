"""A story as lines for a terminal: the verdict first, then figures, the account, and every change with its rule."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.paint import Paint, count
from chirp_migrate.report.story import Story
from chirp_migrate.report.terminal.changes import run_lines
from chirp_migrate.report.terminal.screen import BOLD, LEAST_WIDTH, Screen
from chirp_migrate.report.terminal.summary import summary_lines
from chirp_migrate.report.terminal.verdict import detail_lines, head_lines
from chirp_migrate.report.terminal.words import word_lines
from chirp_migrate.verify.document import VerifyReport

__all__ = ["render", "render_verify"]

_SUMMARY_WIDTH = 100


def render(story: Story, *, width: int, colour: bool) -> Iterator[str]:
    """Lines of the report, without newlines.

    Args:
        story: what is to be told.
        width: columns of the terminal. No line is wider, but for terminals of fewer than 40 columns; from 160 on,
            changes are shown side by side.
        colour: whether lines may have escape sequences that colour them. Nothing that the story tells gets to the
            terminal as such a sequence: it is spelled out.
    """
    screen = Screen(max(width, LEAST_WIDTH), Paint(colour))
    yield from screen.text(f"Migration of {story.name}", code=BOLD)
    yield from screen.text(_contents(story))
    yield ""
    if story.verdict is not None:
        yield from head_lines(story.verdict, screen)
    elif story.is_plan:
        yield from screen.text("Verdict: none. `chirp-migrate verify` measures what is applied.")
    else:
        yield from screen.text(
            "Verdict: none yet. `chirp-migrate verify` trains the project as it was before and as it is now, and says "
            "whether it is faster and still the same training."
        )
    for notice in story.notices:
        yield from screen.item("!", notice, indent=0, code="1;33")
    if story.verdict is not None:
        yield from screen.title("The verdict in figures")
        yield from detail_lines(story.verdict, screen)
    for run in story.runs:
        yield from run_lines(run, screen)
    yield from word_lines(story, screen)


def render_verify(report: VerifyReport, *, width: int, verbose: bool = False) -> Iterator[str]:
    """What ``verify`` found, in at most 25 lines without colours; with ``verbose`` followed by everything behind it."""
    yield from summary_lines(report, min(width, _SUMMARY_WIDTH))
    if verbose:
        yield from detail_lines(report, Screen(max(width, LEAST_WIDTH), Paint(False)))


def _contents(story: Story) -> str:
    """What comes below, for somebody who has only seen the first lines."""
    hunks = sum(hunk.kind == "rewrite" for run in story.runs for file in run.files for hunk in file.hunks)
    figures = "the verdict and its figures, " if story.verdict is not None else ""
    return f"Below: {figures}what became of the loaders, the rules, {count(hunks, 'hunk')}, and words explained."
