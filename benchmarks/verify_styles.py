"""`make bench-styles`: backends in the style of other training code, migrated and verified one after the other.

Each fixture with a workload of its own (`chirp_verify.py`) is copied, migrated by `apply`, and verified with its own
settings; further arguments go to `verify`. Writes `verify-styles.md` into the results. The exit code is 0 when none is
slower, different or broken.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from chirp_migrate.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
RESULTS = ROOT / "benchmarks" / "results" / "verify-styles.md"
FINE = (ExitCode.OK, ExitCode.NOT_SHOWN, ExitCode.MODEL_BOUND)


def main() -> int:
    """Verify every fixture, print one line for each, and say whether all are fine."""
    tool = [sys.executable, "-m", "chirp_migrate"]
    codes, sections = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for fixture in sorted(path.parent for path in FIXTURES.glob("*/chirp_verify.py")):
            backend = Path(scratch) / fixture.name
            shutil.copytree(fixture, backend, ignore=shutil.ignore_patterns("__pycache__", ".chirp-migrate"))
            subprocess.run([*tool, "apply", str(backend), "--no-scaffold"], check=True, stdout=subprocess.DEVNULL)
            written = Path(scratch) / f"{fixture.name}.json"
            command = [*tool, "verify", str(backend), "--json", str(written), *sys.argv[1:]]
            done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            codes.append(done.returncode)
            report = json.loads(written.read_text(encoding="utf-8"))
            print(f"{fixture.name:24} {report['verdict']}: {report['reason']}", flush=True)
            sections.append((fixture.name, report))
    RESULTS.write_text(_page(sections), encoding="utf-8")
    return 0 if all(code in FINE for code in codes) else 1


def _page(sections: list[tuple[str, dict[str, Any]]]) -> str:
    """The verdicts, and a table of the entry points of each backend."""
    command = shlex.join(["python", "benchmarks/verify_styles.py", *sys.argv[1:]])
    machine = sections[0][1]["machine"]
    lines = [
        "# Backends in the style of other training code",
        "",
        f"`{command}` on {machine['processor']}, {machine['usable_cpus']} usable CPUs, "
        f"{machine['accelerator'] or 'no GPU'}, torch {machine['torch']} with {machine['threads']} threads, "
        f"Python {machine['python']}, {machine['system']}. Less time than before, with 95 % intervals.",
    ]
    for name, report in sections:
        lines += ["", f"**{name}**: {report['verdict']}, {report['reason']}", ""]
        lines += ["| entry point | less time | perfect loading | verdict |", "|---|---|---|---|"]
        for entry, one in report["verdicts"].items():
            saved, perfect = _saved(report["ratios"][entry]), _saved(one["perfect"])
            lines.append(f"| {entry} | {saved} | {perfect} | {one['verdict']} |")
    return "\n".join(lines) + "\n"


def _saved(ratio: dict[str, float] | None) -> str:
    """Percent of the time saved by a ratio after / before."""
    if ratio is None:
        return ""
    low, high = 100 * (1 - ratio["high"]), 100 * (1 - ratio["low"])
    return f"{100 * (1 - ratio['value']):.0f} % [{low:.0f}, {high:.0f}]"


if __name__ == "__main__":
    sys.exit(main())
