"""`make bench`: measure the numbers in the README on this machine.

The benchmark migrates a temporary copy of the fixture backend (an example project), and runs `verify` on the copy with
a longer time budget than the default. It prints the report, and writes the raw values to TARGET (default
`benchmark.json`). The benchmark passes all other arguments to `verify`. With `--readme`, the new report replaces the
report in the README.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from harness import FIXTURE, ROOT, TOOL, migrated_copy

SIZES = ("--time-budget", "300")
BEGIN, END = "<!-- verify: begin -->", "<!-- verify: end -->"


@click.command(help=__doc__, context_settings={"ignore_unknown_options": True})
@click.argument("target", default="benchmark.json", type=click.Path(resolve_path=True))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.option("--readme", is_flag=True, help="Write the report to the README.")
def main(target: str, options: tuple[str, ...], readme: bool) -> None:
    """Run ``apply`` and ``verify`` on a copy of the fixture backend, and exit with the code of ``verify``."""
    options = options if SIZES[0] in options else (*SIZES, *options)
    with tempfile.TemporaryDirectory() as folder:
        backend = migrated_copy(FIXTURE, Path(folder))
        command = [*TOOL, "verify", str(backend), *options, "--json", target]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, encoding="utf-8")
    print(done.stdout, end="")
    if readme:
        page = ROOT / "README.md"
        page.write_text(with_report(page.read_text(encoding="utf-8"), done.stdout, options), encoding="utf-8")
    sys.exit(done.returncode)


def with_report(text: str, report: str, options: tuple[str, ...]) -> str:
    """Return ``text`` with the report between the markers, without the line that refers to more details."""
    shown = report.partition("\nTo see all measurements, ")[0].strip("\n")
    lines = "\n".join(f"    {line}".rstrip() for line in shown.splitlines())
    command = shlex.join(["chirp-migrate", "verify", "backend/", *options])
    block = f"{BEGIN}\n\n`{command}`, on a migrated copy of the fixture backend:\n\n{lines}\n\n{END}"
    before, _, rest = text.partition(BEGIN)
    return before + block + rest.partition(END)[2]


if __name__ == "__main__":
    main()
