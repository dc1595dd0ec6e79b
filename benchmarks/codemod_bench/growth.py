"""How the cost of a plan grows with the tree: processor time and memory of one tree, beside the sum of its parts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import TOOL, Progress

from .packages import Package, fetch, unpack

#: How many files a tree of the curve has at most.
SIZES = (500, 1_000, 2_000, 4_000)
#: What one tree may cost at most, by the sum of its parts; and how much memory one of its processes may take.
SHARE, MEGABYTES = 1.2, 250.0

_PLAN = [*TOOL, "apply", "--tests", "--diff"]


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds of processor time of all its processes, and megabytes of the largest."""

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Grown:
    """One tree of the curve.

    Attributes:
        files: Python files in it.
        packages: what it is made of.
        whole: planning it as one tree.
        parts: seconds of planning its packages one by one, the time that a command takes to start counted once.
    """

    files: int
    packages: int
    whole: Cost
    parts: float

    @property
    def share(self) -> float:
        """What one tree costs by what its parts cost."""
        return self.whole.seconds / self.parts


def measure(
    packages: Sequence[Package], sizes: Sequence[int], cache: Path, jobs: int, progress: Progress
) -> list[Grown]:
    """The curve: for each size a tree of packages, each taken in turn that still fits in."""
    with tempfile.TemporaryDirectory() as folder:
        roots = [unpack(fetch(one, cache), Path(folder) / "parts" / one.name) for one in packages]
        files = [sum(1 for _ in root.rglob("*.py")) for root in roots]
        trees = list(dict.fromkeys(_fitting(files, size) for size in sizes))
        (empty := Path(folder) / "empty").mkdir()
        (empty / "a.py").touch()
        start = _cost(empty, jobs).seconds
        parts = {}
        for number in sorted(set().union(*trees)):
            progress.step(f"{packages[number].name} alone")
            parts[number] = _cost(roots[number], jobs).seconds - start
        found = []
        for place, tree in enumerate(trees):
            whole = Path(folder) / "whole" / str(place)
            for number in tree:
                shutil.copytree(roots[number], whole / packages[number].name)
            count = sum(files[number] for number in tree)
            progress.step(f"{count} files as one tree")
            found.append(Grown(count, len(tree), _cost(whole, jobs), start + sum(parts[number] for number in tree)))
        return found


def _fitting(files: Sequence[int], size: int) -> tuple[int, ...]:
    """Positions of the packages that have at most ``size`` files together; the first one, whatever it has."""
    taken = [0]
    for number in range(1, len(files)):
        if sum(files[one] for one in taken) + files[number] <= size:
            taken.append(number)
    return tuple(taken)


def _cost(tree: Path, jobs: int) -> Cost:
    """What planning a tree takes.

    Raises:
        RuntimeError: the command ends with an error.
    """
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen([*_PLAN, "--jobs", str(jobs), str(tree)], stdout=output, stderr=output, cwd=tree)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 1):  # 1: files were left out that cannot be read
            output.seek(0)
            raise RuntimeError(f"chirp-migrate ended with {child.returncode}: {output.read()[-300:].decode()}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6)
