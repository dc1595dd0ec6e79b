"""Text into HTML: the one place where it is escaped."""

from __future__ import annotations

import html
import re
import unicodedata

from chirp_migrate.report.python_text import words

__all__ = ["DASH", "MINUS", "TIMES", "code", "escape", "tag", "visible"]

#: Characters that look like others in sources of this project.
DASH, MINUS, TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"

#: Letters that show nothing though they count as printable.
_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
_PIECE = re.compile("([^\x20-\x7e]+)")
_SHORT = {
    "comment": "c",
    "string": "s",
    "number": "n",
    "keyword": "k",
    "builtin": "b",
    "defined": "d",
    "decorator": "r",
}


def visible(text: str) -> str:
    """``text`` with what shows nothing, or makes other text show elsewhere, spelled out: ``⟨U+202E⟩``.

    Tabs and newlines stay. What comes out is printable, so that it can be encoded, too.
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def escape(text: str) -> str:
    """``text`` as it can stand anywhere in a document: between tags, and in attributes in quotes."""
    return html.escape(visible(text), quote=True)


def code(line: str, *, inside: str = "", python: bool = True, strong: tuple[int, int] = (0, 0)) -> str:
    """A line of a source as HTML, with the words of Python in their kinds and hidden characters marked.

    Args:
        line: without its newline.
        inside: see :func:`~chirp_migrate.report.python_text.words`.
        python: whether it is Python.
        strong: start and end of what is pointed at.
    """
    shown = []
    at = 0
    for kind, text in words(line, inside) if python else [("", line)]:
        start, end = (min(max(place - at, 0), len(text)) for place in strong)
        at += len(text)
        content = _marked(text[:start]) + _strong(text[start:end]) + _marked(text[end:])
        shown.append(f'<i class="{_SHORT[kind]}">{content}</i>' if kind else content)
    return "".join(shown)


def tag(name: str, content: str = "", **attributes: str | None) -> str:
    """An element; ``content`` is HTML, attributes are text. ``class_`` is ``class``; an underscore becomes a hyphen."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{content}</{name}>"


def _strong(text: str) -> str:
    return f'<b class="w">{_marked(text)}</b>' if text else ""


def _marked(text: str) -> str:
    if text.isascii() and text.isprintable():
        return html.escape(text, quote=True)
    return "".join(
        html.escape(one, quote=True)
        if _shown(one) == one
        else f'<b class="odd" title="{html.escape(_name(one))}">{_shown(one)}</b>'
        for one in text
    )


def _shown(one: str) -> str:
    if (one.isprintable() and one not in _BLANK_LETTERS) or one in "\t\n":
        return one
    return f"\u27e8U+{ord(one):04X}\u27e9"


def _name(one: str) -> str:
    return unicodedata.name(one, "a character that shows nothing")
