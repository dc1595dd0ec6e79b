"""The runtime as files of the backend itself, under the name it is imported by either way."""

from __future__ import annotations

from pathlib import Path

from chirp_migrate.errors import Refused
from chirp_migrate.plans.plan import FilePlan

__all__ = ["PACKAGE", "vendor_files"]

#: Name of the runtime, as a package and as a folder of the backend.
PACKAGE = "chirpid_patch"


def vendor_files(root: Path) -> list[FilePlan]:
    """The files that make ``root/chirpid_patch`` the installed runtime; none when it already is.

    An older copy is brought up to date. Nothing is imported, and nothing is written.

    Raises:
        Refused: a folder or file of that name is there that is not a copy of the runtime.
    """
    source = _installed()
    target = root / PACKAGE
    if target.is_symlink() or (target.exists() and not (target / "py.typed").is_file()):
        raise Refused(f"{target} exists and is not a copy of the runtime: move it away, or leave out --vendor.")
    files = []
    for path in sorted((*source.rglob("*.py"), source / "py.typed")):
        relative = path.relative_to(source)
        copy = target / relative
        before = copy.read_bytes() if copy.is_file() else None
        after = path.read_bytes()
        if before != after:
            files.append(FilePlan(f"{PACKAGE}/{relative.as_posix()}", before, after, "vendor"))
    return files


def _installed() -> Path:
    """Folder of the runtime that came with this program: never a copy that the working directory puts in the way."""
    folder = Path(__file__).resolve().parents[2] / PACKAGE
    if not (folder / "__init__.py").is_file():
        raise Refused(f"the package {PACKAGE} is not installed beside this program: reinstall chirp-migrate.")
    return folder
