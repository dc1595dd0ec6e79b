"""Run the fast tests with several versions of Python and torch.

For each combination of versions, the check builds the wheels, and installs them into a new environment. The tests then
run on the installed packages, not on the sources. The check uses the Python interpreters that are installed on this
machine. The check prefers the builds of torch for CPUs (`+cpu`). If pip finds no such build, the default build is
installed only with `--default-builds`, because this build needs gigabytes of CUDA libraries. Without
`--default-builds`, only the tests that need no torch then run. If root runs the check on Debian, the check also sets up
whole releases of Debian with debootstrap, which have their own Python and torch.

With `--write`, the check updates `versions.md` in `qa/results/`. Each environment
replaces its own row as soon as its tests end, and all other rows stay. Each row names the commit of the tested code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from packaging.requirements import Requirement
from packaging.version import Version

from benchmarks.harness import ROOT, Progress, page
from chirp_migrate.source.toml import parse_toml
from chirp_migrate.training.process import machine as machines
from qa.pages import write_with_kept_rows
from qa.suites import read_report

_PACKAGES = ("chirp_migrate", "chirpid_patch")
#: The folders of the two distributions, below the folder of the repository.
_DISTRIBUTIONS = ("chirpid_patch", ".")

#: Packages that the tests of the tool need, in addition to the requirements of the tool.
_TOOL_TESTS = ("pytest", "pytest-xdist", "hypothesis", "jsonschema", "pyyaml", "pyflakes", "packaging", "nbformat")
_TOOL_FOLDERS = [f"tests/{one}" for one in ("additions", "cli", "edits", "engine", "report", "rules", "transaction")]
#: Tests that do not run here: they test the sources, or files that a wheel does not contain.
_OF_THE_SOURCES = (
    "--ignore=tests/package",
    "--ignore=tests/docs/test_commands_shown.py",
    "--deselect=tests/docs/test_words.py::test_pages[chirpid_patch/README.md]",
    "--deselect=tests/docs/test_code_shown.py::test_files_that_are_named_are_there",
    "--deselect=tests/docs/test_code_shown.py::test_python_compiles_and_its_imports_resolve[chirpid_patch/README.md]",
    "--deselect=tests/docs/test_code_shown.py::test_settings_and_data_can_be_parsed[chirpid_patch/README.md]",
    "--deselect=tests/docs/test_code_shown.py::test_links_lead_somewhere[chirpid_patch/README.md]",
    "--deselect=tests/additions/test_pins.py::test_what_the_runtime_needs_is_what_the_distribution_says",
)
_NEEDS_TORCH = re.compile(r"^\s*(?:import|from) (?:torch|chirpid_patch)\b", re.MULTILINE)


class Unusable(Exception):
    """An environment cannot be set up here. The message explains why."""


@dataclass
class Tried:
    """One environment, and the results of the tests in it.

    Attributes:
        name: name of the environment.
        commit: the commit of the tested code.
        versions: versions of Python, torch (if installed) and other important packages.
        outcomes: outcome, such as passed → number of tests.
        failed: tests that failed.
        why_not: why no tests ran; empty if they ran.
    """

    name: str
    commit: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    why_not: str = ""


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine.

    Attributes:
        program: name of the program.
        torch: release of torch. If empty, the environment gets the oldest releases of torch and of all other
            requirements that pyproject.toml allows.
    """

    program: str
    torch: str = ""

    @property
    def name(self) -> str:
        """Return the name of the environment."""
        return f"{self.program}, torch {self.torch}" if self.torch else f"{self.program}, oldest of all requirements"

    def set_up(self, folder: Path, *, default_builds: bool) -> tuple[list[str], bool]:
        """Return a command that runs a Python with the packages, and whether this Python has torch.

        Args:
            folder: folder for the environment; the sources are in ``folder/tree``.
            default_builds: whether to install a torch with CUDA if there is no build for CPUs.

        Raises:
            Unusable: there is no such interpreter.
        """
        found = find_interpreter(self.program)
        if found is None:
            raise Unusable(f"there is no {self.program} on this machine")
        if not (folder / "environment").is_dir():
            _run([found, "-m", "venv", str(folder / "environment")])
        python = [str(folder / "environment" / "bin" / "python")]
        pip = [*python, "-m", "pip", "install", "--quiet"]
        required = _requirements() if self.torch else _oldest(_requirements())
        rest, torch = [one for one in required if not one.startswith("torch")], f"torch=={self.torch}"
        if not self.torch:
            (torch,) = (one for one in required if one.startswith("torch"))
        builds = [f"{torch.removesuffix('.*')}+cpu", *([torch] if default_builds else [])]
        has_torch = any(subprocess.run([*pip, one, *rest], capture_output=True).returncode == 0 for one in builds)
        runtime, tool = (str(folder / "tree" / one) for one in _DISTRIBUTIONS)
        if has_torch:
            (folder / "constraints.txt").write_text("\n".join([torch, *rest]) + "\n", encoding="utf-8")
            _run([*pip, "--constraint", str(folder / "constraints.txt"), runtime, f"{tool}[test]"])
        else:
            _run([*pip, *rest, *_TOOL_TESTS])
            _run([*pip, "--no-deps", runtime, tool])
        return python, has_torch


