"""The verdict of a story as HTML: what was decided first, then the figures that it was decided on."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from chirp_migrate.console.paint import count
from chirp_migrate.plans.plan import Status
from chirp_migrate.report.page.charts import SIDES, time_bars, waits_plot
from chirp_migrate.report.page.html import DASH, MINUS, TIMES, escape
from chirp_migrate.report.story import Story
from chirp_migrate.report.verdict import EntryTimes, Figure, all_together, entry_times, figures, noticed, waits_ms
from chirp_migrate.verify.document import Interval, VerifyReport
from chirp_migrate.verify.measures.targets import TargetVerdict

__all__ = ["figures_section", "verdict_section"]

_TONES = {
    "faster": "good",
    "faster, entry points undecided": "open",
    "not shown to be faster": "open",
    "model-bound": "open",
}
_DIFFERENCES_SHOWN = 20


def verdict_section(story: Story) -> str:
    """What was decided, why, and the few figures that say most."""
    found = story.verdict
    parts = ['<section id="verdict" aria-labelledby="verdict-title">']
    if found is None:
        title = "A plan, not applied" if story.is_plan else "Not verified yet"
        parts.append(
            f'<h2 id="verdict-title" class="verdict open">{title}</h2><p>Whether training is faster, and still the '
            "same training, is shown by <code>chirp-migrate verify</code>, once it is applied; then this page has the "
            "verdict and its figures.</p>"
        )
    else:
        tone = _TONES.get(found.verdict, "bad")
        word = _capital(found.verdict)
        parts.append(f'<h2 id="verdict-title" class="verdict {tone}"><span>Verdict: </span>{escape(word)}</h2>')
        parts.append(f"<p>{escape(_sentence(_capital(found.reason)))}</p>")
        if found.simulated:
            parts.append(f'<p class="notice"><strong>Simulated.</strong> {escape(found.simulated.what)}</p>')
    parts += [f'<p class="notice" role="note">{escape(_sentence(one))}</p>' for one in story.notices]
    tiles = [*(_figure_tiles(found) if found is not None else ()), *_story_tiles(story)]
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong> <span>{escape(more)}</span></dd></div>"
        for name, value, more in tiles
    )
    return "\n".join([*parts, f'<dl class="tiles">{shown}</dl></section>'])


def figures_section(story: Story) -> str:
    """All figures of the verdict; nothing where there is none."""
    found = story.verdict
    if found is None:
        return ""
    parts = ['<section id="figures" aria-labelledby="figures-title"><h2 id="figures-title">Figures</h2>']
    parts += [_times(found)] if found.ratio is not None else []
    parts += [_same_training(found), _waits(found), _measures(figures(found)), _targets(found.targets), _output(found)]
    return "\n".join([*(part for part in parts if part), _conditions(found), "</section>"])


def _figure_tiles(found: VerifyReport) -> Iterable[tuple[str, str, str]]:
    if found.ratio is not None:
        yield "Training time saved", *_percent(found.ratio)
        fast, low, high = found.ratio.speed_up
        yield "Speed-up", f"{fast:.2f}{TIMES}", f"interval {low:.2f} to {high:.2f}"
        if found.perfect is not None:
            yield "Perfect loading would save", *_percent(found.perfect)
    if found.verdict != "failed":
        same = "no" if found.differences else "yes"
        more = count(len(found.differences), "difference") if found.differences else _compared(found)
        yield "The same training", same, more


def _story_tiles(story: Story) -> Iterable[tuple[str, str, str]]:
    ledgers = [run.ledger for run in story.runs if run.ledger is not None and run.ledger.counting]
    if ledgers:
        done = sum(one.sites.get(Status.REWRITE, 0) for one in ledgers)
        verb = "to migrate" if story.is_plan else "migrated"
        yield f"Loaders {verb}", str(done), f"of {max(one.found for one in ledgers)} found"
    files = [file for run in story.runs for file in run.files]
    rewritten = sum(file.action == "rewrite" for file in files)
    lines = f"+{sum(file.added for file in files):,} {MINUS}{sum(file.removed for file in files):,} lines"
    yield "Files", f"{rewritten} rewritten", f"{len(files) - rewritten} added, {lines}"


def _percent(ratio: Interval) -> tuple[str, str]:
    value, low, high = (100 * one for one in ratio.saved)
    return f"{value:.1f} %".replace("-", MINUS), f"interval {low:.1f} to {high:.1f} %".replace("-", MINUS)


def _compared(found: VerifyReport) -> str:
    """How much stands behind "the same": the JSON does not say how much could be compared."""
    augmented = len(found.smallest_adjusted_p)
    return "no difference found" + (f", {augmented} compared by distribution" if augmented else "")


def _times(found: VerifyReport) -> str:
    each, together = entry_times(found), all_together(found)
    entries = [*each, *([together] if together is not None and len(each) > 1 else [])]
    sides = [side for side in SIDES if any(entry.seconds.get(side) for entry in entries)]
    heads = "".join(f'<th scope="col" class="num">{SIDES[side]}, s</th>' for side in sides)
    # All together is the sum: on one scale with it the others could not be compared.
    longest = max((value for entry in each for values in entry.seconds.values() for value in values), default=1.0)
    rows = "".join(_time_row(entry, sides, longest, together=entry is together) for entry in entries)
    legend = "".join(f'<span><i class="swatch {side}"></i>{SIDES[side]}</span>' for side in sides)
    note = (
        "Medians of the rounds that count; thin lines go from the least to the most. "
        "[ ] are intervals of the paired ratios: each end is wrong at most 2.5 times in 100."
        + (" “Model only” is the same training fed from one cached batch." if "cached" in sides else "")
    )
    return (
        f'<h3>Training time</h3><p class="legend">{legend}</p><div class="wide"><table class="times"><thead><tr>'
        f'<th scope="col">entry point</th><th scope="col" class="chart"><span class="sr">chart</span></th>{heads}'
        '<th scope="col">speed-up</th><th scope="col">saved</th><th scope="col">by itself</th></tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="quiet">{note}</p>'
    )


def _time_row(entry: EntryTimes, sides: list[str], longest: float, *, together: bool) -> str:
    own = max((value for values in entry.seconds.values() for value in values), default=1.0)
    chart = time_bars(entry.seconds, own if together else longest)
    cells = ""
    for side in sides:
        seconds = entry.seconds.get(side)
        middle = f"{statistics.median(seconds):.2f}" if seconds else DASH
        cells += f'<td class="num" data-is="{SIDES[side]}, s">{middle}</td>'
    value, low, high = entry.ratio.speed_up
    fast = f"{value:.2f}{TIMES} [{low:.2f}, {high:.2f}]"
    value, low, high = (100 * one for one in entry.ratio.saved)
    saved = f"{value:.0f} % [{low:.0f}, {high:.0f}]".replace("-", MINUS)
    name = "all together" if together else entry.label
    shown = escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>")
    kind = ' class="together"' if together else ""
    return (
        f'<tr{kind}><th scope="row">{shown}</th><td class="chart">{chart}</td>{cells}'
        f'<td class="whole" data-is="speed-up">{fast}</td><td class="whole" data-is="saved">{saved}</td>'
        f'<td data-is="by itself">{escape(entry.verdict or DASH)}</td></tr>'
    )


def _same_training(found: VerifyReport) -> str:
    if found.verdict == "failed":
        return ""
    lines = [f"<li>{escape(_sentence(one.message))}</li>" for one in found.differences[:_DIFFERENCES_SHOWN]]
    hidden = len(found.differences) - _DIFFERENCES_SHOWN
    lines += [f"<li>And {hidden} more: <code>verify --json</code> has them.</li>"] if hidden > 0 else []
    if not found.differences:
        exact = len(found.ratios) - len(found.smallest_adjusted_p)
        if exact:
            lines.append(f"<li>{count(exact, 'entry point')}: no difference in what was compared.</li>")
        lines += [
            f"<li>{escape(label)}: compared by distribution, which is the same "
            f"(smallest adjusted p {p:.2g}{_noticed(noticed(found, label))}).</li>"
            for label, p in found.smallest_adjusted_p.items()
        ]
    lines += [f"<li>Note: {escape(_sentence(one))}</li>" for one in found.notes]
    title = "Not the same training" if found.differences else "The same training"
    return f"<h3>{title}</h3><ul>{''.join(lines)}</ul>" if lines else ""


def _noticed(share: float | None) -> str:
    """Behind the p of a test: what it could have found."""
    return "" if share is None else f"; {share:.2f} more or less of any probability would be noticed 9 times in 10"


def _waits(found: VerifyReport) -> str:
    waits = waits_ms(found)
    plot = waits_plot(waits)
    if not plot:
        return ""
    legend = "".join(f'<span><i class="swatch {side}"></i>{SIDES[side]}</span>' for side in waits)
    return (
        '<h3>Waiting for batches</h3><p class="quiet">Share of the training batches that came within a time; further '
        f'left is better.</p><p class="legend">{legend}</p>{plot}'
    )


def _measures(measures: list[Figure]) -> str:
    if not measures:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(one.title)}</th><td class="num" data-is="before">{_number(one.before)}</td>'
        f'<td class="num" data-is="after">{_number(one.after)}</td><td data-is="unit">{escape(one.unit)}</td>'
        f'<td class="quiet">{escape(one.method)}</td></tr>'
        for one in measures
    )
    return (
        f"<details><summary><h3>All measures ({len(measures)})</h3></summary>"
        '<div class="wide"><table class="measures"><thead><tr><th scope="col">measure</th>'
        '<th scope="col" class="num">before</th><th scope="col" class="num">after</th><th scope="col">unit</th>'
        f'<th scope="col">how it is taken</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def _targets(targets: list[TargetVerdict]) -> str:
    if not targets:
        return ""
    tones = {"met": "good", "not met": "bad"}
    rows = "".join(
        f'<li><strong class="badge {tones.get(one.verdict, "open")}">{escape(one.verdict)}</strong> '
        f"{escape(one.target)} ({escape(one.requirement)}): {escape(_sentence(one.why))}"
        f"{' <strong>Warning.</strong>' if one.warning else ''}</li>"
        for one in targets
    )
    return f'<h3>Targets, after the migration</h3><ul class="targets">{rows}</ul>'


def _output(found: VerifyReport) -> str:
    if not found.output_tail:
        return ""
    side = f" on the side {found.side}" if found.side else ""
    return f"<h3>The last lines that the project printed{escape(side)}</h3><pre>{escape(found.output_tail)}</pre>"


def _conditions(found: VerifyReport) -> str:
    known = (
        ("Compared with", found.before or ""),
        ("Trained", found.described.workload),
        ("Rounds", found.described.rounds),
        ("Machine", found.described.machine),
        ("Verified", found.created.replace("T", " ").replace("Z", " UTC")),
        ("By", found.tool),
    )
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in known if value)
    return f'<h3>Conditions</h3><dl class="conditions">{rows}</dl>' if rows else ""


def _number(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
