"""Format texts, numbers and counts for users, and escape control characters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

#: Number of names that a sentence lists. For further names, the sentence has only a number, as in "and 7 more".
_NAMED = 12


def escape_invisible(text: str) -> str:
    """Return ``text`` with control characters and invisible characters escaped, except tabs."""
    return "".join(
        one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode("ascii") for one in text
    )


def to_one_line(text: str) -> str:
    """Return ``text`` on one line, with invisible characters escaped."""
    return escape_invisible(" ".join(text.split()))


def escape_for_matplotlib(text: str) -> str:
    """Return a text for matplotlib with escaped dollar signs, because a dollar sign would begin a formula.

    Characters that cannot be printed are replaced.
    """
    shown = "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)
    return shown.replace("$", r"\$")


def as_sentence(text: str) -> str:
    """Return a text as a sentence that begins with a capital letter and ends with a full stop.

    If the text begins with a path or a label, such as ``train.py`` or ``note: ``, the first letter stays unchanged.
    """
    begins_with_name = re.match(r"\S*[._:/]\S|\w+: ", text) is not None
    first = text[:1] if begins_with_name else text[:1].upper()
    end = "" if text.endswith("?") else "."
    return f"{first}{text[1:].rstrip('.')}{end}" if text else ""


def format_value(value: float | None) -> str:
    """Return a measured value as text with three significant digits, such as ``0.123``, or as an integer from 100 on.

    For None, the result is "-".
    """
    if value is None:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_percent(share: float, digits: int = 0) -> str:
    """Return a share as a percentage, such as ``20 %`` for 0.2."""
    return f"{100 * share:.{digits}f} %"


def format_time(iso: str) -> str:
    """Return an ISO 8601 time in UTC in the form ``2026-11-21 12:50 UTC``; return any other text unchanged."""
    day, letter, time = iso.partition("T")
    return f"{day} {time[:5]} UTC" if letter and iso.endswith("Z") else iso


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 file``, ``2 files``, ``2 batches`` or ``2 entries``."""
    if number != 1:
        noun = re.sub(r"(?<=[^aeiou])y$", "ie", noun)
        noun += "es" if noun.endswith(("s", "tch")) else "s"
    return f"{number} {noun}"


def shorten_list(names: Iterable[str], max_shown: int | None = _NAMED, joint: str = " and ") -> str:
    """Return the first ``max_shown`` names and the number of further names as text, such as ``a, b and 7 more``.

    If ``max_shown`` is None, the text has all names. ``joint`` is the text before the number of further names.
    """
    listed = list(names)
    shown = listed[:max_shown]
    more = len(listed) - len(shown)
    return ", ".join(shown) + (f"{joint}{more} more" if more else "")


def suggest_name(wrong: str, names: Iterable[str], list_intro: str) -> str:
    """Return the end of a message on a ``wrong`` name: the most similar name, or the list of all names.

    Args:
        wrong: the name that does not exist.
        names: the names that exist.
        list_intro: text before the list of all names, such as "the commands are".
    """
    known = list(names)
    near = get_close_matches(wrong, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"{list_intro} {shorten_list(known) or 'none'}."
