"""Pages, reports, help texts and error messages have none of the words that the glossary replaces."""

from __future__ import annotations

import ast
import re

import pytest
from docs_pages import Page, pages
from support import ROOT

from qa.sample_texts import messages, modules

GLOSSARY = ROOT / "docs" / "glossary.md"
_ROW = re.compile(r"^\| (`.*) \| .* \|$", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`|\{[^{}]*\}")


def forbidden() -> re.Pattern[str]:
    """Return a pattern of the words in the table of docs/glossary.md."""
    _, section = GLOSSARY.read_text(encoding="utf-8").split("## Words that do not appear")
    words = [word for row in _ROW.findall(section) for word in re.findall(r"`([^`]+)`", row)]
    spaced = [r"\s+".join(map(re.escape, word.split())) for word in words]
    return re.compile(rf"\b(?:{'|'.join(spaced)})\b", re.IGNORECASE)


def test_the_list_of_words_is_read_from_the_glossary() -> None:
    for text in ("The report tells you", "what is left\nalone", "Undecided hunks"):
        assert forbidden().search(text) is not None
    assert forbidden().search("The report shows all hunks that are not decided") is None


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_pages(page: Page) -> None:
    prose = _CODE.sub("", page.prose)
    assert [found[0] for found in forbidden().finditer(prose)] == [], "docs/glossary.md has the words to use"


def test_texts_of_the_program() -> None:
    pattern = forbidden()
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[0]}"
        for path in modules()
        for line, text in messages(ast.parse(path.read_text(encoding="utf-8")))
        for word in pattern.finditer(_CODE.sub("", text))
    ]
    assert found == [], "docs/glossary.md has the words to use"
