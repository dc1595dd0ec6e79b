"""CPUs this process may use, read from affinity and a (made-up) cgroup tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chirpid_patch.machine.cpus import cgroup_quota, usable_cpus


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 8, raising=False)


def tree(root: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A cgroup mount and the file naming this process's groups."""
    for name, text in files.items():
        path = root / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    (root / "mount").mkdir(exist_ok=True)
    process = root / "cgroup"
    process.write_text(membership, encoding="ascii")
    return root / "mount", process


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "300000 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "6400000 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 8),
        ("0::/job/step\n", {"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 100000"}, 2),
        ("0::/job/step\n", {"job/cpu.max": "400000 100000", "job/step/cpu.max": "100000 50000"}, 2),
        ("0::/not/below/the/mount\n", {"cpu.max": "500000 100000"}, 5),
        ("0::/\n", {}, 8),
        (
            "4:cpu,cpuacct:/docker/abc\n3:memory:/x\n",
            {
                "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "350000",
                "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        (
            "4:cpuacct,cpu:/docker/abc\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ],
)
@pytest.mark.usefixtures("eight_cpus")
def test_quota_bounds_the_cpus(tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    assert usable_cpus(*tree(tmp_path, membership, files)) == expected


@pytest.mark.usefixtures("eight_cpus")
def test_without_cgroups_affinity_decides(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert cgroup_quota(nowhere, nowhere / "cgroup") is None
    assert usable_cpus(nowhere, nowhere / "cgroup") == 8


def test_on_this_machine_there_is_at_least_one_and_no_more_than_there_are() -> None:
    assert 1 <= usable_cpus() <= (os.cpu_count() or 1)
