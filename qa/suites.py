"""Run the tests of PyPI packages with and without a migration of the package and its tests.

The check unpacks each source distribution, and runs the test files that concern data loading. A test file concerns
data loading if it mentions `DataLoader`, is migrated itself, or imports a migrated module. The tests run once after
`apply --tests --all-loaders`, and twice after a rollback, in the same folder and environment. A test is flaky if it has
different outcomes in the two runs after the rollback. The page lists flaky tests. All other tests must have the same
outcome with and without the migration.

With `--write`, the check writes `suites.md` to `qa/results/`. The previous results of
suites that do not run this time stay on this page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click

from benchmarks.codemod_bench.packages import (
    PACKAGES,
    Package,
    Unavailable,
    cache_option,
    chosen,
    fetch,
    keep_option,
    unpack,
)
from benchmarks.codemod_bench.survey import migrate
from benchmarks.harness import ROOT, TOOL, Progress, page
from chirp_migrate.training.process import machine as machines
from qa.pages import write_with_kept_rows

_SECONDS = 3600


@dataclass(frozen=True)
class Suite:
    """The tests of one package.

    Attributes:
        package: name of the package in the survey.
        tests: patterns of test files.
        needs: packages that pip installs for the tests, in addition to torch and this package.
        source: the folder of the package's own code.
        left_out: test files, and tests (after `::`), that do not run, each with the reason.
    """

    package: str
    tests: tuple[str, ...]
    needs: tuple[str, ...]
    source: str = "."
    left_out: Mapping[str, str] = field(default_factory=dict)


_ALL = (
    Suite(
        "accelerate",
        ("tests/test_*.py",),
        ("accelerate", "parameterized", "pytest-subtests"),
        "src",
        {"tests/test_examples.py": "downloads data", "tests/test_fp8.py": "needs a GPU"},
    ),
    Suite("opacus", ("opacus/tests/**/*_test.py",), ("opacus", "hypothesis")),
    Suite(
        "pytorch-ignite",
        ("tests/ignite/**/test_*.py",),
        ("pytorch-ignite", "dill", "filelock", "pytest-order", "scikit-learn", "tensorboardX", "matplotlib"),
    ),
    Suite("pykeen", ("tests/**/test_*.py",), ("pykeen", "lightning")),
    Suite("skorch", ("skorch/tests/**/test_*.py",), ("skorch", "flaky", "pandas")),
)
SUITES = {suite.package: suite for suite in _ALL}

#: Name of a test → its outcome.
Outcomes = dict[str, str]


class Unfinished(Exception):
    """The tests could not be run to the end. The message explains why."""


@dataclass
class Compared:
    """The results of the tests of one package, with and without its migration.

    Attributes:
        name: the package and its version.
        sites: rule → number of its rewrites.
        files: number of test files that ran.
        outcomes: outcome with the migration, such as passed → number of tests.
        machine: description of the machine.
        flaky: tests whose outcomes differ between the two runs without the migration.
        changed: other tests whose outcome the migration changes, as ``test: without -> with the migration``.
    """

    name: str
    sites: dict[str, int]
    files: list[str]
    outcomes: dict[str, int]
    machine: str
    flaky: list[str]
    changed: list[str]


def environment(folder: Path, suites: Iterable[Suite]) -> Path:
    """Create a virtual environment with both packages and the needs of the suites; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    needs = ["pytest", "pytest-timeout", *dict.fromkeys(need for suite in suites for need in suite.needs)]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, str(ROOT / "chirpid_patch"), str(ROOT), *needs], check=True)
    # The last version that can be imported with a torch for CPUs.
    subprocess.run([*pip, "--no-deps", "torchvision==0.16.2"], check=False)
    return python


def compare(suite: Suite, package: Package, python: Path, cache: Path, scratch: Path) -> Compared:
    """Run the tests of ``suite`` with and without the migration of its package.

    Raises:
        Unavailable: the package cannot be downloaded.
        Unfinished: the tests do not run to the end.
    """
    root = unpack(fetch(package, cache), scratch / suite.package)
    plan = migrate(root, scratch / f"{suite.package}.json")
    files = chosen_tests(suite, root, {one["path"] for one in plan["files"] if one["note"] == "rewrite"})
    after, before, again = (scratch / f"{suite.package}.{when}.xml" for when in ("after", "before", "again"))
    run_tests(suite, root, files, python, after)
    subprocess.run([*TOOL, "rollback", str(root)], check=True, capture_output=True)
    for report in (before, again):
        run_tests(suite, root, files, python, report)
    return judge(str(package), plan, files, after, before, again)


