"""A child process gives its answer, or one sentence says why there is none; nothing that it started is left.

Stubs stand for the processes that train: they import nothing that takes its time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from chirp_migrate.console.progress import ProgressStep, ignore_progress
from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.errors import WorkloadFailed
from chirp_migrate.training.process.descendants import cpus_of_this_process, run_on_one_cpu
from chirp_migrate.training.process.run_child import Child, ChildLabels

STUB = """
import os, signal, subprocess, sys, threading, time
from dataclasses import dataclass
from pathlib import Path
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.training.errors import TaskNotPossible, UserCodeError
from chirp_migrate.training.process.inside_child import ParentConnection, run_child_task

@dataclass
class Asked:
    tree: str
    numbers: tuple[int, ...]

@dataclass
class Found:
    total: float
    names: dict

def act(asked, parent):
    {act}

sys.exit(run_child_task(Asked, act))
"""
ROLE = ChildLabels("The stub", "The stub failed: ", "raise --timeout, or lower --samples", "before")


@dataclass(frozen=True)
class Asked:
    """What the stubs are asked."""

    tree: str
    numbers: tuple[int, ...] = (3, 4)


@dataclass
class Found:
    """What they answer."""

    total: float
    names: dict[str, tuple[int, ...]] = field(default_factory=dict)


Start = Callable[..., Child[Found]]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Make a child of what it does with ``asked`` and ``parent``."""
    path = [str(tmp_path), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))

    def make(act: str, *, timeout_s: float = 60.0, said: list[str | ProgressStep] | None = None) -> Child[Found]:
        (tmp_path / "stands_for_runner.py").write_text(STUB.format(act=act.replace("\n", "\n    ")))
        progress = ignore_progress if said is None else said.append
        return Child("stands_for_runner", Asked(str(tmp_path)), Found, ROLE, timeout_s, progress=progress)

    return make


def test_it_says_how_far_it_is_and_gives_a_typed_answer(stub: Start, tmp_path: Path) -> None:
    said: list[str | ProgressStep] = []
    shows = "parent.show('half \\udc80')\nparent.show(ProgressStep(os.getcwd(), 1, 2, 3.0))"
    act = f"{shows}\nreturn Found(sum(asked.numbers) * 1e400, {{'a': (1,)}})"
    with stub(act, said=said) as child:
        assert child.result() == Found(float("inf"), {"a": (1,)})
    assert said == ["half \udc80", ProgressStep(str(tmp_path), 1, 2, 3.0)], "it works in its tree"


