"""The account of a story as HTML: what became of every loader, what was left alone, and the rules that had a say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from chirp_migrate.console.paint import count
from chirp_migrate.plans.plan import Safety, Status
from chirp_migrate.report.page.changes import finding_item
from chirp_migrate.report.page.html import code, escape
from chirp_migrate.report.story import FindingStory, RunStory, Story
from chirp_migrate.review.account import Ledger
from chirp_migrate.rules import all_rules

__all__ = ["ledger_section", "reported_section", "rules_section"]

_STATUSES = (
    (Status.REWRITE, "migrated", "migrated"),
    (Status.FINE, "already fine", "fine"),
    (Status.SUPPRESSED, "suppressed", "suppressed"),
    (Status.REFUSED, "refused", "refused"),
    (Status.OPT_IN, "proposed", "proposed"),
    (Status.REPORT, "listed", "listed"),
)
_SAFETIES = {
    Safety.SAFE: "the same samples, order and values, or the same distribution of augmentations",
    Safety.BEHAVIOUR: "what training learns differs, so it is applied only with --unsafe",
    Safety.ADVICE: "reported, never rewritten",
}


def ledger_section(story: Story) -> str:
    """What became of everything that was found, for each run."""
    parts = ['<section id="ledger" aria-labelledby="ledger-title"><h2 id="ledger-title">Account</h2>']
    for run in story.runs:
        parts += [f"<h3>Run {run.number}</h3>"] if len(story.runs) > 1 else []
        parts.append(_account(run, planned=story.is_plan))
        parts += [f"<p>{escape(note)}</p>" for note in run.notes]
        if run.skipped:
            skipped = "".join(f"<li>{escape(one.path)}: {escape(one.reason)}</li>" for one in run.skipped)
            parts.append(f"<h3>Not handled</h3><ul>{skipped}</ul>")
    return "\n".join([*parts, "</section>"])


def reported_section(story: Story) -> str:
    """What was seen and not rewritten, with the reasons; findings that say the same stand together."""
    parts = [
        '<section id="reported" aria-labelledby="reported-title"><h2 id="reported-title">Left alone</h2>',
        '<p class="quiet">Seen and not rewritten, with the reason.</p>',
    ]
    advice = {rule.code for rule in all_rules() if rule.safety is Safety.ADVICE}
    for run in story.runs:
        sections = (
            ("Proposed: these change what training learns (--unsafe applies them)", _with(run, Status.OPT_IN)),
            ("Refused in the review", _with(run, Status.REFUSED)),
            ("Listed", [one for one in _with(run, Status.REPORT) if one.finding.rule not in advice]),
            ("Advice", [one for one in _with(run, Status.REPORT) if one.finding.rule in advice]),
            ("Suppressed by a comment or setting", _with(run, Status.SUPPRESSED)),
        )
        for title, found in sections:
            if found:
                which = f" (run {run.number})" if len(story.runs) > 1 else ""
                parts.append(f"<h3>{escape(title + which)}</h3>{_by_file(found)}")
    if len(parts) == 2:
        parts.append("<p>Nothing.</p>")
    return "\n".join([*parts, "</section>"])


def rules_section(story: Story) -> str:
    """Every rule that has a say in this story, in full."""
    said: dict[str, FindingStory] = {}
    for run in story.runs:
        for one in (*(one for file in run.files for hunk in file.hunks for one in hunk.findings), *run.reported):
            said.setdefault(one.finding.rule, one)
    items = "".join(
        f'<dt id="rule-{escape(rule)}"><span class="rule">{escape(rule)}</span> {escape(one.finding.name)}</dt>'
        f'<dd><p>{escape(one.reason or "This version does not know the rule.")}</p><p class="quiet">'
        f"{escape(_of_rule(one).value)}: {_SAFETIES[_of_rule(one)]}.</p></dd>"
        for rule, one in sorted(said.items())
    )
    listed = f"<dl>{items}</dl>" if items else "<p>None.</p>"
    return (
        '<section id="rules" aria-labelledby="rules-title"><h2 id="rules-title">Rules</h2>'
        f'<p class="quiet"><code>chirp-migrate explain CODE</code> shows an example of each.</p>{listed}</section>'
    )


def _of_rule(one: FindingStory) -> Safety:
    """The safety of a rule: that of a finding may only be that it is reported."""
    return next((rule.safety for rule in all_rules() if rule.code == one.finding.rule), one.finding.safety)


def _account(run: RunStory, *, planned: bool) -> str:
    ledger = run.ledger
    if ledger is None:
        return "<p>The journal of this run keeps no account.</p>"
    parts = [_loaders(ledger, planned=planned)] if ledger.counting else []
    if ledger.rules:
        statuses = [one for one in _STATUSES if any(counts.get(one[0]) for counts in ledger.rules.values())]
        names = {rule.code: rule.name for rule in all_rules()}
        heads = "".join(f'<th scope="col" class="num">{_word(status, word)}</th>' for status, word, _ in statuses)
        rows = "".join(
            f'<tr><th scope="row"><a class="rule" href="#rule-{escape(rule)}">{escape(rule)}</a> '
            f"{escape(names.get(rule, ''))}</th>"
            + "".join(
                f'<td class="num" data-is="{_word(status, word)}">{counts.get(status) or "·"}</td>'
                for status, word, _ in statuses
            )
            + "</tr>"
            for rule, counts in ledger.rules.items()
        )
        parts.append(
            f'<div class="wide"><table class="rules-table"><thead><tr><th scope="col">rule</th>{heads}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    if ledger.unread:
        parts.append(f"<p>{count(ledger.unread, 'file')} could not be handled: nothing in them is counted.</p>")
    return "".join(parts) or "<p>Nothing was found that a rule counts.</p>"


def _loaders(ledger: Ledger, *, planned: bool) -> str:
    """The loaders as a sum, and as a bar of its parts."""
    always = (Status.REWRITE, Status.FINE, Status.SUPPRESSED, Status.REPORT)
    parts, shapes, position = [], [], 0.0
    for status, word, kind in _STATUSES:
        number = ledger.sites.get(status, 0)
        if number or status in always:
            name = "to migrate" if planned and status is Status.REWRITE else word
            parts.append(f'<span><i class="swatch {kind}"></i>{number} {name}</span>')
        if number:
            width = 100 * number / ledger.found
            shapes.append(f'<rect class="{kind}" x="{position:.3f}" y="0" width="{width:.3f}" height="10"/>')
            position += width
    bar = (
        '<svg class="bars" viewBox="0 0 100 10" width="100%" height="10" preserveAspectRatio="none" aria-hidden="true" '
        f'focusable="false">{"".join(shapes)}</svg>'
        if shapes
        else ""
    )
    reasons = ", ".join(f"{number} {why}" for why, number in ledger.reasons.items())
    listed = f'<p class="quiet">Listed: {escape(reasons)}.</p>' if reasons else ""
    return (
        f'<p class="sum"><strong>{count(ledger.found, "loader")} found</strong> = {" + ".join(parts)}</p>{bar}{listed}'
    )


def _word(status: Status, word: str) -> str:
    return "rewritten" if status is Status.REWRITE else word


def _with(run: RunStory, status: Status) -> list[FindingStory]:
    return [one for one in run.reported if one.finding.status is status]


def _by_file(found: Sequence[FindingStory]) -> str:
    parts = []
    for path, group in groupby(found, key=lambda one: one.finding.path):
        own = list(group)
        items = "".join(_item(same) for same in _alike(own))
        parts.append(
            f'<details open class="file listed"><summary><h4>{escape(path).replace("/", "/<wbr>")}</h4> '
            f'<span class="quiet">{count(len(own), "finding")}</span></summary>'
            f'<ul class="findings">{items}</ul></details>'
        )
    return "".join(parts)


def _alike(found: Sequence[FindingStory]) -> list[list[FindingStory]]:
    """Findings that say the same, together; in the order of the first of each."""
    kinds: dict[tuple[str, str], list[FindingStory]] = {}
    for one in found:
        kinds.setdefault((one.finding.rule, one.finding.message), []).append(one)
    return list(kinds.values())


def _item(same: Sequence[FindingStory]) -> str:
    finding = same[0].finding
    lines = "".join(
        f'<code class="source" dir="ltr"><span class="quiet">{escape(one.finding.place)}</span> '
        f"{code(one.source.strip())}</code>"
        for one in same
        if one.source.strip()
    )
    return finding_item(
        same,
        lines,
        class_="item",
        data_count=str(len(same)),
        data_file=finding.path,
        data_rules=finding.rule,
        data_safety=finding.safety.value,
    )
