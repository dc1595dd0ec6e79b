"""Limits on memory: alerts when they are passed, once, with what to change (R-003)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import numpy as np
import pytest

from chirpid_patch.machine.nvml import GpuReading, GpuStatus
from chirpid_patch.machine.process_memory import process_memory
from chirpid_patch.machine.usable_memory import cgroup_memory_limit, machine_memory, usable_memory
from chirpid_patch.memory import watch as memory_watch
from chirpid_patch.memory.watch import MemoryAlert, MemoryPressure, MemoryUse, MemoryWatch

NONE, SOFT, HARD = MemoryPressure
GIB = 2**30


class Readings:
    """Memory use as the test says, at times as the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.used = {"process": 0}
        self.processes = 1

    def __call__(self) -> list[MemoryUse]:
        return [MemoryUse(source, used, 100 * GIB, self.processes) for source, used in self.used.items()]

    def clock(self) -> float:
        return self.now


@pytest.fixture
def readings() -> Readings:
    return Readings()


def watch_of(readings: Readings, **options: object) -> MemoryWatch:
    given = {"soft": 0.8, "hard": 90 * GIB, "read": readings, "clock": readings.clock, **options}
    return MemoryWatch(**given)  # type: ignore[arg-type]


def levels(watch: MemoryWatch, readings: Readings, *shares: float) -> list[list[MemoryPressure]]:
    """The pressures told of after each reading, a second apart."""
    told = []
    for share in shares:
        readings.now += 1
        readings.used["process"] = int(share * 100 * GIB)
        told.append([alert.pressure for alert in watch.check()])
    return told


def test_limits_are_told_of_when_they_are_passed_and_when_left(readings: Readings) -> None:
    watch = watch_of(readings)
    assert levels(watch, readings, 0.5, 0.8, 0.85, 0.92, 0.95) == [[], [SOFT], [], [HARD], []]
    assert watch.pressure is HARD
    assert levels(watch, readings, 0.85, 0.8, 0.75, 0.71) == [[], [SOFT], [], [NONE]]  # 10 % below each limit
    assert watch.pressure is NONE


def test_an_alert_says_what_is_used_and_what_to_change(readings: Readings, caplog: pytest.LogCaptureFixture) -> None:
    watch, told = watch_of(readings, on_alert=lambda alert: told.append(alert)), []
    readings.processes = 5
    with caplog.at_level(logging.INFO, "chirpid_patch"):
        levels(watch, readings, 0.8, 0.91, 0.1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR, logging.INFO]
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == (
        "this process and its workers use 80.00 GiB, over the soft limit of 80.00 GiB: lower num_workers "
        "(4 processes were started), prefetch_factor or batch_size"
    )
    assert "over the hard limit of 90.00 GiB" in lines[1]
    assert lines[2] == "this process and its workers use 10.00 GiB, below the limit of 90.00 GiB again"
    assert [str(alert) for alert in told] == lines and [alert.rising for alert in told] == [True, True, False]
    alone = MemoryAlert(SOFT, NONE, MemoryUse("process", GIB, GIB), GIB)
    assert "memory_efficient=True" in alone.advice and "num_workers" not in alone.advice
    assert "memory_budget" in MemoryAlert(HARD, NONE, MemoryUse("gpu 1", GIB, GIB), GIB).advice


def test_no_storm_of_alerts_when_memory_swings(readings: Readings) -> None:
    watch = watch_of(readings, quiet_s=60)
    told = [one for one in levels(watch, readings, *[0.85, 0.5] * 20) if one]
    assert told == [[SOFT], [NONE]]
    assert levels(watch, readings, 0.95) == [[HARD]]  # another limit is told of at once
    levels(watch, readings, 0.1)
    assert levels(watch, readings, 0.85) == [[]] and watch.pressure is SOFT
    readings.now += 60
    assert levels(watch, readings, 0.85) == [[SOFT]]  # still above it, and time enough has passed


def test_sources_are_judged_apart(readings: Readings) -> None:
    watch = watch_of(readings, gpu_soft=0.5, gpu_hard=None)
    readings.used = {"process": 10 * GIB, "gpu 0": 60 * GIB, "gpu 1": 40 * GIB}
    assert [(alert.use.source, alert.pressure) for alert in watch.check()] == [("gpu 0", SOFT)]
    readings.used["gpu 0"], readings.used["process"] = 0, 95 * GIB
    assert [(alert.use.source, alert.pressure) for alert in watch.check()] == [("process", HARD), ("gpu 0", NONE)]


def test_a_failing_callback_is_told_and_the_others_still_called(
    readings: Readings, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[MemoryAlert] = []

    def fail(_alert: MemoryAlert) -> None:
        raise KeyError("no such channel")

    watch = watch_of(readings, on_alert=[fail, told.append])
    assert levels(watch, readings, 0.9) == [[HARD]]
    assert len(told) == 1 and "on_alert failed" in caplog.text and "no such channel" in caplog.text


@pytest.mark.slow
def test_it_watches_this_process_on_a_thread_until_stopped() -> None:
    told = threading.Event()
    limit = process_memory(include_children=True).bytes + 60 * 2**20
    watch = MemoryWatch(
        soft=limit, hard=None, gpu_soft=None, gpu_hard=None, interval_s=0.01, on_alert=lambda _: told.set()
    )
    with watch:
        assert watch.pressure is NONE and not told.is_set()
        ballast = np.ones(120 * 2**20, dtype=np.uint8)
        assert told.wait(60)
        assert watch.pressure is SOFT and watch.start() is watch
        del ballast
    assert "chirpid-memory-watch" not in {thread.name for thread in threading.enumerate()}
    watch.stop()


def test_gpu_memory_kept_ready_by_pytorch_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        memory_watch.GpuProbe, "read", lambda _self: GpuStatus((GpuReading("H", "u", 1.0, 9 * GIB, 10 * GIB),))
    )
    watch = MemoryWatch(soft=None, hard=None)
    assert [alert.pressure for alert in watch.check()] == [SOFT]
    monkeypatch.setattr(memory_watch, "reusable_gpu_bytes", lambda _device: 5 * GIB)
    (alert,) = watch.check()
    assert alert.pressure is NONE and alert.use.used_bytes == 4 * GIB and alert.use.source == "gpu 0"


@pytest.mark.parametrize(
    "options",
    [{"soft": 1.5}, {"hard": 0}, {"gpu_soft": -1}, {"soft": 0.9, "hard": 0.8}, {"hysteresis": 1}, {"interval_s": 0}],
)
def test_impossible_limits_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        MemoryWatch(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "place", "text", "limit"),
    [
        ("0::/job/inner", "job/memory.max", "1000", 1000),
        ("0::/job", "job/memory.max", "max", None),
        ("0::/elsewhere", "memory.max", "500", 500),  # as inside a container
        ("5:memory:/job", "memory/job/memory.limit_in_bytes", "700", 700),
        ("5:cpu:/job", "memory/job/memory.limit_in_bytes", "700", None),
    ],
)
def test_a_cgroup_limit_bounds_what_may_be_used(
    tmp_path: Path, line: str, place: str, text: str, limit: int | None
) -> None:
    process_file = tmp_path / "cgroup"
    process_file.write_text(line + "\n")
    path = tmp_path / "fs" / place
    path.parent.mkdir(parents=True)
    path.write_text(text + "\n")
    assert cgroup_memory_limit(tmp_path / "fs", process_file) == limit
    assert usable_memory(tmp_path / "fs", process_file) == (limit or machine_memory())
