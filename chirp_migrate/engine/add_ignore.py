"""Add comments that suppress all current findings, so that ``check`` counts only new findings (``--add-ignore``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from chirp_migrate.engine.project_files import decode_source
from chirp_migrate.engine.suppression import add_ignore_comments
from chirp_migrate.plans.plan import FilePlan, Finding, Plan, PlanOptions
from chirp_migrate.source.files import read_file
from chirp_migrate.source.text import SourceFile


def plan_ignore_comments(plan: Plan, findings: Iterable[Finding]) -> Plan:
    """Return a plan that adds ``# chirp: ignore[CODE]`` above the statement of each finding.

    Args:
        plan: the plan that contains the findings and the bytes of the files.
        findings: the findings to suppress.

    Raises:
        UnreadableSource: a file has changed since the plan was made.
    """
    by_file: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_file[finding.path].append(finding)
    planned = {file.path: file.before for file in plan.files}
    files = []
    for path, found in by_file.items():
        before = planned.get(path) or read_file(plan.root / path)
        source = decode_source(path, before)
        codes: dict[int, set[str]] = defaultdict(set)
        for one in found:
            line = one.line if isinstance(source, SourceFile) else source.line_of(one.cell or 0, one.line)
            codes[line].add(one.rule)
        files.append(FilePlan(path, before, source.encode(add_ignore_comments(source.text, codes)), "ignore"))
    return Plan(plan.root, tuple(files), (), (), options=PlanOptions(rules=plan.options.rules))
