"""Update pages of results: a run replaces the rows of what it tested, and keeps all other rows."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import QA_RESULTS, write


def write_with_kept_rows(name: str, page: str) -> None:
    """Write ``page`` to ``qa/results/name.md``, with the rows of the present page that ``page`` does not replace."""
    present = QA_RESULTS / f"{name}.md"
    write(QA_RESULTS, name, with_kept_rows(present.read_text(encoding="utf-8") if present.is_file() else "", page))


def with_kept_rows(present: str, page: str) -> str:
    """Return ``page`` with the rows and list items of ``present`` that ``page`` does not replace.

    Each page has one table, and lists below headings. The first cell of a row, and the text before the first colon of
    an item, is the name of what was tested. ``page`` replaces all rows and items of its names.
    """
    rows = {_name(line): line for text in (present, page) for line in text.splitlines() if line.startswith("| ")}
    tested = {_name(line) for line in page.splitlines() if line.startswith("| ")}
    lists: dict[str, list[str]] = {}
    for heading, item in _items(page):
        lists.setdefault(heading, []).append(item)
    for heading, item in _items(present):
        if item.removeprefix("- ").partition(":")[0] not in tested:
            lists.setdefault(heading, []).append(item)
    lines = page.partition("\n## ")[0].rstrip("\n").split("\n")
    table = [number for number, line in enumerate(lines) if line.startswith("| ")]
    lines[table[0] : table[-1] + 1] = rows.values()
    for heading, items in lists.items():
        lines += ["", heading, "", *items]
    return "\n".join(lines) + "\n"


def _name(row: str) -> str:
    return row.removeprefix("| ").partition(" | ")[0]


def _items(page: str) -> Iterator[tuple[str, str]]:
    """Yield each list item with the heading above it."""
    heading = ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line
        elif line.startswith("- "):
            yield heading, line
