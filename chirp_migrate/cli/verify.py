"""``chirp-migrate verify PATH``: options, progress, exit codes, and cleaning up whatever happens."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from chirp_migrate.cli.options import Command, counts, option, output_options, path_argument
from chirp_migrate.console.output import Output
from chirp_migrate.engine.discover import journal_root
from chirp_migrate.errors import ChirpMigrateError, UsageProblem
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.report.kept import keep_verdict, verified_files
from chirp_migrate.report.plots import drawn, prepare
from chirp_migrate.report.terminal.render import show_verify
from chirp_migrate.training.errors import InvalidTree, WorkloadFailed
from chirp_migrate.training.process.interrupts import signals_as_one_interrupt
from chirp_migrate.training.workload.choosing import call_of, chosen
from chirp_migrate.training.workload.entry_points import Source, call_options, discover
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.verify.document import VerifyReport
from chirp_migrate.verify.options import DEFAULT_WORKERS, VerifyOptions, resolve
from chirp_migrate.verify.sides.baseline import before_side

__all__ = ["verify"]

_DEFAULTS = VerifyOptions()
_trained = partial(option, group="What is trained")
_decided = partial(option, group="What is compared, and how it is decided")
_measured = partial(option, group="What is measured besides")
_EPILOG = """\b
Exit codes:
   0  faster by the threshold, and the same training
  10  not shown to be faster
  11  model-bound: no loader could save that much
  12  slower
  13  not equivalent: the training is not the same
  14  the project's code failed (the reason, the side and the end of its output are shown)
  15  faster, and of some entry points it is not shown whether they are slower
   2  PATH cannot be verified, nothing was applied there and no --baseline is given, or an option or setting is wrong
 130  interrupted; after three rounds the verdict so far is given

\b
Examples:
  chirp-migrate verify project/
  chirp-migrate verify project/ --list
  chirp-migrate verify project/ -k "training_utils and not augmentation" --epochs 4
  chirp-migrate verify project/ --data samples.npz --model utils.models:BirdCNN
  chirp-migrate verify project/ --baseline main --json report.json
  chirp-migrate verify trainer/ --workload chirp_verify.py:workload
  chirp-migrate verify trainer/ --command "{python} train.py --epochs {epochs}" --result metrics.json
