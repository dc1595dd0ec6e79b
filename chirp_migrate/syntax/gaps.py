"""Patterns for the text between two words of code, for searches in unparsed text.

The text may be anything, so the cost of a search must be linear in its length. A part that extends up to a bracket,
which may be missing, therefore ends where the pattern could begin again. The number of comments in a gap is limited.
"""

from __future__ import annotations

__all__ = ["CALL", "GAP", "LINE", "TO_BASE", "TO_STRING_OF_SETATTR"]

#: A comment to the end of its line. If a part could match alone, a line of `#` would have 2 to the n matches.
_COMMENT = r"#[^\r\n]{0,500}(?![^\r\n])"
#: Blanks, ends of lines and the backslashes that join them, brackets, comments.
GAP = rf"[\s\\()]*(?:{_COMMENT}[\s\\()]*){{0,20}}"
#: Text between the name of a called object and the bracket of its arguments.
CALL = rf"[\s\\)]*(?:{_COMMENT}[\s\\)]*){{0,20}}\("
#: The beginning of a line and its indentation, for every kind of line ending.
LINE = r"(?:^|[\r\n])[ \t\f]*"
#: A class, up to the name of one of its bases.
TO_BASE = r"\bclass\s+\w+\s*\((?:(?!\bclass\b)[^)])*"
#: ``setattr(``, up to a string argument.
TO_STRING_OF_SETATTR = r"\bsetattr\s*\((?:(?!\bsetattr\b)[^)])*"
