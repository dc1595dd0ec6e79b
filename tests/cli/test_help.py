"""Asking for help or completing a word is quick: nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from support import LOADER, run, write_files

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


def test_migrating_a_file_takes_only_what_it_needs(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"train.py": LOADER})
    heavy = ("torch", "numpy", "scipy", "psutil", "jinja2", "pygments", "tomlkit", "libcst.matchers", "libcst.codemod")
    code = (
        "import sys\nfrom chirp_migrate.cli import entry_point\n"
        f"try:\n    entry_point(['apply', {str(root)!r}])\n"
        f"finally:\n    print(*(name for name in {heavy} if name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "chirpid_patch" in (root / "train.py").read_text()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["re"], ["plain,review", "plain,report"]),
        (["ro"], ["plain,rollback"]),
        (["--"], ["plain,--version", "plain,--debug", "plain,--help"]),
        (["apply", "--uns"], ["plain,--unsafe"]),
        (["explain", "lambda-in"], ["plain,lambda-in-loader"]),
        (["apply", "--select", "CHP001,chp007"], ["plain,CHP001,CHP007"]),
    ],
)
def test_words_are_completed(typed: list[str], offered: list[str]) -> None:
    words = {"COMP_WORDS": " ".join(["chirp-migrate", *typed]), "COMP_CWORD": str(len(typed))}
    assert run(**words, _CHIRP_MIGRATE_COMPLETE="bash_complete").stdout.splitlines() == offered


def test_options_stand_in_groups_what_is_printed_last() -> None:
    shown = run("verify", "--help").stdout
    titles = ["Training:", "Comparison and verdict:", "Other measurements:", "Output:"]
    assert [shown.index(title) for title in titles] == sorted(shown.index(title) for title in titles)
    assert shown.index("--quiet") > shown.index("Output:")