"""


@click.command(
    cls=Command,
    former={
        "--against": "--baseline",
        "--each": "--per-entry",
        "--no-each": "--no-per-entry",
        "--rounds": "--max-rounds",
        "--budget": "--time-budget",
        "--threshold": "--min-saving",
        "--worker-counts": "--num-workers",
        "--plots": "--plot",
    },
    epilog=_EPILOG,
)
@path_argument
@_trained("--workload", metavar="FILE:FUNCTION", help="Function that gives the training calls (see init-workload).")
@_trained("--command", metavar="COMMAND", help="Time this command; {python}, {epochs}, … are filled in.")
@_trained("--result", metavar="FILE", help="File that the command writes, to be compared.")
@_trained("--data", type=click.Path(path_type=Path), help="Train on your samples: an .npz file or .npy files.")
@_trained("--model", metavar="MODULE:CLASS", help="Model to train.  [default: the one in utils/models.py]")
@_trained("--samples", type=int, help=f"Samples, at most those there are.  [default: {_DEFAULTS.sizes.samples}]")
@_trained("--shape", metavar="CxFxT", help="One synthetic sample.  [default: 1x224x313]")
@_trained("--classes", type=int, help=f"Classes of synthetic samples.  [default: {_DEFAULTS.sizes.classes}]")
@_trained("--epochs", type=int, help=f"Epochs a fold.  [default: {_DEFAULTS.sizes.epochs}]")
@_trained("--batch-size", type=int, help=f"Samples a batch.  [default: {_DEFAULTS.sizes.batch_size}]")
@_trained("--folds", type=int, help=f"Folds of cross-validation.  [default: {_DEFAULTS.sizes.folds}]")
@_trained("--seed", type=int, help=f"Of the data and of every training.  [default: {_DEFAULTS.sizes.seed}]")
@_trained(
    "-k", "--select", metavar="EXPRESSION",
    help='Only entry points whose names fit, as "k_fold and not backup".  [default: all]',
)  # fmt: skip
@_trained("--list", "list_", is_flag=True, help="Show the entry points and how they are called, and run nothing.")
@_decided("--baseline", metavar="REV|FOLDER", help="Compare with a git revision or a folder.  [default: before apply]")
@_decided("--max-rounds", type=int, help=f"Timed pairs of runs, at most.  [default: {_DEFAULTS.rounds}]")
@_decided(
    "--time-budget", type=float, metavar="SECONDS",
    help=f"Seconds for all trainings; what does not fit is reduced.  [default: {_DEFAULTS.budget_s:g}]",
)  # fmt: skip
@_decided(
    "--min-saving", type=float, metavar="PERCENT",
    help=f"Percent of the training time that must be saved.  [default: {_DEFAULTS.threshold_percent:g}]",
)  # fmt: skip
@_decided(
    "--margin", type=float, metavar="PERCENT",
    help=f"Percent by which an entry point must be slower to count.  [default: {_DEFAULTS.margin_percent:g}]",
)  # fmt: skip
@_decided(
    "--per-entry/--no-per-entry", default=None,
    help="Go on until each entry point's own verdict is known, too.  [default: the one of all together]",
)  # fmt: skip
@_decided("--threads", type=int, help="Compute threads on each side.  [default: the usable CPUs]")
@_decided(
    "--timeout", type=float, metavar="SECONDS",
    help=f"Seconds after which one process counts as hung.  [default: {_DEFAULTS.timeout_s:g}]",
)  # fmt: skip
@_measured(
    "--simulate-step-ms", type=click.FloatRange(0, 60_000), default=0.0, metavar="MS",
    help="Simulate a device that takes MS milliseconds for each training batch and uses no CPU.",
)  # fmt: skip
@_measured(
    "--num-workers", metavar="N,N,…", default=",".join(map(str, DEFAULT_WORKERS)), show_default=True,
    callback=counts(0, 64), help="Worker processes to try the migrated datasets with; '' for none.",
)  # fmt: skip
@_measured(
    "--measure-seconds", type=click.FloatRange(0, 3600), default=_DEFAULTS.extra_s, show_default=True, metavar="S",
    help="Seconds that each side may spend on measuring its datasets, beside training.",
)  # fmt: skip
@_measured(
    "--plot", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Draw the measurements into this folder (SVG).",
)  # fmt: skip
@output_options("all raw values", "Print the verdict alone.", "Show everything that was measured, and what it ran in.")
def verify(
    path: Path,
    baseline: str | None,
    list_: bool,
    plot: Path | None,
    output: Output,
    **given: Any,
) -> None:
    """Show that the migrated project at PATH trains faster, and the same.

    Runs the training as it was before the migration and as it is now, in separate processes and in turn. Both sides
    are copies in a temporary folder; PATH is only read, and what was found kept with its journal for `chirp-migrate
    report`. The entry points of a ChirpID-shaped backend are found by themselves and train on synthetic spectrograms or
    on --data; for others, `chirp-migrate init-workload PATH` writes a file that says what to train, or --command times
    a program. Options go before [tool.chirp-migrate.verify] in pyproject.toml.
    """
    act = partial(_list, path, baseline) if list_ else partial(_verify, path, baseline, plot)
    sys.exit(_guarded(path, output, lambda: act(given, output)))


def _guarded(path: Path, output: Output, act: Callable[[], int]) -> int:
    """The exit code that ``act`` gives; of what goes wrong with the user's side, one sentence is printed."""
    try:
        if output.quiet and output.verbose:
            raise UsageProblem("--quiet and --verbose contradict each other: give one of them.")
        with signals_as_one_interrupt():
            return act()
    except WorkloadFailed as failure:
        _show_failure(path.resolve(), failure, output)
        return failure.exit_code
    except ChirpMigrateError as error:
        click.echo(f"chirp-migrate: {error}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("Interrupted: the processes are stopped and the temporary files removed.", err=True)
        return ExitCode.INTERRUPTED


def _verify(path: Path, baseline: str | None, plot: Path | None, given: Mapping[str, Any], output: Output) -> int:
    root, options = _asked(path, given)
    before = before_side(root, baseline)
    verified = verified_files(root)
    if options.source is Source.FOUND:
        discover(root, options.model)  # what cannot be verified is said before anything is copied
    from chirp_migrate.verify.verification import verification  # imports PyTorch

    if plot is not None:
        prepare(plot)
    with output.steps(options.budget_s) as progress:
        report = verification(root, before, verified, options, progress)
    more = [_kept(root, report, output)]  # before the plots, which may not be writable
    if plot is not None:
        more.append(drawn(plot, report))
    if not output.verbose:
        more.append(f"Everything measured: -v, --json FILE, or chirp-migrate report {root.name} -o report.html.")
    _show(report, output, *filter(None, more))
    return report.exit_code


def _show(report: VerifyReport, output: Output, *more: str) -> None:
    """Print what the document says, with ``more`` after it, a sentence each."""
    screen = output.screen()
    show_verify(report, screen, quiet=output.quiet, verbose=output.verbose)
    for one in () if output.quiet else more:
        screen.text(one, hang=2)


def _kept(root: Path, report: VerifyReport, output: Output) -> str | None:
    """Write the document to where it was asked for, and beside the last run; a sentence where that cannot be."""
    output.write(report)
    return keep_verdict(root, report)


def _show_failure(root: Path, failure: WorkloadFailed, output: Output) -> None:
    from chirp_migrate.verify.build_report import failed_report  # imports PyTorch

    report = failed_report(failure, verified_files(root))
    not_kept = _kept(root, report, output)
    _show(report, output)
    if not_kept is not None:
        output.progress(not_kept)
    if report.output_tail and not output.quiet:
        click.echo(f"The last lines it printed:\n{report.output_tail}", err=True)


def _list(path: Path, baseline: str | None, given: Mapping[str, Any], output: Output) -> int:
    root, options = _asked(path, given)
    if options.source is Source.FOUND:
        discovery = chosen(discover(root, options.model), options.select)
    else:
        before = before_side(root, baseline)
        from chirp_migrate.verify.sides.copies import find_training, make_sides  # imports PyTorch

        with tempfile.TemporaryDirectory(prefix="chirp-migrate-verify-", ignore_cleanup_errors=True) as folder:
            scratch = Path(folder).resolve()
            trees, _ = make_sides(root, before, options, scratch)
            discovery = find_training(trees["before"], root, options, output.progress)
    calls = {one.label: call_of(one, discovery.model, options.sizes) for one in discovery.entry_points}
    found = [{"entry_point": label, "call": call} for label, call in calls.items()]
    output.write({"schema": 1, "entry_points": found, "left_out": list(discovery.left_out)})
    if not output.json_is_printed:
        screen = output.screen()
        for label, call in calls.items():
            screen.line(label, "bold")
            screen.text(call, 4)
        if any("config" in call for call in calls.values()):
            screen.text(f"config = {call_options(options.sizes)['config']}", hang=4)
        for reason in discovery.left_out:
            screen.text(f"Left out: {reason}.")
    return ExitCode.OK


def _asked(path: Path, given: Mapping[str, Any]) -> tuple[Path, VerifyOptions]:
    """The root of the project, after a run of ``apply`` there was brought to its end, and what is to be done."""
    if not path.is_dir():
        raise InvalidTree(f"{path} is not a folder: give the root of the migrated project.")
    root = path.resolve()
    interrupted = recover(journal_root(root))
    if interrupted is not None:
        click.echo(f"chirp-migrate: {interrupted}", err=True)
    return root, resolve(root, {name.replace("_", "-"): value for name, value in given.items()})
