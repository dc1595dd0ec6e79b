"""What tests of several folders need: the command line, trees and what is in them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import click
import no_posix
import pytest
from click.testing import CliRunner, Result

from chirp_migrate.cli import entry_point
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import Finding, FindingStatus
from chirp_migrate.rules import all_rules
from chirp_migrate.syntax.project import Project

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"

_SHARED_MEMORY = Path("/dev/shm")
#: A folder in memory, where this system has one that the packages can read; None for the usual temporary folder.
MEMORY = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) and no_posix.VARIABLE not in os.environ else None

#: The smallest module with something to rewrite.
LOADER = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, batch_size=4, shuffle=True)\n"

RULES = {rule.code: rule for rule in all_rules()}


class _Program(click.Command):
    """The installed program, to click's runner of commands."""

    def main(self, args: Any = (), **_: Any) -> Any:
        entry_point(list(args))


def run(*arguments: object, cwd: Path | None = None, answers: str = "", **variables: str) -> Result:
    """Run the command line in this process, with answers on its standard input.

    What it ends with is its exit code; a traceback is never what a user may see.
    """
    with working_in(cwd or Path.cwd()):
        result = CliRunner().invoke(_Program("chirp-migrate"), list(map(str, arguments)), answers, variables)
    assert "Traceback" not in result.output, result.output
    return result


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Make ``folder`` the working directory."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)


def run_process(*arguments: object, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it in a separate process, where that is what is tested."""
    command = [sys.executable, "-m", "chirp_migrate", *map(str, arguments)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def sentence(result: Result) -> str:
    """The single line on standard error with which a command ends that cannot do what it was asked for."""
    (line,) = result.stderr.splitlines()
    assert line.startswith("chirp-migrate: ") and result.stdout == ""
    return line


def copy_of(name: str, target: Path) -> Path:
    """A backend of ``fixtures/`` as it is in the repository, at ``target``."""
    left = shutil.ignore_patterns("__pycache__", ".chirp-migrate", ".ipynb_checkpoints", "data", "results")
    return shutil.copytree(FIXTURES / name, target, ignore=left)


def modules_of(package: Path) -> list[Path]:
    """Return the files of a package and of its sub-packages, without the copies that a build leaves beside them."""
    folders = [initializer.parent for initializer in package.glob("*/__init__.py")]
    return sorted([*package.glob("*.py"), *(path for folder in folders for path in modules_of(folder))])


def write_files(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Files by their paths below ``root``, which is returned."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def snapshot(root: Path, *, journal: bool = True) -> dict[str, tuple[str, int, bytes]]:
    """Every name below ``root`` with its kind, mode bits and bytes; ``journal=False`` leaves the journal folder out."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if not journal and name.split("/")[0] == ".chirp-migrate":
            continue
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[name] = ("link", 0, os.fsencode(path.readlink()))
        elif stat.S_ISDIR(mode):
            found[name] = ("folder", stat.S_IMODE(mode), b"")
        else:
            found[name] = ("file", stat.S_IMODE(mode), path.read_bytes())
    return found


class Death:
    """SIGKILL once a step is done."""

    def __init__(self, step: str) -> None:
        self.step = step

    def __call__(self, step: ProgressStep) -> None:
        if step.text == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def in_child(action: Callable[[], object]) -> int:
    """Run ``action`` in a forked process; its exit status, negative for a signal. An exception gives 99."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            os._exit(99)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def migrate(
    codes: str, text: str, *, path: str = "a.py", unsafe: bool = True, **others: str
) -> tuple[str, list[Finding]]:
    """A module after some rules, beside other modules of its folder, and what they found.

    It is still Python, and a second look finds nothing to rewrite.
    """
    rules = [RULES[code] for code in codes.split()]
    texts = {str(PurePosixPath(path).with_name(f"{name}.py")): textwrap.dedent(one) for name, one in others.items()}
    texts[path] = before = textwrap.dedent(text)
    after, findings = rewrite_text(path, before, Project(texts), rules=rules, unsafe=unsafe)
    if after != before:
        texts[path] = after
        again, later = rewrite_text(path, after, Project(texts), rules=rules, unsafe=unsafe)
        assert again == after and not [one for one in later if one.status is FindingStatus.REWRITE]
    compile(after, path, "exec")
    return after, findings


def reports(findings: list[Finding]) -> list[str]:
    """Messages of what was only reported."""
    return [one.message for one in findings if one.status is FindingStatus.REPORT]


def imported(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A text as a module of its own name, so that pickle finds what is in it."""
    name = f"module_{len(list(folder.iterdir()))}_{folder.name.replace('-', '_')}"
    path = folder / f"{name}.py"
    path.write_bytes(text.encode())
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
