"""Run the formatters and linters of PyPI packages before and after their migration.

The check unpacks each package into a new git repository, and migrates the package and its tests with the installed
command `chirp-migrate`. Then the check runs black, ruff, isort and flake8 on every rewritten file, if the package
has settings for the tool. After a rollback, the check runs these tools again on the same files. The migration
breaks a file if a tool reports or would reformat something in the migrated file, but not in the original file. The
check also compares the number of changed lines in `apply --diff` and in `git diff --minimal`. `apply` must add
dependencies and files only if the migrated code needs them.

With `--write`, the check writes `linters.md` to `qa/results/`.
"""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
from benchmarks.harness import QA_RESULTS, TOOL, Goal, Progress, conditions, end, made_by, page, write
from chirp_migrate.source.toml import parse_toml

_FEWEST_PACKAGES = 10

#: Findings of one tool: (file, finding) → number.
Found = dict[str, Counter[str]]


class Unusable(Exception):
    """A tool does not run with the settings of a package. The message is the tool's message."""


@dataclass
class Checked:
    """The results of one package with its own tools.

    Attributes:
        name: the package and its version.
        rewritten: Python files that were rewritten.
        tools: tool that ran → number of rewritten files in which it found nothing before the migration.
        unusable: tool that does not run with the settings of the package → its message.
        new: each new finding, as ``tool: file: finding``.
        newly_failing: files in which a tool found nothing before, and finds something now, as ``tool: file``.
        diff_lines, git_lines: added and removed lines, according to `apply --diff` and to `git diff --minimal`.
        unneeded: files that were added or changed although nothing needs them.
    """

    name: str
    rewritten: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    newly_failing: list[str] = field(default_factory=list)
    diff_lines: tuple[int, int] = (0, 0)
    git_lines: tuple[int, int] = (0, 0)
    unneeded: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Return all problems of the package."""
        lines = [] if self.diff_lines == self.git_lines else [f"lines: {self.diff_lines} here, {self.git_lines} by git"]
        return [*self.new, *self.newly_failing, *lines, *(f"not needed: {path}" for path in self.unneeded)]


def configured_tools(root: Path) -> list[str]:
    """Return the tools for which a project has settings."""
    named: set[str] = set()
    if (root / "pyproject.toml").is_file():
        named |= parse_toml((root / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {}).keys()
    for name in ("setup.cfg", "tox.ini", ".flake8"):
        sections = configparser.RawConfigParser(strict=False)
        sections.read(root / name, encoding="utf-8")
        named |= {"isort" if one == "tool:isort" else one for one in sections.sections()}
    named |= {"isort"} if (root / ".isort.cfg").is_file() else set()
    named |= {"ruff"} if any((root / name).is_file() for name in ("ruff.toml", ".ruff.toml")) else set()
    tools = [tool for tool in _TOOLS if tool in named]
    return [*tools, "ruff format"] if "ruff" in tools and "black" not in tools else tools


def _run(command: Sequence[str], root: Path, ends_with: Collection[int] = (0, 1)) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if ended.returncode not in ends_with:
        raise Unusable((ended.stderr or ended.stdout).strip()[-300:])
    return ended


def _black(root: Path, files: Sequence[str]) -> Found:
    ended = _run([sys.executable, "-m", "black", "--check", *files], root, (0, 1, 123))
    unreadable = re.findall(r"error: cannot format (.+?): ", ended.stderr)
    reformatted = re.findall(r"would reformat (.+)", ended.stderr)
    return _relative(root, {path: Counter({"would reformat": 1}) for path in (*reformatted, *unreadable)})


def _ruff_format(root: Path, files: Sequence[str]) -> Found:
    ended = _run([sys.executable, "-m", "ruff", "format", "--no-cache", "--check", *files], root)
    return _relative(
        root, {path: Counter({"would reformat": 1}) for path in re.findall("reformat: (.+)", ended.stdout)}
    )


def _ruff(root: Path, files: Sequence[str]) -> Found:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--no-fix", "--output-format", "json", *files]
    found: Found = {}
    for one in json.loads(_run(command, root).stdout):
        found.setdefault(one["filename"], Counter())[str(one["code"])] += 1
    return _relative(root, found)


def _isort(root: Path, files: Sequence[str]) -> Found:
    ended = _run([sys.executable, "-m", "isort", "--check-only", *files], root)
    return _relative(
        root, {path: Counter({"unsorted": 1}) for path in re.findall(r"ERROR: (.+?) Imports", ended.stderr)}
    )


def _flake8(root: Path, files: Sequence[str]) -> Found:
    ended = _run([sys.executable, "-m", "flake8", "--format", "%(path)s\t%(code)s", *files], root)
    found: Found = {}
    for line in ended.stdout.splitlines():
        path, _, code = line.partition("\t")
        found.setdefault(path, Counter())[code] += 1
    return _relative(root, found)


_TOOLS = {"black": _black, "ruff": _ruff, "isort": _isort, "flake8": _flake8, "ruff format": _ruff_format}


def _relative(root: Path, found: Found) -> Found:
    return {(root / path).resolve().relative_to(root.resolve()).as_posix(): counts for path, counts in found.items()}


def check_package(package: Package, cache: Path, scratch: Path) -> Checked:
    """Migrate a copy of ``package`` below ``scratch``, and run its tools before and after the migration.

    Raises:
        Unavailable: the package cannot be downloaded.
        Unusable: git or chirp-migrate ended with an error.
    """
    root = unpack(fetch(package, cache), scratch / package.name)
    tools = configured_tools(root)
    result = Checked(str(package))
    if not tools:
        return result
    _run(["git", "init", "--quiet"], root)
    _run(["git", "add", "--all", "--force"], root)
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    _run(["git", *who, "commit", "--quiet", "--message", "as released"], root)
    diff = _run([*TOOL, "apply", "--tests", "--all-loaders", "--diff", "."], root).stdout
    _run([*TOOL, "apply", "--tests", "--all-loaders", "--allow-dirty", "--ignore-pins", "."], root)
    changed = _run(["git", "diff", "--name-only", "-z", "HEAD"], root).stdout.split("\0")[:-1]
    added = _run(["git", "ls-files", "--others", "--exclude-standard", "-z"], root).stdout.split("\0")[:-1]
    _run(["git", "add", "--intent-to-add", *added], root) if added else None
    files = [path for path in changed if path.endswith(".py")]
    result.rewritten = len(files)
    result.diff_lines = _changes(diff.splitlines())
    result.git_lines = _changes(_run(["git", "diff", "--minimal", "HEAD"], root).stdout.splitlines())
    uses_runtime = any("chirpid_patch" in (root / path).read_text(encoding="utf-8") for path in files)
    result.unneeded = [*added, *(path for path in changed if not path.endswith((".py", ".ipynb")) and not uses_runtime)]
    after = dict(_findings(root, tools, files, result.unusable))
    _run([*TOOL, "rollback", "."], root)
    before = dict(_findings(root, after, files, result.unusable))
    for tool, found in after.items():
        had = before[tool]
        result.tools[tool] = sum(path not in had for path in files)
        result.newly_failing += [f"{tool}: {path}" for path in sorted(found.keys() - had.keys())]
        for path, counts in sorted(found.items()):
            more = counts - had.get(path, Counter())
            result.new += [f"{tool}: {path}: {what}" for what in sorted(more.elements())]
    return result


def _findings(
    root: Path, tools: Collection[str], files: Sequence[str], unusable: dict[str, str]
) -> Iterator[tuple[str, Found]]:
    for tool in tools:
        try:
            yield tool, _TOOLS[tool](root, files) if files else {}
        except Unusable as error:
            unusable[tool] = str(error)


def _changes(lines: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of lines that a unified diff adds and removes."""
    body = [line for line in lines if not line.startswith(("+++ ", "--- "))]
    return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def _as_markdown(checked: Sequence[Checked], goals: Sequence[Goal], ran: str) -> str:
    rows = []
    for one in checked:
        tools = [f"{tool}: {clean}" for tool, clean in one.tools.items()]
        tools += [f"{tool}: does not run with its settings" for tool in one.unusable]
        changes = [f"+{added} -{removed}" for added, removed in (one.diff_lines, one.git_lines)]
        rows.append((one.name, ", ".join(tools), one.rewritten, len(one.newly_failing), len(one.new), *changes))
    return page("linters", checked=checked, goals=goals, ran=ran, rows=rows)


