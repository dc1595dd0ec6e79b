"""``apply`` and ``rollback`` on a disk that fills up: a small tmpfs in a mount namespace of its own.

Run as ``python -m qa.interrupting.full_disk`` inside ``unshare --user --map-root-user --mount``, where mounting
is allowed and nobody else sees the mounts; reads one JSON object from standard input and writes one outcome a line.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT

from .checks import Sides, look
from .commands import Ended, Limit, run
from .kills import Outcome, Reference, finish
from .trees import snapshot

__all__ = ["can_mount", "limited_apply", "on_full_disks"]

_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
_DISK_BYTES = 64 * 1024**2
#: Pages of memory left at most on a disk that is called full.
_PAGES = 8
#: Free space reaches beyond what an apply needs: then it is its rollback that finds no room.
_BEYOND = 1.3
_FILLER = "filler.bin"


def can_mount(work: Path) -> bool:
    """Whether this user may mount a tmpfs in a namespace of their own."""
    try:
        tried = subprocess.run(
            [*_UNSHARE, "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(work)], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return tried.returncode == 0


def on_full_disks(work: Path, like: Reference, count: int, seed: int) -> Iterator[Outcome]:
    """``count`` runs, each on a disk with a random amount of free space.

    Args:
        work: empty folder; disks are mounted there, in another namespace.
        like: the undisturbed run.
        count: how many.
        seed: of the amounts.

    Raises:
        RuntimeError: the process in the namespace failed.
    """
    task = {"work": str(work), "count": count, "seed": seed, "reference": _as_json(like)}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    command = [*_UNSHARE, sys.executable, "-m", "qa.interrupting.full_disk"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        for line in process.stdout:
            yield Outcome(**json.loads(line))
    if process.returncode != 0:
        raise RuntimeError(f"the runs on full disks ended with {process.returncode}")


def limited_apply(work: Path, like: Reference, draw: random.Random, compiled: set[str]) -> Outcome:
    """Where nothing can be mounted: one ``apply`` that may only write files up to a random size."""
    outcome = Outcome("apply with the size of files limited", list(like.options))
    root = work / "tree"
    shutil.copytree(like.original, root, symlinks=True)
    largest = max(path.stat().st_size for path in (*like.applied.rglob("*"),) if path.is_file())
    limit = Limit(int(2 ** draw.uniform(3, largest.bit_length())))
    _judge(root, like, draw, outcome, compiled, run("apply", *like.options, root, limit=limit))
    return outcome


def _full_apply(disk: Path, like: Reference, draw: random.Random, compiled: set[str], need: int) -> Outcome:
    outcome = Outcome("apply with the disk full", list(like.options))
    root = disk / "tree"
    shutil.copytree(like.original, root, symlinks=True)
    filler = _fill(disk, draw.randint(0, int(need * _BEYOND)))
    ended = run("apply", *like.options, root)
    if ended.code == 0:  # there was room enough: then it is the rollback that has none
        outcome.kind = "rollback with the disk full"
        filler.unlink()
        filler = _fill(disk, draw.randint(0, _PAGES) * 4096)
        ended = run("rollback", root)
    _judge(root, like, draw, outcome, compiled, ended, filler)
    return outcome


def _judge(
    root: Path,
    like: Reference,
    draw: random.Random,
    outcome: Outcome,
    compiled: set[str],
    ended: Ended,
    filler: Path | None = None,
) -> None:
    """Look at what a command that found no room left, and go on with room again."""
    rollback = outcome.kind.startswith("rollback")
    outcome.interrupted = ended.code != 0
    if ended.code not in (0, 4):
        outcome.problems.append(f"it ended with {ended.code}: {ended.said[-300:]}")
    found = look(root, like.sides, compiled, rollback=rollback)
    outcome.phase, outcome.new = found.phase, found.new
    outcome.problems += found.problems
    unchanged = snapshot(root, journal=False) == (like.sides.after if rollback else like.sides.before)
    if ended.code == 4 and not unchanged and "the journal is kept" not in ended.said:
        outcome.problems.append(f"files changed, and nothing was said of it: {ended.said[-300:]}")
    if filler is not None:
        filler.unlink()
    finish(root, like, draw, outcome, to_recover=found.to_recover, standing=found.phase == "applied")
    outcome.said = ended.said.strip().splitlines()[-1] if ended.code else outcome.said


def _fill(disk: Path, free: int) -> Path:
    """Write a file that leaves ``free`` bytes of the disk, which is as good as full then."""
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


def _need(disk: Path, like: Reference) -> int:
    """Bytes that an undisturbed apply takes at most: its journal, and every new file beside the old one."""
    shutil.copytree(like.original, disk / "original", symlinks=True)
    before = os.statvfs(disk)
    shutil.copytree(like.applied, disk / "applied", symlinks=True)
    after = os.statvfs(disk)
    shutil.rmtree(disk / "original")
    shutil.rmtree(disk / "applied")
    return (before.f_bavail - after.f_bavail) * after.f_frsize


def _as_json(like: Reference) -> dict[str, Any]:
    return {**asdict(like), "original": str(like.original), "applied": str(like.applied)}


def _from_json(content: dict[str, Any]) -> Reference:
    sides = Sides(*({path: tuple(one) for path, one in content["sides"][side].items()} for side in ("before", "after")))
    paths = {name: Path(content[name]) for name in ("original", "applied")}
    return replace(Reference(**{**content, **paths}), sides=sides, options=tuple(content["options"]))


def main() -> None:
    """The process in the namespace."""
    task = json.load(sys.stdin)
    like, work, draw = _from_json(task["reference"]), Path(task["work"]), random.Random(task["seed"])
    compiled: set[str] = set()
    with _disk(work / "measure") as disk:
        need = _need(disk, like)
    for number in range(task["count"]):
        with _disk(work / f"disk_{number}") as disk:
            outcome = _full_apply(disk, like, draw, compiled, need)
        print(json.dumps(outcome.to_json()), flush=True)


if __name__ == "__main__":
    main()
