"""Run the rules on one file repeatedly until no rule has an edit, and split the changes into hunks.

A hunk is the smallest change that the user can accept or refuse alone.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from chirp_migrate.analysis.dataflow.names_in_strings import is_named_in_strings
from chirp_migrate.edits.apply_hunks import text_with_hunks
from chirp_migrate.edits.deadcode import removable_import_names, remove_newly_unused_names
from chirp_migrate.edits.imports import (
    conflicting_names,
    import_edits,
    names_conflicting_elsewhere,
    shadowed_import_names,
)
from chirp_migrate.edits.layout import formatting_edits
from chirp_migrate.engine.hunks import form_hunks
from chirp_migrate.engine.settings import Settings
from chirp_migrate.engine.suppression import Suppressions, UnreadableComments, read_suppressions
from chirp_migrate.plans.plan import Edit, Finding, FindingStatus, GainKind, Hunk, Safety
from chirp_migrate.rules import Rule, RuleMatch, all_rules
from chirp_migrate.source.diff import whole_line_edits
from chirp_migrate.source.piece_table import FOLLOWS, PieceTable
from chirp_migrate.syntax.module import Module, UnparsableModule, is_deeply_nested
from chirp_migrate.syntax.name_uses import is_imported_elsewhere
from chirp_migrate.syntax.outline import Outline
from chirp_migrate.syntax.project import Project
from chirp_migrate.syntax.queries import is_printed_by_fstring

#: Highest number of passes over a file. A rewrite may create code that another rule finds in the next pass. If a file
#: needs more passes, rules undo each other, which is a bug of this program.
_PASS_LIMIT = 12
#: Highest number of additional passes for nested functions. Each level of nesting may need one pass.
_MOST_NESTED = 20

#: Length limit for the shown part of an error message, in characters.
_LONGEST_MESSAGE = 200

#: A top-level definition in new text. If two rewrites define the same name, the second rewrite waits for the next pass,
#: which chooses another name.
_DEFINITION = re.compile(r"^(?:async def|def|class) (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class FileResult:
    """The result of running the rules on one file. Worker processes pickle such results to return them.

    Attributes:
        path: posix path relative to the root.
        text: the new text; the old text if nothing changes.
        findings: the findings in the order of the text.
        hunks: the changes that can be accepted or refused alone (see :class:`~chirp_migrate.plans.plan.Hunk`).
        public: names that other files import from this file. These names must stay.
        notes: sentences about the file that belong to no finding.
        problem: why the file could not be rewritten; None without a problem. With a problem, the result has the old
            text and no findings.
        seconds: time that the rules took for the file, in seconds.
    """

    path: str
    text: str
    findings: tuple[Finding, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    public: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    problem: str | None = None
    seconds: float = field(default=0.0, compare=False)


def migrate_file(path: str, text: str, project: Project, settings: Settings) -> FileResult:
    """Rewrite one file as the settings require.

    The function raises no error, because one bad file must not prevent the migration of all other files. The attribute
    ``problem`` of the result describes an error.

    Args:
        path: posix path relative to the root.
        text: text of the file.
        project: the project that contains the file. The function stores the new text in ``project``.
        settings: the rules to run, and the findings to suppress.
    """
    try:
        suppressions = read_suppressions(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # do not print the warnings that parsing the user's code causes
            result = rewrite_in_hunks(
                path,
                text,
                project,
                unsafe=settings.unsafe,
                rules=settings.rules,
                ignored=settings.ignored_in(path),
                skip_without_gain=not settings.all_loaders,
            )
    except (UnparsableModule, UnreadableComments) as error:
        problem = str(error)
    except RecursionError as error:
        if not is_deeply_nested(text):
            problem = f"internal error in a rule, please report this bug: {type(error).__name__}"
        else:
            problem = "an expression is nested too deeply to be parsed"
    except Exception as error:  # a bug in a rule
        problem = (
            f"internal error in a rule, please report this bug: {type(error).__name__}: {_shorten_message(str(error))}"
        )
    else:
        notes = tuple(f"{path}:{line}: {note}." for line, note in suppressions.notes)
        return replace(result, notes=notes)
    project.update(path, text)
    return FileResult(path, text, problem=problem)


def _shorten_message(message: str) -> str:
    """Return the beginning of an error message. A message of LibCST may contain a whole syntax tree."""
    line, _, rest = message.partition("\n")
    return line if not rest and len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]} …"


def rewrite_text(
    path: str,
    text: str,
    project: Project,
    *,
    unsafe: bool = False,
    rules: Sequence[Rule] | None = None,
    skip_without_gain: bool = False,
) -> tuple[str, list[Finding]]:
    """Rewrite one module with :func:`rewrite_in_hunks`, and return the new text and the findings."""
    result = rewrite_in_hunks(path, text, project, unsafe=unsafe, rules=rules, skip_without_gain=skip_without_gain)
    return result.text, list(result.findings)


def rewrite_in_hunks(
    path: str,
    text: str,
    project: Project,
    *,
    unsafe: bool = False,
    rules: Sequence[Rule] | None = None,
    ignored: frozenset[str] = frozenset(),
    skip_without_gain: bool = False,
) -> FileResult:
    """Apply the rules to one module until no rule returns an edit.

    Args:
        path: posix path relative to the root.
        text: source of the module.
        project: the project that contains the file. The function stores the new text in ``project``.
        unsafe: whether to also apply rules that change what training learns.
        rules: the rules to run; ``None`` for all rules.
        ignored: codes of the rules whose findings are suppressed in this file.
        skip_without_gain: whether to omit rewrites that gain nothing (see :class:`~chirp_migrate.plans.plan.Gain`).

    Returns:
        The new text, its hunks and the findings. Lines and columns of findings refer to the original text.

    Raises:
        UnparsableModule: the source ``text`` cannot be parsed.
        UnreadableComments: the comments that suppress findings cannot be read.
    """
    asked = selected = all_rules() if rules is None else rules
    work: _RewriteState | None = None
    findings: list[Finding] = []
    original = text
    for number in count():
        if number >= _PASS_LIMIT:
            _check_passes(path, original, number)
        concerned = applicable_rules(asked, path, text, project, is_rewritten=bool(number))
        if not concerned:
            break
        module = project.module(path, in_work=True) if project.text(path) == text else Module(path, text)
        work = work or _RewriteState(module, project)
        suppressions = read_suppressions(text)
        suppressions.everywhere |= ignored
        matches = _find_matches(concerned, module, project)
        chosen, remaining = _choose_matches(module, project, matches, suppressions, unsafe, skip_without_gain)
        # Count correct code only in the first pass, because later passes also see the code that earlier passes wrote.
        findings += [work.finding(r, p, s) for r, p, s in remaining if s is FindingStatus.FINE and not number]
        if not chosen:
            findings += [work.finding(r, p, s) for r, p, s in remaining if s is not FindingStatus.FINE]
            break
        asked = _rules_to_repeat(selected, module, project, matches, chosen)
        text = work.splice(module, chosen, matches)
        project.update(path, text)
    if work is None:
        return FileResult(path, text)
    return work.result(text, findings)


def _check_passes(path: str, text: str, number: int) -> None:
    """Raise an error if ``number`` passes are too many for a file.

    A pass applies the rules once to the whole file. Nested functions need more passes, so the limit depends on the
    nesting of the functions in ``text``.

    Raises:
        UnparsableModule: functions are nested too deeply.
        AssertionError: the rules undo each other's edits.
    """
    nesting = Outline(path, text).nesting
    if number < _PASS_LIMIT + min(nesting, _MOST_NESTED):
        return
    if nesting > _PASS_LIMIT:
        raise UnparsableModule("the functions are nested too deeply to be rewritten")
    raise AssertionError(f"the rules undo each other's edits in {path}")


class _RewriteState:
    """The current text of a file, and the rewrites so far.

    A file may need several passes, each of which applies the rules once.
    """

    def __init__(self, module: Module, project: Project) -> None:
        self._original, self._project = module, project
        self._pieces = PieceTable(module.text)
        self._done: list[tuple[Rule, RuleMatch, Finding]] = []
        self._joined: set[tuple[int, int]] = set()
        self._deferred: dict[tuple[str, int], set[int]] = {}
        self._together: dict[tuple[str, int], int] = {}
        self._calls: list[frozenset[str]] = []
        self._passes = 0

    def finding(self, rule: Rule, match: RuleMatch, status: FindingStatus) -> Finding:
        """Convert a match in the current text to a finding with a place in the original text."""
        line, column = self._original.position(self._pieces.origin(match.offset))
        return Finding(
            rule=rule.code,
            name=rule.name,
            path=self._original.path,
            line=line,
            column=column,
            message=match.message,
            safety=Safety.ADVICE if status is FindingStatus.REPORT else rule.safety,
            status=status,
            why=match.why,
            reason=rule.reason,
            gain=match.gain,
        )

    def splice(
        self, module: Module, chosen: Sequence[tuple[Rule, RuleMatch]], matches: Sequence[tuple[Rule, RuleMatch]]
    ) -> str:
        """Apply the edits of the chosen matches of a pass, and return the new text."""
        first = len(self._done)
        self._passes += 1
        owners: dict[Edit, frozenset[int]] = {}
        unexplained: set[int] = set()
        for number, (rule, match) in enumerate(chosen, start=first):
            place = rule.code, self._pieces.origin(match.offset)
            self._joined |= {(one, number) for one in self._deferred.get(place, ())}
            if first and place not in self._deferred:
                unexplained.add(number)
            calls = self._loader_calls_of_match(rule, match)
            self._calls.append(frozenset(f"{path}:{line}" for path, line in calls))
            self._joined |= {(self._together.setdefault(one, number), number) for one in calls}
            for edit in match.edits:
                owners[edit] = owners.get(edit, FOLLOWS) | {number}
        for rule, match in matches:
            if match.edits and not any(match is one for _, one in chosen):
                blocking = {
                    number for edit, by in owners.items() for number in by for one in match.edits if _overlap(one, edit)
                }
                self._deferred.setdefault((rule.code, self._pieces.origin(match.offset)), set()).update(blocking)
        self._done += [(rule, match, self.finding(rule, match, FindingStatus.REWRITE)) for rule, match in chosen]
        needed = {one for _, match in chosen for one in match.imports}
        added = import_edits(module, needed, self._project.import_style, min(edit.start for edit in owners))
        self._pieces.splice([*((edit, FOLLOWS) for edit in added), *owners.items()])
        self._pieces.splice(formatting_edits(module, owners, added, self._project.code_style))
        # A match that appears only in a later pass depends on earlier rewrites. If the match edits text that earlier
        # rewrites wrote, the match depends on only these rewrites. In all other cases, the match may depend on any
        # earlier rewrite.
        unexplained -= {later for _, later in self._pieces.joined}
        self._joined |= {(earlier, number) for number in unexplained for earlier in range(first)}
        style = self._project.import_style
        for dead in remove_newly_unused_names(
            module.text, self._pieces.text, lambda name: self._is_public(module, name), style
        ):
            self._pieces.splice((edit, FOLLOWS) for edit in dead)
        return self._pieces.text

    def _loader_calls_of_match(self, rule: Rule, match: RuleMatch) -> frozenset[tuple[str, int]]:
        """Return the loader calls whose rewrites must be accepted or refused together with a match.

        Each call is a pair: path of the original file, and line of the call.
        """
        if not rule.counts_sites:
            return match.together
        return frozenset({(self._original.path, self._original.position(self._pieces.origin(match.offset))[0])})

    def _is_public(self, module: Module, name: str) -> bool:
        project = self._project
        return is_imported_elsewhere(project, module, name) or is_named_in_strings(module, project, name)

    def result(self, text: str, findings: list[Finding]) -> FileResult:
        """Return the new text, its hunks, and all findings with the numbers of their hunks."""
        path = self._original.path
        if not self._done:
            return FileResult(path, text, tuple(sorted(findings, key=_sort_key)))
        public = frozenset(n for n in removable_import_names(self._original.text) if self._is_public(self._original, n))
        needed = [frozenset(match.imports) for _, match, _ in self._done]
        joined = self._joined | self._pieces.joined
        edits = list(self._pieces.edits())
        hunks, numbers = form_hunks(edits, joined, self._original.line_starts, needed, self._calls)
        if None in numbers or (
            self._passes > 1 and text_with_hunks(self._original, hunks, public, self._project.import_style) != text
        ):
            # The rewrites cannot be separated into hunks, so one hunk contains all changes.
            together = frozenset[str]().union(*self._calls)
            hunks, numbers = (
                (Hunk(1, whole_line_edits(self._original.text, text), together=together),),
                [1] * len(self._done),
            )
        findings += [replace(one, hunk=number) for (_, _, one), number in zip(self._done, numbers, strict=True)]
        return FileResult(path, text, tuple(sorted(findings, key=_sort_key)), hunks, public)


def applicable_rules(
    rules: Sequence[Rule], path: str, text: str, project: Project, *, is_rewritten: bool = False
) -> tuple[Rule, ...]:
    """Return the rules that may find something in a module.

    The function first searches the module for the trigger words of the rules, and then checks the ``ast`` tree.

    Args:
        rules: the rules to choose from.
        path: path of the module.
        text: text of the module. If the text is not valid Python, the function only searches for trigger words. A later
            step then parses the text and reports the error.
        project: the project that contains the module.
        is_rewritten: whether an earlier pass has rewritten the module.
    """
    by_words = [rule for rule in rules if rule.concerns(text, project)]
    if not by_words:
        return ()
    try:
        outline = Outline(path, text)
    except UnparsableModule:
        return tuple(by_words)
    return tuple(rule for rule in by_words if (rule.may_have_more if is_rewritten else rule.may_find)(outline, project))


def _rules_to_repeat(
    rules: Sequence[Rule],
    module: Module,
    project: Project,
    matches: Sequence[tuple[Rule, RuleMatch]],
    chosen: Sequence[tuple[Rule, RuleMatch]],
) -> Sequence[Rule]:
    """Return the rules that the next pass must run.

    These are the rules with matches in this pass, and the rules that may find something in the code that the chosen
    rewrites insert. If the rewrites of a chosen rule may change class or function definitions (see ``Rule.in_place``),
    the result is all ``rules``.
    """
    if not all(rule.in_place for rule, _ in chosen):
        return rules
    speaking, rewriters = {rule.code for rule, _ in matches}, frozenset(rule.code for rule, _ in chosen)
    return [rule for rule in rules if rule.code in speaking or rule.may_follow(module, project, rewriters)]


def _find_matches(rules: Sequence[Rule], module: Module, project: Project) -> list[tuple[Rule, RuleMatch]]:
    return [(rule, match) for rule in rules for match in rule.check(module, project)]


def _choose_matches(
    module: Module,
    project: Project,
    matches: Sequence[tuple[Rule, RuleMatch]],
    suppressions: Suppressions,
    unsafe: bool,
    skip_without_gain: bool,
) -> tuple[list[tuple[Rule, RuleMatch]], list[tuple[Rule, RuleMatch, FindingStatus]]]:
    """Return the matches to apply in this pass, and the matches that are only reported.

    A match is a place that a rule found, with the edits of the rewrite. The matches to apply do not overlap. A match
    that overlaps a chosen match is in neither list, because the next pass finds the match again.
    """
    chosen: list[tuple[Rule, RuleMatch]] = []
    remaining: list[tuple[Rule, RuleMatch, FindingStatus]] = []
    taken: list[Edit] = []
    defined: set[str] = set()
    # With --unsafe, the user requests changes of behaviour. So if two matches overlap, a match of a rule that changes
    # behaviour has priority.
    for rule, match in sorted(matches, key=lambda one: not unsafe or one[0].safety is not Safety.BEHAVIOUR):
        new = [edit for edit in match.edits if edit not in taken]  # matches may share the edit that defines a name
        defines = {name for edit in new for name in _DEFINITION.findall(edit.replacement)}
        if match.fine:
            remaining.append((rule, match, FindingStatus.FINE))
        elif suppressions.covers(rule.code, module.position(match.offset)[0]):
            remaining.append((rule, match, FindingStatus.SUPPRESSED))
        elif not match.edits:
            remaining.append((rule, match, FindingStatus.REPORT))
        elif skip_without_gain and match.gain is not None and match.gain.kind is GainKind.NOTHING:
            message = f"not rewritten: {match.gain.why}; with --all-loaders: {match.message}"
            remaining.append((rule, replace(match, message=message, why="no-gain"), FindingStatus.UNCHANGED))
        elif clash := _import_clash(module, project, match) if match.imports else "":
            # The rule's message describes the rewrite, which is not possible here, so the reason comes first.
            message = f"not rewritten: {clash}; without this name clash: {match.message}"
            remaining.append((rule, RuleMatch(match.offset, message, why="name-taken"), FindingStatus.REPORT))
        elif any(is_printed_by_fstring(module, edit.start, edit.end) for edit in match.edits):
            message = f"not rewritten: an f-string with `=` prints the code; without the `=`: {match.message}"
            remaining.append((rule, RuleMatch(match.offset, message, why="printed-code"), FindingStatus.REPORT))
        elif rule.safety is Safety.BEHAVIOUR and not unsafe and not match.by_default:
            remaining.append((rule, match, FindingStatus.OPT_IN))
        elif not defines & defined and not any(_overlap(edit, other) for edit in match.edits for other in taken):
            chosen.append((rule, match))
            taken += match.edits
            defined |= defines
    return chosen, remaining


def _import_clash(module: Module, project: Project, match: RuleMatch) -> str:
    """Return why a module cannot import or use a name that a match needs for its rewrite; "" without a problem."""
    needed = match.imports
    clashes = {
        "this file": conflicting_names(module, project, needed),
        "another file, which imports `*` from this file": names_conflicting_elsewhere(module, project, needed),
        "the surrounding code": shadowed_import_names(module, needed, match.edits),
    }
    for where, clash in clashes.items():
        if clash:
            names = " and ".join(f"`{name}`" for name in sorted(clash))
            return f"{names} already {'mean' if len(clash) > 1 else 'means'} something else in {where}"
    return ""


def _overlap(one: Edit, other: Edit) -> bool:
    if one.start == one.end or other.start == other.end:
        return one.start < other.end and other.start < one.end and (one.start, one.end) != (other.start, other.end)
    return one.start < other.end and other.start < one.end


def _sort_key(finding: Finding) -> tuple[int, int, str]:
    return finding.line, finding.column, finding.rule
