"""`make demo`: migrate a copy of the fixture backend, verify it, and undo the migration.

Every step is a command line that a user would type. The copy is `demo/backend`; the fixture does not change.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "fixtures" / "backend"
DEMO = ROOT / "demo"
#: Exit codes of `verify` that mean a verdict; 0 means `faster`.
VERDICTS = (0, *range(10, 16))


def fingerprint(folder: Path) -> dict[str, str]:
    """Return path → hash and mode, for every file of a tree."""
    return {
        path.relative_to(folder).as_posix(): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def step(title: str, *arguments: str, stdout: Path | None = None, may_end_with: Container[int] = (0,)) -> int:
    """Show and run one command; stop the demo if its exit code is not in ``may_end_with``."""
    shown = shlex.join(["chirp-migrate", *arguments])
    print(f"\n=== {title}\n$ {shown}" + (f" > {stdout.name}" if stdout else ""), flush=True)
    command = [sys.executable, "-m", "chirp_migrate", *arguments]
    if stdout is None:
        result = subprocess.run(command, cwd=DEMO, check=False)
    else:
        with stdout.open("wb") as file:
            result = subprocess.run(command, cwd=DEMO, stdout=file, check=False)
    if result.returncode not in may_end_with:
        sys.exit(f"`{shown}` ended with exit code {result.returncode}")
    return result.returncode


def main() -> None:
    """Copy, preview, apply, verify, report, roll back, compare."""
    if DEMO.exists():
        shutil.rmtree(DEMO)
    shutil.copytree(FIXTURE, DEMO / "backend", ignore=shutil.ignore_patterns("__pycache__", ".chirp-migrate"))
    before = fingerprint(DEMO / "backend")
    print(f"A copy of the fixture backend: demo/backend ({len(before)} files)")
    step("What would change?", "apply", "backend", "--diff", stdout=DEMO / "migration.diff")
    step("Migrate it", "apply", "backend")
    verify = ("verify", "backend", "--json", "verify.json")
    verdict = step("Is training faster, and the same?", *verify, may_end_with=VERDICTS)
    step("All of it on one page", "report", "backend", "-o", "report.html")
    step("Undo it", "rollback", "backend", "-q")
    if fingerprint(DEMO / "backend") != before:
        sys.exit("the tree is not as it was before the migration")
    print(f"\nEvery one of the {len(before)} files is as it was, byte for byte.")
    print("Left for you to look at: demo/report.html, demo/migration.diff, demo/verify.json")
    if verdict:
        print(
            f"verify did not say `faster` (exit code {verdict}, docs/exit-codes.md). Where other programs use the CPUs "
            "meanwhile it cannot tell: run the demo again when they are idle."
        )
        sys.exit(verdict)


if __name__ == "__main__":
    main()
