"""Runs killed and disks filled at random, and whether anything is ever lost.

Real processes of the command line work on copies of a backend in which some hundred files are rewritten. They are
killed with SIGKILL at random instants, most of them while they write; others find no room on a disk. See
`interrupting/` for the tree (`trees.py`), what is checked in between (`checks.py`), the kills (`kills.py`) and
the full disks (`full_disk.py`). Writes `interruption.json` (every run) and `interruption.md` (counts).
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
from qa.interrupting.full_disk import can_mount, limited_apply, on_full_disks
from qa.interrupting.kills import Outcome, Reference, kill_apply, kill_rollback, reference
from qa.interrupting.trees import build, digest

_MEMORY = Path("/dev/shm")
#: A run that ended before it could be killed does not count; so many more are tried at most.
_TRIES = 3
_OPTIONS: tuple[tuple[str, ...], ...] = ((), ("--no-scaffold",), ("--vendor",))

Attempt = Callable[[Path, Reference, random.Random, set[str]], Outcome]


def _default_folder() -> Path:
    # A killed process loses nothing that is in memory, and waiting for a disk would be all that is measured.
    return _MEMORY if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def _interrupted(
    work: Path, attempt: Attempt, likes: list[Reference], count: int, seed: int, lanes: int
) -> Iterator[Outcome]:
    """Attempts, ``lanes`` at a time, until ``count`` of them were interrupted."""
    compiled: set[str] = set()

    def one(number: int) -> Outcome:
        draw = random.Random(f"{seed} {attempt.__name__} {number}")
        folder = work / f"{attempt.__name__}_{number}"
        folder.mkdir()
        outcome = attempt(folder, likes[number % len(likes)], draw, compiled)
        if not outcome.problems:  # others are left to be looked at
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


def _without_room(
    work: Path, likes: list[Reference], count: int, seed: int, lanes: int, *, mount: bool
) -> Iterator[Outcome]:
    """Runs on full disks, or where none can be mounted with the size of files limited, until ``count`` failed."""
    work.mkdir()
    if not mount or not can_mount(work):
        yield from _interrupted(work, limited_apply, likes, count, seed, lanes)
        return
    wanted, number = count, 0
    while wanted > 0 and number < _TRIES * len(likes):
        share = -(-count // len(likes)) if number < len(likes) else wanted
        folder = work / str(number)
        folder.mkdir()
        for outcome in on_full_disks(folder, likes[number % len(likes)], min(share, wanted), seed + number):
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
@click.option("--full", type=click.IntRange(0), default=60, show_default=True, help="Runs that find a full disk.")
@click.option(
    "--files", type=click.IntRange(1), default=320, show_default=True, help="Python files that are rewritten."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the tree and of all instants.")
@click.option(
    "--variants", type=click.IntRange(1, len(_OPTIONS)), default=len(_OPTIONS), help="Sets of options of apply."
)
@click.option("--no-mount", is_flag=True, help="Limit the size of files, also where a small disk could be mounted.")
@click.option("--lanes", type=click.IntRange(1), default=2, show_default=True, help="Runs at a time.")
@click.option("--folder", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Where trees are made.")
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
    """Interrupt runs at random, and see whether every file is always wholly old or wholly new, and none is lost."""
    if not hasattr(os, "killpg"):
        raise click.ClickException("processes are killed as POSIX systems do it: run this on Linux or macOS.")
    progress = Progress()
    with tempfile.TemporaryDirectory(dir=folder or _default_folder(), prefix="chirp-migrate-bench-") as name:
        work = Path(name).resolve()
        build(work / "original", files, seed)
        likes = []
        for number, options in enumerate(_OPTIONS[:variants]):
            (work / f"reference_{number}").mkdir()
            likes.append(reference(work / f"reference_{number}", work / "original", options))
        outcomes: list[Outcome] = []
        for some in (
            _interrupted(work, kill_apply, likes, kills, seed, lanes),
            _interrupted(work, kill_rollback, likes, rollbacks, seed, lanes),
            _without_room(work / "disks", likes, full, seed, lanes, mount=not no_mount),
        ):
            for outcome in some:
                outcomes.append(outcome)
                for problem in outcome.problems:
                    click.echo(f"{outcome.kind}, {outcome.phase}: {problem}", err=True)
                progress.count(len(outcomes), kills + rollbacks + full, every=20)
        python = [path for path in likes[0].sides.before if path.endswith(".py")]
        settings = {
            **conditions(1),
            "folder": str(folder or _default_folder()),
            "seed": seed,
            "python_files": len(python),
            "not_rewritten": len(python) - sum(path.endswith(".py") for path in likes[0].sides.rewritten),
            "tree": digest(likes[0].sides.before),
            "seconds": round(progress.seconds, 1),
        }
    reached = report.goals(outcomes, kills, full)
    for line in (*report.summary(outcomes), *(f"{g.what}: {g.measured} (wanted {g.wanted})" for g in reached)):
        click.echo(line)
    text = report.as_markdown(outcomes, reached, settings)
    write(output, "interruption", text, report.as_data(outcomes, reached, settings))
    end(reached)
