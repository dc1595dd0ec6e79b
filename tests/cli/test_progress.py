"""What is seen of something that takes long: on a terminal one line that moves, elsewhere the lines that stay."""

from __future__ import annotations

import json
import os
import re
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from chirp_migrate.console import progress_line
from chirp_migrate.console.output import Output
from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.engine.plan_tree import plan_tree

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")

_SOON_S = 60.0


class Terminal:
    """A pseudo-terminal: standard error of whoever gets ``child``; what it was sent is in ``raw``."""

    def __init__(self, columns: int, encoding: str = "utf-8") -> None:
        import fcntl
        import pty
        import termios

        self.columns, self.raw = columns, ""
        self.parent, self.child = pty.openpty()
        fcntl.ioctl(self.child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = os.fdopen(self.child, "w", encoding=encoding, errors="backslashreplace")

    def until(self, pattern: str) -> str:
        """Read until this came, and give it."""
        ends = time.monotonic() + _SOON_S
        while (found := re.search(pattern, self.raw)) is None:
            assert time.monotonic() < ends and self._read(1.0), self.raw
        return found[0]

    def close(self) -> None:
        self.stream.close()
        while self._read(0.0):
            pass
        os.close(self.parent)

    def _read(self, wait_s: float) -> bool:
        try:
            if select.select([self.parent], [], [], wait_s)[0]:
                self.raw += os.read(self.parent, 65536).decode(errors="replace")
                return True
        except OSError:  # the other end is gone
            return False
        return wait_s > 0

    @property
    def frames(self) -> list[str]:
        """What the moving line showed, one after the other."""
        return [one for one in re.findall(r"(?<=\r)([^\r\n\x1b]+)\x1b\[K\r(?!\n)", self.raw) if one]

    @property
    def left(self) -> list[str]:
        """Lines that stand on it now."""
        lines, column = [""], 0
        for one in re.findall(r"\x1b\[K|.", self.raw, re.DOTALL):
            assert one != "\x1b", "nothing but wiping"
            if one == "\r":
                column = 0
            elif one == "\n":
                lines.append("")
            elif one == "\x1b[K":
                lines[-1] = lines[-1][:column]
            else:
                if column >= self.columns:
                    lines.append("")
                    column = 0
                lines[-1] = lines[-1][:column].ljust(column) + one + lines[-1][column + 1 :]
                column += 1
        return [line.rstrip() for line in lines if line.strip()]


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Standard error as a terminal of so many columns, on which a line need not take long to show."""
    opened: list[Terminal] = []

    def made(columns: int, encoding: str = "utf-8") -> Terminal:
        opened.append(Terminal(columns, encoding))
        monkeypatch.setattr(sys, "stderr", opened[-1].stream)
        return opened[-1]

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress_line, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(progress_line, "_EVERY_S", 0.01)
    yield made
    for one in opened:
        if not one.stream.closed:
            one.close()


LONG = ProgressStep("round 2, after: training_utils.\u5b57" + "x" * 100, 9, 64, left_s=40.9, most_s=130.9)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (40, r"round 2, afte…  about 0:40 to 2:10 left"),
        (80, r"round 2, after: training_utils.*…  █░{9}  ?9/64  about 0:40 to 2:10 left"),
        (160, r"round 2, after: training_utils.\u5b57x+…  █░{9} 9/64  about 0:40 to 2:10 left"),
    ],
)
def test_one_line_moves_and_nothing_of_it_remains(terminal: Open, columns: int, shown: str) -> None:
    here = terminal(columns)
    with Output().progress("begun") as progress:
        progress("a line that stays")
        progress(LONG)
        here.until(shown)
        progress("another \x1b[31m")
        progress(ProgressStep("next", 10, 64))
        here.until(r"next .* left")  # what was said of the time before goes on running
    here.close()
    assert all(cell_len(frame) < columns for frame in here.frames)
    assert here.left == ["  a line that stays", r"  another \x1b[31m"]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (ProgressStep("x", left_s=3700.9), "about 1:01:40 left"),
        (ProgressStep("x", left_s=40.9, most_s=20), "about 0:40 left"),
        (ProgressStep("x", left_s=-3, most_s=70.9), "at most about 1:10 left"),
        (ProgressStep("x", left_s=0.5, most_s=0.2), r"0:0\d so far"),
        (ProgressStep("x"), r"0:0\d so far"),
    ],
)
def test_the_time_left_is_what_is_known_of_it_and_never_stays_at_nothing(
    terminal: Open, step: ProgressStep, says: str
) -> None:
    here = terminal(80)
    with Output().progress("begun") as progress:
        progress(step)
        here.until(rf"\rx +{says}\x1b\[K")
    assert "0:00 left" not in here.raw


def test_a_terminal_that_has_no_blocks_gets_signs(terminal: Open) -> None:
    here = terminal(80, "ascii")
    with Output().progress("begun") as progress:
        progress(ProgressStep("caf\xe9", 1, 2))
        here.until(r"\rcaf\\xe9 +  #+\.+ 1/2")


@pytest.mark.parametrize("dumb", [True, False])
def test_a_log_and_a_dumb_terminal_get_the_lines_that_stay(
    terminal: Open, dumb: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = terminal(80) if dumb else None
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    with Output().progress("begun") as progress:
        progress("one\x07")
        progress(ProgressStep("two"))
    if here is not None:
        here.close()
    assert (capsys.readouterr().err if here is None else here.raw).splitlines() == [r"  one\x07"]


def test_quiet_shows_nothing(terminal: Open) -> None:
    here = terminal(80)
    with Output(quiet=True).progress("begun") as progress:
        progress("one")
        progress(ProgressStep("two"))
        time.sleep(0.05)
    here.close()
    assert here.raw == ""


def _started(here: Terminal, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "chirp_migrate", *arguments],
        stdin=here.child,
        stdout=subprocess.PIPE,
        stderr=here.child,
        text=True,
        env={**os.environ, "TERM": "xterm", **environment},
        preexec_fn=lambda: _own_terminal(here.child),
    )


def _own_terminal(child: int) -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(child, termios.TIOCSCTTY, 0)


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(
        "from torch.utils.data import DataLoader\n\n\ndef train(dataset):\n    return DataLoader(dataset)\n"
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (80, 160))])
def test_a_command_shows_what_it_waits_for_and_prints_as_without(backend: Path, columns: int) -> None:
    here = Terminal(columns)
    prints = "sleep 4; echo 'from a child' > /proc/$PPID/fd/2"
    process = _started(here, "apply", "--json", "-", "--check-with", prints, str(backend), NO_COLOR="1")
    here.stream.close()
    here.until(r"running: sleep.* 0:0\d so far")
    here.until("from a child")
    output = process.communicate(timeout=_SOON_S)[0]
    assert process.returncode == 0 and json.loads(output)["schema"] == 1
    here.close()
    assert any("1 file rewritten" in line for line in here.left)
    assert not any(" so far" in line and "from a child" not in line for line in here.left)


@pytest.mark.slow
def test_an_interrupt_wipes_the_line_and_rolls_back(backend: Path) -> None:
    before = (backend / "train.py").read_bytes()
    here = Terminal(80)
    process = _started(here, "apply", "--check-with", "sleep 1000", str(backend), NO_COLOR="1")
    here.until("running: sleep")
    os.write(here.parent, b"\x03")
    process.communicate(timeout=_SOON_S)
    here.close()
    assert process.returncode == 130 and (backend / "train.py").read_bytes() == before
    assert "".join(here.left).startswith("chirp-migrate: interrupted: nothing was written, or all changes were undone")


def test_planning_in_processes_counts_files_as_they_are_done(terminal: Open, backend: Path) -> None:
    for number in range(7):
        (backend / f"train_{number}.py").write_bytes((backend / "train.py").read_bytes())
    here = terminal(80)
    reported: list[str | ProgressStep] = []

    def both(what: str | ProgressStep) -> None:
        reported.append(what)
        progress(what)

    with Output().progress("planning") as progress:
        plan = plan_tree(backend, jobs=2, progress=both)
        here.until(r"planning train.* 8/8 ")
    steps = [step for step in reported if isinstance(step, ProgressStep) and step.total]
    assert [step.done for step in steps] == list(range(9)) and {step.total for step in steps} == {8}
    assert steps[-1].left_s == 0 and all(step.left_s for step in steps[1:-1])
    assert [file.path for file in plan.files] == sorted(file.path for file in plan.files)
