"""Render a report as one HTML file. The page loads no other file, and is also readable without JavaScript."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from chirp_migrate.console.text import as_sentence, format_time, format_value, pluralize
from chirp_migrate.doctor.report import problem_summary
from chirp_migrate.plans.plan import FindingStatus, Safety
from chirp_migrate.report.contents import RunDetails
from chirp_migrate.report.page.changes import FindingDetails, PageContents, group_findings_by_file
from chirp_migrate.report.page.charts import SIDES, batch_wait_plots, time_bars
from chirp_migrate.report.page.code import (
    LARGEST_INDENT,
    escape_invisible,
    line_numbers_of_section,
    section_html,
    source_line_html,
)
from chirp_migrate.report.verdict_rows import (
    EntryTimes,
    entry_point_times,
    measured_metrics,
    tone_of_verdict,
    total_times,
)
from chirp_migrate.report.wording import HUNK_KINDS, NOTES, SAFETIES, finding_count_rows, loader_count_rows
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.rules import all_rules
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.verify.verify_report import VerifyReport

#: Characters that look like ASCII characters, and are therefore written as escapes in this source file.
_DASH, _MINUS, _TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
#: CSS class for the colour of each outcome of a loader.
_SWATCHES = {
    FindingStatus.REWRITE: "migrated",
    FindingStatus.FINE: "fine",
    FindingStatus.UNCHANGED: "unchanged",
    FindingStatus.SUPPRESSED: "suppressed",
    FindingStatus.OPT_IN: "suggested",
    FindingStatus.REFUSED: "refused",
    FindingStatus.REPORT: "listed",
}
_DIFFERENCES_SHOWN = 20


def render_page(contents: PageContents) -> str:
    """Return the HTML of the whole report.

    The content security policy of the page permits only the script and the style sheet of the page. So source code in
    the report cannot run, even if a bug leaves the code unescaped.
    """
    style, script = _style_sheet(), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_content_hash(style)}'; script-src '{_content_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    report, found = contents.report, contents.report.verdict
    return (
        _jinja_environment()
        .get_template("page.html.j2")
        .render(
            contents=contents,
            policy=policy,
            style=style,
            script=Markup(script),
            title=f"{report.name}: migration report",
            made=_describe_runs(report.runs),
            number_of_hunks=sum(len(file.hunks) for file in contents.files),
            filters=_filter_choices(contents),
            left_out=[one for run in report.runs for one in run.plan.left_out],
            found=found,
            doctor=report.doctor,
            problems=[] if found is None else found.problems,
            doctor_summary="" if report.doctor is None else problem_summary(report.doctor),
            tiles=[*(_figure_tiles(found) if found is not None else ()), *_tiles_of_contents(contents)],
            reported=list(_group_reports(contents)),
            rules=_rules_of_report(contents),
            **({} if found is None else _metric_values(found)),
        )
    )


def _jinja_environment() -> Environment:
    """Return a Jinja environment that escapes all text and raises an error for undefined names."""
    made = Environment(
        loader=PackageLoader("chirp_migrate.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escape_invisible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rules = {rule.code: rule for rule in all_rules()}
    made.globals.update(SIDES=SIDES, NOTES=NOTES, KINDS=HUNK_KINDS, known_rules=rules)
    made.filters.update(
        breakable=_breakable,
        code=section_html,
        count=pluralize,
        moment=format_time,
        number=lambda value: _DASH if value is None else format_value(value),
        parts=_ledger_parts,
        places=_places,
        range=line_numbers_of_section,
        sentence=as_sentence,
        source=source_line_html,
        statuses=_statuses_with_texts,
    )
    return made


def _asset(name: str) -> str:
    return resources.files("chirp_migrate.report.page").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def _style_sheet() -> Markup:
    """Return the style sheet, with the dark colours and with a class for every indentation of code."""
    indents = "".join(f".code .w{width} {{ --in: min({width}ch, 30%); }}\n" for width in range(1, LARGEST_INDENT + 1))
    text = _asset("report.css").replace("/* dark */", _asset("dark.css").strip())
    return Markup(text.replace("/* indents */\n", indents))


def _content_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _describe_runs(runs: Iterable[RunDetails]) -> str:
    tools = dict.fromkeys(run.tool for run in runs)
    when = dict.fromkeys(run.created for run in runs)
    return " · ".join([*tools, *(f"applied {format_time(one)}" for one in when)])


def _filter_choices(contents: PageContents) -> list[tuple[str, str, list[tuple[str, str]]]]:
    findings = [one.finding for one in contents.findings]
    rules = sorted({(one.rule, one.name) for one in findings})
    paths = dict.fromkeys(file.path for file in contents.files)
    safeties = [safety.value for safety in Safety if any(one.safety is safety for one in findings)]
    return [
        ("file", "File", [(path, path) for path in paths]),
        ("rule", "Rule", [(rule, f"{rule} {name}") for rule, name in rules]),
        ("safety", "Safety", [(safety, safety) for safety in safeties]),
    ]


def _figure_tiles(found: VerifyReport) -> Iterator[tuple[str, str, str]]:
    if found.ratio is not None:
        yield "Training time saved", *_percent(found.ratio)
        fast, low, high = found.ratio.speed_up
        yield "Speed-up", f"{fast:.2f}{_TIMES}", f"interval {low:.2f} to {high:.2f}"
        if found.zero_cost_ratio is not None:
            yield "Zero-cost loading would save", *_percent(found.zero_cost_ratio)
    if found.verdict != "failed":
        augmented = len(found.smallest_adjusted_p)
        compared = "no difference found" + (f", {augmented} compared by distribution" if augmented else "")
        same = "no" if found.differences else "yes"
        yield (
            "The same training",
            same,
            pluralize(len(found.differences), "difference") if found.differences else compared,
        )


def _tiles_of_contents(contents: PageContents) -> Iterator[tuple[str, str, str]]:
    ledgers = [run.ledger for run in contents.runs if run.ledger is not None and run.ledger.counting]
    if ledgers:
        done = sum(one.sites.get(FindingStatus.REWRITE, 0) for one in ledgers)
        yield "Loaders migrated", str(done), f"of {max(one.found for one in ledgers)} found"
    files = contents.files
    rewritten = sum(file.action == "rewrite" for file in files)
    lines = f"+{sum(file.added for file in files):,} {_MINUS}{sum(file.removed for file in files):,} lines"
    yield "Files", f"{rewritten} rewritten", f"{len(files) - rewritten} added, {lines}"


def _percent(ratio: Ratio) -> tuple[str, str]:
    value, low, high = (100 * one for one in ratio.saved)
    return f"{value:.1f} %".replace("-", _MINUS), f"interval {low:.1f} to {high:.1f} %".replace("-", _MINUS)


def _metric_values(found: VerifyReport) -> dict[str, Any]:
    """Return the values for the part of the template that shows metrics, times and plots."""
    each, together = entry_point_times(found), total_times(found)
    entries = [*each, *([together] if together is not None and len(each) > 1 else [])] if together is not None else []
    # The bars of the total have their own scale. On this scale, the bars of single entry points would be too short.
    longest = max((value for entry in each for values in entry.seconds.values() for value in values), default=1.0)
    conditions = (
        ("Compared with", found.before),
        ("Trained", found.described.workload),
        ("Rounds", found.described.rounds),
        ("Machine", found.described.machine),
        ("Verified", format_time(found.created)),
        ("By", found.tool),
    )
    return {
        "tone": tone_of_verdict(found.verdict),
        "sides": [side for side in SIDES if any(entry.seconds.get(side) for entry in entries)],
        "times": [_time_row(entry, longest, together=entry is together) for entry in entries],
        "same": _same_training(found),
        "plots": batch_wait_plots(found),
        "measures": measured_metrics(found),
        "conditions": [(name, value) for name, value in conditions if value],
    }


def _time_row(entry: EntryTimes, longest: float, *, together: bool) -> dict[str, Any]:
    own = max((value for values in entry.seconds.values() for value in values), default=1.0)
    fast, fast_low, fast_high = entry.ratio.speed_up
    saved, low, high = (100 * one for one in entry.ratio.saved)
    return {
        "name": entry.label,
        "together": together,
        "chart": time_bars(entry.seconds, own if together else longest),
        "medians": {side: entry.median(side, _DASH) for side in SIDES},
        "speed_up": f"{fast:.2f}{_TIMES} [{fast_low:.2f}, {fast_high:.2f}]",
        "saved": f"{saved:.0f} % [{low:.0f}, {high:.0f}]".replace("-", _MINUS),
        "verdict": entry.verdict or _DASH,
    }


def _same_training(found: VerifyReport) -> list[str]:
    """Return a sentence for each difference between the trainings of both versions.

    If ``verify`` found no difference, return sentences that describe the comparison. If ``verify`` failed, the list is
    empty.
    """
    if found.verdict == "failed":
        return []
    lines = [f"{one.message.rstrip('.')}." for one in found.differences[:_DIFFERENCES_SHOWN]]
    hidden = len(found.differences) - _DIFFERENCES_SHOWN
    lines += [f"verify --json lists {hidden} more differences."] if hidden > 0 else []
    exact = len(found.ratios) - len(found.smallest_adjusted_p)
    if not found.differences and exact:
        lines.append(f"{pluralize(exact, 'entry point')}: no difference found.")
    for label, p in found.smallest_adjusted_p.items() if not found.differences else ():
        share = found.detectable_changes.get(label)
        could = "" if share is None else f"; 9 of 10 runs of verify find a probability that changed by {share:.2f}"
        lines.append(f"{label}: compared by distribution, no difference found (smallest adjusted p {p:.2g}{could}).")
    limits = [one for one in (found.described.compared, found.described.unseen) if one]
    return [*lines, *limits, *(f"Note: {one.rstrip('.')}." for one in found.notes)]


def _ledger_parts(ledger: LoaderLedger) -> list[dict[str, Any]]:
    """Return the parts of a bar that shows how many loaders have each outcome.

    Each part has the number of loaders, and its position and width. The whole bar has the width 100.
    """
    parts, position = [], 0.0
    for status, name, number in loader_count_rows(ledger):
        width = 100 * number / ledger.found if ledger.found else 0.0
        place = {"x": f"{position:.3f}", "width": f"{width:.3f}"}
        parts.append({"kind": _SWATCHES[status], "number": number, "name": name, **place})
        position += width
    return parts


def _statuses_with_texts(ledger: LoaderLedger) -> list[tuple[FindingStatus, str]]:
    """Return (status, text) for each status of the findings of this report."""
    together = Counter(status for counts in ledger.rules.values() for status in counts if counts[status])
    return [(status, word) for status, word, _ in finding_count_rows(together)]


def _group_reports(contents: PageContents) -> Iterator[tuple[str, list[tuple[str, list[list[FindingDetails]]]]]]:
    for run in contents.runs:
        which = f" (run {run.run.number})" if len(contents.runs) > 1 else ""
        for title, by_file in group_findings_by_file(run.reported):
            yield title + which, by_file


def _rules_of_report(contents: PageContents) -> list[tuple[str, str, str, str]]:
    """Return code, name, reason and safety of every rule with a finding in this report."""
    rules = {rule.code: rule for rule in all_rules()}
    first = {one.finding.rule: one.finding for one in reversed(contents.findings)}
    found = []
    for code, finding in sorted(first.items()):
        rule = rules.get(code)
        # The safety of a single finding may be "advice".
        safety, reason = (finding.safety, "") if rule is None else (rule.safety, rule.reason)
        found.append((code, finding.name, reason, f"{safety.value}: {SAFETIES[safety]}"))
    return found


def _places(same: Sequence[FindingDetails]) -> str:
    places = [one.finding.place for one in same]
    if same[0].finding.cell is not None:
        return "; ".join(place.capitalize() for place in places)
    return f"{'Line' if len(places) == 1 else 'Lines'} {', '.join(places)}"


def _breakable(name: str) -> Markup:
    """Render a path or label so that a browser may break the line after a slash, a dot or an underscore."""
    shown = escape(escape_invisible(name))
    for mark in "/._":
        shown = shown.replace(mark, Markup(f"{mark}<wbr>"))
    return shown
