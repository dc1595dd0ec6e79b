"""Compare the plans of another revision of the tool with the plans of this working tree.

Use `python -m qa same-plans REVISION` after a change of the implementation that must not change the plans. Both
revisions plan the packages of the survey, the fixtures and random programs, with all rules. The check compares the
plan files, which contain all findings, every edit, and the hash of every file after the
edits. The exit code is 1 if the plans differ.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks.codemod_bench.packages import Package, cache_option, chosen, fetch, unpack
from benchmarks.harness import ROOT, TOOL, Progress
from qa.rule_cases import RULES, cases
from qa.soundness_programs.programs import make_program

_FIXTURES = ROOT / "fixtures"
_PLAN = [*TOOL, "plan", "--tests", "--unsafe", "--no-scaffold", "--json", "-"]


def _trees(packages: list[Package], cache: Path, programs: int, folder: Path) -> Iterator[tuple[str, Path]]:
    for fixture in sorted([*_FIXTURES.iterdir(), *(_FIXTURES / "rules").iterdir()]):
        if fixture.is_dir() and fixture.name != "rules":
            yield fixture.name, fixture
    for rule in sorted(RULES.iterdir()):
        for name, texts in cases(rule.name).items():
            for path, text in texts.items():
                file = folder / "cases" / rule.name / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    yield "cases of the rules", folder / "cases"
    made = folder / "programs"
    made.mkdir()
    for number in range(programs):
        (made / f"program_{number}.py").write_text(make_program(number).text, encoding="utf-8")
    yield f"{programs} programs", made
    for package in packages:
        yield str(package), unpack(fetch(package, cache), folder / package.name)


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Return a context that yields a folder with the files of ``revision``.

    Raises:
        click.ClickException: git does not know the revision.
    """
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True)
    if archive.returncode:
        raise click.ClickException(f"git cannot export the revision {revision}: pass an existing revision.")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def planned(checkout: Path, tree: Path, *options: str) -> dict[str, Any]:
    """Return the plan for ``tree`` by the tool in ``checkout``, without the data that identifies the run.

    Raises:
        click.ClickException: the tool wrote no plan.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    ended = subprocess.run([*_PLAN, *options, str(tree)], capture_output=True, text=True, cwd=checkout, env=environment)
    if ended.returncode not in (0, 1):
        raise click.ClickException(f"plan ended with {ended.returncode}: {ended.stderr.strip()[-500:]}")
    plan: dict[str, Any] = json.loads(ended.stdout)
    return {part: value for part, value in plan.items() if part not in ("tool", "options")}


def _differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for part in before.keys() | now.keys():
        then, this = before.get(part), now.get(part)
        if not isinstance(then, list) or not isinstance(this, list):
            if then != this:
                yield f"{part}: {then!r} before, now {this!r}"
            continue
        yield from (f"{part}, only before: {json.dumps(one)}" for one in then if one not in this)
        yield from (f"{part}, only now: {json.dumps(one)}" for one in this if one not in then)
        if then != this and sorted(map(repr, then)) == sorted(map(repr, this)):
            yield f"{part}: in another order"


@click.command()
@click.argument("revision")
@click.option("--packages", default="", help="Packages of the survey (a,b), or none. [all]")
@click.option(
    "--programs", default=600, show_default=True, type=click.IntRange(min=1), help="Number of random programs."
)
@cache_option
def main(revision: str, packages: str, programs: int, cache: Path) -> None:
    """Compare the plans of REVISION with the plans of this tree."""
    surveyed = [] if packages == "none" else chosen(filter(None, [packages]))
    progress, differing = Progress(), 0
    with tempfile.TemporaryDirectory() as folder, checked_out(revision) as checkout:
        for name, tree in _trees(surveyed, cache, programs, Path(folder)):
            progress.step(name)
            found = list(_differences(planned(checkout, tree), planned(ROOT, tree)))
            differing += len(found)
            for one in found:
                click.echo(f"{name}: {one}")
    progress.end()
    click.echo(f"{differing} differences from {revision} in findings, hunks and bytes; {progress.seconds:.0f} s")
    sys.exit(1 if differing else 0)
