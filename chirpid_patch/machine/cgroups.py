"""Functions that read the control groups (cgroups) which limit this process on Linux."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")


def cgroup_folders(
    controller: str, cgroup_root: Path = ROOT, process_file: Path = OF_PROCESS
) -> Iterator[tuple[Path, bool]]:
    """Yield a pair for each cgroup that may limit the resource ``controller`` for this process.

    The first value is the folder of the cgroup. The second value is True for a cgroup of version 1, and False for
    version 2.

    Args:
        controller: name of the resource, such as "cpu" or "memory".
        cgroup_root: folder where cgroups are mounted.
        process_file: file that lists the cgroups of this process.
    """
    for line in read_or_empty(process_file).splitlines() or ["0::"]:
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        path = PurePosixPath(place.lstrip("/"))
        for mount in (
            dict.fromkeys((cgroup_root / controllers, cgroup_root / controller)) if controllers else (cgroup_root,)
        ):
            # In a container, the path in the file may not exist below the mount. In this case, the mount itself is the
            # folder of the cgroup.
            for group in (path, *path.parents):
                yield mount / group, bool(controllers)


def read_or_empty(path: Path) -> str:
    """Return the text of a file; an empty string if the file cannot be read.

    The files of cgroups exist only on Linux.
    """
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