@dataclass(frozen=True)
class Debian:
    """A release of Debian with its own Python and torch, in a folder that chroot enters."""

    release: str

    @property
    def name(self) -> str:
        """Return the name of the environment."""
        return f"Debian {self.release}"

    def set_up(self, folder: Path, *, default_builds: bool) -> tuple[list[str], bool]:
        """Do the same as :meth:`Interpreter.set_up`. In the release, ``folder`` is ``/mnt``; torch has no CUDA."""
        if os.geteuid() or shutil.which("debootstrap") is None:
            raise Unusable("needs root, and debootstrap")
        system = folder / "system"
        enter = ["unshare", "--mount", "sh", "-ec", _ENTER, str(system), str(folder)]
        if not (system / "environment").is_dir():
            with_it = "--include=ca-certificates,gcc,git,make,python3-dev,python3-torch,python3-venv"
            # debootstrap may not know this release, and sets up all releases in the same way.
            script = "/usr/share/debootstrap/scripts/sid"
            _run(["debootstrap", "--variant=minbase", with_it, self.release, str(system), "", script])
            _run([*enter, "python3", "-m", "venv", "--system-site-packages", "/environment"])
        python = [*enter, "/environment/bin/python"]
        torch = _run([*python, "-c", "from importlib.metadata import version; print(version('torch'))"]).strip()
        (folder / "constraints.txt").write_text(f"torch=={torch}\n", encoding="utf-8")
        pip = [*python, "-m", "pip", "install", "--quiet", "--constraint", "/mnt/constraints.txt"]
        _run([*pip, "/mnt/tree/chirpid_patch", "/mnt/tree[test]"])
        return python, True


#: $0 is the folder of the system, and $1 the folder that becomes /mnt in it; the mounts end with the command.
_ENTER = """
for place in dev proc sys etc/ssl; do mount --rbind "/$place" "$0/$place"; done
mount --bind "$1" "$0/mnt"; shift
exec chroot "$0" "$@"
"""

ENVIRONMENTS: tuple[Interpreter | Debian, ...] = (
    Interpreter("python3.11", "2.13.0"),
    Interpreter("python3.10"),
    Interpreter("python3.12", "2.14.1"),
    Interpreter("python3.13", "2.14.1"),
    Interpreter("python3.14t", "2.13.0"),
    Debian("trixie"),
    Debian("forky"),
)


def find_interpreter(program: str) -> str | None:
    """Return the path of a working Python: on ``PATH``, or a version that pyenv installed."""
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which(program), *map(str, sorted(kept.glob(f"*/bin/{program}"), reverse=True))]
    usable = (one for one in candidates if one and not subprocess.run([one, "-V"], capture_output=True).returncode)
    return next(usable, None)


def _run(command: Sequence[str]) -> str:
    """Run a command, and return its output.

    Raises:
        Unusable: the command failed.
    """
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Unusable(f"{command[0]} ended with {ended.returncode}: {(ended.stderr or ended.stdout).strip()[-300:]}")
    return ended.stdout


def _requirements() -> list[str]:
    """Return the requirements of both distributions, except the runtime and the extras."""
    texts = [(ROOT / one / "pyproject.toml").read_text(encoding="utf-8") for one in _DISTRIBUTIONS]
    listed = [one for text in texts for one in parse_toml(text)["project"]["dependencies"]]
    return [one for one in listed if not one.startswith("chirpid-patch")]


def _oldest(requirements: Sequence[str]) -> list[str]:
    """Return the requirements with the oldest release that each allows."""
    parsed = map(Requirement, requirements)
    applying = (one for one in parsed if one.marker is None or one.marker.evaluate({"python_version": "3.10"}))
    lowest = ((one.name, min(Version(bound.version) for bound in one.specifier)) for one in applying)
    return [f"{name}=={version}.*" for name, version in lowest]


