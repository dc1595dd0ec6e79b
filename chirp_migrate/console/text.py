"""Format text, numbers and counts for users, and escape control characters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

#: Number of names that a sentence lists. For further names, the sentence has only a number, as in "and 7 more".
_NAMED = 12


def escape_invisible(text: str) -> str:
    """Escape all control characters and invisible characters of ``text`` except tabs."""
    return "".join(
        one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode("ascii") for one in text
    )


def to_one_line(text: str) -> str:
    """Join the lines of ``text`` to one line, and escape invisible characters."""
    return escape_invisible(" ".join(text.split()))


def escape_for_matplotlib(text: str) -> str:
    """Escape the dollar signs of a text, because matplotlib would read a dollar sign as the start of a formula.

    Characters that cannot be printed become U+FFFD (the replacement character).
    """
    shown = "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)
    return shown.replace("$", r"\$")


def as_sentence(text: str) -> str:
    """Return a text as a sentence that begins with a capital letter and ends with a full stop.

    The first letter stays unchanged if the text begins with a path, such as ``train.py``, or with a label, such as
    ``note:``.
    """
    begins_with_name = re.match(r"\S*[._:/]\S|\w+: ", text) is not None
    first = text[:1] if begins_with_name else text[:1].upper()
    end = "" if text.endswith("?") else "."
    return f"{first}{text[1:].rstrip('.')}{end}" if text else ""


def format_value(value: float | None) -> str:
    """Format a measured value with three significant digits, such as ``0.123``.

    Values of 100 or more become integers with separators, such as ``1,234``. None becomes "-".
    """
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_percent(share: float, digits: int = 0) -> str:
    """Format a share between 0 and 1 as a percentage, such as ``20 %`` for 0.2."""
    return f"{100 * share:.{digits}f} %"


def format_time(iso_time: str) -> str:
    """Format an ISO 8601 time in UTC like ``2026-11-21 12:50 UTC``. Return any other text unchanged."""
    day, letter, time = iso_time.partition("T")
    return f"{day} {time[:5]} UTC" if letter and iso_time.endswith("Z") else iso_time


def pluralize(number: int, noun: str) -> str:
    """Combine a number and a noun, such as ``1 file``, ``2 files``, ``2 batches`` or ``2 entries``."""
    if number != 1:
        noun = re.sub(r"(?<=[^aeiou])y$", "ie", noun)
        noun += "es" if noun.endswith(("s", "tch")) else "s"
    return f"{number} {noun}"


def shorten_list(names: Iterable[str], max_shown: int | None = _NAMED, rest_intro: str = " and ") -> str:
    """List the first ``max_shown`` names and the number of further names, such as ``a, b and 7 more``.

    If ``max_shown`` is None, the result lists all names. ``rest_intro`` is the text in front of the number of further
    names.
    """
    listed = list(names)
    shown = listed[:max_shown]
    more = len(listed) - len(shown)
    return ", ".join(shown) + (f"{rest_intro}{more} more" if more else "")


def suggest_name(wrong: str, names: Iterable[str], list_intro: str) -> str:
    """Return a hint for a message about a wrong name: the most similar existing name, or a list of all names.

    Args:
        wrong: the name that the user wrote, which does not exist.
        names: all existing names.
        list_intro: text in front of the list of all names, such as "the commands are".
    """
    known = list(names)
    near = get_close_matches(wrong, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"{list_intro} {shorten_list(known) or 'none'}."
