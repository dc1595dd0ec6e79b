"""Several processes: the same plan as with one, and one file that ends its process does not end the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import chirp_migrate.engine.worker_pool
from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.rules import RuleMatch, all_rules
from chirp_migrate.syntax.module import Module

LOADER = "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, batch_size=4, collate_fn=lambda b: b)\n"
FIXTURE = Path(__file__).parents[2] / "fixtures" / "backend"


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing() -> None:
    alone, together = plan_tree(FIXTURE, jobs=1), plan_tree(FIXTURE, jobs=3)
    assert alone == together and len(alone.files) >= 7


def test_processes_are_started_where_they_pay_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    pool = chirp_migrate.engine.worker_pool._pool
    monkeypatch.setattr(chirp_migrate.engine.worker_pool, "_pool", lambda *a: started.append(a[-1]) or pool(*a))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    for name in "abc":
        (tmp_path / f"{name}.py").write_text(LOADER)
    assert len(plan_tree(tmp_path).files) == 3 and not started
    monkeypatch.setattr(chirp_migrate.engine.worker_pool, "_WORTH_A_PROCESS", len(LOADER))
    assert len(plan_tree(tmp_path).files) == 3 and started == [4]


@pytest.mark.start_method("fork", reason="a patched rule reaches the other processes by forking only")
def test_a_file_that_ends_its_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fatal(self: object, module: Module, project: object) -> list[RuleMatch]:
        if module.path == "b.py":
            os._exit(3)
        return []

    rule = next(rule for rule in all_rules() if rule.code == "CHP007")
    monkeypatch.setattr(type(rule), "check", fatal)
    for name in "abcd":
        (tmp_path / f"{name}.py").write_text(LOADER)
    plan = plan_tree(tmp_path, jobs=2)
    assert [file.path for file in plan.files] == ["a.py", "c.py", "d.py"]
    assert [(one.path, "died" in one.reason) for one in plan.skipped] == [("b.py", True)]


def test_one_file_is_seen_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LOADER)
    (tmp_path / "b.py").write_text("from a import DataLoader\n")
    plan = plan_tree(tmp_path / "a.py")
    assert [file.path for file in plan.files] == ["a.py"]
    assert b"import DataLoader" in plan.files[0].after


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills with a signal")
def test_processes_that_plan_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    body = "from torch.utils.data import DataLoader\n" + "x = DataLoader(d, batch_size=2)\n" * 200
    for number in range(40):
        (tmp_path / f"m{number}.py").write_text(body)
    command = [sys.executable, "-m", "chirp_migrate", "plan", "-j", "2", str(tmp_path)]
    run = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while len(workers := run.children()) < 2:
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        run.kill()
        run.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