def _goals(checked: Sequence[Checked]) -> list[Goal]:
    ran = sum(bool(one.tools and one.rewritten) for one in checked)
    none_of = {
        "files that fail only after the migration": sum(len(one.newly_failing) for one in checked),
        "new findings": sum(len(one.new) for one in checked),
        "packages whose diff is longer than git's": sum(one.diff_lines != one.git_lines for one in checked),
        "files added or changed without need": sum(len(one.unneeded) for one in checked),
    }
    return [
        Goal("packages with tools of their own", f"at least {_FEWEST_PACKAGES}", str(ran), ran >= _FEWEST_PACKAGES),
        *(Goal(what, "0", str(number), not number) for what, number in none_of.items()),
    ]


def _versions() -> str:
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("black", "ruff", "isort", "flake8"))


_EPILOG = f"""\b
Examples:
  python -m qa linters --write
  python -m qa linters --packages skorch,timm --keep /tmp/migrated

Packages: {", ".join(package.name for package in PACKAGES)}
"""


@click.command(epilog=_EPILOG)
@click.option("--packages", multiple=True, metavar="NAMES", help="Only these packages (a,b).")
@cache_option
@keep_option
@click.option("--write", "save", is_flag=True, help="Write the results to qa/results.")
def main(packages: tuple[str, ...], cache: Path, keep: Path | None, save: bool) -> None:
    """Migrate packages from PyPI, and run their own formatters and linters before and after."""
    checked: list[Checked] = []
    progress = Progress()
    with tempfile.TemporaryDirectory() as folder:
        for package in progress.each(chosen(packages)):
            try:
                one = check_package(package, cache, keep or Path(folder))
            except (Unavailable, Unusable) as error:
                raise click.ClickException(str(error)) from None
            for problem in one.problems:
                click.echo(f"    {problem}", err=True)
            checked += [one] if one.tools or one.unusable else []
    progress.end()
    goals = _goals(checked)
    text = _as_markdown(checked, goals, f"{made_by(conditions(1))}; {_versions()}")
    click.echo(text)
    if save:
        write(QA_RESULTS, "linters", text)
    end(goals)
