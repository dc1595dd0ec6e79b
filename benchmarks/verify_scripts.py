"""`make bench-scripts`: migrate training scripts of other projects, and run `verify DIR -- python SCRIPT`.

Each script is an example in a source distribution from PyPI (pinned in `codemod_bench/packages.py`). The benchmark
copies its folder and migrates it with `apply`. It writes no file for `verify`. The scripts train on MNIST, and a
replacement of torchvision generates the digits. Other imports of a script are installed into a separate folder, without
dependencies. Writes `verify-scripts.md`. The exit code is 0 if no script is slower, different or broken.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from codemod_bench.packages import PACKAGES, default_cache, fetch, unpack
from harness import ROOT, TOOL, Goal, Progress, check_option, conditions, end, made_by, output_option, table, write

from chirp_migrate.exit_codes import ExitCode

STAND_IN = ROOT / "benchmarks" / "scripts_bench"
FINE = (ExitCode.OK, ExitCode.NOT_SHOWN, ExitCode.MODEL_BOUND)


@dataclass(frozen=True)
class Script:
    """A script and its command line.

    Attributes:
        package: source distribution that contains the script as an example.
        folder: folder of the script in the source distribution.
        words: what follows ``python``.
    """

    package: str
    folder: str
    words: tuple[str, ...]


SCRIPTS = (
    Script("pytorch-ignite", "examples/mnist", ("mnist.py", "--epochs", "50")),
    Script("pytorch-ignite", "examples/mnist", ("mnist_with_tqdm_logger.py", "--epochs", "50")),
    Script("pytorch-ignite", "examples/mnist", ("mnist_save_resume_engine.py", "--epochs", "50")),
    Script("opacus", "examples", ("mnist.py", "--device", "cpu", "--disable-dp", "-n", "50", "--data-root", ".")),
)

INSTALLED = ("pytorch-ignite==0.5.5", "opacus==1.6.0", "tqdm", "tensorboardX", "protobuf", "packaging")


@dataclass(frozen=True)
class Outcome:
    """The result of a script: how its migration and its verification ended, and the findings of verify."""

    script: Script
    changed: int
    exit_code: int
    seconds: float
    report: dict[str, Any]


def verified(script: Script, cache: Path, site: Path, options: tuple[str, ...], scratch: Path) -> Outcome:
    """Migrate a copy of the script's folder, and verify it."""
    package = next(one for one in PACKAGES if one.name == script.package)
    source = unpack(fetch(package, cache), scratch / "source")
    project = shutil.copytree(source / script.folder, scratch / "project")
    path = os.pathsep.join([str(STAND_IN), str(site)])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([*TOOL, "apply", str(project), "--all-loaders", "--no-scaffold"], check=True, capture_output=True)
    changed = sum(".chirp-migrate" not in name.parts for name in _differing(source / script.folder, project))
    written = scratch / "report.json"
    command = [*TOOL, "verify", str(project), "--json", str(written), *options, "--", "python", *script.words]
    began = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, env=environment)
    report = json.loads(written.read_text(encoding="utf-8")) if written.is_file() else {}
    return Outcome(script, changed, done.returncode, time.monotonic() - began, report)


def _differing(before: Path, after: Path) -> list[Path]:
    files = [path.relative_to(after) for path in after.rglob("*") if path.is_file()]
    return [name for name in files if not (before / name).is_file() or _bytes(before, name) != _bytes(after, name)]


def _bytes(root: Path, name: Path) -> bytes:
    return (root / name).read_bytes()


@click.command()
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@output_option
@check_option
def main(options: tuple[str, ...], output: Path, check: bool) -> None:
    """Verify every script; OPTIONS (after --) are passed to verify."""
    progress = Progress()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *INSTALLED]
        subprocess.run(pip, check=True, capture_output=True)
        for number, script in enumerate(SCRIPTS):
            progress.step(f"{script.package}: {' '.join(script.words)}")
            outcomes.append(verified(script, default_cache(), site, options, Path(folder) / str(number)))
    progress.end()
    settings = conditions(next((one.report["machine"]["threads"] for one in outcomes if one.report), 1))
    header = ["script", "changed files", "batches compared", "epochs timed", "verdict", "saved", "took"]
    lines = [
        "# Training scripts of other people",
        "",
        "Examples in source distributions from PyPI, migrated with `--all-loaders`, and verified by "
        "`verify DIR -- python SCRIPT` with no file written for it. The digits of MNIST are made up.",
        "",
        *table(header, [_row(one) for one in outcomes]),
        "",
        f"{made_by(settings)}.",
    ]
    write(output, "verify-scripts", "\n".join(lines) + "\n")
    goals = [Goal(" ".join(one.script.words), "no difference", "", one.exit_code in FINE) for one in outcomes]
    end(goals, check)


def _row(one: Outcome) -> list[str]:
    name = f"{one.script.package}: `{one.script.words[0]}`"
    found = one.report
    batches = sum(len(each["sizes"]) for of in found.get("passes", {}).get("before", {}).values() for each in of)
    epochs = sum(own["timed_epochs"] for own in found.get("own_runs", {}).values())
    ratio = found.get("ratio")
    saved = "-"
    if ratio is not None:
        low, high = 100 * (1 - ratio["high"]), 100 * (1 - ratio["low"])
        saved = f"{100 * (1 - ratio['value']):.0f} % [{low:.0f}, {high:.0f}]"
    verdict = found.get("verdict", f"exit code {one.exit_code}")
    return [name, str(one.changed), str(batches), str(epochs), verdict, saved, f"{one.seconds:.0f} s"]


if __name__ == "__main__":
    main()
