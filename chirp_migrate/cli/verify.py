"""``chirp-migrate verify PATH``: measure whether training is faster and unchanged."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import Any

import click
import msgspec

from chirp_migrate.cli.command_settings import (
    DATA,
    EXPRESSION,
    MODEL,
    SCRIPT_ARGUMENT,
    SHAPE,
    WORKLOAD,
    make_settings_callback,
    values_from_options_and_settings,
)
from chirp_migrate.cli.options import (
    CommandWithOptionGroups,
    Number,
    WholeNumber,
    argument,
    non_empty_text,
    option,
    output_options,
)
from chirp_migrate.console.output import Output
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.console.text import pluralize
from chirp_migrate.engine.discover import journal_root
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode
from chirp_migrate.report.stored_results import hashes_of_written_files, store_result
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.stats.interim_analyses import MIN_ROUNDS
from chirp_migrate.training.errors import NoTrainingFound, WorkloadFailed
from chirp_migrate.training.process.guard import temporary_folder
from chirp_migrate.training.process.interrupts import sigterm_as_keyboard_interrupt
from chirp_migrate.training.workload.choosing import entry_point_call_text, select_entry_points
from chirp_migrate.training.workload.entry_points import TrainingSource, find_entry_points, training_function_arguments
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.verify.options import VerifyOptions, resolve_options
from chirp_migrate.verify.sides.baseline import find_original_version
from chirp_migrate.verify.verify_report import VerifyReport

_DEFAULTS = VerifyOptions()
_SIZES = _DEFAULTS.sizes
_TRAINED = "Training"
_DECIDED = "Comparison and verdict"
_trained = partial(option, group=_TRAINED, show_default=True, is_setting=True)
_decided = partial(option, group=_DECIDED, show_default=True, is_setting=True)
_EPILOG = """\b
Exit codes:
   0  faster by at least the threshold, and the training is the same
  10  not shown to be faster
  11  model-bound: no loader could save enough time to reach the threshold
  12  slower
  13  not equivalent: the training is not the same
  14  the project's code failed (verify shows the reason, the version that failed, and its last lines of output)
  15  with --strict: faster, but some entry points are inconclusive
   2  PATH cannot be verified, or an option or setting is wrong. Without --baseline: nothing was applied at PATH
   3  refused: the journal of earlier runs is damaged or cannot be trusted
 130  interrupted; if enough rounds were complete, the verdict so far is printed

\b
Examples:
  chirp-migrate verify project/
  chirp-migrate verify project/ --list
  chirp-migrate verify project/ -k "training_utils and not augmentation" --epochs 4
  chirp-migrate verify project/ --data samples.npz --model utils.models:BirdCNN
  chirp-migrate verify project/ --baseline main --json report.json
  chirp-migrate verify trainer/ -- python train.py --config small.yaml
  chirp-migrate verify trainer/ --workload chirp_verify.py:workload
