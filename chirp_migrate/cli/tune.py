"""``chirp-migrate tune PATH``: find the settings that load the training's data fastest on this machine."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from chirp_migrate.cli.command_settings import (
    REFERENCE,
    SCRIPT_ARGUMENT,
    WORKLOAD,
    are_unset_on_command_line,
    make_settings_callback,
)
from chirp_migrate.cli.options import (
    CommandWithOptionGroups,
    FilePath,
    Number,
    WholeNumbers,
    argument,
    collect_options,
    option,
    output_options,
)
from chirp_migrate.cli.verify import parse_verify_options
from chirp_migrate.console.output import Output
from chirp_migrate.errors import UsageProblem
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.tune import plot as plots
from chirp_migrate.tune.config import TuneConfig, read_config
from chirp_migrate.tune.report import show_tune_report
from chirp_migrate.tune.request import SettingsToMeasure, TuneTask
from chirp_migrate.tune.session import tune_project

_MOST_WORKERS = 64
_PLOT_NAME = "data_loading_performance.png"
_LOADERS = {"auto": None, "torch": False, "factory": True}


_data = partial(option, group="Data", is_setting=True)
_tried = partial(option, group="Search", is_setting=True)
_kept = partial(option, group="Saved results")


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "measured",
            ExitCode.USAGE: "PATH, an option, the dataset or the configuration is invalid",
            ExitCode.WORKLOAD_FAILED: "the project's code failed; the end of its output is shown",
            ExitCode.INTERRUPTED: "interrupted; no process is left running",
        },
        "chirp-migrate tune project/",
        "chirp-migrate tune trainer/ -- python train.py",
        "chirp-migrate tune project/ --num-workers 0,2,4,8 --plot workers.svg",
        "chirp-migrate tune . --dataset data.sets:train_set --unaugmented data.sets:plain_set",
        "chirp-migrate tune . --config configs/retinal.yaml --num-workers 0,2,4,8 --json tune.json",
    ),
)
@argument(is_eager=True, callback=make_settings_callback("tune"))
@SCRIPT_ARGUMENT
@option(
    "--workload",
    type=WORKLOAD,
    metavar="FILE:FUNCTION",
    group="Data",
    help="Function that returns the training calls to run (see init-workload).",
)
@_data(
    "--dataset", type=REFERENCE, metavar="MODULE:CALLABLE",
    help="Measure the dataset or loader that this callable returns.",
)  # fmt: skip
@_data(
    "--unaugmented",
    type=REFERENCE,
    metavar="MODULE:CALLABLE",
    help="Callable that returns the dataset of --dataset without augmentation.",
)
@_data(
    "--config", "config_file", type=FilePath(), metavar="FILE",
    help="Configuration file of the training (YAML, TOML or JSON) that sets data.* and training.batch_size. Without "
    "--dataset, it also defines the dataset to measure.",
)  # fmt: skip
@collect_options(
    "grid",
    SettingsToMeasure,
    _tried(
        "--num-workers", "workers", default="0,2,4,8", show_default=True, metavar="N,N,…",
        type=WholeNumbers(0, _MOST_WORKERS), help="Worker counts to try; 0 is always tried.",
    ),
    _tried(
        "--prefetch", default="2,4", show_default=True, metavar="N,N,…",
        type=WholeNumbers(1), help="Prefetch factors (batches per worker) to try.",
    ),
    _tried(
        "--batch-sizes", default="", metavar="N,N,…",
        type=WholeNumbers(1), help="Also measure the chosen setting at these batch sizes.",
    ),
    _tried(
        "--time-budget", "seconds", metavar="SECONDS", type=Number(1, 86_400), default=90,
        show_default=True,
        help="Seconds for the whole command. With --dataset or --config, three rounds always run, and may take longer.",
    ),
    _tried(
        "--loader", "migrated", type=click.Choice(list(_LOADERS)), default="auto", show_default=True,
        callback=lambda _context, _parameter, name: _LOADERS[name],
        help="Loader to measure: torch (PyTorch), factory (chirpid_patch), or auto (the loader of the training).",
    ),
    _tried(
        "--thread-safe/--no-thread-safe", default=False,
        help="Also try to load with threads; the dataset must be thread-safe.",
    ),
)  # fmt: skip
@_tried(
    "--timeout", type=Number(1), metavar="SECONDS",
    help="Seconds after which a process counts as hung.  [default: four times --time-budget, at least 600]",
)  # fmt: skip
@_kept(
    "--plot", type=FilePath(dir_okay=False), metavar="FILE",
    help="Plot the throughput for each number of workers (.svg, .png, .pdf).  "
    "[default with --config: a file in the folder that system.output_dir names]",
)  # fmt: skip
@_kept(
    "--save/--no-save",
    default=True,
    show_default=True,
    help="Save the chosen settings in a profile, which the factory of chirpid_patch reads.",
)
@_kept(
    "--profile", type=FilePath(dir_okay=False), metavar="FILE",
    help="File of the profile.  [default: CHIRPID_PROFILE, or the user's cache folder]",
)  # fmt: skip
@output_options("all raw values", "Print only the recommendations.", "Also print the rates of every round.")
def tune(
    path: Path,
    script: tuple[str, ...],
    workload: str | None,
    dataset: str | None,
    unaugmented: str | None,
    config_file: Path | None,
    grid: SettingsToMeasure,
    timeout: float | None,
    plot: Path | None,
    save: bool,
    profile: Path | None,
    output: Output,
) -> None:
    """Find the fastest loader settings of the project at PATH.

    `tune` runs the project's code in a separate process. It runs a training in a temporary copy, and records which
    loaders the training builds and how long the training waits for batches. With --dataset or --config, `tune` runs no
    training, and only reads the dataset that the option defines. `tune` finds the training functions of a
    ChirpID-shaped backend (in utils/) automatically. For any other project, pass a script, as in `tune PATH -- python
    train.py`, or define training calls with --workload or in chirp_verify.py.

    `tune` measures each number of workers with each prefetch factor. It chooses the setting with the fewest workers
    that is at most 5 % slower than the fastest setting (docs/tune.md). Options override [tool.chirp-migrate.tune] in
    pyproject.toml.
    """
    if not path.is_dir():
        raise UsageProblem(f"{path} is not a folder: pass the root folder of your project.")
    root = path.resolve()
    if not grid.prefetch:
        raise UsageProblem("--prefetch is empty: pass numbers of batches, such as 2,4.")
    if (workload is not None or script) and are_unset_on_command_line("dataset", "unaugmented", "config_file"):
        dataset = unaugmented = config_file = None
    if unaugmented is not None and dataset is None:
        raise UsageProblem("--unaugmented needs --dataset: pass both.")
    watches = dataset is None and config_file is None
    if (workload is not None or script) and not watches:
        given = "--workload" if workload is not None else "a command after --"
        raise UsageProblem(
            f"{given} runs a training, which determines the data, and cannot be combined with --dataset or --config: "
            "pass only the training or only the dataset."
        )
    if profile is not None and not save:
        raise UsageProblem("--profile and --no-save contradict each other: pass only one of them.")
    if config_file is not None and not config_file.exists() and (root / config_file).exists():
        config_file = root / config_file
    config = None if config_file is None else read_config(config_file)
    target = plot
    if target is not None:
        plots.check_can_plot(target)
    elif config is not None:
        target = _plot_path(root, config, output)
    request = TuneTask(
        str(root),
        grid,
        dataset or "",
        unaugmented or "",
        config,
        profile=str(_profile_path(profile)) if save else "",
    )
    named = [] if workload is None else [f"--workload={workload}"]
    training = parse_verify_options(*named, "--", str(root), *script) if watches else None
    timeout_s = max(600.0, 4 * grid.seconds) if timeout is None else timeout
    try:
        with output.progress("reading the project") as progress:
            report = tune_project(request, training, timeout_s, progress)
    except WorkloadFailed as failed:
        if failed.log_tail and not output.quiet:
            click.echo(f"The last lines that the project's code printed:\n{failed.shown_tail}", err=True)
        raise
    output.write(report)
    if target is not None:
        plots.draw_plot(target, report.loaders, report.described)
        output.print_line(f"plot: {target}")
    show_tune_report(report, output.screen())
    sys.exit(ExitCode.OK)


def _plot_path(root: Path, config: TuneConfig, output: Output) -> Path | None:
    """Return the path of the plot, in the folder ``system.output_dir`` of the configuration.

    If the configuration names no such folder, or if matplotlib is not installed, the result is None.
    """
    folder = config.system.get("output_dir")
    if not isinstance(folder, str) or not folder:
        return None
    target = root / folder / _PLOT_NAME
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        plots.check_can_plot(target)
    except OSError as error:
        raise UsageProblem(
            f"{target.parent} (system.output_dir) cannot be created ({error.strerror}): pass a file to --plot."
        ) from None
    except UsageProblem as problem:
        output.print_line(f"`tune` draws no plot: {problem}")
        return None
    return target


def _profile_path(given: Path | None) -> Path:
    if given is not None:
        return given.absolute()
    from chirpid_patch.loader_speed.profiles import default_profile_path

    return default_profile_path().absolute()
