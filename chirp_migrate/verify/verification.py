"""A verification from the options to the exit code: what needs PyTorch, apart from the command line, which does not."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from chirp_migrate import __version__
from chirp_migrate.console import json_file as json_output
from chirp_migrate.console.paint import wrapped
from chirp_migrate.report.kept import keep_verdict, verified_files
from chirp_migrate.report.terminal.document import render_verdict
from chirp_migrate.report.verdict import read_verdict
from chirp_migrate.stats.looks import MIN_ROUNDS
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process import machine
from chirp_migrate.training.process.environment import describe_environment
from chirp_migrate.training.workload.entry_points import Source
from chirp_migrate.verify.equivalence.difference import Equivalence
from chirp_migrate.verify.measures.options import MeasureOptions
from chirp_migrate.verify.options import VerifyOptions
from chirp_migrate.verify.report import plots
from chirp_migrate.verify.report.document import exit_code, to_json, to_text
from chirp_migrate.verify.report.measures import drawn
from chirp_migrate.verify.report.showing import TABLE_WIDTH, Output
from chirp_migrate.verify.session import judge, measure
from chirp_migrate.verify.settings import Settings
from chirp_migrate.verify.sides.baseline import Before
from chirp_migrate.verify.sides.copies import find_training, make_sides
from chirp_migrate.verify.timing.children import Children
from chirp_migrate.verify.trial import Trial, fitting, try_out
from chirp_migrate.verify.verdict import Verdict

__all__ = ["show_failure", "verification"]


def verification(
    root: Path,
    before: Before,
    verified: Mapping[str, str | None],
    options: VerifyOptions,
    measuring: MeasureOptions,
    output: Output,
) -> int:
    """Measure, judge, show and keep; gives the exit code of the command.

    Args:
        root: the migrated project.
        before: the side before.
        verified: what is kept beside the verdict about the files that it speaks of.
        options: what is run.
        measuring: what is measured besides times, whether device steps are simulated, and where plots go.
        output: how it is shown.

    Raises:
        WorkloadFailed: the project's code failed on one of the sides.
    """
    threads = options.threads or machine.usable_cpus()
    settings = Settings(
        options.sizes,
        options.rounds,
        options.budget_s,
        options.threshold_percent / 100,
        threads,
        options.timeout_s,
        measuring,
        options.each,
        options.margin_percent / 100,
    )
    no_plots = None if measuring.plots is None else plots.prepare(measuring.plots)
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-verify-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder).resolve()
        sides = make_sides(root, before, options, scratch)
        for note in sides.notes:
            output.progress(note)
        discovery = find_training(sides, root, options, threads, output.progress)
        labels = [entry.label for entry in discovery.entry_points]
        what = f"{len(labels)} entry points" if options.source is Source.FOUND else ", ".join(labels)
        output.progress(f"verify runs the project's own code in separate processes: {what}")
        deadline = time.monotonic() + settings.budget_s
        children = Children(sides.trees, discovery, settings)
        trial, discovery = try_out(children, discovery, output.progress)
        if trial is not None:
            settings, trial = _fitted(settings, trial, deadline - time.monotonic(), output.progress)
            remaining = tuple(one for one in discovery.entry_points if one.label in trial.labels)
            discovery = replace(discovery, entry_points=remaining)
        measurements = measure(sides.trees, discovery, settings, output.progress, trial, deadline)
    outcome = judge(measurements, settings.threshold, settings.margin, settings.each)
    found = machine.describe(threads)
    environment = describe_environment()
    narrow = output.narrow_width()
    text = to_text(measurements, outcome, settings, discovery, found, output.verbose, narrow or TABLE_WIDTH)
    lines = []
    if output.verbose:
        lines += [f"Before: {before.described}."]
        lines += [_sentence(note) for note in sides.notes]
        lines += [f"Packages: {_listed(environment['packages'])}."]
        lines += [f"Environment variables: {_listed(environment['variables']) or 'none that matter'}."]
    values = {
        **to_json(measurements, outcome, settings, discovery, found),
        **_conditions(before.described, environment),
        "copies": list(sides.notes),
    }
    json_output.write(output.json_file, values)
    not_kept = keep_verdict(root, values, verified)
    lines += [not_kept] if not_kept is not None else []
    if measuring.plots is not None:
        lines.append(no_plots or drawn(measuring.plots, measurements, settings, machine.line(found)))
    if not output.verbose:
        lines.append(f"Everything measured: -v, --json FILE, or chirp-migrate report {root.name} -o report.html.")
    conditions = "\n".join(piece for line in lines for piece in wrapped(line, "  ", ""))
    if narrow is not None and output.verbose:
        told = read_verdict(json.dumps(values).encode())
        text = "".join(f"{line}\n" for line in render_verdict(told, width=narrow))
    output.show(text + conditions, outcome.decision.verdict)
    return exit_code(measurements, outcome)


def _fitted(settings: Settings, trial: Trial, left_s: float, progress: Callable[[str], None]) -> tuple[Settings, Trial]:
    """Settings and trial whose training fits into the seconds left; the trial has a note where it had to be reduced."""
    asked, of = settings.sizes, len(trial.labels) + len(trial.no_room)
    sizes, trial = fitting(trial, settings, left_s)
    settings = replace(settings, sizes=sizes)
    expected = f"watching and {MIN_ROUNDS} rounds will take about {trial.expected_s(settings):.0f} s"
    if sizes == asked and not trial.no_room:
        progress(f"{expected}; rounds go on until the verdict is settled, at most to {left_s:.0f} s from now")
        return settings, trial
    reduced = f"{sizes.epochs} of {asked.epochs} epochs and {sizes.samples} of {asked.samples} samples"
    if trial.no_room:
        reduced += f" in {len(trial.labels)} of {of} entry points"
    progress(f"{expected}, with {reduced}: a budget of {settings.budget_s:.0f} s has no room for all (see --budget)")
    left_out = f", which left out {', '.join(trial.no_room)} (see -k)" if trial.no_room else ""
    note = f"trained {reduced}, to keep to the budget of {settings.budget_s:.0f} s{left_out}"
    return settings, replace(trial, difference=trial.difference.joined(Equivalence(notes=(note,))))


def show_failure(path: Path, failure: WorkloadFailed, output: Output) -> None:
    """Print, write and keep the verdict ``failed``, with the end of what the project printed."""
    tail = failure.shown_tail
    found = machine.describe(machine.usable_cpus())
    values = {
        "schema": 1,
        "verdict": Verdict.FAILED.text,
        "exit_code": failure.exit_code,
        "reason": str(failure),
        "side": failure.side,
        "output_tail": tail,
        "machine": found,
        "described": {"rounds": "", "workload": "", "machine": machine.line(found)},
        **_conditions(None, describe_environment()),
    }
    json_output.write(output.json_file, values)
    root = path.resolve()
    not_kept = keep_verdict(root, values, verified_files(root))
    output.show(f"Verdict: {Verdict.FAILED.text}. {failure}", Verdict.FAILED)
    if not_kept is not None:
        output.progress(not_kept)
    if tail and not output.quiet:
        click.echo(f"The last lines it printed:\n{tail}", err=True)


def _conditions(before: str | None, environment: dict[str, Any]) -> dict[str, Any]:
    return {"tool": f"chirp-migrate {__version__}", "before": before, "environment": environment}


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
