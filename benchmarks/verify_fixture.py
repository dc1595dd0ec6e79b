"""`make bench`: the figures of the README, measured on this machine.

Migrates a temporary copy of the fixture backend and verifies it with more time than the default. The table is
printed, and the raw values go to the file given as the first argument (default `benchmark.json`); further
arguments go to `verify`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "backend"


def main() -> int:
    """Run apply and verify; the exit code is verify's."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "benchmark.json").resolve()
    with tempfile.TemporaryDirectory() as folder:
        backend = Path(folder) / "backend"
        shutil.copytree(FIXTURE, backend, ignore=shutil.ignore_patterns("__pycache__", ".chirp-migrate"))
        tool = [sys.executable, "-m", "chirp_migrate"]
        subprocess.run([*tool, "apply", str(backend), "--no-scaffold"], check=True, stdout=subprocess.DEVNULL)
        options = ["--budget", "600", "--json", str(target), *sys.argv[2:]]
        return subprocess.run([*tool, "verify", str(backend), *options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
