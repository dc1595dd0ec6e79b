"""What may stand between two words of code, for patterns that search a text that nobody has read yet."""

from __future__ import annotations

__all__ = ["CALL", "GAP", "LINE"]

#: Blanks, ends of lines and the backslashes that join them, brackets, comments.
GAP = r"(?:[\s\\()]|#[^\r\n]*)*"
#: What follows the name of what is called, up to the bracket of its arguments.
CALL = r"(?:[\s\\)]|#[^\r\n]*)*\("
#: The beginning of a line and its indentation, whatever ends lines.
LINE = r"(?:^|[\r\n])[ \t\f]*"
