"""From a tree of files to a plan: read, let every rule propose, splice, repeat until nothing is left to propose.

Pure with respect to the tree: it reads files and returns a :class:`~chirp_migrate.plan.Plan`. The user's code is
never imported or run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from chirp_migrate.deadcode import remove_newly_dead
from chirp_migrate.discover import discover
from chirp_migrate.imports import conflicting, import_edits
from chirp_migrate.module import Module, UnparsableModule
from chirp_migrate.plan import Edit, FilePlan, Finding, Plan, Safety, Skipped, Status
from chirp_migrate.project import Project
from chirp_migrate.rules import Proposal, Rule, all_rules
from chirp_migrate.source import SourceFile, UnreadableSource, apply_edits

#: Rewrites that uncover work for another rule need another pass; code that never settles is a bug, not a user error.
_PASS_LIMIT = 12

Progress = Callable[[int, int, str], None]


def plan_tree(root: Path, *, unsafe: bool = False, progress: Progress | None = None) -> Plan:
    """Plan the migration of every Python file under ``root``.

    Args:
        root: folder of the backend, or one Python file.
        unsafe: also apply rules that change behaviour.
        progress: called as ``progress(done, total, path)``.

    Raises:
        chirp_migrate.errors.ChirpMigrateError: when ``root`` does not exist or holds no Python.
    """
    discovery = discover(root)
    sources: dict[str, SourceFile] = {}
    skipped: list[Skipped] = []
    for path in discovery.files:
        try:
            sources[path] = SourceFile.read(discovery.root / path)
        except (UnreadableSource, OSError) as error:
            skipped.append(Skipped(path, _reason(error)))
    notebooks = {path: _raw_text(discovery.root / path) for path in discovery.notebooks}
    project = Project({path: source.text for path, source in sources.items()}, notebooks)

    files: list[FilePlan] = []
    findings: list[Finding] = []
    candidates = [p for p, source in sources.items() if any(r.concerns(source.text, project) for r in all_rules())]
    for done, path in enumerate(candidates):
        if progress is not None:
            progress(done, len(candidates), path)
        source = sources[path]
        try:
            text, found = rewrite(path, source.text, project, unsafe=unsafe)
        except UnparsableModule as error:
            skipped.append(Skipped(path, str(error)))
            continue
        except Exception as error:  # a defect of one rule must not keep the other files from being migrated
            project.update(path, source.text)
            reason = f"internal error in a rule, please report it: {type(error).__name__}: {error}"
            skipped.append(Skipped(path, reason))
            continue
        findings += found
        if text != source.text:
            project.update(path, text)
            files.append(FilePlan(path, source.data, source.encode(text), "rewrite"))
    if progress is not None and candidates:
        progress(len(candidates), len(candidates), "")
    skipped += _unparsable(sources, candidates)
    return Plan(discovery.root, tuple(files), tuple(findings), tuple(skipped))


def _unparsable(sources: dict[str, SourceFile], parsed: Iterable[str]) -> list[Skipped]:
    """Files no rule looked at that are not Python at all: the user wants to know about those too."""
    skipped = []
    for path in sorted(sources.keys() - set(parsed)):
        try:
            compile(sources[path].data, path, "exec", dont_inherit=True, flags=ast.PyCF_ONLY_AST)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            skipped.append(Skipped(path, f"syntax error in line {line}" if line else f"not Python: {error}"))
    return skipped


def rewrite(
    path: str,
    text: str,
    project: Project,
    *,
    unsafe: bool = False,
    rules: Sequence[Rule] | None = None,
) -> tuple[str, list[Finding]]:
    """Apply the rules to one module until none of them proposes an edit.

    Returns:
        The new text and the findings, with lines and columns of the text as it was given.

    Raises:
        UnparsableModule: when ``text`` cannot be parsed.
    """
    original = text
    findings: list[Finding] = []
    chosen_rules = all_rules() if rules is None else rules
    for _ in range(_PASS_LIMIT):
        module = project.module(path) if project.text(path) == text else Module(path, text)
        position = _position_in(original, module)
        proposals = [
            (rule, proposal)
            for rule in chosen_rules
            if rule.concerns(text, project)
            for proposal in rule.check(module, project)
        ]
        chosen, remaining = _choose(module, proposals, unsafe)
        findings += [_finding(rule, proposal, path, position, Status.REWRITE) for rule, proposal in chosen]
        if not chosen:
            findings += [_finding(rule, p, path, position, status) for rule, p, status in remaining]
            findings.sort(key=lambda f: (f.line, f.column, f.rule))
            return text, findings
        edits = [edit for _, proposal in chosen for edit in proposal.edits]
        needed = {one for _, proposal in chosen for one in proposal.imports}
        spliced = apply_edits(text, [*edits, *import_edits(module, needed)])
        text = remove_newly_dead(text, spliced, lambda name, m=module: project.imported_elsewhere(m, name))  # type: ignore[misc]
        project.update(path, text)
    raise AssertionError(f"the rules do not settle on {path}")


def _choose(
    module: Module, proposals: Sequence[tuple[Rule, Proposal]], unsafe: bool
) -> tuple[list[tuple[Rule, Proposal]], list[tuple[Rule, Proposal, Status]]]:
    """Proposals to apply in this pass (none overlapping another), and those that stay findings."""
    chosen: list[tuple[Rule, Proposal]] = []
    remaining: list[tuple[Rule, Proposal, Status]] = []
    taken: list[Edit] = []
    for rule, proposal in proposals:
        clash = conflicting(module, proposal.imports)
        if not proposal.edits:
            remaining.append((rule, proposal, Status.REPORT))
        elif clash:
            names = ", ".join(sorted(clash))
            message = f"{proposal.message}; left alone, because {names} already means something else in this file"
            remaining.append((rule, Proposal(proposal.offset, message), Status.REPORT))
        elif rule.safety is Safety.BEHAVIOUR and not unsafe:
            remaining.append((rule, proposal, Status.OPT_IN))
        elif not any(_overlap(edit, other) for edit in proposal.edits for other in taken):
            chosen.append((rule, proposal))
            taken += proposal.edits
    return chosen, remaining


def _overlap(one: Edit, other: Edit) -> bool:
    if one.start == one.end or other.start == other.end:
        return one.start < other.end and other.start < one.end and (one.start, one.end) != (other.start, other.end)
    return one.start < other.end and other.start < one.end


def _position_in(original: str, module: Module) -> Callable[[int], tuple[int, int]]:
    """Map an offset of ``module`` to line and column of the text the user has."""
    if module.text == original:
        return module.position
    old, new = original.splitlines(), module.text.splitlines()
    lines: dict[int, int] = {}
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for j in range(j1, j2):
            lines[j + 1] = (i1 + (j - j1) if tag == "equal" else min(i1 + (j - j1), max(i2 - 1, i1))) + 1

    def position(offset: int) -> tuple[int, int]:
        line, column = module.position(offset)
        return lines.get(line, 1), column

    return position


def _finding(
    rule: Rule, proposal: Proposal, path: str, position: Callable[[int], tuple[int, int]], status: Status
) -> Finding:
    line, column = position(proposal.offset)
    safety = Safety.ADVICE if status is Status.REPORT else rule.safety
    return Finding(rule.code, rule.name, path, line, column, proposal.message, safety, status)


def _raw_text(path: Path) -> str:
    """Text of a notebook for looking up words in it; one that cannot be read imports nothing we could know of."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
