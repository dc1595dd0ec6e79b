"""What is printed: nothing acts on the terminal, nothing is wider than it, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from chirp_migrate.console.screen import Screen, render_to_text
from chirp_migrate.console.text import to_one_line


def lines(*, width: int = 40, **calls: tuple[object, ...]) -> list[str]:
    """What methods of a screen print, called with these arguments."""

    def show(screen: Screen) -> None:
        for method, arguments in calls.items():
            getattr(screen, method)(*arguments)

    return render_to_text(show, width).splitlines()


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred", "a\x07b", "\N{RIGHT-TO-LEFT OVERRIDE}txt", "a\0b", "\udc80", "\x9b31m"]
)
@pytest.mark.parametrize("method", ["line", "text", "diff_line"])
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
    assert "".join("".join(shown).split()) == "".join(f"- {to_one_line(text)}".split())


def test_of_a_fact_that_is_cut_it_says_what_shows_the_rest() -> None:
    text = render_to_text(lambda screen: screen.text("word " * 60, first="many   ", most=2))
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


@pytest.mark.parametrize(
    ("text", "short", "expected"),
    [
        ("word " * 20, "", "word " * 20),
        ("word " * 60, "a clause", "a clause (-v)"),
        ("word " * 60, "clause " * 20, "clause " * 20 + "(-v)"),
        ("word " * 60, "clause " * 60, "clause " * 10 + "… (-v)"),
        ("word " * 60, f"{'name' * 19}: clause " + "clause " * 60, f"{'name' * 19}: " + "clause " * 10 + "… (-v)"),
        ("word " * 60, "name" * 60, f"{'name' * 20} {'name' * 18}n … (-v)"),
    ],
)
def test_a_shorter_form_replaces_a_text_that_is_too_long(text: str, short: str, expected: str) -> None:
    shown = render_to_text(lambda screen: screen.text(text, most=2, short=short))
    assert shown.split() == expected.split()
