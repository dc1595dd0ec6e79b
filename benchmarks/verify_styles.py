"""`make bench-styles`: backends in the style of other training code, migrated and verified one after the other.

Each fixture with a workload of its own (`chirp_verify.py`) is copied, migrated by `apply`, and verified with its own
settings; further arguments go to `verify`. The exit code is 0 when none is slower, different or broken.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from chirp_migrate.exit_codes import ExitCode

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
FINE = (ExitCode.OK, ExitCode.NOT_SHOWN, ExitCode.MODEL_BOUND)


def main() -> int:
    """Verify every fixture, print one line for each, and say whether all are fine."""
    tool = [sys.executable, "-m", "chirp_migrate"]
    codes = []
    with tempfile.TemporaryDirectory() as scratch:
        for fixture in sorted(path.parent for path in FIXTURES.glob("*/chirp_verify.py")):
            backend = Path(scratch) / fixture.name
            shutil.copytree(fixture, backend, ignore=shutil.ignore_patterns("__pycache__", ".chirp-migrate"))
            subprocess.run([*tool, "apply", str(backend), "--no-scaffold"], check=True, stdout=subprocess.DEVNULL)
            report = Path(scratch) / f"{fixture.name}.json"
            command = [*tool, "verify", str(backend), "--json", str(report), *sys.argv[1:]]
            done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            codes.append(done.returncode)
            print(f"{fixture.name:24} {_line(json.loads(report.read_text(encoding='utf-8')))}", flush=True)
    return 0 if all(code in FINE for code in codes) else 1


def _line(report: dict[str, Any]) -> str:
    return f"{report['verdict']}: {report['reason']}"


if __name__ == "__main__":
    sys.exit(main())