"""


@click.command(
    cls=CommandWithOptionGroups,
    epilog=_EPILOG,
)
@argument(is_eager=True, callback=make_settings_callback("verify"))
@SCRIPT_ARGUMENT
@_trained(
    "--workload", type=WORKLOAD, metavar="FILE:FUNCTION",
    help="Function that returns the training calls to run (see init-workload).",
)  # fmt: skip
@_trained("--data", type=DATA, metavar="PATH", help="Train on your samples: an .npz file or .npy files.")
@_trained(
    "--model", type=MODEL, metavar="MODULE:CLASS", help="Model to train.  [default: the model in utils/models.py]"
)  # fmt: skip
@_trained(
    "--samples",
    type=WholeNumber(1),
    default=_SIZES.samples,
    metavar="N",
    help="Number of samples to train on, at most the number in --data. Entry points found automatically need at least "
    "48 samples.",
)
@_trained("--shape", type=SHAPE, default="1x224x313", metavar="CxFxT", help="Shape of a synthetic sample.")
@_trained(
    "--classes",
    type=WholeNumber(2),
    default=_SIZES.classes,
    metavar="N",
    help="Number of classes of synthetic samples.",
)
@_trained(
    "--epochs", type=WholeNumber(1), default=_SIZES.epochs, metavar="N",
    help="Minimum number of epochs in each round. The first epoch measures the start-up time.",
)  # fmt: skip
@_trained(
    "--own-epochs", type=WholeNumber(1), metavar="N",
    show_default="the default of the entry point, or 100 without a default",
    help="Number of epochs of your own training, for the predicted saving.",
)  # fmt: skip
@_trained("--batch-size", type=WholeNumber(1), default=_SIZES.batch_size, metavar="N", help="Samples per batch.")
@_trained("--folds", type=WholeNumber(2), default=_SIZES.folds, metavar="N", help="Number of cross-validation folds.")
@_trained("--seed", type=WholeNumber(0), default=_SIZES.seed, metavar="N", help="Random seed of data and training.")
@_trained(
    "-k", "--select", type=EXPRESSION, metavar="EXPRESSION",
    help='Run only entry points whose names match, such as "k_fold and not backup".  [default: all]',
)  # fmt: skip
@option(
    "--list", "list_", is_flag=True, group=_TRAINED,
    help="List the entry points and their calls; run nothing.",
)  # fmt: skip
@option(
    "--baseline", type=non_empty_text("a git revision or a folder"), metavar="REV|FOLDER", group=_DECIDED,
    is_setting=True, help="Compare with a git revision or a folder.  [default: the code before apply]",
)  # fmt: skip
@_decided(
    "--max-rounds", type=WholeNumber(MIN_ROUNDS), default=_DEFAULTS.max_rounds, metavar="N",
    help="Maximum number of rounds: each round times a new pair of processes.",
)  # fmt: skip
@_decided(
    "--time-budget", "budget_s", type=Number(0), default=_DEFAULTS.budget_s, metavar="SECONDS",
    help="Seconds for the whole command. With a small value, `verify` still compares every entry point.",
)  # fmt: skip
@_decided(
    "--min-saving", "threshold_percent", type=Number(0, 100, max_open=True), default=_DEFAULTS.threshold_percent,
    metavar="PERCENT", help="Smallest saving of training time for the verdict 'faster', in percent.",
)  # fmt: skip
@_decided(
    "--margin", "margin_percent", type=Number(0, 100, max_open=True), default=_DEFAULTS.margin_percent,
    metavar="PERCENT", help="How much slower an entry point may be, in percent.",
)  # fmt: skip
@_decided(
    "--strict/--no-strict", default=_DEFAULTS.strict,
    help="Exit with 15 if an entry point is inconclusive.",
)  # fmt: skip
@_decided(
    "--threads", type=WholeNumber(1), metavar="N", show_default="one for each free CPU",
    help="Number of compute threads for each version."
)  # fmt: skip
@_decided(
    "--timeout", "timeout_s", type=Number(1), default=_DEFAULTS.timeout_s, metavar="SECONDS",
    help="Seconds after which a process counts as hung.",
)  # fmt: skip
@option(
    "--simulate-step-ms", group="Other measurements", show_default=True, type=Number(0, 60_000), default=0,
    metavar="MS", help="Simulate a device that needs MS milliseconds per training batch and no CPU time.",
)  # fmt: skip
@output_options("all raw values", "Print only the verdict.", "Print all measurements and the environment.")
def verify(
    path: Path,
    baseline: str | None,
    list_: bool,
    output: Output,
    simulate_step_ms: float,
    **_settings: Any,
) -> None:
    """Measure whether the migrated project at PATH trains faster, and whether the training is otherwise unchanged.

    The command runs the training with the code before and after the migration, in separate processes that take turns.
    Both versions are copies in a temporary folder. The command changes no file of PATH except the journal, which stores
    the result for `chirp-migrate report`.

    `verify` finds the training functions of a ChirpID-shaped backend (in utils/) automatically. These functions train
    on synthetic spectrograms, or on the samples of --data. For any other project, pass the command that trains, as in
    `verify PATH -- python train.py`. `verify` watches the script, and ends it after a few epochs. Alternatively,
    `chirp-migrate init-workload PATH` writes a file that defines the training. Options override
    [tool.chirp-migrate.verify] in pyproject.toml.
    """
    asked = {**values_from_options_and_settings(click.get_current_context()), "simulate_step_ms": simulate_step_ms}
    if output.quiet and output.verbose:
        raise UsageProblem("--quiet and --verbose contradict each other: pass only one of them.")
    try:
        with sigterm_as_keyboard_interrupt():
            root, options = _resolve_request(path, asked)
            if list_:
                _list_entry_points(root, baseline, options, output)
                sys.exit(ExitCode.OK)
            sys.exit(_run_verification(root, path, baseline, options, output))
    except WorkloadFailed as failure:
        _show_failure(path.resolve(), failure, output)
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        click.echo("Interrupted: the processes are stopped and the temporary files removed.", err=True)
        sys.exit(ExitCode.INTERRUPTED)


def parse_verify_options(*arguments: str) -> VerifyOptions:
    """Return the options of ``verify`` from command-line arguments and the settings of the project.

    Raises:
        UsageProblem: see :func:`~chirp_migrate.verify.options.resolve_options` and :func:`.make_settings_callback`.
        click.UsageError: an argument is wrong.
    """
    with verify.make_context("verify", list(arguments)) as context:
        return resolve_options(context.params["path"].resolve(), values_from_options_and_settings(context))


def _run_verification(root: Path, path: Path, baseline: str | None, options: VerifyOptions, output: Output) -> int:
    deadline = time.monotonic() + options.budget_s
    with output.progress("reading the project and its journal") as progress:
        before = find_original_version(root, baseline)
        verified = hashes_of_written_files(root)
        if options.source is TrainingSource.FOUND:
            find_entry_points(root, options.model)  # report errors in the project before copying anything
        progress(ProgressStep("importing PyTorch"))
        from chirp_migrate.verify.session import verify_versions

        report = verify_versions(root, before, options, progress, deadline)
        from chirp_migrate.doctor.recording_of_verify import find_problems_in_passes

        has_own_data = options.source is not TrainingSource.FOUND or options.sizes.data is not None
        problems = find_problems_in_passes(report.passes.get("after", {}), has_own_data)
        report = msgspec.structs.replace(report, problems=problems, files=verified)
    output.write(report)
    more = [store_result(root, report)]
    if not output.verbose:
        page = f"chirp-migrate report {quote(str(path))} -o report.html"
        more.append(f"To see all measurements, use -v or --json FILE, or run: {page}")
    if report.problems:
        more.append(_hint_at_doctor(path, report))
    screen = output.screen()
    show_verify_report(report, screen)
    for one in () if output.quiet else filter(None, more):
        screen.text(one, hang=2)
    return report.exit_code


def _hint_at_doctor(path: Path, report: VerifyReport) -> str:
    """Return a sentence with the number of loading problems after the migration, and the command that shows them."""
    checks = ", ".join(dict.fromkeys(one.check for one in report.problems))
    context = click.get_current_context()
    words = [f"--workload={context.params['workload']}"] if context.params["workload"] else []
    script = context.params["script"]
    command = join(["chirp-migrate", "doctor", str(path), *words, *(("--", *script) if script else ())])
    them = "it" if len(report.problems) == 1 else "them"
    return f"Doctor: {pluralize(len(report.problems), 'problem')} ({checks}). See {them} with: {command}"


def _show_failure(root: Path, failure: WorkloadFailed, output: Output) -> None:
    from chirp_migrate.verify.build_report import build_failed_report  # imports PyTorch

    report = build_failed_report(failure, hashes_of_written_files(root))
    output.write(report)
    not_kept = store_result(root, report)
    show_verify_report(report, output.screen())
    if not_kept is not None:
        output.print_line(not_kept)
    if report.output_tail and not output.quiet:
        click.echo(f"The last lines that the project's code printed:\n{report.output_tail}", err=True)


def _list_entry_points(root: Path, baseline: str | None, options: VerifyOptions, output: Output) -> None:
    if baseline is not None:
        find_original_version(root, baseline)  # report an invalid --baseline, even with --list, which runs nothing
    if options.source is TrainingSource.FOUND:
        discovery = select_entry_points(find_entry_points(root, options.model), options.select)
    else:
        before = find_original_version(root, baseline)
        with (
            output.progress("importing PyTorch") as progress,
            temporary_folder("chirp-migrate-verify-") as folder,
        ):
            from chirp_migrate.verify.sides.copies import copy_both_versions, find_entry_points_before

            trees, _ = copy_both_versions(root, before, options, folder)
            discovery = find_entry_points_before(trees["before"], root, before, options, progress)
    calls = {one.label: entry_point_call_text(one, discovery.model, options.sizes) for one in discovery.entry_points}
    found = [{"entry_point": label, "call": call} for label, call in calls.items()]
    output.write({"schema": 1, "entry_points": found, "left_out": list(discovery.left_out)})
    if not output.json_is_printed:
        screen = output.screen()
        for label, call in calls.items():
            screen.line(label, "bold")
            screen.text(call, 4)
        if any("config" in call for call in calls.values()):
            screen.text(f"config = {training_function_arguments(options.sizes)['config']}", hang=4)
        for reason in discovery.left_out:
            screen.text(f"Omitted: {reason}.")


def _resolve_request(path: Path, asked: Mapping[str, Any]) -> tuple[Path, VerifyOptions]:
    """Recover from an interrupted run (see :func:`.recover`), and return the root of the project and the options."""
    if not path.is_dir():
        raise NoTrainingFound(f"{path} is not a folder: pass the root folder of the migrated project.")
    root = path.resolve()
    project = journal_root(root)
    interrupted = recover(project)
    if interrupted is not None:
        click.echo(f"chirp-migrate: {interrupted}", err=True)
    options = resolve_options(root, asked)
    if options.source is TrainingSource.FOUND and not (root / "utils").is_dir() and (project / "utils").is_dir():
        raise NoTrainingFound(
            f"{root} is only a part of the project {project}: run `chirp-migrate verify {quote(str(project))}`."
        )
    return root, options
