"""Regular expressions for searches in unparsed code.

The expressions match gaps, which are the text between two words of code.

Any text may be searched, so the time of a search must be linear in the length of the text. For this reason, the number
of comments in a gap is limited. Some patterns match all text up to a bracket, such as the text after ``setattr(``. Such
a pattern must not match beyond the next place at which another match could begin, such as the next ``setattr``.
Otherwise, in a text without the bracket, the search would read the rest of the text again from each of these places.
"""

from __future__ import annotations

#: A whole comment, to the end of its line. If a part of a comment could match, a comment with `n` characters `#` could
#: match in 2**n ways.
_COMMENT = r"#[^\r\n]{0,500}(?![^\r\n])"
#: Any blanks, line ends, backslashes at line ends, parentheses and comments.
GAP = rf"[\s\\()]*(?:{_COMMENT}[\s\\()]*){{0,20}}"
#: Text between the name of a called function and its arguments, including the opening bracket.
CALL = rf"[\s\\)]*(?:{_COMMENT}[\s\\)]*){{0,20}}\("
#: The beginning of a line and its indentation, for every kind of line ending.
LINE = r"(?:^|[\r\n])[ \t\f]*"
#: ``setattr(``, up to a string argument.
TO_STRING_OF_SETATTR = r"\bsetattr\s*\((?:(?!\bsetattr\b)[^)])*"
