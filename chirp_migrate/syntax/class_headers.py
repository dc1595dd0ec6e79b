"""Find the bases of classes in any text, by a search for ``class`` statements.

The search also finds classes in strings and in files with syntax errors, because it does not parse the text.
"""

from __future__ import annotations

import re

#: The beginning of a header with bases: ``class Name(``, or ``class Name[T](`` with parameters for types.
_CLASS = re.compile(r"class\b(?<!\wclass)[\s\\]+(\w+)[\s\\]*(?:\[(?:(?!class\b)[^\]])*\]+[\s\\]*)?\(")
_PART = re.compile(r"#[^\r\n]*|[()\[\]]|\w+")
_WORD = re.compile(r"\w+")
#: Prefix of words inside square brackets, such as ``T`` in ``class A(B[T])``.
IN_BRACKETS = "["


def words_in_class_headers(text: str) -> list[tuple[str, str]]:
    """Return each word in the bases and keyword arguments of each ``class`` statement, with the name of the class.

    A word inside square brackets has the prefix ``[``. So ``class D(A[T], b.C)`` gives the words ``A``, ``[T``, ``b``
    and ``C``, each with the name ``D``.
    """
    headers = list(_CLASS.finditer(text))
    found: list[tuple[str, str]] = []
    # A header without a closing bracket ends at the next header, so the search is linear.
    for header, end in zip(headers, [*(one.start() for one in headers[1:]), len(text)], strict=False):
        opened, brackets = 1, 0
        for part in _PART.finditer(text, header.end(), end):
            word = part[0]
            if word in "()":
                opened += 1 if word == "(" else -1
                if not opened:
                    break
            elif word in "[]":
                brackets = max(brackets + (1 if word == "[" else -1), 0)
            else:
                # Words in comments count. A bracket in a comment does not end the bases.
                found += [((IN_BRACKETS if brackets else "") + one, header[1]) for one in _WORD.findall(word)]
    return found
