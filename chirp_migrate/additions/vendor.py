"""Copy the runtime, the package ``chirpid_patch``, into the project (``--vendor``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from chirp_migrate.errors import WriteRefused
from chirp_migrate.plans.plan import FilePlan

#: Name of the runtime package, and of the folder in the project that contains its copy.
PACKAGE = "chirpid_patch"


def vendor_files(root: Path) -> list[FilePlan]:
    """Return the files of the installed runtime that are missing in ``root/chirpid_patch``, or that differ there.

    If ``root/chirpid_patch`` is an older copy, the result updates the copy. The function imports no module of the
    runtime, and writes no files.

    Raises:
        WriteRefused: the folder ``root/chirpid_patch`` exists, and is not a copy of the runtime.
    """
    source = _runtime_folder()
    target = root / PACKAGE
    if target.is_symlink() or (target.exists() and not (target / "py.typed").is_file()):
        raise WriteRefused(
            f"{target} exists and is not a copy of the package {PACKAGE}: move it away, or omit --vendor."
        )
    files = []
    for path in sorted((*_modules(source), source / "py.typed", source / "LICENSE")):
        relative = path.relative_to(source)
        copy = target / relative
        before = copy.read_bytes() if copy.is_file() else None
        after = path.read_bytes()
        if before != after:
            files.append(FilePlan(f"{PACKAGE}/{relative.as_posix()}", before, after, "vendor"))
    return files


def _modules(package: Path) -> Iterator[Path]:
    """Yield the modules of a package and of all sub-packages. Folders without ``__init__.py`` are skipped."""
    yield from package.glob("*.py")
    for initializer in package.glob("*/__init__.py"):
        yield from _modules(initializer.parent)


def _runtime_folder() -> Path:
    """Return the folder of the installed runtime, never the folder of a copy in the working directory.

    In a checkout and in most environments, the folder ``chirpid_patch`` is next to the folder ``chirp_migrate``. In all
    other environments, the function reads the folder from the metadata of the installed distribution.

    Raises:
        WriteRefused: the runtime is not installed.
    """
    places = [Path(__file__).resolve().parents[2] / PACKAGE]
    with suppress(PackageNotFoundError):
        found = distribution("chirpid-patch")
        places.append(Path(str(found.locate_file(PACKAGE))))
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            places.append(Path(url2pathname(urlsplit(origin["url"]).path)))
    for folder in places:
        if (folder / "__init__.py").is_file():
            return folder
    raise WriteRefused(f"the package {PACKAGE} is not installed: pip install chirpid-patch.")
