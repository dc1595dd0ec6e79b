"""Code that misbehaves: the verdict is "failed" with a reason, and nothing is left behind.

The backends have workloads of their own, so that each fails as early as it can.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import run

from chirp_migrate.cli.verify import verify
from chirp_migrate.training.process.descendants import MARKER, kill_processes

WORKLOAD = """
import os, subprocess, sys, time
{at_import}


def workload(sizes):
    {in_workload}

    def train():
        {in_training}
        return 1.5

    return {{"train": train}}
"""


def backend(folder: Path, at_import: str = "", in_workload: str = "pass", in_training: str = "pass") -> Path:
    folder.mkdir()
    text = WORKLOAD.format(at_import=at_import, in_workload=in_workload, in_training=in_training)
    (folder / "chirp_verify.py").write_text(text)
    return folder


def tree_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        digest.update(f"{path.relative_to(folder)} {status.st_mode} {status.st_mtime_ns}".encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def verified(after: Path, before: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    """Run verify and see that both trees are as they were, and the folder for temporary files is empty."""
    hashes = tree_hash(after), tree_hash(before)
    with tempfile.TemporaryDirectory() as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        result = CliRunner().invoke(verify, [str(after), "--baseline", str(before), "--threads", "1", *options])
        assert list(Path(temporary).iterdir()) == []
    assert (tree_hash(after), tree_hash(before)) == hashes, "the user's trees are only read"
    return result


@pytest.mark.slow
def test_a_missing_module_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = backend(tmp_path / "good")
    bad = backend(tmp_path / "bad", at_import="import cv2.not_there")
    report = tmp_path / "report.json"
    result = verified(good, bad, monkeypatch, "--json", str(report))
    assert result.exit_code == 14
    values = json.loads(report.read_text())
    assert (values["verdict"], values["exit_code"], values["side"]) == ("failed", 14, "before")
    for named in ("chirp_verify.py", "line 3", "pip install opencv-python"):
        assert named in values["reason"]
    assert "ModuleNotFoundError" in values["output_tail"]
    assert values["environment"]["packages"]["torch"] and values["machine"]["usable_cpus"] > 0


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sessions are POSIX's")
def test_a_crash_after_megabytes_of_output_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    crash = (
        f"out = open({str(pids)!r}, 'w')\n"
        "    first = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "    subprocess.run(['sh', '-c', 'setsid sleep 1000 & echo $!'], stdout=out)\n"
        "    out.write(str(first.pid))\n"
        "    out.close()\n"
        "    for _ in range(300):\n"
        "        print('x' * 9999)\n"
        "    print('last words\\x1b[31m', flush=True)\n"
        "    raise RuntimeError('no such bird')"
    )
    bad = backend(tmp_path / "bad", in_workload=crash)
    result = verified(backend(tmp_path / "good"), bad, monkeypatch)
    assert result.exit_code == 14
    for named in ("before", "chirp_verify.py:workload", "RuntimeError: no such bird"):
        assert named in " ".join(result.stdout.split())
    assert "last words" in result.stderr and "\x1b" not in result.stderr
    assert len(result.stderr) < 20_000 and "3.0 MB" in result.stderr
    numbers = [int(word) for word in pids.read_text().split()]
    assert len(numbers) == 2 and not any(is_running(number) for number in numbers)


@pytest.mark.slow
def test_a_tree_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = backend(tmp_path / "bad", at_import="time.sleep(1000)")
    result = verified(backend(tmp_path / "good"), bad, monkeypatch, "--timeout", "2")
    assert result.exit_code == 14
    assert "before" in result.stdout and "2 s" in result.stdout


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_everything_below_a_process_that_lives_is_ended_whatever_it_did_to_get_away() -> None:
    script = "setsid env -i sleep 1000 & echo $!; (setsid sleep 1000 & echo $!); echo; sleep 1000"
    mark = "no other run has this"
    child = subprocess.Popen(
        ["sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, MARKER: mark},
    )
    assert child.stdout is not None
    numbers = [int(line) for line in iter(lambda: child.stdout.readline().strip(), "") if line]  # type: ignore[union-attr]
    assert len(numbers) == 2 and all(map(is_running, numbers))
    kill_processes(mark, child.pid, child_exists=True)
    assert child.wait() == -signal.SIGKILL
    assert not any(map(is_running, numbers))
    child.stdout.close()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_tree_that_writes_into_its_folder_begins_each_process_with_the_files_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The side before, which runs twice, fails on what an earlier process of it left; the side after crashes."""
    before = backend(
        tmp_path / "before",
        at_import="assert not os.path.exists('left'), 'not fresh'; open('left', 'w').close(); os.remove('note.txt')",
    )
    (before / "note.txt").write_text("needed")
    after = backend(tmp_path / "after", in_training="os._exit(7)")
    result = verified(after, before, monkeypatch, "--quiet")
    assert result.exit_code == 14
    assert " ".join(result.output.split()).endswith(
        "failed in the version after the migration: train ended with exit code 7 and returned no result."
    )


def test_a_backend_without_anything_to_train(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("")
    result = run("verify", tmp_path / "new", "--baseline", tmp_path / "old")
    assert result.exit_code == 2
    assert "chirp-migrate init-workload" in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_message_about_a_failing_workload_has_the_sizes_that_it_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after, before = (backend(tmp_path / name, in_training="raise ValueError('too few')") for name in ("a", "b"))
    result = verified(after, before, monkeypatch, "--workload", "chirp_verify.py:workload")
    assert result.exit_code == 14
    said = " ".join(result.output.split())
    assert "train raised ValueError: too few. The workload function got 52 samples in batches of 16." in said
