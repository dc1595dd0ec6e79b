"""The changes of a story as HTML: files, hunks, and their lines with the reason beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from chirp_migrate.console.paint import count
from chirp_migrate.plans.plan import Safety
from chirp_migrate.report.hunks import Row, Section, differing, side_by_side
from chirp_migrate.report.page.html import DASH, MINUS, code, escape, tag
from chirp_migrate.report.story import FileStory, FindingStory, HunkStory, Story

__all__ = ["LARGEST_INDENT", "changes_section", "finding_item"]

#: Code that is indented further goes on as if it were indented so far.
LARGEST_INDENT = 40

_TAB = 4
_NOTES = {
    "rewrite": "rewritten",
    "ignore": "told to be left alone",
    "scaffold": "added",
    "dependency": "dependency",
    "vendor": "vendored",
}
_KINDS = {
    "follows": "Imports, and what the changes above left unused",
    "file": "The file as a whole",
    "unknown": "All changes of this file",
}
_ELEMENTS = {" ": "div", "-": "del", "+": "ins"}


def changes_section(story: Story) -> str:
    """Every change with its filter, files by run."""
    hunks = sum(len(file.hunks) for run in story.runs for file in run.files)
    files = sum(len(run.files) for run in story.runs)
    parts = [
        '<section id="changes" aria-labelledby="changes-title"><h2 id="changes-title">Changes</h2>',
        f'<p class="quiet">{count(hunks, "change")} in {count(files, "file")}. '
        "A change is what can be accepted or refused alone.</p>",
        _filters(story),
        '<div class="columns">',
        _contents(story),
        '<div class="files">',
    ]
    for run in story.runs:
        parts += [f"<h3>Run {run.number}</h3>"] if len(story.runs) > 1 else []
        parts += [_file(file) for file in run.files]
    return "\n".join([*parts, "</div></div></section>"])


def finding_item(same: Sequence[FindingStory], more: str = "", **attributes: str) -> str:
    """Findings of one file that say the same, as an item of a list: rule, message and places, and ``more`` HTML."""
    finding = same[0].finding
    rule = tag("a", escape(finding.rule), href=f"#rule-{finding.rule}", class_="rule")
    message = f'{rule} <span class="name">{escape(finding.name)}</span> {_safety(finding.safety)}'
    message += f'<p>{escape(_sentence(finding.message))} <span class="quiet">{escape(_places(same))}</span></p>'
    return tag("li", message + more, **attributes)


def _filters(story: Story) -> str:
    """The filter, which only a script can work; without one it is not shown."""
    findings = [one for run in story.runs for file in run.files for hunk in file.hunks for one in hunk.findings]
    findings += [one for run in story.runs for one in run.reported]
    rules = sorted({(one.finding.rule, one.finding.name) for one in findings})
    paths = dict.fromkeys(file.path for run in story.runs for file in run.files)
    safeties = [safety for safety in Safety if any(one.finding.safety is safety for one in findings)]
    selects = (
        ("file", "File", [(path, path) for path in paths]),
        ("rule", "Rule", [(rule, f"{rule} {name}") for rule, name in rules]),
        ("safety", "Safety", [(safety.value, safety.value) for safety in safeties]),
    )
    boxes = "".join(
        f'<label>{title} <select id="by-{key}"><option value="">all</option>'
        + "".join(tag("option", escape(text), value=value) for value, text in options)
        + "</select></label>"
        for key, title, options in selects
    )
    buttons = "".join(
        tag("button", escape(text), type="button", id=name, aria_pressed=pressed)
        for name, text, pressed in (
            ("view", "Side by side", "false"),
            ("close-all", "Close all", None),
            ("open-all", "Open all", None),
            ("ask", "Keys ?", None),
        )
    )
    return (
        '<form class="filters scripted" role="search" aria-label="Filter the changes">'
        '<label class="search">Search <input type="search" id="by-text" placeholder="code, path, rule, reason" '
        'autocomplete="off" spellcheck="false"></label>'
        f'{boxes}<div class="buttons">{buttons}<button type="reset">Clear</button></div>'
        '<p id="shown" role="status" aria-live="polite"></p></form>'
    )


def _contents(story: Story) -> str:
    """The files as links, with how much changes in each."""
    items = []
    for run in story.runs:
        for file in run.files:
            name = tag("a", _breakable(file.path), href=f"#{escape(file.id)}")
            items.append(f'<li>{name} <span class="amount">{_amount(file)}</span></li>')
    return (
        f'<nav class="contents" aria-label="Files"><details open><summary>Files ({len(items)})</summary>'
        f"<ol>{''.join(items)}</ol></details></nav>"
    )


def _file(file: FileStory) -> str:
    edited = '<strong class="badge warn">edited since</strong>' if file.edited_since else ""
    shown: set[str] = set()
    hunks = "\n".join(_hunk(hunk, file, shown) for hunk in file.hunks)
    note = escape(_NOTES.get(file.note, file.note))
    kind = "added" if file.action == "create" else "rewritten"
    return (
        f'<details open class="file {kind}" id="{escape(file.id)}"><summary><h3>{_breakable(file.path)}</h3>'
        f'<span class="quiet">{note}</span> <span class="amount">{_amount(file)}</span>{edited}</summary>\n'
        f"{hunks}</details>"
    )


def _hunk(hunk: HunkStory, file: FileStory, explained: set[str]) -> str:
    """One change; the reasons of its rules are given where the file has them first."""
    rules = list(dict.fromkeys(one.finding.rule for one in hunk.findings))
    safeties = sorted({one.finding.safety.value for one in hunk.findings})
    items = []
    for one in hunk.findings:
        first = one.reason and one.finding.rule not in explained
        items.append(finding_item([one], f'<p class="reason">Why: {escape(one.reason)}</p>' if first else ""))
        explained.add(one.finding.rule)
    brings = "".join(f"<p>Brings <code>{escape(one)}</code></p>" for one in hunk.imports)
    listed = f"<ul>{''.join(items)}</ul>" if items else ""
    why = f'<div class="why">{listed}{brings}</div>' if items or brings else ""
    decided = f'<strong class="badge {hunk.decision}">{hunk.decision}</strong>' if hunk.decision else ""
    decided += '<strong class="badge">edited in the review</strong>' if hunk.edited else ""
    python = file.path.endswith((".py", ".ipynb"))
    sections = "".join(_section(section, python) for section in hunk.sections)
    if not sections:
        sections = '<p class="quiet">An empty file.</p>'
    return (
        f'<details open class="hunk" id="{escape(hunk.id)}" data-file="{escape(file.path)}" '
        f'data-rules="{escape(" ".join(rules))}" data-safety="{escape(" ".join(safeties))}">'
        f"<summary><h4>{_title(hunk, rules)}</h4>{decided}"
        f'<a class="link" href="#{escape(hunk.id)}" aria-label="Link to this change">#</a></summary>'
        f'<div class="pair{"" if why else " alone"}">{why}'
        f'<div class="code" dir="ltr" translate="no">{sections}</div></div>'
        "</details>"
    )


def _title(hunk: HunkStory, rules: Sequence[str]) -> str:
    if hunk.kind != "rewrite":
        return escape(_KINDS[hunk.kind])
    first = next((section for section in hunk.sections if section.rows), None)
    names = ", ".join(rules) or "change"
    where = "" if first is None else f" · {_range(first)}"
    within = f" · in {first.within}" if first is not None and first.within else ""
    return f'<span class="nr">{hunk.number}</span> {escape(names)}<span class="quiet">{escape(where + within)}</span>'


def _section(section: Section, python: bool) -> str:
    where = f"{_range(section)}{f', in {section.within}' if section.within else ''}"
    shape = _Shape(
        python,
        width=len(str(max(row.before or row.after or 0 for row in section.rows))),
        margin=_common_margin([row.text for row in section.rows if row.text.strip()]),
    )
    parts = [f'<div class="at">{escape(where)}</div>']
    for changed, rows in _groups(section.rows):
        strong = _differing(rows) if changed else {}
        lines = "".join(_row(row, shape, strong.get(id(row), (0, 0))) for row in rows)
        parts.append(f'<div class="g">{lines}</div>' if changed else lines)
    return "".join(parts)


def _groups(rows: Iterable[Row]) -> Iterator[tuple[bool, list[Row]]]:
    """Neighbouring lines that change, or do not; what is added in front of what is removed makes two groups."""
    for changed, found in groupby(rows, key=lambda row: row.sign != " "):
        run: list[Row] = []
        for row in found:
            if run and row.sign == "-" and run[-1].sign == "+":
                yield changed, run
                run = []
            run.append(row)
        yield changed, run


@dataclass(frozen=True)
class _Shape:
    """What the lines of a section have in common: digits of their numbers, and characters they are all indented by."""

    python: bool
    width: int
    margin: int


def _differing(rows: Sequence[Row]) -> dict[int, tuple[int, int]]:
    """By the identity of a row: where it differs from the one beside it."""
    found: dict[int, tuple[int, int]] = {}
    for old, new in side_by_side(rows):
        places = differing(old.text, new.text) if old is not None and new is not None else None
        if places is not None:
            found[id(old)], found[id(new)] = places
    return found


def _row(row: Row, shape: _Shape, strong: tuple[int, int]) -> str:
    """A line; its numbers are shown by the style sheet, so that they are not copied with it.

    What all lines are indented by takes no room on the page, but is there when the lines are copied.
    """
    name = _ELEMENTS[row.sign]
    old, new = (f"{number or '':>{shape.width}}" for number in (row.before, row.after))
    margin = min(shape.margin, len(_indent(row.text)))
    text = f"<u>{row.text[:margin]}</u>" if margin else ""
    start, end = (max(place - margin, 0) for place in strong)
    text += code(row.text[margin:], inside=row.inside, python=shape.python, strong=(start, end))
    indent = min(len(_indent(row.text)[margin:].expandtabs(_TAB)), LARGEST_INDENT)
    # Lines that are too long go on below where they begin.
    hangs = f' class="w{indent}"' if indent else ""
    return f'<{name}{hangs} data-o="{old}" data-n="{new}">{text}\n</{name}>'


def _common_margin(lines: Sequence[str]) -> int:
    """Characters, all of them blank, that every one of the lines begins with."""
    indents = [_indent(line) for line in lines]
    least, most = min(indents, default=""), max(indents, default="")
    return next((at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" \t"))]


def _range(section: Section) -> str:
    numbers = [row.before for row in section.rows if row.before is not None and row.sign == "-"]
    numbers = numbers or [row.after for row in section.rows if row.after is not None and row.sign == "+"]
    first, last = (numbers[0], numbers[-1]) if numbers else (0, 0)
    lines = f"line {first}" if first == last else f"lines {first}{DASH}{last}"
    return lines if section.cell is None else f"cell {section.cell}, {lines}"


def _places(same: Sequence[FindingStory]) -> str:
    places = [one.finding.place for one in same]
    if same[0].finding.cell is not None:
        return "; ".join(place.capitalize() for place in places)
    return f"{'Line' if len(places) == 1 else 'Lines'} {', '.join(places)}"


def _safety(safety: Safety) -> str:
    return f'<span class="safety {safety.name.lower()}">{escape(safety.value)}</span>'


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _amount(file: FileStory) -> str:
    return f'<span class="plus">+{file.added}</span> <span class="minus">{MINUS}{file.removed}</span>'


def _breakable(path: str) -> str:
    """A path that may be broken behind a slash."""
    return escape(path).replace("/", "/<wbr>")
