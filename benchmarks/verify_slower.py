"""`make bench-slower`: show the report of `verify` on a migration that makes one entry point slower.

The script migrates a temporary copy of the fixture backend (an example project). One training function of the migrated
version waits for an additional second in each epoch. The script prints the report of `verify`. With `--docs`, the
script also writes the report to docs/verify-slower.md.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from harness import FIXTURE, ROOT, TOOL, migrated_copy
from verify_fixture import BEGIN, END, with_report

DOCUMENT = ROOT / "docs" / "verify-slower.md"
MODULE, FUNCTION = "util_backup", "single_fold_training_with_predefined_split"
WAITS_S = 1.0
SELECT = f"cross_validation.k_fold_cross_validation_with or {MODULE}.{FUNCTION}"
OPTIONS = ("-k", SELECT)
TITLE = f"# What `verify` reports when one entry point waits {WAITS_S} s longer in each epoch"
SLOWER = 12


@click.command()
@click.option("--docs", is_flag=True, help="Write docs/verify-slower.md.")
def main(docs: bool) -> None:
    """Slow down one entry point of a migrated backend. Exit with 0 if ``verify`` reports the entry point as slower."""
    with tempfile.TemporaryDirectory() as folder:
        backend = migrated_copy(FIXTURE, Path(folder))
        module = backend / "utils" / f"{MODULE}.py"
        module.write_text(slowed(module.read_text(encoding="utf-8")), encoding="utf-8")
        command = [*TOOL, "verify", str(backend), *OPTIONS]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, encoding="utf-8")
    print(done.stdout, end="")
    if docs:
        text = with_report(f"{TITLE}\n\n{BEGIN}\n{END}\n", done.stdout, OPTIONS)
        DOCUMENT.write_text(text, encoding="utf-8")
    sys.exit(done.returncode != SLOWER)


def slowed(text: str) -> str:
    """Return the module with a function that waits once per epoch, where the learning rate scheduler steps."""
    functions = {one.name: one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)}
    trains = next(one for one in functions[FUNCTION].body if "_run_epochs(" in ast.unparse(one))
    lines = text.splitlines(keepends=True)
    waits = f"(__import__('time').sleep({WAITS_S}), step(*a))"
    lines.insert(trains.lineno - 1, f"    scheduler.step = lambda *a, step=scheduler.step: {waits}\n")
    return "".join(lines)


if __name__ == "__main__":
    main()
