"""Measure how the time, memory and findings of a plan grow with the number of files in a folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import TOOL, Progress

from .packages import Package, fetch, unpack

#: Largest numbers of files in the trees of the curve.
SIZES = "500,1000,2000,4000"
#: Largest cost of a tree / cost of its parts, and largest memory of one process in megabytes.
SHARE, MEGABYTES = 1.2, 250.0
#: Rules that read all files of a project, so that their findings may differ in a tree of several packages.
WHOLE_PROJECT = ("CHP013", "CHP018", "CHP024", "CHP025")

#: (path below the folder of all packages, rule) → number of findings.
Findings = Counter[tuple[str, str]]

_PLAN = [*TOOL, "apply", "--tests", "--all-loaders", "--diff"]


@dataclass(frozen=True)
class Cost:
    """The cost of a command.

    Attributes:
        seconds: CPU seconds of all processes of the command.
        megabytes: memory of its largest process in megabytes.
    """

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Grown:
    """The result for one tree, which consists of several packages.

    Attributes:
        files: number of Python files in the tree.
        packages: number of packages in the tree.
        whole: cost of planning the whole tree at once.
        parts: CPU seconds of planning its packages one by one. The start of the command counts once.
        unshared: rule → number of findings that occur either only in the whole tree or only in the single packages.
    """

    files: int
    packages: int
    whole: Cost
    parts: float
    unshared: dict[str, int]

    @property
    def share(self) -> float:
        """Return CPU seconds for the whole tree / CPU seconds for its packages one by one."""
        return self.whole.seconds / self.parts

    @property
    def unexplained(self) -> int:
        """Return the number of unshared findings, except findings of rules that read the whole project."""
        return sum(count for rule, count in self.unshared.items() if rule not in WHOLE_PROJECT)


def measure(
    packages: Sequence[Package], sizes: Sequence[int], cache: Path, jobs: int, progress: Progress
) -> list[Grown]:
    """Measure a tree for each size. The tree has as many packages as fit into this number of Python files."""
    with tempfile.TemporaryDirectory() as folder:
        roots = [unpack(fetch(one, cache), Path(folder) / "parts" / one.name) for one in packages]
        files = [sum(1 for _ in root.rglob("*.py")) for root in roots]
        trees = list(dict.fromkeys(_fitting(files, size) for size in sizes))
        (empty := Path(folder) / "empty").mkdir()
        (empty / "a.py").touch()
        start = _plan(empty, jobs)[0].seconds
        parts = {}
        for number in sorted(set().union(*trees)):
            progress.step(f"{packages[number].name} alone")
            cost, findings = _plan(roots[number], jobs, f"{packages[number].name}/")
            parts[number] = cost.seconds - start, findings
        found = []
        for place, tree in enumerate(trees):
            whole = Path(folder) / "whole" / str(place)
            for number in tree:
                shutil.copytree(roots[number], whole / packages[number].name)
            count = sum(files[number] for number in tree)
            progress.step(f"{count} files as one tree")
            cost, findings = _plan(whole, jobs)
            seconds = start + sum(parts[number][0] for number in tree)
            alone = sum((parts[number][1] for number in tree), Findings())
            found.append(Grown(count, len(tree), cost, seconds, _unshared(findings, alone)))
        return found


def _fitting(files: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the positions of packages that together have at most ``size`` files, and at least the first package."""
    taken = [0]
    for number in range(1, len(files)):
        if sum(files[one] for one in taken) + files[number] <= size:
            taken.append(number)
    return tuple(taken)


def _unshared(whole: Findings, parts: Findings) -> dict[str, int]:
    """Return rule → number of findings that only one of the two sets has."""
    found: Counter[str] = Counter()
    for (_, rule), count in ((whole - parts) + (parts - whole)).items():
        found[rule] += count
    return dict(sorted(found.items()))


def _plan(tree: Path, jobs: int, prefix: str = "") -> tuple[Cost, Findings]:
    """Plan a tree, and return the cost and the findings. The paths of the findings begin with ``prefix``.

    Raises:
        RuntimeError: the command ends with an error.
    """
    with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile() as written:
        command = [*_PLAN, "--json", written.name, "--jobs", str(jobs), str(tree)]
        child = subprocess.Popen(command, stdout=output, stderr=output, cwd=tree)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 1):  # 1: some files cannot be read
            output.seek(0)
            raise RuntimeError(f"chirp-migrate ended with code {child.returncode}: {output.read()[-300:].decode()}")
        findings = json.loads(Path(written.name).read_bytes())["findings"]
    unit = 1 if sys.platform == "darwin" else 1024
    cost = Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6)
    return cost, Findings((prefix + one["path"], one["rule"]) for one in findings)
