"""A clean tree to build from, and environments that hold nothing but what they should."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT

#: What lies beside the files of the repository once somebody builds, tests or releases it.
_LEFTOVERS = shutil.ignore_patterns(
    *(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.so", "*.pyd"),
    *("*.egg-info", "PKG-INFO", "setup.cfg", "build", "dist", "demo"),
)


def clean_tree(folder: Path) -> Path:
    """The files of the repository in ``folder``, as a fresh clone has them; what git ignores is left out."""
    if not (ROOT / ".git").exists():  # an unpacked source archive
        shutil.copytree(ROOT, folder, ignore=_LEFTOVERS)
        return folder
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # a file that was deleted is still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def files_in(folder: Path) -> set[str]:
    """Posix paths of the files below ``folder``."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def run(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that has to succeed; nothing of Python's own settings reaches it from outside."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}"
    return result


def environment(folder: Path, wheels: Sequence[Path], needed: Iterable[str]) -> Path:
    """Return the ``bin`` folder of a virtual environment with ``wheels`` and, besides, only ``needed``.

    pip installs the wheels, without a network. The distributions that ``needed`` names, and what these require, are
    links into the environment that the tests run in: PyTorch is too large to be installed for a test.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    bin_folder = folder / ("Scripts" if os.name == "nt" else "bin")
    python = bin_folder / Path(sys.executable).name
    offline = ["--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, *wheels, cwd=folder)
    (site,) = (path for path in folder.rglob("site-packages") if path.is_dir() and not path.is_symlink())
    for found in _with_requirements(needed):
        for name in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = site / name
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(name))))
    return bin_folder


def _with_requirements(names: Iterable[str]) -> Iterator[Distribution]:
    """Installed distributions and what they require on this machine, each once."""
    pending, seen = [canonicalize_name(name) for name in names], set[str]()
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            found = distribution(name)
            yield found
            pending += [canonicalize_name(one) for one in _required(found.requires or ())]


def _required(lines: Iterable[str]) -> Iterator[str]:
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name
