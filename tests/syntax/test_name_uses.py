"""Names that a text reads from a module: the linear search finds what the plain regular expressions find."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from chirp_migrate.syntax import name_uses

_GAP = r"[\s\\]*"
_BEHIND = r"""(?:[\s\\)\]"']|\#[^\n]*\n)*"""
_IMPORTED = re.compile(rf"{_GAP}\((?:[^()#]|#[^\n]*(?!.))*\)|(?:[^\n\\]|\\\r?\n?)*")
_FROM_HERE = re.compile(r"from \. import\b")
_PIECES = st.sampled_from(
    [
        "from . import ",
        "from b import ",
        "(",
        ")",
        "(\n",
        ")\n",
        "#",
        "# c ",
        "\n",
        "\\\n",
        "\\",
        "x",
        "y, ",
        "b",
        "b.",
        "b.x",
        ".z",
        " ",
        ",",
        "'q'",
        '"',
        "]",
        "\r\n",
        "\t",
        "*",
        "b, 'w'",
        "as c",
        "c.k",
        "=",
        "\x0c",
        "import",
    ]
)


@given(st.lists(_PIECES, max_size=40).map("".join))
def test_imported_names_are_those_of_the_plain_expression(text: str) -> None:
    starts = [one.end() for one in _FROM_HERE.finditer(text)]
    clauses = [_IMPORTED.match(text, start) for start in starts]
    plain = {word for one in clauses if one is not None for word in re.findall(r"\w+|\*", one.group())}
    assert name_uses._names_imported(text, starts) == plain


@given(st.lists(_PIECES, max_size=40).map("".join))
def test_no_attribute_of_the_plain_expression_is_missing(text: str) -> None:
    after = rf"b\b(?<!\wb)(?:{_BEHIND}\.{_GAP}(\w+)|{_GAP},{_GAP}[\"'](\w+))"
    plain = {first or second for first, second in re.findall(after, text)}
    assert plain <= set(name_uses._attributes_of("b", text))
