"""``chirp-migrate init-workload PATH``: create a starter file that defines the training for ``verify``."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from shlex import quote

import click

from chirp_migrate.cli.options import CommandWithOptionGroups, output_options, path_argument
from chirp_migrate.console.output import Output
from chirp_migrate.engine.discover import discover_files
from chirp_migrate.engine.settings import read_command_table
from chirp_migrate.errors import CommitFailed, UsageProblem
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.source.files import write_new_file
from chirp_migrate.training.workload.entry_points import DEFAULT_WORKLOAD, has_entry_point_modules


@click.command(
    cls=CommandWithOptionGroups,
    name="init-workload",
    epilog=help_epilog(
        {
            ExitCode.OK: "written",
            ExitCode.USAGE: f"PATH has no code, or already defines a training in {DEFAULT_WORKLOAD} or in settings",
            ExitCode.UNDONE: "the file cannot be written",
        },
        "chirp-migrate init-workload trainer/",
    ),
)
@path_argument
@output_options("the name of the written file", "Print only errors.", "Has no effect in this command.")
def init_workload(path: Path, output: Output) -> None:
    """Create a starter file that defines what `verify` trains in the project at PATH.

    The command writes chirp_verify.py, and marks the lines that you fill in. An existing file is not overwritten. A
    ChirpID-shaped backend, which has its training functions in utils/, does not need the file, because `verify` finds
    these functions automatically.
    """
    if not path.is_dir():
        raise UsageProblem(f"{path} is not a folder: pass the folder of your project.")
    root = path.resolve()
    discover_files(path)  # raises an error for a folder without code, which is probably the wrong folder
    file, table = read_command_table(root, "verify")
    if "workload" in table:
        raise UsageProblem(f"{file} defines a training in [tool.chirp-migrate.verify] already: nothing was written.")
    template = files("chirp_migrate.additions.scaffold") / "templates" / DEFAULT_WORKLOAD
    try:
        write_new_file(root / DEFAULT_WORKLOAD, template.read_bytes())
    except FileExistsError:
        raise UsageProblem(f"{root / DEFAULT_WORKLOAD} exists already: nothing was written.") from None
    except OSError as error:
        raise CommitFailed(
            f"{root / DEFAULT_WORKLOAD}: {error.strerror}: nothing was written; make the folder writable and run the "
            "command again."
        ) from error
    notes = []
    if has_entry_point_modules(root):
        notes.append(f"without {DEFAULT_WORKLOAD}, verify finds the training functions of this project automatically")
    output.write({"schema": 1, "written": [DEFAULT_WORKLOAD], "notes": notes})
    if not output.quiet:
        screen = output.screen()
        screen.line(f"wrote     {DEFAULT_WORKLOAD}")
        for note in notes:
            screen.text(note, first="note      ")
        verify = f"chirp-migrate verify {quote(str(path))}"  # users copy this command, so do not wrap its line
        screen.line(f"next      fill in the marked lines of {DEFAULT_WORKLOAD}, then run: {verify}")
