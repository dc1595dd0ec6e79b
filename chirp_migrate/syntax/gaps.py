"""What may stand between two words of code, for patterns that search a text that nobody has read yet."""

from __future__ import annotations

__all__ = ["CALL", "GAP", "LINE"]

#: A comment to the end of its line: were a part of it one, too, a line of `#` could be read in 2 to the n ways.
_COMMENT = r"#[^\r\n]*(?![^\r\n])"
#: Blanks, ends of lines and the backslashes that join them, brackets, comments.
GAP = rf"(?:[\s\\()]|{_COMMENT})*"
#: What follows the name of what is called, up to the bracket of its arguments.
CALL = rf"(?:[\s\\)]|{_COMMENT})*\("
#: The beginning of a line and its indentation, whatever ends lines.
LINE = r"(?:^|[\r\n])[ \t\f]*"
