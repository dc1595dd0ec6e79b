"""`make bench-styles`: migrate and verify example projects in the style of other training code.

The benchmark copies each example project that has a workload file (`chirp_verify.py`), which defines the training for
`verify`. It migrates the copy with `apply`, and verifies the copy with the settings of the project. The benchmark
passes all other arguments to `verify`. The benchmark writes `verify-styles.md` to the results. The exit code is 0 if no
migrated project is slower, trains differently, or is broken.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import RESULTS, ROOT, conditions, made_by, migrated_copy, run_tool, saved, table, write
from verify_scripts import FINE


def main() -> int:
    """Verify every fixture, print one line for each, and return the exit code."""
    codes, sections = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for fixture in sorted(path.parent for path in (ROOT / "fixtures").glob("*/chirp_verify.py")):
            code, report = run_tool("verify", migrated_copy(fixture, Path(scratch)), *sys.argv[1:])
            codes.append(code)
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
            (entry, saved(report["ratios"][entry]), saved(one["zero_cost_ratio"]), one["verdict"])
            for entry, one in report["verdicts"].items()
        ]
        lines += table(["entry point", "less time", "zero-cost loading", "verdict"], rows, left=4)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
