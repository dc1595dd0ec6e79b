"""Other processes are told from our own by what the kernel counts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from chirp_migrate.training.process import background_load as disturbance
from chirp_migrate.training.process.background_load import Watch, not_watched

BURN = "import time\nwhile time.process_time() < {}: pass"
_TICKS_A_SECOND = 100.0

needs_proc = pytest.mark.skipif(not_watched() is not None, reason="other processes cannot be watched here")


def count(path: Path, busy_ticks: int) -> Path:
    """A kernel's count in which CPU 0 was busy for so long."""
    path.write_text(f"cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 {busy_ticks} 0 0 777 777 0 0 0 0 0\nintr 1\n")
    return path


@pytest.fixture
def one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disturbance, "_own_cpus", lambda: frozenset({0}))
    monkeypatch.setattr("chirpid_patch.machine.cpus.cgroup_quota", lambda: None)
    monkeypatch.setattr("os.sysconf", lambda _name: _TICKS_A_SECOND)


@pytest.mark.usefixtures("one_cpu")
def test_what_our_children_used_is_not_put_down_to_others(tmp_path: Path) -> None:
    stat = count(tmp_path / "stat", 1000)
    watch, began, own = Watch(stat), time.perf_counter(), disturbance.own_s()
    subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)
    used = disturbance.own_s() - own
    assert used >= 0.3 - 1e-6, "the child's time is ours"
    count(stat, 1000 + round(100 * (used + 0.2)))

    others = watch.others()

    assert others is not None
    assert others * (time.perf_counter() - began) == pytest.approx(0.2, abs=0.06), "0.2 s are nobody's of ours"


@pytest.mark.usefixtures("one_cpu")
def test_a_share_stays_between_none_and_all(tmp_path: Path) -> None:
    stat = count(tmp_path / "stat", 1000)
    watch = Watch(stat)
    count(stat, 10_000_000)
    assert watch.others() == 1.0
    count(stat, 1000)
    assert watch.others() == 0.0


@pytest.mark.usefixtures("one_cpu")
def test_where_nothing_is_counted_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "no" / "stat"
    assert Watch(missing).others() is None
    assert str(missing) in (not_watched(missing) or "")

    assert Watch(count(tmp_path / "zeros", 0)).others() is None, "a sandbox may show zeros"
    still = Watch(count(tmp_path / "stat", 1000))
    sum(range(1_000_000))
    monkeypatch.setattr(disturbance, "_COUNTED_FROM_S", 0.0)
    subprocess.run([sys.executable, "-c", BURN.format(0.1)], check=True)
    assert still.others() is None, "or a count that stands still"

    monkeypatch.setattr("chirpid_patch.machine.cpus.cgroup_quota", lambda: 0.5)
    assert "quota" in (not_watched(tmp_path / "stat") or "")
    assert still.others() is None


@needs_proc
def test_a_process_beside_us_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", BURN.format(1000)]) as beside:
        try:
            watch, began = Watch(), time.perf_counter()
            time.sleep(1.0)
            others, elapsed = watch.others(), time.perf_counter() - began
        finally:
            beside.kill()
    assert others is not None
    # It gets less than a core where others compete with it, but then they are others, too.
    assert others * elapsed * len(disturbance._own_cpus()) > 0.5
