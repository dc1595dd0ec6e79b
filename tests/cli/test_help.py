"""Asking for help or completing a word is quick: nothing heavy is imported for it."""

from __future__ import annotations

import os
import subprocess
import sys

import click

from chirp_migrate.cli import main


def test_the_list_of_commands_takes_no_pytorch() -> None:
    code = (
        "import sys\nfrom chirp_migrate.cli import main\nmain(['--help'], standalone_mode=False)\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'libcst')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"\n  {name} " in done.stdout for name in main.list_commands(click.Context(main)))
    assert "..." not in done.stdout.partition("Commands:")[2]


def test_words_are_completed() -> None:
    def completed(*words: str) -> str:
        asked = {"_CHIRP_MIGRATE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": "1"}
        command = [sys.executable, "-c", "from chirp_migrate.cli import main; main(prog_name='chirp-migrate')"]
        return subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True).stdout

    assert completed("chirp-migrate", "re").splitlines() == ["plain,review", "plain,report"]
    assert "plain,--version" in completed("chirp-migrate", "--").splitlines()
