"""What the pages at the top and docs/ show: blocks of code and their marks, code in running text, and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from support import ROOT

#: Written by programs, from text that is checked where it comes from.
GENERATED = (ROOT / "docs" / "rules.md", *sorted((ROOT / "docs" / "rules").glob("*.md")))

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)\s*$")
_MARK = re.compile(r"^ *<!-- run: (?P<mark>.*?) -->\s*$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)\)")
_RECORDED = re.compile(r"<!-- verify: begin -->.*?<!-- verify: end -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, text, mark, and where it is."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def place(self) -> str:
        """``README.md:12``."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def marks(self) -> list[str]:
        """The parts of the mark."""
        return [part.strip() for part in self.mark.split(";") if part.strip()]

    def marked(self, word: str) -> str | None:
        """What stands behind ``word`` in the mark; None where it does not begin any part of it."""
        found = (part.removeprefix(word).strip(" :") for part in self.marks if re.match(rf"{word}\b", part))
        return next(found, None)


@dataclass(frozen=True)
class Page:
    """A document."""

    path: Path

    @property
    def name(self) -> str:
        """From the top of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        """All of it, but for the report that a benchmark writes into the README."""
        text = self.path.read_text(encoding="utf-8")
        return _RECORDED.sub(lambda found: "\n" * found[0].count("\n"), text)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The fenced blocks."""
        return tuple(_blocks(self.path, self.text))

    @cached_property
    def prose(self) -> str:
        """The text without its fenced blocks and comments."""
        lines, fence = [], ""
        for line in self.text.splitlines():
            found = _FENCE.match(line) if not fence else None
            if found is not None:
                fence = found["fence"]
            elif fence and line.strip() == fence:
                fence = ""
            elif not fence:
                lines.append(line)
        return _COMMENT.sub("", "\n".join(lines))

    @property
    def inline_code(self) -> Iterator[str]:
        """What stands in backticks in running text."""
        for found in _INLINE.finditer(self.prose):
            yield " ".join(found[2].replace("\\|", "|").split())

    @property
    def links(self) -> Iterator[str]:
        """Targets of links and pictures."""
        for found in _LINK.finditer(_INLINE.sub("code", self.prose)):
            yield found["target"]

    @cached_property
    def anchors(self) -> frozenset[str]:
        """Headings as links name them."""
        headings = re.findall(r"^#+ +(.+?)\s*$", self.prose, re.MULTILINE)
        words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
        return frozenset(one.replace(" ", "-") for one in words)


def pages() -> list[Page]:
    """The pages at the top but for the changelog, that of the runtime, and everything in docs/."""
    top = [path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"]
    paths = (*top, ROOT / "chirpid_patch" / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    return [Page(path) for path in paths]


def written_pages() -> list[Page]:
    """Those that are written by hand."""
    return [page for page in pages() if page.path not in GENERATED]


def _blocks(path: Path, text: str) -> Iterator[Block]:
    mark, fence, indent, language, begin = "", "", "", "", 0
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if fence:
            if line.strip() == fence:
                yield Block(path, begin, language, "".join(f"{one}\n" for one in body), mark)
                mark, fence = "", ""
            else:
                body.append(line.removeprefix(indent))
        elif found := _FENCE.match(line):
            fence, indent, language = found["fence"], found["indent"], found["language"]
            begin, body = number, []
        elif found := _MARK.match(line):
            mark = found["mark"]
        elif line.strip():
            mark = ""
