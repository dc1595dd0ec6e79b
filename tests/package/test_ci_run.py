"""``.ci/run`` on machines that lack something: stand-ins for the programs note how they are called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

TESTS = ["make test", "make test-slow", "make test-start-methods", "make test-frameworks"]
PROGRAMS = ("make", "git", "gcc", "chromium")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs, all that ``PATH`` has: the stand-ins write what they are called with to ``calls``."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in (*PROGRAMS, "apt-get"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/calls"\n')
        (programs / name).chmod(0o755)
    found = shutil.which("dirname")
    assert found is not None
    (programs / "dirname").symlink_to(found)
    return programs


def calls(machine: Path) -> list[str]:
    command = ["/bin/bash", str(ROOT / ".ci" / "run")]
    environment = {"PATH": str(machine), "PYTHON": sys.executable}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    return (machine.parent / "calls").read_text().splitlines()


def test_with_everything_there_it_only_tests(machine: Path) -> None:
    assert calls(machine) == TESTS


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may install packages")
def test_what_is_missing_is_installed_before_the_tests(machine: Path) -> None:
    (machine / "chromium").unlink()

    called = calls(machine)
    installing, testing = called[: -len(TESTS)], called[-len(TESTS) :]
    assert testing == TESTS
    assert installing[0].startswith("apt-get update")
    assert installing[1].startswith("apt-get install") and installing[1].endswith(" chromium")


def test_without_apt_it_tests_what_it_can(machine: Path) -> None:
    (machine / "chromium").unlink()
    (machine / "apt-get").unlink()

    assert calls(machine) == TESTS
