"""``chirp-migrate doctor PATH``: run a training and report its loading problems."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chirp_migrate.cli.command_settings import EXPRESSION, SCRIPT_ARGUMENT, WORKLOAD
from chirp_migrate.cli.options import CommandWithOptionGroups, FilePath, Number, argument, option, output_options
from chirp_migrate.cli.verify import parse_verify_options
from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.console.output import STANDARD_OUTPUT, Output, check_writable, write_bytes
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.report.formats.sarif import sarif_of_doctor
from chirp_migrate.report.stored_results import store_result
from chirp_migrate.training.errors import WorkloadFailed


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "no problem was found",
            ExitCode.WORK_REMAINS: "problems were found",
            ExitCode.USAGE: "PATH or an option is invalid, or the training takes no batch from a PyTorch loader",
            ExitCode.WORKLOAD_FAILED: "the project's own code failed before any problem was found",
            ExitCode.INTERRUPTED: "interrupted; no process is left running",
        },
        "chirp-migrate doctor backend/",
        "chirp-migrate doctor . -- python train.py --lr 0.1",
        "chirp-migrate doctor . --json doctor.json -- python -m package.train",
        "chirp-migrate doctor . --sarif doctor.sarif",
    ),
)
@argument()
@SCRIPT_ARGUMENT
@option(
    "--workload", type=WORKLOAD, metavar="FILE:FUNCTION", group="What is run",
    help="Function that returns the training calls to run (see init-workload).",
)  # fmt: skip
@option(
    "-k", "--select", type=EXPRESSION, metavar="EXPRESSION", group="What is run",
    help='Run only entry points whose names match, such as "k_fold and not backup".  [default: all]',
)  # fmt: skip
@option(
    "--time-budget", "budget_s", type=Number(1, 86_400), default=120, show_default=True, metavar="SECONDS",
    group="What is run", help="Seconds for the whole command. To keep to this time, `doctor` ends long epochs early.",
)  # fmt: skip
@option(
    "--sarif", "sarif_file", type=FilePath(allow_dash=True), metavar="FILE", group="Output",
    help="Write the problems as SARIF 2.1.0 ('-': standard output).",
)  # fmt: skip
@output_options(
    "the problems, their evidence and what was run",
    "Print only the problems.",
    "Also print which training calls and loaders were watched.",
)
def doctor(
    path: Path,
    script: tuple[str, ...],
    workload: str | None,
    select: str | None,
    budget_s: float,
    sarif_file: Path | None,
    output: Output,
) -> None:
    """Run the training of the project at PATH for two short epochs, and report its loading problems.

    The training runs in a temporary copy, in a separate process. The command changes no file of PATH except the
    journal, which stores the result for `chirp-migrate report`. The command watches loaders, batches, worker processes,
    random states and datasets. It reports only problems that occurred, with the evidence, the file and line, and the
    fix (docs/doctor.md).

    You can pass a script, as in `doctor PATH -- python train.py`, or define training calls with --workload or in
    chirp_verify.py. Otherwise, the command runs the entry points (training functions) that `verify` finds
    automatically. You can run the command before and after a migration.
    """
    if not path.is_dir():
        raise UsageProblem(f"{path} is not a folder: pass the root folder of your project.")
    check_writable(sarif_file)
    if sarif_file is not None and sarif_file == output.json_file:
        raise UsageProblem("--json and --sarif name the same file: choose another file for one of them.")
    named = [f"--workload={workload}"] if workload is not None else []
    named += [f"--select={select}"] if select is not None else []
    options = parse_verify_options(*named, f"--time-budget={budget_s}", "--", str(path), *script)
    try:
        with output.progress("reading the project") as progress:
            from chirp_migrate.doctor.session import run_doctor

            report = run_doctor(path.resolve(), options, progress)
    except WorkloadFailed as failed:
        if failed.log_tail and not output.quiet:
            click.echo(f"The last lines that the project's code printed:\n{failed.shown_tail}", err=True)
        raise
    output.write(report)
    not_kept = store_result(path.resolve(), report)
    if sarif_file is not None:
        write_bytes(sarif_file, to_json_bytes(sarif_of_doctor(report, path.resolve())))
    from chirp_migrate.doctor.report import show_doctor_report

    show_doctor_report(report, output.screen(err=STANDARD_OUTPUT in (sarif_file, output.json_file)))
    if not_kept is not None:
        output.print_line(not_kept)
    sys.exit(report.exit_code)
