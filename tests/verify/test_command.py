"""The command line: wrong input is one sentence and a documented exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import run

from chirp_migrate.cli import entry_point
from chirp_migrate.cli.verify import verify
from chirp_migrate.console.json_document import read_document
from chirp_migrate.plans.plan import FilePlan, Plan
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.journal import applied_runs, record_run_state
from chirp_migrate.transaction.journal_schema import RunState
from chirp_migrate.verify.verdict import Verdict
from chirp_migrate.verify.verify_report import VerifyReport

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = ("--samples", "48", "--epochs", "1", "--batch-size", "16", "--shape", "24x32", "--threads", "1")


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    result = run("verify", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "nowhere" in result.output and len(result.output.splitlines()) == 1


def test_debug_shows_where_an_error_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry_point(["--debug", "verify", str(tmp_path / "nowhere")])
    assert ended.value.code == 2 and "Traceback" in capsys.readouterr().err


def test_before_apply(write_backend: Callable[..., Path]) -> None:
    result = run("verify", write_backend("tree"))
    assert result.exit_code == 2
    assert "apply" in result.output and len(result.output.splitlines()) == 1


def test_help_documents_every_exit_code() -> None:
    text = " ".join(run("verify", "--help").output.split())
    assert all(f"{int(verdict.exit_code)} " in text for verdict in Verdict)


def test_what_is_wrong_before_anything_runs_is_told_with_exit_code_2(write_backend: Callable[..., Path]) -> None:
    root = write_backend("backend")
    listed = run("verify", str(root), "--list", "--baseline", "nosuch")
    assert listed.exit_code == 2 and "--baseline nosuch is neither a folder nor a git revision" in listed.stderr


def test_a_folder_of_a_project_is_told_which_to_verify(write_backend: Callable[..., Path]) -> None:
    root = write_backend("backend")
    (root / "pyproject.toml").write_text("")
    below = run("verify", str(root / "utils"), "--list")
    assert below.exit_code == 2 and f"chirp-migrate verify {root}" in below.stderr
    assert "init-workload" not in below.stderr


def applied(root: Path, originals: dict[str, bytes | None]) -> Path:
    """Make the files of ``root`` the outcome of one run of ``apply`` that found ``originals``."""
    plans = [FilePlan(path, before, (root / path).read_bytes(), "rewrite") for path, before in originals.items()]
    for path, before in originals.items():
        if before is None:
            (root / path).unlink()
        else:
            (root / path).write_bytes(before)
    commit_plan(Plan(root.resolve(), tuple(plans), (), ()))
    return root


@pytest.mark.slow
def test_the_side_before_comes_from_the_journal(write_backend: Callable[..., Path], tmp_path: Path) -> None:
    root = write_backend("tree", ("shuffle=True)", "shuffle=True, drop_last=True)"))
    module = root / "utils" / "training_utils.py"
    (root / "utils" / "added.py").write_text("")
    original = module.read_bytes().replace(b", drop_last=True", b"")
    applied(root, {"utils/training_utils.py": original, "utils/added.py": None})
    report = tmp_path / "report.json"

    result = run("verify", root, *SMALL, "--json", report)

    assert result.exit_code == 13
    found = read_document(report.read_bytes(), VerifyReport)
    assert found.verdict == Verdict.NOT_EQUIVALENT.text
    names = {"training-drops-samples"}
    assert {one.name for one in found.differences} >= names, found.differences
    assert all("36" in one.message and "32" in one.message for one in found.differences if one.name in names)


@pytest.mark.slow
def test_augmentation_that_became_rarer_is_not_equivalent_at_default_sizes(write_backend: Callable[..., Path]) -> None:
    before, after = write_backend("before"), write_backend("after", ("random.random() < 0.8", "random.random() < 0.6"))
    report = before.with_name("report.json")
    options = ["--baseline", str(before), "-k", "augmentation", "--shape", "24x32", "--threads", "1"]

    result = run("verify", after, *options, "--json", report)

    assert result.exit_code == 13
    found = read_document(report.read_bytes(), VerifyReport)
    assert [one.name for one in found.differences] == ["augmentation-distribution"]


@pytest.mark.slow
def test_a_failing_backend_shows_the_end_of_its_output(write_backend: Callable[..., Path]) -> None:
    root = write_backend("tree", ("total = 0.0", "print('about to fail'); 1 / 0"))
    applied(root, {"utils/training_utils.py": (root / "utils" / "training_utils.py").read_bytes() + b"\n"})
    report = root.with_name("report.json")
    result = CliRunner().invoke(verify, [str(root), "--samples", "48", "--json", str(report)])
    assert result.exit_code == 14
    found = read_document(report.read_bytes(), VerifyReport)
    assert (found.verdict, found.side) == (Verdict.FAILED.text, "before")
    assert "ZeroDivisionError" in found.reason and "about to fail" in result.stderr


def test_an_interrupted_run_is_brought_to_an_end_first(write_backend: Callable[..., Path]) -> None:
    root = write_backend("tree")
    text = (root / "utils" / "models.py").read_bytes()
    applied(root, {"utils/models.py": text + b"\n# older\n"})
    record_run_state(applied_runs(root.resolve())[0], RunState.PENDING)

    result = run("verify", root)

    assert result.exit_code == 2
    assert not applied_runs(root.resolve())
    assert (root / "utils" / "models.py").read_bytes() == text + b"\n# older\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)])
def test_an_interrupt_ends_the_processes_and_removes_the_temporary_files(
    write_backend: Callable[..., Path], sent: signal.Signals
) -> None:
    root = write_backend("tree", ("import random", "import random, time; time.sleep(1000)"))
    applied(root, {"utils/models.py": (root / "utils" / "models.py").read_bytes() + b"\n"})
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-c", "from chirp_migrate.cli.verify import verify; verify()", str(root)]
        running = subprocess.Popen(
            command, env={**os.environ, "TMPDIR": temporary}, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
        )
        assert running.stderr is not None
        assert running.stderr.readline() and running.stderr.readline(), "it says what it does, and trains"
        running.send_signal(sent)
        running.send_signal(sent)
        _, errors = running.communicate(timeout=60)
        assert running.returncode == 130
        assert len(errors.splitlines()) == 1
        assert list(Path(temporary).iterdir()) == []
