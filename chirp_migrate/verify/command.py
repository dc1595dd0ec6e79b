"""``chirp-migrate verify PATH``: options, progress, exit codes, and cleaning up whatever happens."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from chirp_migrate.commit import recover
from chirp_migrate.errors import ChirpMigrateError
from chirp_migrate.verify import machine
from chirp_migrate.verify.errors import InvalidTree, VerifyError, WorkloadFailed
from chirp_migrate.verify.originals import original_files
from chirp_migrate.verify.report import to_json, to_text
from chirp_migrate.verify.session import MIN_ROUNDS, Settings, judge, measure
from chirp_migrate.verify.snapshot import copy_tree, restore
from chirp_migrate.verify.spec import write_json
from chirp_migrate.verify.verdict import Verdict
from chirp_migrate.verify.workload import Sizes, discover

__all__ = ["VerifyOptions", "run_verify", "verify"]

_INTERRUPTED = 130
_DEFAULTS = Sizes()


@dataclass(frozen=True)
class VerifyOptions:
    """Options of the command; see its ``--help``. ``threads=None`` takes every usable CPU."""

    sizes: Sizes = _DEFAULTS
    rounds: int = 5
    budget_s: float = 100.0
    threshold_percent: float = 20.0
    threads: int | None = None
    timeout_s: float = 600.0
    json_file: Path | None = None


@click.command(
    epilog=(
        "Exit codes: 0 faster by the threshold and equivalent; 10 not shown to be faster; 11 model-bound (no loader "
        "could save that much); 12 slower; 13 not equivalent; 14 the backend's code failed; 2 PATH is not a backend "
        "that can be verified; 3 nothing is applied there; 130 interrupted. Example: chirp-migrate verify ~/chirpid"
    )
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--rounds", type=click.IntRange(MIN_ROUNDS), default=5, show_default=True, help="Timed pairs of runs, at most."
)
@click.option(
    "--budget", type=click.FloatRange(0), default=100.0, show_default=True,
    help=f"Seconds for the rounds; {MIN_ROUNDS} are run in any case.",
)  # fmt: skip
@click.option("--samples", type=click.IntRange(48), default=_DEFAULTS.samples, show_default=True, help="Spectrograms.")
@click.option("--epochs", type=click.IntRange(1), default=_DEFAULTS.epochs, show_default=True, help="Epochs a fold.")
@click.option(
    "--batch-size", type=click.IntRange(1), default=_DEFAULTS.batch_size, show_default=True, help="Samples a batch."
)
@click.option(
    "--threshold", type=click.FloatRange(0, 100, max_open=True), default=20.0, show_default=True,
    help="Percent of the training time that must be saved.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(1), help="Compute threads on each side.  [default: the usable CPUs]")
@click.option(
    "--timeout", type=click.FloatRange(1), default=600.0, show_default=True,
    help="Seconds after which one process counts as hung.",
)  # fmt: skip
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all raw values here.")
def verify(
    path: Path,
    rounds: int,
    budget: float,
    samples: int,
    epochs: int,
    batch_size: int,
    threshold: float,
    threads: int | None,
    timeout: float,
    json_file: Path | None,
) -> None:
    """Show that the migrated backend at PATH trains faster, and the same.

    Runs the backend's own training entry points on synthetic spectrograms, as they were before the migration and
    as they are now, in separate processes and in turn. Both sides are copies in a temporary folder.
    """
    sizes = Sizes(samples=samples, epochs=epochs, batch_size=batch_size)
    options = VerifyOptions(sizes, rounds, budget, threshold, threads, timeout, json_file)
    sys.exit(run_verify(path, options))


def run_verify(path: Path, options: VerifyOptions) -> int:
    """Verify the migrated backend at ``path``, print the report, and give the exit code of the command."""
    try:
        with _signals_as_one_interrupt():
            return _verify(path, options)
    except WorkloadFailed as failure:
        click.echo(f"Verdict: {Verdict.FAILED.text}. {failure}")
        if failure.log_tail:
            click.echo(f"The last lines it printed:\n{failure.log_tail}", err=True)
        return failure.exit_code
    except ChirpMigrateError as error:
        click.echo(f"chirp-migrate: {error}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("Interrupted: the processes are stopped and the temporary files removed.", err=True)
        return _INTERRUPTED


def _verify(path: Path, options: VerifyOptions) -> int:
    if not path.is_dir():
        raise InvalidTree(f"{path} is not a folder: give the root of the migrated backend.")
    root = path.resolve()
    interrupted = recover(root)
    if interrupted is not None:
        click.echo(f"chirp-migrate: {interrupted}", err=True)
    originals = original_files(root)
    discover(root)
    threads = options.threads or machine.usable_cpus()
    settings = Settings(
        options.sizes,
        options.rounds,
        options.budget_s,
        options.threshold_percent / 100,
        threads,
        options.timeout_s,
    )
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-verify-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        trees = {side: scratch / side / "tree" for side in ("before", "after")}
        copied = copy_tree(root, trees["after"])
        copy_tree(root, trees["before"])
        restore(trees["before"], originals)
        discovery = discover(trees["before"])
        count = len(discovery.entry_points)
        progress = _progress()
        progress(f"verify runs the backend's own code in separate processes: {count} entry points")
        if copied.too_large:
            progress(f"left out of the copies for their size: {', '.join(copied.too_large)}")
        measurements = measure(trees, discovery, settings, scratch / "runs", progress)
    outcome = judge(measurements, settings.threshold)
    found = machine.describe(threads)
    click.echo(to_text(measurements, outcome, settings, discovery, found), nl=False)
    if options.json_file is not None:
        values = to_json(measurements, outcome, settings, discovery, found)
        try:
            write_json(options.json_file, json.loads(json.dumps(values)))
        except OSError as error:
            raise VerifyError(
                f"{options.json_file} cannot be written ({error.strerror}): give another --json."
            ) from None
    return outcome.decision.verdict.exit_code


def _progress() -> Callable[[str], None]:
    """One line on stderr for each process that ended, so that a log of it reads as well as a terminal."""

    def show(text: str) -> None:
        click.echo(f"  {text}", err=True)

    return show


@contextmanager
def _signals_as_one_interrupt() -> Iterator[None]:
    """SIGTERM cleans up as Ctrl-C does, and a second signal does not break into the cleaning up.

    Where handlers cannot be set (in another thread), they are left as they are.
    """
    caught = (signal.SIGINT, signal.SIGTERM)

    def interrupt(_signal: int, _frame: Any) -> None:
        for each in caught:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {each: signal.signal(each, interrupt) for each in caught}
    try:
        yield
    finally:
        for each, handler in earlier.items():
            signal.signal(each, handler)
