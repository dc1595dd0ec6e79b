"""`make bench-foreign-packages`: time the loaders of packages from PyPI before and after their migration.

Each case builds a loader with a package's own code, on synthetic data (`package_cases.py`). The benchmark makes two
copies of the source distribution, and migrates the file with the loader in one copy. Each copy runs in its own process.
Epochs of both processes alternate, in an order that changes from round to round. The benchmark records the wall time
and the CPU time of each epoch, including its worker processes. `gains.json` names the gain of each loader, which is the
improvement that a migration should bring.

A loader with a gain must take at most 0.9 of the time before the migration, or become picklable. A loader without a
gain must take 0.95 to 1.05 of the time before. The 95 % interval of the median ratio of CPU times decides whether a
loader meets these limits. The benchmark compares CPU times, because other programs also use the machine. If a case
needs other packages, pip installs them into a cache folder, without their dependencies. With --write, the benchmark
writes `foreign-packages.json` and `foreign-packages.md`. --only and --rounds run only a part of the benchmark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import click
from codemod_bench.packages import MORE_PACKAGES, PACKAGES, Unavailable, cache_option, chosen, fetch, unpack
from gains import recorded_gains
from harness import (
    RESULTS,
    TOOL,
    Goal,
    Progress,
    check_option,
    conditions,
    end,
    median_interval,
    page,
    paired,
    write,
)
from package_cases import CASES, Case

_SIDES = ("before", "after")
#: Allowed ratios for a loader with a gain, and for a loader without a gain.
_GAINS, _SAME = 0.9, (0.95, 1.05)


class _Side:
    """A process that builds the loader of a case in one copy, and runs epochs on request."""

    def __init__(self, case: Case, tree: Path, installed: Path) -> None:
        here = Path(__file__).resolve().parent
        paths = [str(tree / folder) for folder in case.folders] + [str(here), str(installed)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(here / "package_cases.py"), case.name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
        )
        self.picklable = bool(self._answer()["picklable"])

    def epoch(self) -> tuple[float, float]:
        """Run one epoch, and return its wall time and CPU time in seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("epoch\n")
        self._process.stdin.flush()
        said = self._answer()
        return said["wall_s"], said["cpu_s"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise Unavailable(f"the process of the case ended with code {self._process.wait()}")


def _installed(cases: list[Case], folder: Path) -> Path:
    """Install the packages that cases need, and return their folder."""
    needed = sorted({name for case in cases for name in case.needs})
    missing = [name for name in needed if not list(folder.glob(f"{name.replace('-', '_')}-*.dist-info"))]
    if missing:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, *missing], check=True)
    return folder


def _measured(case: Case, cache: Path, installed: Path, rounds: int) -> dict[str, Any]:
    """Return the times of the epochs of one case."""
    [package] = chosen([case.package], (*PACKAGES, *MORE_PACKAGES))
    with tempfile.TemporaryDirectory() as scratch:
        trees = {side: unpack(fetch(package, cache), Path(scratch) / side) for side in _SIDES}
        file = trees["after"] / case.file
        apply = [*TOOL, "apply", "--all-loaders", "--ignore-pins", "--no-scaffold", "--allow-dirty", "-q", str(file)]
        subprocess.run(apply, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if file.read_bytes() == (trees["before"] / case.file).read_bytes():
            raise Unavailable(f"{case.file} was not migrated")
        sides: dict[str, _Side] = {}
        try:
            for side, tree in trees.items():
                sides[side] = _Side(case, tree, installed)
            times = paired({side: one.epoch for side, one in sides.items()}, rounds)
            epochs = [
                dict(zip(_SIDES, both, strict=True)) for both in zip(*(times[side] for side in _SIDES), strict=True)
            ]
            picklable = {side: one.picklable for side, one in sides.items()}
        finally:
            for one in sides.values():
                one.close()
    ratios = {
        clock: [one["after"][place] / max(one["before"][place], 1e-9) for one in epochs]
        for place, clock in enumerate(("wall", "cpu"))
    }
    return {
        "case": case.name,
        "package": str(package),
        "place": f"{case.file}:{case.line}",
        "gain": _gain_of(case),
        "newly_picklable": picklable["after"] and not picklable["before"],
        "epochs": epochs,
        **{f"{clock}_ratio": median(values) for clock, values in ratios.items()},
        **{f"{clock}_interval": median_interval(values) for clock, values in ratios.items()},
    }


def _gain_of(case: Case) -> str:
    """Return the gain that the tool reports for the loader of a case in the whole package."""
    rows = recorded_gains(RESULTS)
    kinds = {(row["package"].rpartition(" ")[0], site["place"]): site["kind"] for row in rows for site in row["sites"]}
    return str(kinds[case.package, f"{case.file}:{case.line}"])


def _goal(row: dict[str, Any]) -> Goal:
    low, high = row["cpu_interval"]
    shown = f"{low:.3f} to {high:.3f}"
    if row["gain"] == "nothing":
        return Goal(row["case"], f"{_SAME[0]} to {_SAME[1]}", shown, _SAME[0] <= low and high <= _SAME[1])
    if row["newly_picklable"]:
        return Goal(row["case"], "newly picklable", "newly picklable", holds=True)
    return Goal(row["case"], f"not above {_GAINS}", shown, high <= _GAINS)


def _page(rows: list[dict[str, Any]], goals: list[Goal], settings: dict[str, Any]) -> str:
    body = []
    for row in rows:
        ratios = [(row[f"{clock}_ratio"], *row[f"{clock}_interval"]) for clock in ("cpu", "wall")]
        shown = [f"{ratio:.3f} ({low:.3f} to {high:.3f})" for ratio, low, high in ratios]
        cells = (row["case"], row["package"], row["gain"].replace("-", " "), len(row["epochs"]))
        body.append([*cells, *shown, "yes" if row["newly_picklable"] else ""])
    return page("foreign-packages", settings=settings, rows=body, goals=goals)


@click.command()
@cache_option
@click.option("--rounds", default=60, show_default=True, help="Number of timed epochs of each version.")
@click.option("--only", multiple=True, help="Only cases whose name contains TEXT.")
@check_option
@click.option("--write", "save", is_flag=True, help="Write benchmarks/results/foreign-packages.*.")
def main(cache: Path, rounds: int, only: tuple[str, ...], check: bool, save: bool) -> None:
    """Time the loaders of packages before and after their migration."""
    progress = Progress()
    cases = [case for case in CASES if not only or any(one in case.name for one in only)]
    installed = _installed(cases, cache / "installed")
    rows: list[dict[str, Any]] = []
    for case in cases:
        progress.step(case.name)
        try:
            rows.append(_measured(case, cache, installed, rounds))
        except Unavailable as error:
            click.echo(f"{case.name}: {error}", err=True)
    progress.end()
    goals = [_goal(row) for row in rows]
    settings = conditions(threads=1)
    text = _page(rows, goals, settings)
    click.echo(text)
    if save:
        write(RESULTS, "foreign-packages", text, {"settings": settings, "cases": rows})
    end(goals, check)


if __name__ == "__main__":
    main()