def try_out(environment: Interpreter | Debian, folder: Path, *, default_builds: bool = False) -> Tried:
    """Run the fast tests in ``environment``, which is set up in ``folder``."""
    tried = Tried(environment.name, _run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]).strip())
    work = folder / "tree"
    if work.exists():
        shutil.rmtree(work)
    copy_repository(work)
    try:
        python, has_torch = environment.set_up(folder, default_builds=default_builds)
    except Unusable as error:
        tried.why_not = str(error)
        return tried
    inside = Path("/mnt/tree") if isinstance(environment, Debian) else work
    tried.versions = json.loads(_run([*python, "-c", _VERSIONS]))
    for package in _PACKAGES:  # the tests read and run the installed sources
        shutil.rmtree(work / package)
        (work / package).symlink_to(Path(_run([*python, "-I", "-c", _SOURCE, package]).strip()).parent)
    tests = ["tests"] if has_torch else [*_TOOL_FOLDERS, *(f"--ignore={path}" for path in _needing_torch(work))]
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "--junitxml=report.xml", *_OF_THE_SOURCES]
    command = [*python, "-c", _PYTEST, str(inside), *options, "--numprocesses", "2", "--dist", "loadfile", *tests]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    report = work / "report.xml"
    if not report.is_file():
        tried.why_not = f"pytest ended with {ended.returncode}: {(ended.stdout + ended.stderr).strip()[-500:]}"
        return tried
    outcomes = read_report(report)
    tried.outcomes = dict(Counter(outcomes.values()))
    tried.failed = [test for test, outcome in outcomes.items() if outcome in ("failed", "error")]
    return tried


def _needing_torch(tree: Path) -> list[str]:
    found = (path for folder in _TOOL_FOLDERS for path in sorted((tree / folder).glob("test_*.py")))
    return [str(path.relative_to(tree)) for path in found if _NEEDS_TORCH.search(path.read_text(encoding="utf-8"))]


_PYTEST = "import os, sys, pytest; os.chdir(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"
# -I: do not use the package in the current folder.
_SOURCE = "import sys, importlib.util; print(importlib.util.find_spec(sys.argv[1]).origin)"
_VERSIONS = """
import json, platform
from importlib.metadata import PackageNotFoundError, version
found = {"Python": platform.python_version()}
for name in ("torch", "numpy", "libcst", "click", "isort", "black"):
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def copy_repository(folder: Path) -> None:
    """Copy the repository to ``folder``, without the files that git ignores."""
    names = _run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).split("\0")
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def as_markdown(tried: Sequence[Tried]) -> str:
    """Return the page with the results."""
    rows = []
    for one in tried:
        versions = [one.versions.get(name, "none") for name in ("Python", "torch", "numpy", "libcst")]
        outcomes = one.outcomes
        counts = (sum(outcomes.values()), outcomes.get("passed", 0), len(one.failed), outcomes.get("skipped", 0))
        ran = [*versions, *counts]
        rows.append([one.name, one.commit, *([f"not run: {one.why_not}", *[""] * 7] if one.why_not else ran)])
    machine = machines.machine_summary(machines.describe_machine(1)).partition(", torch")[0]
    return page("versions", tried=tried, rows=rows, machine=machine)


_EPILOG = f"""\b
Examples:
  python -m qa versions --write
  python -m qa versions --only "Debian trixie"

Environments: {", ".join(one.name for one in ENVIRONMENTS)}
"""


@click.command(epilog=_EPILOG)
@click.option("--only", multiple=True, metavar="NAME", help="Only this environment (may be repeated).")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep environments in this folder, and use existing environments again.",
)
@click.option("--default-builds", is_flag=True, help="If torch has no build for CPUs, use the CUDA build (GBs).")
@click.option("--write", is_flag=True, help="Write the results to qa/results.")
def main(only: tuple[str, ...], keep: Path | None, default_builds: bool, write: bool) -> None:
    """Install the wheels with other versions of Python and torch, and run the fast tests."""
    known = {one.name: one for one in ENVIRONMENTS}
    if unknown := [name for name in only if name not in known]:
        raise click.BadParameter(f"nothing is called {unknown[0]!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in only] or list(ENVIRONMENTS)
    tried, progress = [], Progress()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (keep or Path(scratch)).absolute()
        for name in progress.each([one.name for one in chosen]):
            one = try_out(known[name], folder / re.sub(r"\W+", "-", name), default_builds=default_builds)
            click.echo(f"    {one.versions} {one.why_not or one.outcomes}", err=True)
            tried.append(one)
            if write:
                write_with_kept_rows("versions", as_markdown([one]))
    progress.end()
    click.echo(as_markdown(tried))
    if any(one.failed for one in tried):
        sys.exit(1)
