"""`make bench`: measure the numbers in the README on this machine.

The benchmark migrates a temporary copy of the fixture backend (an example project), and runs `verify` on the copy with
a longer time budget than the default. It prints the report, and writes the raw values to the file that the first
argument names (default `benchmark.json`). The benchmark passes all other arguments to `verify`. With `--readme`, the
new report replaces the report in the README.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import FIXTURE, ROOT, TOOL, migrated_copy

SIZES = ["--time-budget", "300"]
BEGIN, END = "<!-- verify: begin -->", "<!-- verify: end -->"


def main() -> int:
    """Run ``apply`` and ``verify`` on a copy of the fixture backend, and return the exit code of ``verify``."""
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    arguments = [one for one in sys.argv[1:] if one != "--readme"]
    target = Path(arguments[0] if arguments else "benchmark.json").resolve()
    with tempfile.TemporaryDirectory() as folder:
        backend = migrated_copy(FIXTURE, Path(folder))
        options = effective([*SIZES, *arguments[1:]])
        command = [*TOOL, "verify", str(backend), *options, "--json", str(target)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, encoding="utf-8")
    print(done.stdout, end="")
    if "--readme" in sys.argv:
        readme = ROOT / "README.md"
        readme.write_text(with_report(readme.read_text(encoding="utf-8"), done.stdout, options), encoding="utf-8")
    return done.returncode


def effective(options: list[str]) -> list[str]:
    """Return the options with their values. If an option occurs several times, only its last value counts."""
    kept: dict[str, list[str]] = {}
    name = ""
    for word in options:
        if word.startswith("-"):
            name, kept[word] = word, []
        else:
            kept[name].append(word)
    return [word for option, values in kept.items() for word in (option, *values)]


def with_report(text: str, report: str, options: list[str]) -> str:
    """Return ``text`` with the report between the markers, without the line that refers to more details."""
    shown = report.partition("\nTo see all measurements, ")[0].strip("\n")
    lines = "\n".join(f"    {line}".rstrip() for line in shown.splitlines())
    command = shlex.join(["chirp-migrate", "verify", "backend/", *options])
    block = f"{BEGIN}\n\n`{command}`, on a migrated copy of the fixture backend:\n\n{lines}\n\n{END}"
    before, _, rest = text.partition(BEGIN)
    return before + block + rest.partition(END)[2]


if __name__ == "__main__":
    sys.exit(main())