def test_it_does_what_it_does_in_turns_that_it_is_given(stub: Start, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    turn = f"parent.wait_for_turn()\n    Path({str(mark)!r}).write_text(str(turn))"
    act = f"for turn in range(2):\n    {turn}\nreturn Found(1, {{}})"
    with stub(act, timeout_s=20) as child:
        child.wait_until_ready()
        first = child.cpu_s
        assert first > 0 and not mark.exists()
        child.give_turn()
        child.wait_until_ready()
        assert mark.read_text() == "0" and child.cpu_s >= first
        assert child.result().total == 1 and mark.read_text() == "1"
        assert child.cpu_s == 0, "it counts as ours now"


def test_one_that_is_suspended_does_nothing_with_all_that_it_started_until_its_turn(
    stub: Start, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    ticking = f"import time\nwhile True:\n    open({str(mark)!r}, 'a').write('.'); time.sleep(0.01)"
    act = (
        f"child = subprocess.Popen([sys.executable, '-c', {ticking!r}])\n"
        f"while not os.path.exists({str(mark)!r}):\n    time.sleep(0.01)\n"
        "parent.wait_for_turn()\n"
        f"size = os.path.getsize({str(mark)!r})\n"
        f"while os.path.getsize({str(mark)!r}) == size:\n    time.sleep(0.01)\n"
        "child.kill()\nreturn Found(1, {})"
    )
    with stub(act) as child:
        child.wait_until_ready()
        child.suspend()
        size = mark.stat().st_size
        time.sleep(0.2)
        assert mark.stat().st_size == size
        assert child.result().total == 1, "it goes on where it was"


@pytest.mark.skipif(not cpus_of_this_process(), reason="this system restricts no process to some CPUs")
def test_a_turn_may_begin_on_a_certain_cpu_and_goes_on_anywhere(stub: Start) -> None:
    cpus = cpus_of_this_process()
    with stub("parent.wait_for_turn()\nparent.wait_for_turn()\nreturn Found(1, {})") as child:
        child.wait_until_ready()
        process = psutil.Process(child._process.pid)
        with run_on_one_cpu(process.pid, cpus[-1]):
            assert process.cpu_affinity() == [cpus[-1]]
        assert process.cpu_affinity() == cpus
        child.suspend()
        child.give_turn(cpu=cpus[0])
        assert process.cpu_affinity() == cpus
        assert child.result().total == 1


def test_a_cpu_is_no_matter_where_the_system_restricts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)
    assert cpus_of_this_process() == []
    with run_on_one_cpu(os.getpid(), 0):
        pass


def test_parts_of_what_it_found_come_as_they_are_known(stub: Start) -> None:
    act = (
        "from chirp_migrate.training.process.protocol import PartialResult as Part\n"
        "for number in range(2):\n    parent.send(Part(f'part {number}', {'value': number}))\n"
        "return Found(1, {})"
    )
    with stub(act) as child:
        assert child.result().total == 1
        assert [(part.name, part.value) for part in child.found] == [
            ("part 0", {"value": 0}),
            ("part 1", {"value": 1}),
        ]


@pytest.mark.parametrize(
    ("act", "sentence", "tail"),
    [
        (
            "print('last words', flush=True); os._exit(7)",
            "The stub ended with exit code 7 and returned no result.",
            "last",
        ),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "The stub ended with signal SIGSEGV and returned no result.", ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", "when memory runs out) and returned no result.", ""),
        ("os.kill(os.getpid(), 40)", "The stub ended with signal 40 and returned no result.", ""),
        ("return asked", "returned no result.", ""),
        ("parent._connection.send_bytes(b'{' * 10**5)\nos._exit(0)", "exit code 0 and returned no result.", ""),
        ("parent._connection.send_bytes(b'[' * 10**5)\nos._exit(0)", "exit code 0 and returned no result.", ""),
        (
            "raise MemoryError('16 GiB')",
            "The stub ended with exit code 1 and returned no result.",
            "MemoryError: 16 GiB",
        ),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise UserCodeError('train raised') from error",
            "The stub failed: train raised.",
            "ZeroDivisionError",
        ),
        ("raise UserCodeError('no such file') from TaskNotPossible()", "The stub failed: no such file.", ""),
        ("import cv2.nowhere", "pip install opencv-python", "ModuleNotFoundError"),
    ],
)
def test_whatever_ends_it_is_told_in_one_sentence(stub: Start, act: str, sentence: str, tail: str) -> None:
    with pytest.raises(WorkloadFailed) as raised, stub(act) as child:
        child.result()
    assert sentence in str(raised.value) and "\n" not in str(raised.value)
    assert tail in raised.value.log_tail and (tail or not raised.value.log_tail)
    assert (raised.value.side, raised.value.exit_code) == ("before", 14)


def test_what_cannot_be_run_as_asked_is_the_user_s_to_change(stub: Start) -> None:
    with (
        pytest.raises(UsageProblem, match=r"^in the version before the migration, there is no dataset\.$"),
        stub("raise TaskNotPossible('there is no dataset')") as child,
    ):
        child.result()


@pytest.mark.parametrize(
    "act",
    [
        "time.sleep(600)",
        *(
            pytest.param(act, marks=pytest.mark.slow)
            for act in (
                "parent.wait_for_turn()\ntime.sleep(600)",
                "parent._connection.close()\ntime.sleep(600)",
            )
        ),
        "os.write(parent._connection.fileno(), b'\\0\\0\\1\\0half')\ntime.sleep(600)",
    ],
)
def test_one_that_hangs_is_ended(stub: Start, act: str) -> None:
    with (
        pytest.raises(WorkloadFailed, match=r"1 s.* --timeout.* --samples"),
        stub(act, timeout_s=0.6) as child,
    ):
        child.result()


THREAD = "threading.Thread(target=time.sleep, args=(600,)).start()\n"


