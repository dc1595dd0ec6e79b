"""Memory of this process and its workers."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from chirpid_patch.machine import process_memory as memory
from chirpid_patch.machine.process_memory import process_memory

MIB = 2**20
BLOCK = 512 * MIB  # much more than what a process's share of common pages changes by when others start or end
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no PSS")


#: A process of its own, because its share of common pages changes if a child of an earlier test ends.
ALLOCATING = f"""
import numpy as np
from chirpid_patch.machine.process_memory import process_memory

before = process_memory()
block = np.ones({BLOCK}, dtype=np.uint8)
after = process_memory()
assert len(block) == {BLOCK}
print(before.kind, after.kind, after.bytes - before.bytes)
"""


@linux_only
def test_memory_that_is_used_is_seen_in_bytes() -> None:
    done = subprocess.run((sys.executable, "-c", ALLOCATING), capture_output=True, text=True, check=True)
    kind_before, kind_after, grown = done.stdout.split()
    assert kind_before == kind_after
    assert 0.7 * BLOCK < int(grown) < 1.3 * BLOCK


@linux_only
def test_pss_is_preferred_and_at_most_rss() -> None:
    reading = process_memory()
    rss = psutil.Process().memory_info().rss
    if reading.kind == "pss":
        assert 0 < reading.bytes <= rss * 1.05
    else:
        assert reading.kind == "rss"


def _hold_until_told(connection: multiprocessing.connection.Connection) -> None:
    block = np.ones(BLOCK, dtype=np.uint8)
    connection.send(int(block[0]))
    connection.recv()


@linux_only
def test_children_are_included_when_asked_for() -> None:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_hold_until_told, args=(there,))
    before = process_memory(include_children=True)  # helpers of multiprocessing may be there already
    child.start()
    try:
        assert here.recv() == 1
        alone, together = process_memory(), process_memory(include_children=True)
        assert alone.processes == 1
        assert together.processes == before.processes + 1
        assert together.bytes - before.bytes > 0.7 * BLOCK
        assert process_memory(child.pid).bytes > 0.7 * BLOCK
        assert f"in {together.processes} processes" in str(together)
    finally:
        here.send("end")
        child.join()


def test_a_process_that_is_gone_is_a_clear_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ProcessLookupError, match=str(ended.pid)):
        process_memory(ended.pid)


def without(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    """A system that has no such measures."""
    read = memory._read
    monkeypatch.setattr(memory, "_read", lambda process, kind: None if kind in kinds else read(process, kind))


def test_where_there_is_no_pss_pages_that_are_shared_still_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pss")
    assert process_memory().kind == "rss"
    assert process_memory(include_children=True).kind == "uss"
    without(monkeypatch, "pss", "uss")
    assert process_memory(include_children=True).kind == "rss"


def test_memory_that_may_not_be_read_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pss", "uss", "rss")
    with pytest.raises(ProcessLookupError, match="its memory cannot be read"):
        process_memory()


def test_without_psutil_only_the_peak_of_this_process_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resource")
    monkeypatch.setattr(memory, "psutil", None)
    reading = process_memory()
    assert reading.kind == "peak-rss"
    assert reading.bytes > MIB
    for question in ({"include_children": True}, {"pid": 1}):
        with pytest.raises(NotImplementedError, match="install psutil"):
            process_memory(**question)  # type: ignore[arg-type]


def test_the_peak_is_in_bytes_with_and_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=3000))
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "status")
    assert memory.peak_resident_memory() == 3000
    (tmp_path / "status").write_text("VmPeak:\t 9 kB\nVmHWM:\t    4000 kB\n")
    assert memory.peak_resident_memory() == 4000 * 1024
