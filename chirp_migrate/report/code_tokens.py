"""Split Python source into tokens for syntax highlighting. The web page has a colour for each kind of token."""

from __future__ import annotations

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from chirp_migrate.source.text import NEWLINE

#: A token: the name of its CSS class (``""`` for plain text), and its text.
Word = tuple[str, str]

_KINDS: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (String, "s"),
    (Number, "n"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Builtin, "b"),
    (Name.Decorator, "r"),
    (Name.Function, "d"),
    (Name.Class, "d"),
)


def tokens_by_line(text: str) -> list[tuple[Word, ...]]:
    """Return the tokens of every line. The joined texts of the tokens are the line without its newline."""
    lines: list[list[Word]] = [[]]
    for _, token, value in PythonLexer().get_tokens_unprocessed(NEWLINE.sub("\n", text)):
        kind = next((name for of, name in _KINDS if token in of), "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append((kind, part))
    return [tuple(line) for line in lines]