def test_a_result_counts_although_the_process_does_not_end(stub: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chirp_migrate.training.process.run_child._ENDS_WITHIN_S", 0.1)
    with stub(f"{THREAD}parent.show(str(os.getpid()))\nreturn Found(1, {{}})", said=(said := [])) as child:
        child.wait_until_ready()
        assert not _runs(int(str(said[0])))
        assert child.result().total == 1
    fails = f"{THREAD}raise UserCodeError('train raised') from TaskNotPossible()"
    with pytest.raises(WorkloadFailed, match=r"^The stub failed: train raised\.$"), stub(fails) as child:
        child.result()


def test_waiting_for_a_turn_is_not_hanging(stub: Start) -> None:
    with stub("parent.wait_for_turn()\nreturn Found(1, {})", timeout_s=2.5) as child:
        child.wait_until_ready()
        time.sleep(2.6)
        assert child.result().total == 1


@pytest.mark.skipif(os.name != "posix", reason="sessions are POSIX's")
@pytest.mark.parametrize("end", ["os._exit(3)", "time.sleep(600)"])
def test_what_it_started_ends_with_it_and_holds_nothing_up(stub: Start, end: str) -> None:
    said: list[str | ProgressStep] = []
    act = f"""
if not (forked := os.fork()):
    time.sleep(600)
elsewhere = subprocess.Popen(['sleep', '600'], start_new_session=True)
parent.show(f'{{os.getpid()}} {{forked}} {{elsewhere.pid}}')
{end}"""
    with pytest.raises(WorkloadFailed), stub(act, timeout_s=2, said=said) as child:
        child.result()
    pids = [int(pid) for pid in str(said[0]).split()]
    assert len(pids) == 3 and not any(map(_runs, pids))


def test_an_interruption_leaves_nothing_running(stub: Start) -> None:
    with pytest.raises(KeyboardInterrupt), stub("parent.wait_for_turn()") as child:
        child.wait_until_ready()
        pid = child._process.pid
        raise KeyboardInterrupt
    assert not _runs(pid)


@pytest.mark.parametrize("suspended", [True, False])
def test_a_parent_that_is_killed_leaves_nothing_running_nor_suspended(
    stub: Start, tmp_path: Path, suspended: bool
) -> None:
    waits = "parent.wait_for_turn()" if suspended else "parent.show('it works')\ntime.sleep(600)"
    act = f"elsewhere = subprocess.Popen(['sleep', '600'])\nparent.show(f'{{os.getpid()}} {{elsewhere.pid}}')\n{waits}"
    child = stub(act)  # writes the module of the stub
    parent = f"""
import sys, time
from test_child import Asked, Child, Found, ROLE
with Child({child.module!r}, Asked({str(tmp_path)!r}), Found, ROLE, 600.0, progress=print) as child:
    {"child.wait_until_ready(); child.suspend()" if suspended else "for _ in range(2): child.receive_message(60)"}
    print("ready", flush=True)
    time.sleep(600)
"""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])
    process = subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2 and any(line == "ready\n" for line in process.stdout)
    assert all(map(_runs, pids))
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    left = [pid for pid in pids if _runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def test_a_child_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    waiting = f"""
import sys
from pathlib import Path
from chirp_migrate.training.process.inside_child import ParentConnection
try:
    ParentConnection(int(sys.argv[1])).wait_for_turn()
finally:
    Path({str(tmp_path / "ended")!r}).touch()
"""
    starting = f"""
import subprocess, sys
from multiprocessing import Pipe
ours, theirs = Pipe()
descriptor = theirs.fileno()
subprocess.Popen([sys.executable, '-c', {waiting!r}, str(descriptor)], pass_fds=(descriptor,))
theirs.close()
ours.recv_bytes()
print('it waits', flush=True)
import time; time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", starting], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "it waits\n"
    assert not (tmp_path / "ended").exists()
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 30
    while not (tmp_path / "ended").exists():
        assert time.monotonic() < deadline, "it still waits for its turn"
        time.sleep(0.02)


def test_a_killed_parent_leaves_no_temporary_folder(tmp_path: Path) -> None:
    starting = """
from chirp_migrate.training.process.guard import temporary_folder
import time
with temporary_folder("kept-") as folder:
    (folder / "tree").mkdir()
    (folder / "tree" / "file").touch()
    print(folder, flush=True)
    time.sleep(600)
"""
    command, environment = [sys.executable, "-c", starting], os.environ | {"TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    folder = Path(parent.stdout.readline().strip())
    assert folder.parent == tmp_path.resolve() and (folder / "tree" / "file").exists()
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 30
    while list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, "the folder is still there"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie, which somebody else has not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
