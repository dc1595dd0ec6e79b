"""The control groups that limit this process (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")


def group_folders(controller: str, root: Path = ROOT, process_file: Path = OF_PROCESS) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of each group that limits ``controller``'s resource, and whether its cgroup version is 1."""
    for line in read(process_file).splitlines() or ["0::"]:
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        path = PurePosixPath(place.lstrip("/"))
        for mount in dict.fromkeys((root / controllers, root / controller)) if controllers else (root,):
            # Inside a container the path in the file may not exist below the mount: the mount itself counts then.
            for group in (path, *path.parents):
                yield mount / group, bool(controllers)


def read(path: Path) -> str:
    """Return the text of a file; empty if the file does not exist, as on other systems."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
