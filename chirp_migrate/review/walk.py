"""Review a plan hunk by hunk: show the diff of a hunk, store the user's decision, and find the next hunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from chirp_migrate.engine.project_files import decode_source
from chirp_migrate.errors import WriteRefused
from chirp_migrate.plans.plan import Edit, FilePlan, Finding, FindingStatus, Hunk, Plan
from chirp_migrate.review.blocks import LineBlock, SourceLines
from chirp_migrate.review.selection import (
    WHOLE_FILE,
    Choices,
    HunkChoice,
    HunkId,
    apply_choices,
    ids_decided_together,
)
from chirp_migrate.source.diff import diff_hunks_of_file, diff_hunks_of_lines
from chirp_migrate.source.text import SOURCE_LINE, apply_edits

_MARKER = "#@@ chirp-migrate"


class InvalidEdit(Exception):
    """Raised if the user edited a hunk in an invalid way. The message gives the reason."""


@dataclass(frozen=True)
class ReviewItem:
    """A hunk or a whole file that the user accepts or refuses in a review.

    Attributes:
        id: the path of the file, and the number of the hunk.
        file: the file.
        hunk: the hunk; None if the decision is on a whole file.
        findings: the findings whose code the hunk rewrites, from top to bottom.
    """

    id: HunkId
    file: FilePlan
    hunk: Hunk | None
    findings: tuple[Finding, ...]

    @property
    def kind(self) -> str:
        """Return the code of the rule that made the hunk. For a whole file, return the reason for writing the file.

        A user can accept or refuse all remaining items of the same kind with a single answer.
        """
        return self.findings[0].rule if self.findings else self.file.note

    def diff(self, edits: Iterable[Edit] | None = None) -> Iterator[str]:
        """Yield the lines of a unified diff of the hunk or whole file, with lines of context.

        Args:
            edits: the edits to show. None stands for the planned edits of the hunk.
        """
        if self.hunk is None or self.file.before is None:
            yield from diff_hunks_of_file(self.file)
            return
        text = decode_source(self.file.path, self.file.before).text
        after = apply_edits(text, self.hunk.edits if edits is None else edits)
        for line in diff_hunks_of_lines(SOURCE_LINE.findall(text), SOURCE_LINE.findall(after)):
            yield line.rstrip("\r\n") + "\n"


class Review:
    """A review in progress: the decisions so far, and the item on which the user decides next."""

    def __init__(self, plan: Plan, choices: Choices) -> None:
        self._root = plan.root
        self.items = list(_items(plan))
        by_id = {item.id: item for item in self.items}
        self._decided_together = {
            one: [by_id[other] for other in others] for one, others in ids_decided_together(plan).items()
        }
        self.choices: dict[HunkId, HunkChoice] = {
            item.id: choices[item.id] for item in self.items if item.id in choices
        }
        self._position = -1
        self._advance()

    @property
    def current(self) -> ReviewItem | None:
        """Return the item on which the user decides next; None if all items are decided."""
        return self.items[self._position] if self._position < len(self.items) else None

    @property
    def number(self) -> int:
        """Return the position of the current item in ``items``, counted from 1."""
        return self._position + 1

    def decided_with(self, item: ReviewItem) -> list[ReviewItem]:
        """Return ``item``, and all other items that must get the same decision as ``item``."""
        return self._decided_together[item.id]

    def undecided(self) -> int:
        """Return the number of items without a decision."""
        return sum(item.id not in self.choices for item in self.items)

    def decide(self, accepted: bool) -> None:
        """Accept or refuse the current item, and all items that must get the same decision.

        Then move to the next item without a decision.
        """
        self._choose(self.decided_with(self._current_item()), accepted)
        self._advance()

    def decide_rest_of_file(self, accepted: bool) -> int:
        """Accept or refuse all remaining items in the file of the current item.

        Items of other files that must get the same decision are included. Return the number of decided items.
        """
        path = self._current_item().file.path
        return self._decide_all(accepted, (item for item in self.items if item.file.path == path))

    def decide_rest_of_kind(self, accepted: bool) -> int:
        """Accept or refuse all remaining items of the current item's kind, in all files.

        Items of other kinds that must get the same decision are included. Return the number of decided items.
        """
        kind = self._current_item().kind
        return self._decide_all(accepted, (item for item in self.items if item.kind == kind))

    def go_back(self) -> bool:
        """Move back to the previous item and return True. If the current item is the first item, return False."""
        if self._position == 0:
            return False
        self._position -= 1
        return True

    def edit(self, edits: tuple[Edit, ...]) -> None:
        """Accept the current item with the edits of the user, which replace the planned edits.

        Items that must get the same decision are also accepted, with their own edits.

        Raises:
            InvalidEdit: the edits would make the file invalid Python.
        """
        item = self._current_item()
        _check_edited_file(self._root, item, edits, self.choices)
        self._choose(self.decided_with(item), accepted=True)
        self.choices[item.id] = HunkChoice(True, edits)
        self._advance()

    def _decide_all(self, accepted: bool, items: Iterable[ReviewItem]) -> int:
        here = self._current_item()
        chosen = [item for item in items if item.id == here.id or item.id not in self.choices]
        bound = {one.id: one for item in chosen for one in self.decided_with(item)}
        self._choose(bound.values(), accepted)
        self._advance()
        return len(bound)

    def _choose(self, items: Iterable[ReviewItem], accepted: bool) -> None:
        for one in items:
            before = self.choices.get(one.id)
            self.choices[one.id] = HunkChoice(accepted, before.edits if before is not None and accepted else None)

    def _advance(self) -> None:
        """Move to the next item without a decision. After the last item, the search continues with the first item."""
        order = [*range(self._position + 1, len(self.items)), *range(self._position + 1)]
        self._position = next((n for n in order if self.items[n].id not in self.choices), len(self.items))

    def _current_item(self) -> ReviewItem:
        item = self.current
        if item is None:
            raise ValueError("no item without a decision is left")
        return item


def text_for_editor(item: ReviewItem, choice: HunkChoice | None) -> str:
    """Return the text that the user edits to change a hunk: a marker and the new lines for each changed range.

    A marker is a line that contains the numbers of the replaced lines.

    Raises:
        InvalidEdit: the item is a whole file, which users cannot edit.
    """
    text = [
        "# Edit the new lines of this hunk. Do not change lines that begin with #@@: they contain the line numbers."
    ]
    for block in _blocks_of_item(item, choice)[1]:
        lines = f"lines {block.first}-{block.end - 1}" if block.end > block.first else f"before line {block.first}"
        text += [f"{_MARKER}: {lines}", *(line.rstrip("\r\n") for line in SOURCE_LINE.findall(block.after))]
    return "\n".join(text) + "\n"


def edits_from_editor(item: ReviewItem, choice: HunkChoice | None, text: str) -> tuple[Edit, ...]:
    """Convert the user's version of the text from :func:`text_for_editor` to edits of the source file.

    Raises:
        InvalidEdit: the user removed or changed a marker.
    """
    lines, blocks = _blocks_of_item(item, choice)
    newline = "\r\n" if "\r\n" in lines.text else "\n"
    markers = [line for line in text_for_editor(item, choice).splitlines() if line.startswith(_MARKER)]
    parts: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(_MARKER):
            parts.append((line.rstrip(), []))
        elif parts:
            parts[-1][1].append(line)
    if [marker for marker, _ in parts] != markers:
        raise InvalidEdit("a line that begins with #@@ was changed, added or removed")
    return tuple(
        lines.edit(replace(block, after="".join(line + newline for line in part)))
        for block, (_, part) in zip(blocks, parts, strict=True)
    )


def _items(plan: Plan) -> Iterator[ReviewItem]:
    findings: dict[tuple[str, int | None], list[Finding]] = defaultdict(list)
    for finding in plan.findings:
        if finding.status is FindingStatus.REWRITE:
            findings[finding.path, finding.hunk].append(finding)
    for file in plan.files:
        for hunk in file.hunks:
            yield ReviewItem((file.path, hunk.number), file, hunk, tuple(findings[file.path, hunk.number]))
        if not file.hunks:
            yield ReviewItem((file.path, WHOLE_FILE), file, None, ())


def _blocks_of_item(item: ReviewItem, choice: HunkChoice | None) -> tuple[SourceLines, list[LineBlock]]:
    """Return all lines of an item's file, and the ranges of lines that the item's edits change."""
    if item.file.before is None or item.hunk is None:
        raise InvalidEdit("this change has no hunk to edit: accept or refuse the whole file")
    lines = SourceLines(decode_source(item.file.path, item.file.before).text)
    edited = None if choice is None else choice.edits
    return lines, lines.blocks(item.hunk.edits if edited is None else edited)


def _check_edited_file(root: Path, item: ReviewItem, edits: tuple[Edit, ...], choices: Choices) -> None:
    """Check that the file is valid Python with the edited hunk and all other hunks that the user has not refused.

    Raises:
        InvalidEdit: the file is not valid Python.
    """
    alone = Plan(root, (item.file,), (), ())
    try:
        apply_choices(alone, {**choices, item.id: HunkChoice(True, edits)})
    except WriteRefused as error:
        raise InvalidEdit(str(error).partition("; nothing")[0]) from None
