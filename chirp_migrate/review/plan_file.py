"""A plan as a file: what was reviewed is what is applied, to the byte, on any machine that has the same sources.

docs/json.md describes it; docs/plan.schema.json is its JSON Schema. It holds edits, and of the files to be rewritten
only the hashes, so that it says nothing about a tree that is not the one it was made from. It is read as something
that anybody may have changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from chirp_migrate import __version__
from chirp_migrate.edits.apply_hunks import compose
from chirp_migrate.engine.migration import Migration, PlanOptions
from chirp_migrate.engine.plan_tree import source_of
from chirp_migrate.errors import Refused, UsageProblem
from chirp_migrate.plans.plan import SCHEMA, Edit, FilePlan, Finding, Hunk, Plan, Safety, Skipped, Status, sha256
from chirp_migrate.review.account import Ledger
from chirp_migrate.review.blocks import Lines
from chirp_migrate.review.selection import WHOLE_FILE, Choice, Choices, HunkId
from chirp_migrate.rules import all_rules
from chirp_migrate.source.files import read_file
from chirp_migrate.source.text import UnreadableSource
from chirp_migrate.syntax.import_style import ImportStyle
from chirp_migrate.syntax.module import Module, UnparsableModule
from chirp_migrate.transaction.record import checked_path

__all__ = [
    "KIND",
    "PlanFile",
    "Written",
    "carried_over",
    "plan_json",
    "read_applied",
    "read_options",
    "read_plan",
    "write_plan",
]

KIND = "chirp-migrate plan"

#: Bytes before and after of a file that a run wrote, by path and their SHA-256; None for one that it did not write.
Written = Callable[[str, str | None, str], tuple[bytes | None, bytes] | None]

_T = TypeVar("_T")
_NOTES = frozenset({"rewrite", "scaffold", "dependency", "vendor", "ignore"})


@dataclass(frozen=True)
class PlanFile:
    """What a plan file says, checked against the tree it is for.

    Attributes:
        migration: the plan, as it was made.
        choices: what a review decided so far.
        reviewed: whether a review was begun; then everything has to be decided before it is applied.
    """

    migration: Migration
    choices: Choices
    reviewed: bool


def plan_json(migration: Migration, choices: Choices | None = None) -> dict[str, Any]:
    """The plan as the JSON document that :func:`read_plan` reads; ``choices`` when a review was begun."""
    plan, options = migration.plan, migration.options
    reasons = {rule.code: rule.reason for rule in all_rules()}
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "tool": f"chirp-migrate {__version__}",
        "options": {
            "rules": None if options.codes is None else sorted(options.codes),
            "unsafe": options.unsafe,
            "notebooks": options.notebooks,
            "scaffold": options.scaffold,
            "vendor": options.vendor,
            "tests": options.tests,
            "exclude": list(options.exclude),
        },
        "reviewed": choices is not None,
        "files": [_file_json(file, choices or {}) for file in plan.files],
        "findings": [{**one.to_json(), "reason": reasons[one.rule]} for one in plan.findings],
        "skipped": [one.to_json() for one in plan.skipped],
        "left_out": [one.to_json() for one in plan.left_out],
        "ledger": Ledger.of(plan.findings, plan.skipped, (), options.codes).to_json(),
        "notes": list(migration.notes),
    }


def write_plan(content: Mapping[str, Any]) -> bytes:
    """The bytes of a plan file."""
    return (json.dumps(content, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def read_plan(data: bytes, name: str, root: Path) -> PlanFile:
    """Read a plan for the tree at ``root``.

    Args:
        data: bytes of the plan file.
        name: how the user calls that file.
        root: folder that the paths of the plan are relative to.

    Raises:
        UsageProblem: it is no plan, it was made by a newer version, or it names paths that lead outside the tree.
        Refused: files are not what they were when the plan was made; all of them are named.
    """
    try:
        return _Reading(root).plan(_parsed(data))
    except _Changed as error:
        raise Refused(
            f"not as they were when {name} was made: {', '.join(error.paths)}; nothing was changed. Make the plan "
            f"anew: chirp-migrate plan {quote(str(root))} -o {quote(name)}"
        ) from None
    except _Newer as error:
        raise UsageProblem(
            f"{name} was made by {error}, which this version does not know: update chirp-migrate."
        ) from None
    except _Damaged as error:
        raise UsageProblem(
            f"{name} is not a plan that can be applied ({error}): make one with `chirp-migrate plan PATH -o FILE`."
        ) from None


def read_applied(data: bytes, root: Path, written: Written) -> Migration:
    """What was applied, from the plan that was kept with the run; the files of the tree are not looked at.

    Args:
        data: bytes of that plan.
        root: folder that the paths of the plan are relative to.
        written: the bytes that the run kept; files for which it gives None are left out.

    Raises:
        ValueError: it is no such plan; the message says why.
    """
    try:
        return _Reading(root, written).plan(_parsed(data)).migration
    except (_Damaged, _Newer) as error:
        raise ValueError(str(error)) from None


def read_options(data: bytes) -> PlanOptions:
    """What a plan was asked for; the defaults where that cannot be read."""
    try:
        return _options(_typed(_parsed(data)["options"], dict))
    except (_Damaged, _Newer, KeyError, TypeError):
        return PlanOptions()


def carried_over(old: bytes, new: dict[str, Any]) -> dict[str, Any]:
    """The plan ``new`` with what a review of an ``old`` one decided on hunks that are the same in it.

    A hunk is the same when the source of its file and its edits are. What cannot be read decides nothing.
    """
    try:
        found = {entry["path"]: entry for entry in _parsed(old)["files"]}
        for file in new["files"]:
            entry = found.get(file["path"], {})
            if entry.get("sha256_before", "") != file["sha256_before"]:
                continue
            if "hunks" not in file:
                if entry.get("content") == file["content"]:
                    file["decision"] = entry["decision"]
                continue
            decided = {json.dumps([one["edits"], one["imports"]]): one for one in entry["hunks"]}
            for hunk in file["hunks"]:
                one = decided.get(json.dumps([hunk["edits"], hunk["imports"]]), hunk)
                hunk["decision"], hunk["edited"] = one["decision"], one["edited"]
    except (_Damaged, _Newer, KeyError, TypeError, AttributeError):
        return new
    return {**new, "reviewed": True}


class _Damaged(Exception):
    """The document is not what :func:`plan_json` writes."""


class _Newer(Exception):
    """The document has a later schema."""


class _Changed(Exception):
    def __init__(self, paths: list[str]) -> None:
        self.paths = paths


def _file_json(file: FilePlan, choices: Choices) -> dict[str, Any]:
    content = file.to_json()
    if file.hunks and file.before is not None:
        lines = Lines(source_of(file.path, file.before).text)
        content["public"] = sorted(file.public)
        content["hunks"] = [_hunk_json(hunk, lines, choices.get((file.path, hunk.number))) for hunk in file.hunks]
    else:
        content["content"] = file.after.decode("utf-8", errors="surrogateescape")
        content["decision"] = _decision(choices.get((file.path, WHOLE_FILE)))
    return content


def _hunk_json(hunk: Hunk, lines: Lines, choice: Choice | None) -> dict[str, Any]:
    blocks = lines.blocks(hunk.edits)
    return {
        "number": hunk.number,
        "lines": [[block.first, block.end - 1] for block in blocks],
        "edits": [_edit_json(edit, lines) for edit in hunk.edits],
        "imports": [f"from {module} import {clause}" for module, clause in sorted(hunk.imports)],
        "decision": _decision(choice),
        "edited": None if choice is None or choice.edits is None else [_edit_json(e, lines) for e in choice.edits],
    }


def _edit_json(edit: Edit, lines: Lines) -> dict[str, Any]:
    return {
        "start": list(lines.position(edit.start)),
        "end": list(lines.position(edit.end)),
        "text": edit.replacement,
    }


def _decision(choice: Choice | None) -> str | None:
    return None if choice is None else "accepted" if choice.accepted else "refused"


def _parsed(data: bytes) -> Mapping[str, Any]:
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"it is not JSON: {error}") from None
    if not isinstance(whole, dict) or whole.get("kind") != KIND:
        raise _Damaged("it is some other document")
    if whole.get("schema") != SCHEMA:
        raise _Newer(f"{whole.get('tool', 'another version')} with schema {whole.get('schema')!r}")
    return whole


class _Reading:
    """One pass over a document, with what it finds out on the way."""

    def __init__(self, root: Path, written: Written | None = None) -> None:
        self._root = root
        self._style = ImportStyle(root)
        self._written = written
        self._changed: list[str] = []
        self._choices: dict[HunkId, Choice] = {}

    def plan(self, whole: Mapping[str, Any]) -> PlanFile:
        try:
            options = _options(_typed(whole["options"], dict))
            self._style = ImportStyle(self._root, options.vendor)
            found = (self._file(_typed(entry, dict)) for entry in whole["files"])
            files = tuple(file for file in found if file is not None)
            paths = [file.path for file in files]
            if len(set(paths)) != len(paths):
                raise _Damaged("it names a file twice")
            if self._changed:
                raise _Changed(self._changed)
            findings = tuple(_finding(_typed(entry, dict)) for entry in whole["findings"])
            skipped, left_out = (
                tuple(
                    Skipped(_typed(one["path"], str), _typed(one["reason"], str), _typed(one.get("loaders", 0), int))
                    for one in whole[key]
                )
                for key in ("skipped", "left_out")
            )
            notes = tuple(_typed(note, str) for note in whole["notes"])
            reviewed = _typed(whole["reviewed"], bool)
        except KeyError as error:
            raise _Damaged(f"{error} is missing") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise _Damaged(str(error)) from None
        plan = Plan(self._root, files, findings, skipped, left_out=left_out)
        return PlanFile(Migration(plan, notes, options), self._choices, reviewed)

    def _file(self, entry: Mapping[str, Any]) -> FilePlan | None:
        path = checked_path(entry["path"])
        note = _typed(entry["note"], str)
        if note not in _NOTES:
            raise _Damaged(f"{path} is written for an unknown reason, {note!r}")
        if self._written is not None:
            return self._applied(path, note, entry, self._written)
        before = self._before(path, entry)
        if "hunks" in entry:
            return self._rewritten(path, note, before, entry)
        after = _typed(entry["content"], str).encode("utf-8", errors="surrogateescape")
        _check_hash(path, after, entry)
        self._choose((path, WHOLE_FILE), entry["decision"], None)
        return FilePlan(path, before, after, note)

    def _applied(self, path: str, note: str, entry: Mapping[str, Any], written: Written) -> FilePlan | None:
        """The file with the bytes that a run kept, which are what its hunks gave."""
        digest = entry["sha256_before"]
        found = written(path, None if digest is None else _typed(digest, str), _typed(entry["sha256_after"], str))
        if found is None:
            return None
        before, after = found
        if before is None or "hunks" not in entry:
            return FilePlan(path, before, after, note)
        try:
            lines = Lines(source_of(path, before).text)
        except UnreadableSource as error:
            raise _Damaged(f"{path}: {error}") from None
        hunks = tuple(self._hunk(path, _typed(one, dict), lines) for one in entry["hunks"])
        return FilePlan(path, before, after, note, hunks)

    def _before(self, path: str, entry: Mapping[str, Any]) -> bytes | None:
        """What is at ``path`` now, which must be what was there when the plan was made."""
        expected, place = entry["sha256_before"], self._root / path
        if expected is None:
            if os.path.lexists(place):
                self._changed.append(f"{path} (it is there now)")
            return None
        try:
            content: bytes | None = read_file(place)
        except OSError:
            content = None
        if content is None or sha256(content) != expected:
            self._changed.append(path)
        return content

    def _rewritten(self, path: str, note: str, before: bytes | None, entry: Mapping[str, Any]) -> FilePlan:
        public = frozenset(_typed(name, str) for name in entry["public"])
        if before is None or path in self._changed:
            return FilePlan(path, before, b"", note)
        try:
            source = source_of(path, before)
            lines = Lines(source.text)
            hunks = tuple(self._hunk(path, _typed(one, dict), lines) for one in entry["hunks"])
            after = source.encode(compose(Module(path, source.text), hunks, public, self._style))
        except (UnparsableModule, UnreadableSource, SyntaxError) as error:
            raise _Damaged(f"{path}: {error}") from None
        if not hunks or [hunk.number for hunk in hunks] != list(range(1, len(hunks) + 1)):
            raise _Damaged(f"the hunks of {path} are not numbered as they should be")
        _check_hash(path, after, entry)
        return FilePlan(path, before, after, note, hunks, public)

    def _hunk(self, path: str, entry: Mapping[str, Any], lines: Lines) -> Hunk:
        number = _typed(entry["number"], int)
        edited = entry["edited"]
        self._choose((path, number), entry["decision"], None if edited is None else _edits(edited, lines))
        return Hunk(number, _edits(entry["edits"], lines), frozenset(_import(one) for one in entry["imports"]))

    def _choose(self, one: HunkId, decision: object, edits: tuple[Edit, ...] | None) -> None:
        if decision not in (None, "accepted", "refused"):
            raise _Damaged(f"the decision {decision!r} is unknown")
        if decision is not None:
            self._choices[one] = Choice(decision == "accepted", edits)


def _options(entry: Mapping[str, Any]) -> PlanOptions:
    codes = None if entry["rules"] is None else frozenset(_typed(code, str) for code in entry["rules"])
    unsafe, notebooks, scaffold, vendor = (
        _typed(entry[key], bool) for key in ("unsafe", "notebooks", "scaffold", "vendor")
    )
    # Plans of earlier versions did not say: they left no tests alone.
    tests, exclude = _typed(entry.get("tests", True), bool), _typed(entry.get("exclude", []), list)
    return PlanOptions(codes, unsafe, notebooks, scaffold, vendor, tests, tuple(_typed(glob, str) for glob in exclude))


def _edits(entries: Iterable[Any], lines: Lines) -> tuple[Edit, ...]:
    edits = []
    for entry in entries:
        start, end = (lines.offset(*(_typed(part, int) for part in entry[key])) for key in ("start", "end"))
        edits.append(Edit(start, end, _typed(entry["text"], str)))
    return tuple(edits)


def _import(line: object) -> tuple[str, str]:
    words = _typed(line, str).split(" ", 3)
    if len(words) != 4 or (words[0], words[2]) != ("from", "import"):
        raise _Damaged(f"{line!r} is no import")
    return words[1], words[3]


def _finding(entry: Mapping[str, Any]) -> Finding:
    hunk, cell = entry["hunk"], entry["cell"]
    known: Callable[[str], str] = lambda key: _typed(entry[key], str)  # noqa: E731
    return Finding(
        known("rule"),
        known("name"),
        known("path"),
        _typed(entry["line"], int),
        _typed(entry["column"], int),
        known("message"),
        Safety(entry["safety"]),
        Status(entry["status"]),
        known("why"),
        None if cell is None else _typed(cell, int),
        None if hunk is None else _typed(hunk, int),
    )


def _check_hash(path: str, after: bytes, entry: Mapping[str, Any]) -> None:
    if sha256(after) != entry["sha256_after"]:
        raise _Damaged(f"its edits of {path} do not give what it says, so it was changed or made by another version")


def _typed(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _Damaged(f"{value!r} where a {kind.__name__} should be")
    return value
