"""Limits on memory: alerts when they are passed, with what to change."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from chirpid_patch.machine.nvml import GpuProbe, GpuReading, GpuStatus
from chirpid_patch.machine.usable_memory import cgroup_memory_limit, machine_memory, usable_memory
from chirpid_patch.memory import watch as memory_watch
from chirpid_patch.memory.watch import MemoryAlert, MemoryPressure, MemoryUse, MemoryWatch, memory_in_use

NONE, SOFT, HARD = MemoryPressure
GIB = 2**30


class Readings:
    """Memory use as the test says."""

    def __init__(self) -> None:
        self.used = {"process": 0}
        self.processes = 1

    def __call__(self, _probe: object) -> list[MemoryUse]:
        return [MemoryUse(source, used, 100 * GIB, self.processes) for source, used in self.used.items()]


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    made = Readings()
    monkeypatch.setattr(memory_watch, "memory_in_use", made)
    return made


def levels(watch: MemoryWatch, readings: Readings, *shares: float) -> list[list[MemoryPressure]]:
    """The pressures told of after each reading."""
    told = []
    for share in shares:
        readings.used["process"] = int(share * 100 * GIB)
        told.append([alert.pressure for alert in watch.check()])
    return told


def test_limits_are_told_of_when_they_are_passed_and_when_left(readings: Readings) -> None:
    watch = MemoryWatch(0.8, 0.9)
    assert levels(watch, readings, 0.5, 0.8, 0.85, 0.92, 0.95) == [[], [SOFT], [], [HARD], []]
    assert watch.pressure is HARD
    assert levels(watch, readings, 0.85, 0.8, 0.75, 0.71) == [[], [SOFT], [], [NONE]]  # 10 % below each limit
    assert watch.pressure is NONE


def test_an_alert_says_what_is_used_and_what_to_change(readings: Readings, caplog: pytest.LogCaptureFixture) -> None:
    told: list[MemoryAlert] = []
    watch = MemoryWatch(0.8, 0.9, on_alert=told.append)
    readings.processes = 5
    with caplog.at_level(logging.INFO, "chirpid_patch"):
        levels(watch, readings, 0.8, 0.91, 0.1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR, logging.INFO]
    lines = [record.getMessage() for record in caplog.records]
    for line, named in zip(
        lines, (["80.00 GiB", "num_workers"], ["90.00 GiB"], ["10.00 GiB", "90.00 GiB"]), strict=True
    ):
        assert all(one in line for one in named), line
    assert [str(alert) for alert in told] == lines and [alert.rising for alert in told] == [True, True, False]
    alone = MemoryAlert(SOFT, NONE, MemoryUse("process", GIB, GIB), GIB)
    assert "memory_efficient=True" in alone.advice and "num_workers" not in alone.advice
    assert "memory_budget" in MemoryAlert(HARD, NONE, MemoryUse("gpu 1", GIB, GIB), GIB).advice


def test_no_storm_of_alerts_when_memory_swings_about_a_limit(readings: Readings) -> None:
    told = [one for one in levels(MemoryWatch(0.8, 0.9), readings, *[0.81, 0.79] * 20) if one]
    assert told == [[SOFT]]


def test_sources_are_judged_apart(readings: Readings) -> None:
    watch = MemoryWatch(0.5, 0.9)
    readings.used = {"process": 10 * GIB, "gpu 0": 60 * GIB, "gpu 1": 40 * GIB}
    assert [(alert.use.source, alert.pressure) for alert in watch.check()] == [("gpu 0", SOFT)]
    readings.used["gpu 0"], readings.used["process"] = 0, 95 * GIB
    assert [(alert.use.source, alert.pressure) for alert in watch.check()] == [("process", HARD), ("gpu 0", NONE)]


def test_a_failing_callback_is_told_and_watching_goes_on(readings: Readings, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_alert: MemoryAlert) -> None:
        raise KeyError("no such channel")

    assert levels(MemoryWatch(0.8, 0.9, on_alert=fail), readings, 0.9, 0.1) == [[HARD], [NONE]]
    assert "on_alert raised an error" in caplog.text and "no such channel" in caplog.text


def test_it_watches_on_a_thread_until_stopped(readings: Readings) -> None:
    told = threading.Event()
    with MemoryWatch(interval_s=0.001, on_alert=lambda _: told.set()) as watch:
        assert watch.pressure is NONE and not told.is_set()
        readings.used["process"] = 85 * GIB
        assert told.wait(60)
        assert watch.pressure is SOFT and watch.start() is watch
    assert "chirpid-memory-watch" not in {thread.name for thread in threading.enumerate()}
    watch.stop()


def test_what_is_read_is_the_memory_of_this_process_and_what_it_may_use() -> None:
    with GpuProbe() as probe:
        own = memory_in_use(probe)[0]
    assert own.source == "process" and 0 < own.used_bytes < own.total_bytes == usable_memory()


def test_gpu_memory_kept_ready_by_pytorch_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        memory_watch.GpuProbe, "read", lambda _self: GpuStatus((GpuReading("H", 1.0, 9 * GIB, 10 * GIB),))
    )
    watch = MemoryWatch()
    assert [alert.pressure for alert in watch.check() if alert.use.source == "gpu 0"] == [SOFT]
    monkeypatch.setattr(memory_watch, "reusable_gpu_bytes", lambda _device: 5 * GIB)
    (alert,) = (alert for alert in watch.check() if alert.use.source == "gpu 0")
    assert alert.pressure is NONE and alert.use.used_bytes == 4 * GIB and alert.use.source == "gpu 0"


@pytest.mark.parametrize(
    "options",
    [{"soft": 1.5}, {"hard": 0}, {"soft": -1}, {"soft": 0.9, "hard": 0.8}, {"interval_s": 0}],
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