def judge(name: str, plan: Any, files: list[str], *reports: Path) -> Compared:
    """Compare three reports of pytest: of a run with the migration ``plan``, and of two runs without the migration."""
    after, before, again = map(read_report, reports)
    names = before.keys() | again.keys() | after.keys()
    flaky = sorted(name for name in names if before.get(name) != again.get(name))
    changed = sorted(name for name in names - set(flaky) if before.get(name) != after.get(name))
    return Compared(
        name,
        dict(sorted(Counter(one["rule"] for one in plan["findings"] if one["status"] == "rewrite").items())),
        files,
        dict(sorted(Counter(after.values()).items())),
        machines.machine_summary(machines.describe_machine(1)),
        flaky,
        [f"{test}: {before.get(test, 'not there')} -> {after.get(test, 'not there')}" for test in changed],
    )


def chosen_tests(suite: Suite, root: Path, rewritten: set[str]) -> list[str]:
    """Return the test files that concern data loading, without excluded files."""
    source = [Path(path).relative_to(suite.source) for path in rewritten if Path(path).is_relative_to(suite.source)]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in source}
    imported = "|".join(re.escape(module) for module in sorted(modules))
    touches = re.compile(rf"\bDataLoader\b|^\s*(?:from|import) (?:{imported})\b", re.MULTILINE)
    found = sorted({path.relative_to(root).as_posix() for pattern in suite.tests for path in root.glob(pattern)})
    return [
        path
        for path in found
        if path not in suite.left_out and (path in rewritten or touches.search((root / path).read_text("utf-8")))
    ]


def run_tests(suite: Suite, root: Path, files: Sequence[str], python: Path, report: Path) -> None:
    """Run the tests in ``files`` with pytest, which writes its report to ``report``.

    Raises:
        Unfinished: the tests do not run to the end.
    """
    left_out = [part for test in suite.left_out if "::" in test for part in ("--deselect", test)]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--timeout", "600", f"--junitxml={report}", *left_out]
    settings = {"PYTHONPATH": str(root / suite.source), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    offline = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
    report.unlink(missing_ok=True)
    try:
        ended = subprocess.run(
            [str(python), "-m", "pytest", *options, *files],
            cwd=root, env={**os.environ, **settings, **offline}, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unfinished(f"the tests of {suite.package} take longer than {_SECONDS} s") from None
    if ended.returncode not in (0, 1) or not report.is_file():
        raise Unfinished(f"pytest ended with {ended.returncode}: {(ended.stdout + ended.stderr).strip()[-2000:]}")


def read_report(report: Path) -> Outcomes:
    """Return the outcome of each test in a report of pytest."""
    tests = ElementTree.parse(report).getroot().iter("testcase")
    words = {"error": "error", "failure": "failed", "skipped": "skipped"}
    return {
        f"{one.get('classname')}::{one.get('name')}": next(
            (words[child.tag] for child in one if child.tag in words), "passed"
        )
        for one in tests
    }


def as_markdown(compared: Sequence[Compared]) -> str:
    """Return the page with the results."""
    rows = []
    for one in compared:
        counts = [one.outcomes.get(word, 0) for word in ("passed", "failed", "error", "skipped")]
        cells = (one.name, sum(one.sites.values()), len(one.files), sum(counts))
        rows.append((*cells, *counts, len(one.flaky), len(one.changed)))
    return page("suites", compared=compared, suites=_ALL, rows=rows)


_EPILOG = f"""\b
Examples:
  python -m qa suites --write
  python -m qa suites --suites skorch,opacus --python .venv/bin/python

Suites: {", ".join(SUITES)}
"""


@click.command(epilog=_EPILOG)
@click.option("--suites", multiple=True, metavar="NAMES", help="Only these suites (a,b).")
@click.option("--python", type=click.Path(path_type=Path), help="Python with all packages.  [default: new environment]")
@cache_option
@keep_option
@click.option("--write", is_flag=True, help="Write the results to qa/results.")
def main(suites: tuple[str, ...], python: Path | None, cache: Path, keep: Path | None, write: bool) -> None:
    """Run tests of packages from PyPI with and without a migration of package and tests."""
    packages = {package.name: package for package in PACKAGES}
    chosen_suites = {one.name: SUITES[one.name] for one in chosen(suites, [packages[name] for name in SUITES])}
    compared, progress = [], Progress()
    with tempfile.TemporaryDirectory() as folder:
        python = (python or environment(Path(folder, "environment"), chosen_suites.values())).absolute()
        for name in progress.each([*chosen_suites]):
            try:
                one = compare(SUITES[name], packages[name], python, cache, (keep or Path(folder)).absolute())
            except (Unavailable, Unfinished) as error:
                raise click.ClickException(str(error)) from None
            click.echo(f"    {one.outcomes}, changed: {one.changed}, flaky: {one.flaky}", err=True)
            compared.append(one)
    progress.end()
    click.echo(as_markdown(compared))
    if write:
        write_with_kept_rows("suites", as_markdown(compared))
    if any(one.changed for one in compared):
        sys.exit(1)
