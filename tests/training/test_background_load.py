"""Other processes are told from our own by what the system counts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest

from chirp_migrate.training.process import background_load
from chirp_migrate.training.process.background_load import BackgroundLoadWatch, why_cpu_use_not_measurable

BURN = "import time\nwhile time.process_time() < {}: pass"
Count = Callable[[float], None]

needs_count = pytest.mark.skipif(
    why_cpu_use_not_measurable() is not None, reason="other processes cannot be watched here"
)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Set the system's count of the only CPU: so many seconds busy."""
    busy = {"user": 10.0}
    monkeypatch.setattr(background_load, "_own_cpus", lambda: frozenset({0}))
    monkeypatch.setattr("chirpid_patch.machine.cpus.cgroup_quota", lambda: None)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [SimpleNamespace(**busy, idle=7.7, iowait=7.7, guest=9.0)])
    return lambda seconds: busy.update(user=seconds)


def test_what_our_children_used_is_not_put_down_to_others(count: Count) -> None:
    watch, own, before = BackgroundLoadWatch(), background_load.cpu_seconds_of_this_process(), time.perf_counter()
    with watch.watching():
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)
        used = background_load.cpu_seconds_of_this_process() - own
        assert used > 0.25, "the child's time is ours; it is counted in hundredths of a second"
        count(10 + used + 0.2)
        least = time.perf_counter() - began
    most = time.perf_counter() - before

    others = watch.share_of_others()

    assert others is not None
    assert (0.2 - 0.06) / most <= others <= (0.2 + 0.06) / least, "0.2 s are nobody's of ours"


def test_times_that_are_watched_are_added_up(count: Count) -> None:
    watch = BackgroundLoadWatch()
    with watch.watching(lambda: 0.0):
        count(12)
    count(200)
    with watch.watching(lambda: 0.0):
        time.sleep(1e-3)
    assert watch._busy_s == 2 and watch.share_of_others() == 1.0


@pytest.mark.parametrize(("busy", "share"), [(100_000, 1.0), (3, 0.0)])
def test_a_share_stays_between_none_and_all(count: Count, busy: float, share: float) -> None:
    watch = BackgroundLoadWatch()
    with watch.watching():
        count(busy)
    assert watch.share_of_others() == share


def test_where_nothing_is_counted_that_is_said(count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
    def others(cpus: frozenset[int] = frozenset({0})) -> float | None:
        monkeypatch.setattr(background_load, "_own_cpus", lambda: cpus)
        watch = BackgroundLoadWatch()
        with watch.watching():
            subprocess.run([sys.executable, "-c", BURN.format(0.1)], check=True)
        return watch.share_of_others()

    assert others() == 0.0
    monkeypatch.setattr(background_load, "_COUNTED_FROM_S", 0.0)
    assert others() is None, "a sandbox's count may stand still"
    count(0)
    assert others() is None, "or show zeros"
    assert "does not count" in (why_cpu_use_not_measurable() or "")
    count(10)
    assert others(frozenset({0, 3})) is None, "one that is switched off moves those after it"
    monkeypatch.setattr("chirpid_patch.machine.cpus.cgroup_quota", lambda: 0.5)
    assert others() is None
    assert "quota" in (why_cpu_use_not_measurable() or "")


@needs_count
def test_a_process_beside_us_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", BURN.format(1000)]) as beside:
        try:
            watch, began = BackgroundLoadWatch(), time.perf_counter()
            with watch.watching():
                time.sleep(1.0)
            others, elapsed = watch.share_of_others(), time.perf_counter() - began
        finally:
            beside.kill()
    assert others is not None
    # It gets less than a core where others compete with it, but then they are others, too.
    assert others * elapsed * len(background_load._own_cpus()) > 0.5
