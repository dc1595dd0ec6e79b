"""Functions that read the control groups (cgroups) which limit this process on Linux."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")


def cgroup_folders(controller: str, root: Path = ROOT, process_file: Path = OF_PROCESS) -> Iterator[tuple[Path, bool]]:
    """Yield a pair (folder, is version 1) for each cgroup that may limit a resource of this process.

    Args:
        controller: name of the resource, such as "cpu" or "memory".
        root: folder where cgroups are mounted.
        process_file: file that lists the cgroups of this process.
    """
    for line in read_or_empty(process_file).splitlines() or ["0::"]:
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        path = PurePosixPath(place.lstrip("/"))
        for mount in dict.fromkeys((root / controllers, root / controller)) if controllers else (root,):
            # In a container, the path in the file may not exist below the mount. In this case, the mount itself is the
            # folder of the cgroup.
            for group in (path, *path.parents):
                yield mount / group, bool(controllers)


def read_or_empty(path: Path) -> str:
    """Return the text of a file; an empty string if the file does not exist, as on systems other than Linux."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
