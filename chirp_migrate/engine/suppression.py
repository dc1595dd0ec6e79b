"""Read and write comments in the code that suppress findings, such as ``# chirp: ignore[CODE]``.

The brackets contain codes, prefixes of codes or names of rules. A comment without brackets suppresses every rule. Such
a comment can be at three places:

* after the code on the line of a finding, such as ``# chirp: ignore[CHP001, CHP007]``. At the end of a statement with
  several lines, the comment applies to the whole statement;
* on its own line above the line or statement of a finding. Other comments may be between this comment and the
  statement;
* above the first statement of the file, such as ``# chirp: ignore-file[CHP001]``. The comment then applies to the whole
  file. The docstring of the file may be above the comment.
"""

from __future__ import annotations

import io
import itertools
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from chirp_migrate.rules import all_rules, codes_matching, unknown_rule_message
from chirp_migrate.source.text import NEWLINE, SOURCE_LINE

_WORD = "chirp:"
_COMMENT = re.compile(r"#\s*chirp:\s*ignore(?P<file>-file)?\b\s*(?:\[(?P<rules>[^\]]*)\])?", re.IGNORECASE)
#: Kinds of tokens that are not code.
_LAYOUT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})


class UnreadableComments(Exception):
    """Raised if a file may contain comments that suppress findings, but cannot be tokenized."""


@dataclass
class Suppressions:
    """The rules that comments suppress in one file.

    Attributes:
        lines: the codes of the rules that are suppressed in each line, by line number (from 1).
        everywhere: codes that are suppressed in the whole file.
        notes: the line (from 1) of each invalid comment, and the reason why the comment is invalid.
    """

    lines: dict[int, frozenset[str]] = field(default_factory=dict)
    everywhere: frozenset[str] = frozenset()
    notes: list[tuple[int, str]] = field(default_factory=list)

    def covers(self, code: str, line: int) -> bool:
        """Return whether findings of the rule ``code`` are suppressed in ``line``."""
        return code in self.everywhere or code in self.lines.get(line, ())


def read_suppressions(text: str) -> Suppressions:
    """Return the rules that the comments of a file suppress. Text in strings does not count as a comment.

    Raises:
        UnreadableComments: the file cannot be tokenized, and may contain such a comment.
    """
    found = Suppressions()
    if _WORD not in text.lower():
        return found
    try:
        comments = _locate_comments(text)
    except (tokenize.TokenError, SyntaxError) as error:
        raise UnreadableComments(
            f"the `# {_WORD}` comments of the file cannot be read ({error.args[0]}), so the file is not rewritten"
        ) from error
    for text, line, covered, leads in comments:
        for match in _COMMENT.finditer(text):
            codes = _read_codes(match["rules"], line, found)
            if match["file"] is None:
                for each in covered:
                    found.lines[each] = found.lines.get(each, frozenset()) | codes
            elif leads:
                found.everywhere |= codes
            else:
                found.notes.append(
                    (line, "the comment `chirp: ignore-file` has an effect only above the first statement")
                )
    return found


def add_ignore_comments(text: str, codes: Mapping[int, Collection[str]]) -> str:
    """Return ``text`` with an ``ignore`` comment for each line in ``codes``, above its statement.

    A line inside a statement gets the comment above the first line of the statement.

    Args:
        text: source that can be tokenized.
        codes: the codes of the rules to suppress, by line number (from 1).
    """
    begins = {line: first for first, last in _statement_lines(_tokenize(text)) for line in range(first, last + 1)}
    above: dict[int, set[str]] = {}
    for line, rules in codes.items():
        above.setdefault(begins.get(line, line), set()).update(rules)
    newline = match[0] if (match := NEWLINE.search(text)) else "\n"
    pieces = []
    for number, line in enumerate(SOURCE_LINE.findall(text), start=1):
        if number in above:
            indentation = line[: len(line) - len(line.lstrip(" \t"))]
            pieces.append(f"{indentation}# chirp: ignore[{', '.join(sorted(above[number]))}]{newline}")
        pieces.append(line)
    return "".join(pieces)


def _read_codes(rules: str | None, line: int, found: Suppressions) -> frozenset[str]:
    if rules is None:
        return frozenset(rule.code for rule in all_rules())
    selectors = [one.strip() for one in rules.split(",") if one.strip()]
    found.notes += [(line, unknown_rule_message(selector)) for selector in selectors if not codes_matching(selector)]
    return frozenset().union(*map(codes_matching, selectors))


def _tokenize(text: str) -> list[tokenize.TokenInfo]:
    lines = io.StringIO(re.sub(r"\r\n?", "\n", text))  # "\r" is also a line end, as in all other modules
    return list(tokenize.generate_tokens(lines.readline))


def _statement_lines(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each simple statement, and of the header of each ``if``, ``def`` or similar."""
    begins: int | None = None
    for token in tokens:
        if token.type == tokenize.NEWLINE and begins is not None:
            yield begins, token.start[0]
            begins = None
        elif token.type not in _LAYOUT and begins is None:
            begins = token.start[0]


def _locate_comments(text: str) -> list[tuple[str, int, range, bool]]:
    """Return all comments of a file.

    Each item is (comment, its line, the lines to which the comment applies, whether the comment is above the first
    statement).
    """
    tokens = _tokenize(text)
    code = [token for token in tokens if token.type not in _LAYOUT]
    last_lines = dict(_statement_lines(tokens))
    first_lines = {last: first for first, last in last_lines.items()}
    # A docstring does not count as the first statement.
    begun = next((token.start[0] for number, token in enumerate(code) if number or token.type != tokenize.STRING), 0)
    code_lines = {line for token in code for line in (token.start[0], token.end[0])}
    own_lines = {token.start[0] for token in tokens if token.type == tokenize.COMMENT} - code_lines
    targets: dict[int, int] = {}
    for line in sorted(own_lines, reverse=True):
        targets[line] = targets.get(line + 1, line + 1)
    comments = []
    for token, following in itertools.pairwise(tokens):
        line = token.start[0]
        if token.type != tokenize.COMMENT:
            continue
        if line in own_lines:
            target = targets[line]
            comments.append((token.string, line, range(target, last_lines.get(target, target) + 1), line < begun))
        else:
            ends_statement = following.type == tokenize.NEWLINE
            first = first_lines.get(line, line) if ends_statement else line
            comments.append((token.string, line, range(first, line + 1), False))
    return comments
