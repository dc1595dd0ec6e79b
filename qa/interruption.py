"""Kill runs at random moments and fill disks, and check that no file is ever lost or damaged.

The check runs the commands in separate processes on copies of a backend, in which `apply` rewrites some hundred files.
Some processes are killed with SIGKILL at random moments, mostly while they write. Other processes run on a disk without
enough space. In `interrupting/`, `trees.py` creates the backend, and `checks.py` examines the files. `kills.py` kills
processes, and `full_disk.py` fills disks. The check writes `interruption.json` (every run) and `interruption.md`
(counts).
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from benchmarks.harness import QA_RESULTS, Progress, conditions, end, write
from qa.interrupting import report
from qa.interrupting.full_disk import can_mount, limited_apply, run_on_full_disks
from qa.interrupting.kills import Outcome, Reference, kill_apply, kill_rollback, make_reference
from qa.interrupting.trees import build, digest

_MEMORY = Path("/dev/shm")
#: Largest number of runs, as a multiple of the wanted number. More runs than wanted are necessary, because a run that
#: ends before the kill does not count.
_TRIES = 3
_OPTIONS: tuple[tuple[str, ...], ...] = ((), ("--no-scaffold",), ("--vendor",))

Attempt = Callable[[Path, Reference, random.Random, set[str]], Outcome]


def _default_folder() -> Path:
    # A file system in memory is enough, because files in memory survive the kill of a process. On a disk, the check
    # would spend most of its time on waiting.
    return _MEMORY if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def _interrupted(
    work: Path, attempt: Attempt, references: list[Reference], count: int, seed: int, lanes: int
) -> Iterator[Outcome]:
    """Try to interrupt runs, ``lanes`` at a time, until ``count`` runs were interrupted. Yield the outcomes."""
    compiled: set[str] = set()

    def one(number: int) -> Outcome:
        rng = random.Random(f"{seed} {attempt.__name__} {number}")
        folder = work / f"{attempt.__name__}_{number}"
        folder.mkdir()
        outcome = attempt(folder, references[number % len(references)], rng, compiled)
        if not outcome.problems:  # keep the tree of a run with problems, so that developers can examine the tree
            shutil.rmtree(folder)
        return outcome

    interrupted = tried = 0
    with ThreadPoolExecutor(lanes) as pool:
        while interrupted < count and tried < _TRIES * count:
            numbers = range(tried, min(tried + min(count - interrupted, 2 * lanes), _TRIES * count))
            tried = numbers.stop
            for outcome in pool.map(one, numbers):
                interrupted += outcome.interrupted
                yield outcome


def _run_without_space(
    work: Path, references: list[Reference], count: int, seed: int, lanes: int, *, mount: bool
) -> Iterator[Outcome]:
    """Run commands without enough space until ``count`` runs failed, and yield the outcomes.

    The runs use full disks. If no disk can be mounted, the size of files is limited instead.
    """
    work.mkdir()
    if not mount or not can_mount(work):
        yield from _interrupted(work, limited_apply, references, count, seed, lanes)
        return
    wanted, number = count, 0
    while wanted > 0 and number < _TRIES * len(references):
        share = -(-count // len(references)) if number < len(references) else wanted
        folder = work / str(number)
        folder.mkdir()
        for outcome in run_on_full_disks(
            folder, references[number % len(references)], min(share, wanted), seed + number
        ):
            wanted -= outcome.interrupted
            yield outcome
        number += 1


_EPILOG = """\b
Examples:
  python -m qa interruption                                  # everything, about a quarter of an hour
  python -m qa interruption --kills 12 --rollbacks 4 --full 4 --files 40 --variants 1 --output /tmp/results
"""


@click.command(epilog=_EPILOG)
@click.option("--kills", type=click.IntRange(0), default=220, show_default=True, help="Runs of apply to kill.")
@click.option("--rollbacks", type=click.IntRange(0), default=60, show_default=True, help="Runs of rollback to kill.")
@click.option("--full", type=click.IntRange(0), default=60, show_default=True, help="Runs on a full disk.")
@click.option(
    "--files",
    type=click.IntRange(1),
    default=320,
    show_default=True,
    help="Python files that apply rewrites.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the tree and of all random moments.")
@click.option(
    "--variants",
    type=click.IntRange(1, len(_OPTIONS)),
    default=len(_OPTIONS),
    help="Sets of options for apply.",
)
@click.option("--no-mount", is_flag=True, help="Limit the size of files instead of mounting small disks.")
@click.option("--lanes", type=click.IntRange(1), default=2, show_default=True, help="Number of runs at the same time.")
@click.option("--folder", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Folder for the trees.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=QA_RESULTS,
    help="Folder for the results.  [default: qa/results]",
)  # fmt: skip
def main(
    kills: int,
    rollbacks: int,
    full: int,
    files: int,
    seed: int,
    variants: int,
    no_mount: bool,
    lanes: int,
    folder: Path | None,
    output: Path,
) -> None:
    """Interrupt runs at random, and check that every file is always equal to its old or its new version."""
    if not hasattr(os, "killpg"):
        raise click.ClickException("this check kills process groups of POSIX systems: run it on Linux or macOS.")
    progress = Progress()
    with tempfile.TemporaryDirectory(dir=folder or _default_folder(), prefix="chirp-migrate-bench-") as name:
        work = Path(name).resolve()
        build(work / "original", files, seed)
        references = []
        for number, options in enumerate(_OPTIONS[:variants]):
            (work / f"reference_{number}").mkdir()
            references.append(make_reference(work / f"reference_{number}", work / "original", options))
        outcomes: list[Outcome] = []
        for some in (
            _interrupted(work, kill_apply, references, kills, seed, lanes),
            _interrupted(work, kill_rollback, references, rollbacks, seed, lanes),
            _run_without_space(work / "disks", references, full, seed, lanes, mount=not no_mount),
        ):
            for outcome in some:
                outcomes.append(outcome)
                for problem in outcome.problems:
                    click.echo(f"{outcome.kind}, {outcome.phase}: {problem}", err=True)
                progress.count(len(outcomes), kills + rollbacks + full, every=20)
        python = [path for path in references[0].versions.before if path.endswith(".py")]
        settings = {
            **conditions(1),
            "folder": str(folder or _default_folder()),
            "seed": seed,
            "python_files": len(python),
            "not_rewritten": len(python) - sum(path.endswith(".py") for path in references[0].versions.rewritten),
            "tree": digest(references[0].versions.before),
            "seconds": round(progress.seconds, 1),
        }
    reached = report.goals(outcomes, kills, full)
    for line in (*report.summary(outcomes), *(f"{g.what}: {g.measured} (wanted {g.wanted})" for g in reached)):
        click.echo(line)
    text = report.as_markdown(outcomes, reached, settings)
    write(output, "interruption", text, report.as_data(outcomes, reached, settings))
    end(reached)
