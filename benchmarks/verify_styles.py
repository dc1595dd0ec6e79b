"""`make bench-styles`: migrate and verify example projects in the style of other training code.

The benchmark copies each example project that has a workload file (`chirp_verify.py`), which defines the training for
`verify`. It migrates the copy with `apply`, and verifies the copy with the settings of the project. The benchmark
passes all other arguments to `verify`. The benchmark writes `verify-styles.md` to the results. The exit code is 0 if no
migrated project is slower, trains differently, or is broken.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import RESULTS, ROOT, TOOL, conditions, made_by, migrated_copy, table, write

from chirp_migrate.exit_codes import ExitCode

FINE = (ExitCode.OK, ExitCode.NOT_SHOWN, ExitCode.MODEL_BOUND)


def main() -> int:
    """Verify every fixture, print one line for each, and return the exit code."""
    codes, sections = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for fixture in sorted(path.parent for path in (ROOT / "fixtures").glob("*/chirp_verify.py")):
            backend = migrated_copy(fixture, Path(scratch))
            written = Path(scratch) / f"{fixture.name}.json"
            command = [*TOOL, "verify", str(backend), "--json", str(written), *sys.argv[1:]]
            done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            codes.append(done.returncode)
            report = json.loads(written.read_text(encoding="utf-8"))
            print(f"{fixture.name:24} {report['verdict']}: {report['reason']}", flush=True)
            sections.append((fixture.name, report))
    write(RESULTS, "verify-styles", _page(sections))
    return 0 if all(code in FINE for code in codes) else 1


def _page(sections: list[tuple[str, dict[str, Any]]]) -> str:
    """Return a page with the verdicts, and a table of the entry points of each backend."""
    settings = {"command": conditions(1)["command"], "machine": sections[0][1]["machine"]}
    lines = [
        "# Backends in the style of other training code",
        "",
        f"{made_by(settings)}. The tables show the share of time saved, with 95 % intervals.",
    ]
    for name, report in sections:
        lines += ["", f"**{name}**: {report['verdict']}, {report['reason']}", ""]
        rows = [
            (entry, _saved(report["ratios"][entry]), _saved(one["zero_cost_ratio"]), one["verdict"])
            for entry, one in report["verdicts"].items()
        ]
        lines += table(["entry point", "less time", "zero-cost loading", "verdict"], rows, left=4)
    return "\n".join(lines) + "\n"


def _saved(ratio: dict[str, float] | None) -> str:
    """Return the percent of the time that is saved; ``ratio`` is time after / before."""
    if ratio is None:
        return ""
    low, high = 100 * (1 - ratio["high"]), 100 * (1 - ratio["low"])
    return f"{100 * (1 - ratio['value']):.0f} % [{low:.0f}, {high:.0f}]"


if __name__ == "__main__":
    sys.exit(main())
