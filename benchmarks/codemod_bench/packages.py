"""The packages that benchmarks and checks migrate: source distributions from PyPI, pinned by version and hash."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click


class Unavailable(Exception):
    """A package could not be downloaded. The message explains why."""


@dataclass(frozen=True)
class Package:
    """A pinned source distribution: its name on PyPI, the version of the release, and the SHA-256 of its file."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def _group(name: str) -> tuple[Package, ...]:
    """Return the packages of a group in ``packages.txt``."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = text.partition(f"# {name}:\n")[2].partition("\n\n")[0]
    return tuple(Package(*found) for found in re.findall(r"^(.+)==(.+) --hash=sha256:(.+)$", lines, re.MULTILINE))


#: The packages of the survey, further packages for the gains, and packages whose examples are verified as scripts.
PACKAGES, MORE_PACKAGES, SCRIPT_PACKAGES = map(
    _group, ("survey", "more packages with training code", "training scripts")
)

cache_option = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chirp-migrate-bench",
    help="Folder for downloads.  [default: chirp-migrate-bench in the user's cache folder]",
)
keep_option = click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the trees in this folder."
)


def chosen(names: Iterable[str], packages: Iterable[Package] = PACKAGES) -> list[Package]:
    """Return the packages with these names; commas may join several names. Without names, return all packages.

    Raises:
        click.BadParameter: no package has one of the names.
    """
    known = {package.name: package for package in packages}
    wanted = [part.strip() for joined in names for part in joined.split(",")] or list(known)
    if unknown := sorted(set(wanted) - known.keys()):
        raise click.BadParameter(f"there is no package {unknown[0]!r}; the packages are {', '.join(known)}")
    return [known[name] for name in wanted]


def fetch(package: Package, cache: Path) -> Path:
    """Return the path of the source distribution, in ``cache``; download it if it is missing.

    Raises:
        Unavailable: pip cannot download the file, or its hash differs.
    """
    if (path := _cached(package, cache)) is None:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            wanted = Path(folder) / "requirements.txt"
            wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package.name]
            command = [*pip, "--require-hashes", "--dest", str(cache), "--requirement", str(wanted)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if (path := _cached(package, cache)) is None:
            raise Unavailable(f"{package} was not downloaded: {ended.stderr.strip()[-300:]}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != package.sha256:
        raise Unavailable(f"{path} is not the pinned {package}: remove it and try again")
    return path


def _cached(package: Package, cache: Path) -> Path | None:
    """Return the downloaded file. Its name has the dashes of the package, or underscores in place of the dashes."""
    stems = (package.name.replace("-", "_"), package.name)
    files = (cache / f"{stem}-{package.version}.tar.gz" for stem in stems)
    return next((file for file in files if file.exists()), None)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source distribution below ``folder``, and return the root of its tree."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    return root
