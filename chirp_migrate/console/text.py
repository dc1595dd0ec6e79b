"""Texts as people read them: what a terminal would act on is spelled out; numbers and counts have one form."""

from __future__ import annotations

import re

__all__ = ["count", "figure", "in_picture", "plain", "sentence", "visible"]


def visible(text: str) -> str:
    """``text`` with what a terminal would act on, or not show, spelled out; tabs stay."""
    return "".join(
        one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode("ascii") for one in text
    )


def plain(text: str) -> str:
    """``text`` on one line, with what does not show spelled out."""
    return visible(" ".join(text.split()))


def in_picture(text: str) -> str:
    """Text that matplotlib shows as it is: a dollar sign begins no formula, and nothing unprintable is left."""
    shown = "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)
    return shown.replace("$", r"\$")


def sentence(text: str) -> str:
    """With a capital and a point; a name that it begins with (a path, a label) stays as it is written."""
    begins_with_name = re.match(r"\S*[._:/]\S|\w+: ", text) is not None
    first = text[:1] if begins_with_name else text[:1].upper()
    return f"{first}{text[1:].rstrip('.')}." if text else ""


def figure(value: float | None) -> str:
    """A measured value in three digits, "-" where nothing was measured."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``, ``2 classes``."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"
