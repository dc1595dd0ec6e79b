"""Commands of the documents: run as they are shown, or checked for their form."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import click
from docs_pages import Block
from support import ROOT, run

from chirp_migrate.cli import main
from qa.__main__ import CHECKS

_TOOL = "chirp-migrate"
_SHELL = re.compile(r"[|><&;$`*]")
_MAKE_TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
#: Programs that a reader has, and what is installed with this package.
_PROGRAMS = {"cd", "cp", "docker", "git", "jupyter", "pip", "pre-commit", "pytest", "source", "ulimit"}


def commands(block: Block) -> list[str]:
    """The commands of a block, without prompts, comments and blank lines; continued lines are one."""
    text = block.text.replace("\\\n", " ")
    lines = (line.strip().removeprefix("$ ") for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@dataclass
class Desk:
    """A folder with a copy of the fixture backend, in which the commands of one page are run."""

    folder: Path
    said: str = ""

    def begin_again(self, migrated: bool) -> None:
        """A fresh copy, migrated or not, under version control as a backend of one's own would be."""
        backend, fixtures = self.folder / "backend", self.folder / "fixtures"
        if not fixtures.exists():
            fixtures.symlink_to(ROOT / "fixtures")
        shutil.rmtree(backend, ignore_errors=True)
        # Without its largest file, which takes as long as all others together; the tutorial copies the whole.
        left_out = shutil.ignore_patterns("__pycache__", "util_backup.py")
        shutil.copytree(ROOT / "fixtures" / "backend", backend, ignore=left_out)
        self._shell("git init -q && git add -A && git commit -qm before", backend)
        if migrated:
            code = self._tool(["apply", "--quiet", "backend/"], "")
            assert code == 0, self.said

    def run(self, block: Block) -> None:
        """Run a block, and see that it ends as it says."""
        if block.marked("in a") is not None:
            self.begin_again(migrated="migrated" in block.mark)
        typed = block.marked("typing")
        typed = "" if typed is None else "".join(f"{answer}\n" for answer in typed.split())
        self.said = ""
        *before, last = commands(block)
        wanted = int(block.marked("ends with") or 0)
        for command, code in [*((one, 0) for one in before), (last, wanted)]:
            if not is_form_only(block, command):
                assert self._run(command, typed) == code, f"{block.place}: {command}\n{self.said}"

    def _run(self, command: str, typed: str) -> int:
        words = shlex.split(command, comments=True)
        if words[0] == "cd" and len(words) == 2:
            self.folder = (self.folder / words[1]).resolve()
            return 0 if self.folder.is_dir() else 1
        if words[0] == _TOOL and not _SHELL.search(command.partition(" #")[0]):
            return self._tool(words[1:], typed)
        return self._shell(command, self.folder, typed)

    def _tool(self, arguments: list[str], typed: str) -> int:
        """The program itself, in this process."""
        done = run(*arguments, cwd=self.folder, answers=typed, PATH=_path())
        self.said += done.output
        return done.exit_code

    def _shell(self, command: str, folder: Path, typed: str = "") -> int:
        names = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env={**os.environ, **names, "PATH": _path(), "PYTHONDONTWRITEBYTECODE": "1"},
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
        self.said += done.stdout + done.stderr
        return done.returncode


def _path() -> str:
    """Where programs are found: first what is installed beside the interpreter, as in an activated environment."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def is_form_only(block: Block, command: str) -> bool:
    """Whether a command of the block is only checked for its form."""
    subcommand = (block.marked("except") or "").partition(":")[0].strip()
    return block.marked("form only") is not None or bool(subcommand and f" {subcommand} " in command)


def problem_with(command: str) -> str | None:
    """What is wrong with the form of a command: unknown programs, files, targets and options; None if nothing."""
    words = [*takewhile(lambda word: word != ">", shlex.split(command, comments=True))]
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words = words[1:]
    program, arguments = words[0].removeprefix(".venv/bin/"), words[1:]
    if program == _TOOL:
        return _unknown_to_the_tool(arguments)
    if program == "make":
        unknown = [target for target in arguments if target not in _MAKE_TARGETS]
        return f"the Makefile has no {unknown}" if unknown else None
    if program in ("python", "python3"):
        return _unknown_to_python(arguments)
    return None if program in _PROGRAMS else f"what is {program}?"


def _unknown_to_the_tool(arguments: list[str]) -> str | None:
    """What the program's own parser says; a mention may leave out PATH and other arguments."""
    with click.Context(main, info_name=_TOOL) as context:
        command = main.get_command(context, arguments[0]) if arguments else None
        if command is None:
            general = {"--help", "--version", "--debug", "-h", "…"}
            return None if set(arguments) <= general else f"there is no command {arguments[:1]}"
        try:
            command.make_context(arguments[0], arguments[1:], parent=context)
        except click.MissingParameter:
            return _unknown_to_the_tool([*arguments, "PATH"])
        except click.BadOptionUsage as error:
            if error.option_name != arguments[-1]:
                return error.format_message()
            return _unknown_to_the_tool([*arguments, "FILE"])  # `apply --plan`: named without its argument
        except click.ClickException as error:
            return error.format_message()
        except click.exceptions.Exit:  # --help
            return None
    return None


def _unknown_to_python(arguments: list[str]) -> str | None:
    if arguments[:2] == ["-m", "qa"]:
        unknown = set(arguments[2:3]) - {*CHECKS, "NAME", "--help"}
        return f"qa has no {unknown}" if unknown else None
    if arguments[:1] == ["-m"]:
        return None if arguments[1] in ("pytest", "venv", "build", "pip", "libcst.tool") else f"what is {arguments[1]}?"
    if arguments[:1] == ["-c"]:
        compile(arguments[1], "command", "exec")
        return None
    return None if (ROOT / arguments[0]).is_file() else f"there is no {arguments[0]}"
