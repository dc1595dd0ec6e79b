"""The words of Python source with their kinds, which have different colours."""

from __future__ import annotations

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from chirp_migrate.source.text import NEWLINE

__all__ = ["Word", "words_by_line"]

#: A kind of the page's style sheet, and the text; ``""`` is text without a kind.
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


def words_by_line(text: str) -> list[tuple[Word, ...]]:
    """Return the words of every line, which together are the line without its newline."""
    lines: list[list[Word]] = [[]]
    for _, token, value in PythonLexer().get_tokens_unprocessed(NEWLINE.sub("\n", text)):
        kind = next((name for of, name in _KINDS if token in of), "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append((kind, part))
    return [tuple(line) for line in lines]
