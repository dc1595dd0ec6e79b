"""One file through the rules: what they propose, what the user wants left alone, and what is spliced in."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from chirp_migrate.deadcode import remove_newly_dead
from chirp_migrate.imports import conflicting, import_edits
from chirp_migrate.module import Module, UnparsableModule
from chirp_migrate.plan import Edit, Finding, Safety, Status
from chirp_migrate.project import Project
from chirp_migrate.rules import Proposal, Rule, all_rules
from chirp_migrate.settings import Settings
from chirp_migrate.source import apply_edits
from chirp_migrate.suppression import Suppressions, UnreadableComments, read_suppressions

__all__ = ["FileResult", "concerned_rules", "migrate_file", "rewrite"]

#: Rewrites that uncover work for another rule need another pass; code that never settles is a bug, not a user error.
_PASS_LIMIT = 12

#: What a replacement defines at its top level: a second one of that name has to wait, and will choose another name.
_DEFINITION = re.compile(r"^(?:async def|def|class) (\w+)", re.MULTILINE)
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class FileResult:
    """What the rules make of one file; it can be sent from one process to another.

    Attributes:
        path: posix path relative to the root.
        text: the new text, or the old one where nothing is to change.
        findings: what was found, by place.
        notes: sentences on the file that belong to no finding.
        problem: why the file could not be handled; then its text is the old one, and nothing was found.
    """

    path: str
    text: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str | None = None


def migrate_file(
    path: str, text: str, project: Project, settings: Settings, concerned: Sequence[Rule] | None = None
) -> FileResult:
    """Rewrite one file as the settings say. It never raises: one bad file must not keep the others from migrating.

    Args:
        path: posix path relative to the root.
        text: its text.
        project: the backend it belongs to, whose view of the file becomes the new text.
        settings: which rules, and which findings are to be left alone.
        concerned: those of the rules that can have something to say about ``text``, where that is known already.
    """
    try:
        suppressions = read_suppressions(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's code is parsed here; what is wrong with it is not our output
            new, findings = rewrite(
                path,
                text,
                project,
                unsafe=settings.unsafe,
                rules=settings.rules,
                concerned=concerned,
                ignored=settings.ignored_in(path),
            )
    except (UnparsableModule, UnreadableComments) as error:
        problem = str(error)
    except Exception as error:  # a defect of one rule
        problem = f"internal error in a rule, please report it: {type(error).__name__}: {error}"
    else:
        notes = tuple(f"{path}:{line}: {note}." for line, note in suppressions.notes)
        return FileResult(path, new, tuple(findings), notes)
    project.update(path, text)
    return FileResult(path, text, problem=problem)


def rewrite(
    path: str,
    text: str,
    project: Project,
    *,
    unsafe: bool = False,
    rules: Sequence[Rule] | None = None,
    concerned: Sequence[Rule] | None = None,
    ignored: frozenset[str] = frozenset(),
) -> tuple[str, list[Finding]]:
    """Apply the rules to one module until none of them proposes an edit.

    Args:
        path: posix path relative to the root.
        text: source of the module.
        project: the backend it belongs to, whose view of the file becomes the new text.
        unsafe: also apply rules that change behaviour.
        rules: the rules; ``None`` means all.
        concerned: those of them that can have something to say about ``text``, where that is known already.
        ignored: codes whose findings are left alone in this file.

    Returns:
        The new text and the findings, with lines and columns of the text as it was given.

    Raises:
        UnparsableModule: when ``text`` cannot be parsed.
        UnreadableComments: when it cannot be told what the user wants left alone.
    """
    original = text
    findings: list[Finding] = []
    chosen_rules = all_rules() if rules is None else rules
    for number in range(_PASS_LIMIT):
        if number:
            concerned = tuple(rule for rule in chosen_rules if rule.may_have_more(text, project))
        elif concerned is None:
            concerned = concerned_rules(chosen_rules, text, project)
        if not concerned:
            return text, sorted(findings, key=_place)
        module = project.module(path) if project.text(path) == text else Module(path, text)
        suppressions = read_suppressions(text)
        suppressions.everywhere |= ignored
        chosen, remaining = _choose(module, _proposals(concerned, module, project), suppressions, unsafe)
        position = _Position(original, module)
        # What later passes find fine is what the first one rewrote.
        findings += [_finding(r, p, path, position, s) for r, p, s in remaining if s is Status.FINE and not number]
        findings += [_finding(rule, proposal, path, position, Status.REWRITE) for rule, proposal in chosen]
        if not chosen:
            findings += [_finding(r, p, path, position, s) for r, p, s in remaining if s is not Status.FINE]
            return text, sorted(findings, key=_place)
        # Two proposals may import the same beside the same statement.
        edits = list(dict.fromkeys(edit for _, proposal in chosen for edit in proposal.edits))
        needed = {one for _, proposal in chosen for one in proposal.imports}
        first_use = min(edit.start for edit in edits)
        spliced = apply_edits(text, [*import_edits(module, needed, first_use), *edits])
        text = remove_newly_dead(text, spliced, lambda name, m=module: project.imported_elsewhere(m, name))  # type: ignore[misc]
        project.update(path, text)
    raise AssertionError(f"the rules do not settle on {path}")


def concerned_rules(rules: Sequence[Rule], text: str, project: Project) -> tuple[Rule, ...]:
    """Those of ``rules`` that can have something to say about a module with this text, judged by words."""
    return tuple(rule for rule in rules if rule.concerns(text, project))


def _proposals(rules: Sequence[Rule], module: Module, project: Project) -> list[tuple[Rule, Proposal]]:
    return [(rule, proposal) for rule in rules for proposal in rule.check(module, project)]


def _choose(
    module: Module, proposals: Sequence[tuple[Rule, Proposal]], suppressions: Suppressions, unsafe: bool
) -> tuple[list[tuple[Rule, Proposal]], list[tuple[Rule, Proposal, Status]]]:
    """Proposals to apply in this pass (none overlapping another), and those that stay findings."""
    chosen: list[tuple[Rule, Proposal]] = []
    remaining: list[tuple[Rule, Proposal, Status]] = []
    taken: list[Edit] = []
    defined: set[str] = set()
    for rule, proposal in proposals:
        defines = {name for edit in proposal.edits for name in _DEFINITION.findall(edit.replacement)}
        if proposal.fine:
            remaining.append((rule, proposal, Status.FINE))
        elif suppressions.covers(rule.code, module.position(proposal.offset)[0]):
            remaining.append((rule, proposal, Status.SUPPRESSED))
        elif not proposal.edits:
            remaining.append((rule, proposal, Status.REPORT))
        elif clash := conflicting(module, proposal.imports) if proposal.imports else set():
            names = ", ".join(sorted(clash))
            message = f"{proposal.message}; left alone, because {names} already means something else in this file"
            remaining.append((rule, Proposal(proposal.offset, message, why="name-taken"), Status.REPORT))
        elif rule.safety is Safety.BEHAVIOUR and not unsafe:
            remaining.append((rule, proposal, Status.OPT_IN))
        elif not defines & defined and not any(_overlap(edit, other) for edit in proposal.edits for other in taken):
            chosen.append((rule, proposal))
            taken += proposal.edits
            defined |= defines
    return chosen, remaining


def _overlap(one: Edit, other: Edit) -> bool:
    if one.start == one.end or other.start == other.end:
        return one.start < other.end and other.start < one.end and (one.start, one.end) != (other.start, other.end)
    return one.start < other.end and other.start < one.end


class _Position:
    """Maps an offset of ``module`` to line and column of the text the user has."""

    def __init__(self, original: str, module: Module) -> None:
        self._original, self._module = original, module

    def __call__(self, offset: int) -> tuple[int, int]:
        line, column = self._module.position(offset)
        return (line if self._lines is None else self._lines.get(line, 1)), column

    @cached_property
    def _lines(self) -> dict[int, int] | None:
        if self._module.text == self._original:
            return None
        old, new = (_NEWLINE.split(text) for text in (self._original, self._module.text))
        lines: dict[int, int] = {}
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            for j in range(j1, j2):
                lines[j + 1] = (i1 + (j - j1) if tag == "equal" else min(i1 + (j - j1), max(i2 - 1, i1))) + 1
        return lines


def _finding(rule: Rule, proposal: Proposal, path: str, position: _Position, status: Status) -> Finding:
    line, column = position(proposal.offset)
    safety = Safety.ADVICE if status is Status.REPORT else rule.safety
    return Finding(rule.code, rule.name, path, line, column, proposal.message, safety, status, proposal.why)


def _place(finding: Finding) -> tuple[int, int, str]:
    return finding.line, finding.column, finding.rule
