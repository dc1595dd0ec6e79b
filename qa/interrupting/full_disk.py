"""Run ``apply`` and ``rollback`` on a small disk that becomes full.

The disk is a tmpfs (a file system in memory) in a separate mount namespace. This module runs as
``python -m qa.interrupting.full_disk`` inside ``unshare --user --map-root-user --mount``. There, mounting needs no
rights, and other processes do not see the mounts. The module reads a pickle from standard input, and writes a pickle of
the outcome of each run.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.harness import ROOT

from .checks import examine_tree
from .commands import CommandResult, Limit, run
from .kills import Outcome, Reference, run_next_command
from .trees import snapshot

__all__ = ["can_mount", "limited_apply", "run_on_full_disks"]

_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
_DISK_BYTES = 64 * 1024**2
#: Largest number of free memory pages on a disk that counts as full.
_PAGES = 8
#: Largest free space of a disk, as a multiple of the space that ``apply`` needs. If ``apply`` has enough space, the
#: check lets the rollback run on a full disk.
_BEYOND = 1.3
_FILLER = "filler.bin"


def can_mount(work: Path) -> bool:
    """Return whether this user may mount a tmpfs in a separate mount namespace."""
    try:
        tried = subprocess.run(
            [*_UNSHARE, "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(work)], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return tried.returncode == 0


def run_on_full_disks(work: Path, reference: Reference, count: int, seed: int) -> Iterator[Outcome]:
    """Run ``apply`` or ``rollback`` ``count`` times, each time on a disk with a random amount of free space.

    Args:
        work: empty folder in which the disks are mounted, in another mount namespace.
        reference: the run without interruption.
        count: number of runs.
        seed: seed of the random amounts of free space.

    Yields:
        The outcome of each run.

    Raises:
        RuntimeError: the process in the namespace failed.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    command = [*_UNSHARE, sys.executable, "-m", "qa.interrupting.full_disk"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        pickle.dump((work, reference, count, seed), process.stdin)
        process.stdin.close()
        with suppress(EOFError):
            while True:
                yield pickle.load(process.stdout)
    if process.returncode != 0:
        raise RuntimeError(f"the process of the runs on full disks ended with code {process.returncode}")


def limited_apply(work: Path, reference: Reference, rng: random.Random, compiled: set[str]) -> Outcome:
    """Run ``apply`` with a random limit on the size of written files, for machines on which no disk can be mounted."""
    outcome = Outcome("apply with the size of files limited", list(reference.options))
    root = work / "tree"
    shutil.copytree(reference.original, root, symlinks=True)
    largest = max(path.stat().st_size for path in (*reference.applied.rglob("*"),) if path.is_file())
    limit = Limit(int(2 ** rng.uniform(3, largest.bit_length())))
    _examine_and_recover(root, reference, rng, outcome, compiled, run("apply", *reference.options, root, limit=limit))
    return outcome


def _full_apply(disk: Path, reference: Reference, rng: random.Random, compiled: set[str], need: int) -> Outcome:
    outcome = Outcome("apply with the disk full", list(reference.options))
    root = disk / "tree"
    shutil.copytree(reference.original, root, symlinks=True)
    filler = _fill(disk, rng.randint(0, int(need * _BEYOND)))
    ended = run("apply", *reference.options, root)
    if ended.code == 0:  # the space was enough, so fill the disk for the rollback
        outcome.kind = "rollback with the disk full"
        filler.unlink()
        filler = _fill(disk, rng.randint(0, _PAGES) * 4096)
        ended = run("rollback", root)
    _examine_and_recover(root, reference, rng, outcome, compiled, ended, filler)
    return outcome


def _examine_and_recover(
    root: Path,
    reference: Reference,
    rng: random.Random,
    outcome: Outcome,
    compiled: set[str],
    ended: CommandResult,
    filler: Path | None = None,
) -> None:
    """Examine the tree after a command without enough space, and run the next command with enough space.

    Args:
        root: the tree.
        reference: the run without interruption.
        rng: the random generator that chooses the next command.
        outcome: the outcome of the run, to which the function adds its results.
        compiled: SHA-256 of Python sources that are known to compile. The function adds further sources.
        ended: the result of the command.
        filler: the file that fills the disk; None if the size of files was limited instead.
    """
    rollback = outcome.kind.startswith("rollback")
    outcome.interrupted = ended.code != 0
    if ended.code not in (0, 4):
        outcome.problems.append(f"the command ended with code {ended.code}: {ended.printed[-300:]}")
    found = examine_tree(root, reference.versions, compiled, rollback=rollback)
    outcome.phase, outcome.migrated_files = found.phase, found.migrated_files
    outcome.problems += found.problems
    unchanged = snapshot(root, journal=False) == (reference.versions.after if rollback else reference.versions.before)
    if ended.code == 4 and not unchanged and "the journal is kept" not in ended.printed:
        outcome.problems.append(f"files changed, but the command did not report this: {ended.printed[-300:]}")
    if filler is not None:
        filler.unlink()
    run_next_command(
        root, reference, rng, outcome, needs_recovery=found.needs_recovery, is_applied=found.phase == "applied"
    )
    outcome.printed = ended.printed.strip().splitlines()[-1] if ended.code else outcome.printed


def _fill(disk: Path, free: int) -> Path:
    """Fill the disk with a file that leaves ``free`` bytes, and return the path of this file."""
    filler = disk / _FILLER
    left = os.statvfs(disk)
    size = max(0, left.f_bavail * left.f_frsize - free)
    with filler.open("wb") as file:
        if size:
            os.posix_fallocate(file.fileno(), 0, size)
    return filler


@contextmanager
def _disk(at: Path) -> Iterator[Path]:
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "none", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)
        at.rmdir()


def _needed_bytes(disk: Path, reference: Reference) -> int:
    """Return the largest number of bytes that ``apply`` needs: the journal, and every new file next to its old version.

    The function measures the free space of ``disk`` before and after it copies the migrated tree.
    """
    shutil.copytree(reference.original, disk / "original", symlinks=True)
    before = os.statvfs(disk)
    shutil.copytree(reference.applied, disk / "applied", symlinks=True)
    after = os.statvfs(disk)
    shutil.rmtree(disk / "original")
    shutil.rmtree(disk / "applied")
    return (before.f_bavail - after.f_bavail) * after.f_frsize


def main() -> None:
    """Run commands on full disks, as the pickle from standard input describes, inside the mount namespace."""
    work, reference, count, seed = pickle.load(sys.stdin.buffer)
    rng, compiled = random.Random(seed), set[str]()
    with _disk(work / "measure") as disk:
        need = _needed_bytes(disk, reference)
    for number in range(count):
        with _disk(work / f"disk_{number}") as disk:
            outcome = _full_apply(disk, reference, rng, compiled, need)
        pickle.dump(outcome, sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
