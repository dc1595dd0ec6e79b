"""Time whole commands of this tool, and of other tools that rewrite Python code with LibCST, in several rounds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from harness import in_turn

OURS = "chirp-migrate"
_TORCHFIX = "torchfix==0.7.0"
_OLD, _NEW = "torch.utils.data.DataLoader", "torch.utils.data.DataLoader2"


@dataclass(frozen=True)
class Contender:
    """A tool whose command is timed.

    Attributes:
        name: name of the tool for tables.
        command: function that returns the command line for the path of a tree.
        proof: text that the command prints if it has read the tree.
        writes: whether the command changes the tree, so that each run needs a new copy.
        target: smallest allowed ratio (time of the tool / time of this tool); None without a goal.
        fine: exit codes that mean success.
    """

    name: str
    command: Callable[[Path], Sequence[str]]
    proof: str
    writes: bool = False
    target: float | None = None
    fine: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Parsing:
    """The parsing during the planning of a tree in one process.

    Attributes:
        texts: number of texts that LibCST parses.
        parsing: CPU seconds of parsing.
        rest: CPU seconds of all other planning.
    """

    texts: int
    parsing: float
    rest: float


@dataclass
class Timed:
    """The timings of all tools on one tree.

    Attributes:
        tree: name of the tree.
        files: number of Python files in the tree.
        jobs: number of processes that each tool may use.
        seconds: name of a tool → seconds of each round.
        failed: name of a tool that failed → error message.
        parsing: the parsing of this tool; None if it was not measured.
    """

    tree: str
    files: int
    jobs: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    parsing: Parsing | None = None

    def ratios(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the time of a tool / the time of this tool, for each round."""
        return np.array(self.seconds[name], dtype=np.float64) / np.array(self.seconds[OURS], dtype=np.float64)


def contenders(jobs: int, torchfix: Path | None) -> list[Contender]:
    """Return all tools, with this tool first. Without an installed torchfix, torchfix is missing."""
    python = sys.executable
    parse = str(Path(__file__).with_name("parse_all.py"))
    # Options must be single words; otherwise their values would be the name of the command.
    rename = ["codemod", "--no-format", "--hide-progress", f"--jobs={jobs}", "rename.RenameCommand"]
    tool = [python, "-m", "libcst.tool", *rename, "--old_name", _OLD, "--new_name", _NEW]
    apply = [python, "-m", "chirp_migrate", "apply", "--tests", "--all-loaders"]
    write = [*apply, "--no-scaffold", "--allow-dirty", "--ignore-pins"]
    # Exit code 1 means for all three tools: some files cannot be read, or there are findings.
    everyone = [
        Contender(OURS, lambda tree: [*apply, "--diff", str(tree)], "Nothing was written", fine=(0, 1)),
        Contender(f"{OURS}, written", lambda tree: [*write, str(tree)], "rewritten", writes=True, fine=(0, 1)),
        Contender(
            "libcst.tool rename",
            lambda tree: [*tool, str(tree)],
            "Finished codemodding",
            writes=True,
            target=10.0,
            fine=(0, 1),
        ),
        Contender("libcst.parse_module, 1 process", lambda tree: [python, parse, "1", str(tree)], "files read"),
    ]
    if jobs > 1:
        name = f"libcst.parse_module, {jobs} processes"
        everyone.append(Contender(name, lambda tree: [python, parse, str(jobs), str(tree)], "files read"))
    if torchfix is not None:
        lint = [str(torchfix), "--jobs", str(jobs)]
        everyone.append(
            Contender("torchfix", lambda tree: [*lint, str(tree)], "Finished checking", target=10.0, fine=(0, 1))
        )
    return everyone


def install_torchfix(cache: Path) -> Path | None:
    """Install torchfix in a separate environment with its own LibCST; return None if pip fails."""
    folder = cache / "torchfix"
    program = folder / ("Scripts" if os.name == "nt" else "bin") / "torchfix"
    if not program.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(program.with_name("python")), "-m", "pip", "install", "--quiet", _TORCHFIX]
        if subprocess.run(pip, check=False).returncode != 0:
            return None
    return program


def measure(
    name: str, tree: Path, everyone: Sequence[Contender], rounds: int, jobs: int, progress: Callable[[str], None]
) -> Timed:
    """Time every tool once in each round, in a changing order, after one round for warm-up.

    Raises:
        RuntimeError: this tool fails.
    """
    timed = Timed(name, sum(1 for _ in tree.rglob("*.py")), jobs, {one.name: [] for one in everyone})
    left = list(everyone)
    for number in range(rounds + 1):
        for contender in in_turn(left, number):
            progress(f"round {number} of {rounds}: {contender.name}")
            seconds, problem = _once(contender, tree)
            if problem is not None:
                if contender.name == OURS:
                    raise RuntimeError(problem)
                timed.failed[contender.name] = problem
                timed.seconds.pop(contender.name, None)
            elif number:
                timed.seconds[contender.name].append(seconds)
        left = [one for one in left if one.name not in timed.failed]
    progress("how much is parsing")
    timed.parsing = _parsing(tree)
    return timed


def _parsing(tree: Path) -> Parsing:
    script = str(Path(__file__).with_name("parsing_share.py"))
    ended = subprocess.run([sys.executable, script, str(tree)], stdout=subprocess.PIPE, check=True)
    return Parsing(**json.loads(ended.stdout))


def _once(contender: Contender, tree: Path) -> tuple[float, str | None]:
    with tempfile.TemporaryDirectory() as folder:
        place = tree
        if contender.writes:
            place = Path(folder) / tree.name
            shutil.copytree(tree, place)
        log = Path(folder) / "log"
        with log.open("wb") as output:
            begun = time.perf_counter()
            ended = subprocess.run(
                contender.command(place), stdout=output, stderr=output, cwd=folder, check=False, env=_environment()
            )
            seconds = time.perf_counter() - begun
        said = log.read_bytes()
        if ended.returncode in contender.fine and contender.proof.encode() in said:
            return seconds, None
        tail = said[-300:].decode("utf-8", "replace").strip()
        return seconds, f"{contender.name} ended with {ended.returncode}: {tail}"


def _environment() -> Mapping[str, str]:
    """Return environment variables for output without colours and progress."""
    return {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
