"""What is printed: nothing acts on the terminal, nothing is wider than it, and nothing is lost."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from chirp_migrate.console.screen import Screen, printed, steps_within
from chirp_migrate.console.text import plain


def lines(*, width: int = 40, **calls: tuple[object, ...]) -> list[str]:
    """What methods of a screen print, called with these arguments."""

    def show(screen: Screen) -> None:
        for method, arguments in calls.items():
            getattr(screen, method)(*arguments)

    return printed(show, width).splitlines()


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred", "a\x07b", "\N{RIGHT-TO-LEFT OVERRIDE}txt", "a\0b", "\udc80", "\x9b31m"]
)
@pytest.mark.parametrize("method", ["line", "text", "title", "diff_line"])
def test_what_a_terminal_would_act_on_is_spelled_out(method: str, hostile: str) -> None:
    (shown, *_) = [line for line in lines(**{method: (hostile,)}) if line]
    assert shown.isprintable() and "\\" in shown


def test_the_markup_of_rich_is_only_text() -> None:
    assert lines(line=("[red]x[/red] :smile:",), text=("[link=file:///]x[/link]",)) == [
        "[red]x[/red] :smile:",
        "[link=file:///]x[/link]",
    ]


@given(st.text(), st.integers(40, 60))
def test_a_paragraph_fits_and_keeps_every_word(text: str, width: int) -> None:
    shown = lines(width=width, item=("-", text))
    assert all(cell_len(line) <= width for line in shown)
    assert "".join("".join(shown).split()) == "".join(f"- {plain(text)}".split())


def test_of_a_fact_that_is_cut_it_says_what_shows_the_rest() -> None:
    text = printed(lambda screen: screen.text("word " * 60, first="many   ", most=2))
    assert len(text.splitlines()) == 2 and text.endswith("… (-v)\n")


def test_a_table_that_is_too_wide_is_told_row_by_row() -> None:
    header, rows = ["entry", "before", "after"], [["one.two", "1.0", "2.0"]]
    assert lines(table=(header, rows)) == ["  entry    before  after", "  one.two     1.0    2.0"]
    rows = [["x" * 30, "1.0", "2.0"]]
    assert lines(table=(header, rows))[2:] == [f"  {'x' * 30}", "       1.0    2.0"]
    header = ["entry", "before " * 4, "after " * 4]
    assert lines(table=(header, rows)) == [
        f"  {'x' * 30}",
        "    before before before before 1.0,",
        "    after after after after 2.0",
    ]


@pytest.mark.slow
def test_on_a_terminal_steps_stand_above_the_time_taken_and_no_budget_that_is_over() -> None:
    pexpect = pytest.importorskip("pexpect", reason="needs a pseudo-terminal")
    code = (
        "import time\nfrom chirp_migrate.console.screen import steps_within\n"
        "with steps_within(1) as say:\n    say('one [bold]\\x1b[31m'); time.sleep(1.7); say('two')\n"
        "    time.sleep(0.5)\nprint('done')\n"
    )
    child = pexpect.spawn(sys.executable, ["-c", code], dimensions=(24, 80), encoding="utf-8", timeout=60)
    shown = child.read()
    child.close()
    assert child.exitstatus == 0
    assert "0 s of a budget of 1 s" in shown and " left" not in shown
    assert "  one [bold]\\x1b[31m" in shown and "\x1b[31m" not in shown
    assert "budget" not in shown[shown.index("two") :]


def test_steps_in_a_log_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with steps_within(90) as say:
        say("one")
        say("two\x07")
    assert capsys.readouterr().err == "  one\n  two\\x07\n"
