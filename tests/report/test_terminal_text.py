"""Text within columns: nothing wider than asked for, and nothing lost."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chirp_migrate.console.paint import visible
from chirp_migrate.report.terminal.text import columns, folded, padded, plain, wrapped

ROOMS = st.integers(8, 60)


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("plain", 5),
        ("鳥の声", 6),
        ("e\N{COMBINING ACUTE ACCENT}", 1),
        ("🐦", 2),
        ("\N{FULLWIDTH LATIN CAPITAL LETTER A}", 2),
    ],
)
def test_columns_are_those_of_a_terminal(text: str, wide: int) -> None:
    assert columns(text) == wide
    assert columns(padded(text, 12)) == columns(padded(text, 12, right=True)) == 12


def test_columns_agree_with_wcwidth() -> None:
    """Terminals and fonts differ over a few; too many columns are harmless, too few would break lines."""
    wcwidth = pytest.importorskip("wcwidth", reason="wcwidth comes with IPython, which the notebook tests use")
    printable = [one for one in map(chr, range(sys.maxunicode + 1)) if one.isprintable()]
    too_few = [one for one in printable if columns(one) < wcwidth.wcwidth(one)]
    # Characters that became wide in a Unicode version after that of this Python.
    assert len(too_few) < 500
    assert not [one for one in too_few if ord(one) < 0x2600]


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred", "a\x07b", "\N{RIGHT-TO-LEFT OVERRIDE}txt", "a\0b", "\udc80", "\x9b31m"]
)
def test_what_a_terminal_would_act_on_is_spelled_out(hostile: str) -> None:
    for shown in (plain(hostile), *folded(hostile, 40)):
        assert shown.isprintable()
        assert "\\" in shown


@pytest.mark.slow
@given(st.text(), ROOMS)
def test_a_folded_line_fits_and_is_whole(line: str, room: int) -> None:
    line = "".join(line.split("\t"))
    pieces = folded(line, room)
    assert all(columns(piece) <= room for piece in pieces)
    assert "".join(pieces) == visible(line.rstrip("\r\n"))


@given(st.text(), ROOMS)
def test_what_goes_on_below_a_line_is_indented(line: str, room: int) -> None:
    line = "".join(line.split("\t"))
    first, *rest = folded(line, room, 4)
    assert all(columns(piece) <= room and piece.startswith("    ") for piece in rest)
    assert first + "".join(piece[4:] for piece in rest) == visible(line.rstrip("\r\n"))


def test_lines_are_cut_behind_blanks_and_commas_where_there_are_some() -> None:
    assert folded("mean if is_tensor(mean) else tensor(mean, dtype=float32)", 42) == [
        "mean if is_tensor(mean) else tensor(mean, ",
        "dtype=float32)",
    ]
    assert folded("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_tabs_go_to_the_next_multiple_of_four_columns() -> None:
    assert folded("\tx\ty", 20) == ["    x   y"]
    assert folded("鳥\tx", 20) == ["鳥  x"]


@given(st.text(), st.integers(20, 60))
def test_a_wrapped_paragraph_fits_and_keeps_every_word(text: str, room: int) -> None:
    text = plain(text)
    lines = wrapped(text, room, "  - ", "      ")
    assert all(columns(line) <= room for line in lines)
    assert "".join("".join(lines).split()) == "".join(f"- {text}".split())
