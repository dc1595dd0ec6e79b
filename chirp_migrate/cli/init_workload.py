"""``chirp-migrate init-workload PATH``."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import click

from chirp_migrate.cli.options import CommandWithOptionGroups, option, output_options, path_argument
from chirp_migrate.console.output import Output
from chirp_migrate.engine.discover import discover_files, journal_root, project_root
from chirp_migrate.engine.settings import read_command_table
from chirp_migrate.errors import CommitFailed, UsageProblem, WriteRefused
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.source.files import remove_if_exists, replace_file, sync_folder, write_new_file
from chirp_migrate.source.git import refuse_uncommitted_changes
from chirp_migrate.source.toml import parse_toml
from chirp_migrate.training.workload.entry_points import DEFAULT_WORKLOAD, has_entry_point_modules
from chirp_migrate.transaction.journal import applied_runs, journal_folder
from chirp_migrate.transaction.lock import hold_lock
from chirp_migrate.transaction.recovery import recover

_PYPROJECT = "pyproject.toml"
_SETTINGS = f"""\
# The training that `chirp-migrate verify` runs. Every key is also an option of `verify`.
[tool.chirp-migrate.verify]
workload = "{DEFAULT_WORKLOAD}:workload"
# command = ["{{python}}", "train.py", "--epochs", "{{epochs}}"]   # a program to time, in place of workload
# result = "metrics.json"   # a file that the program writes and that verify compares
# samples = 300
# epochs = 3
# batch-size = 32
# data = "data/some_samples.npz"   # the workload gets this path as sizes.data
"""


@click.command(
    cls=CommandWithOptionGroups,
    name="init-workload",
    epilog=help_epilog(
        {
            ExitCode.OK: "written",
            ExitCode.USAGE: f"PATH has no code, or already has a {DEFAULT_WORKLOAD} or settings for verify",
            ExitCode.REFUSED: "refused, nothing changed (uncommitted changes in pyproject.toml, another run)",
            ExitCode.UNDONE: "the files cannot be written",
        },
        "chirp-migrate init-workload trainer/",
    ),
)
@path_argument
@option("--allow-dirty", is_flag=True, help="Allow uncommitted changes in the work tree.")
@output_options("what was written", "Print only errors.", "Also print the settings that were written.")
def init_workload(path: Path, allow_dirty: bool, output: Output) -> None:
    """Create a starter file that defines what `verify` trains in the project at PATH.

    Writes chirp_verify.py, in which the lines to fill in are marked, and its settings to pyproject.toml. Nothing is
    overwritten. ChirpID-shaped backends need neither file: `verify` finds their training automatically.
    """
    if not path.is_dir():
        raise UsageProblem(f"{path} is not a folder: pass the folder of your project.")
    root = project_root(path)
    discover_files(path)  # raises an error for a folder without code, which is probably the wrong folder
    interrupted = recover(journal_root(root))
    if interrupted is not None:
        click.echo(interrupted, err=True)
    written, notes = write_workload(root, allow_dirty=allow_dirty)
    output.write({"schema": 1, "interrupted": interrupted, "written": written, "notes": notes})
    lines = [f"wrote     {name}" for name in written]
    lines += [f"note      {note}" for note in notes]
    lines += [f"next      fill in the marked lines of {DEFAULT_WORKLOAD}, then run: chirp-migrate verify {path}"]
    lines += _SETTINGS.splitlines() if output.verbose else ()
    screen = output.screen()
    for line in () if output.quiet else lines:
        if line.startswith("note"):
            screen.text(line.removeprefix("note").strip(), first="note      ")
        else:  # users copy names and commands from these lines, so do not wrap them
            screen.line(line)
    sys.exit(0)


def write_workload(root: Path, *, allow_dirty: bool = False) -> tuple[list[str], list[str]]:
    """Write the workload file and, if possible, its settings in ``pyproject.toml``.

    If ``apply`` has changed ``pyproject.toml``, the function writes no settings. Otherwise ``rollback`` would refuse to
    restore the file, because of the later edit. ``verify`` also finds the workload file without settings.

    Args:
        root: folder of the project.
        allow_dirty: whether to write to ``pyproject.toml`` even if it has uncommitted changes.

    Returns:
        Names of the written files, and sentences for the user.

    Raises:
        UsageProblem: the workload file or its settings already exist, or ``pyproject.toml`` is not valid.
        WriteRefused: ``pyproject.toml`` has uncommitted changes or is a link, or another chirp-migrate is running.
        CommitFailed: a file cannot be written. The function removes files that it has already written.
    """
    workload, pyproject = root / DEFAULT_WORKLOAD, root / _PYPROJECT
    file, table = read_command_table(root, "verify")
    if table:
        raise UsageProblem(f"{file} has [tool.chirp-migrate.verify] already: edit that table; nothing was written.")
    notes = []
    if has_entry_point_modules(root):
        notes.append(
            f"verify finds the training functions of this project automatically; {DEFAULT_WORKLOAD} replaces them"
        )
    try:
        project = journal_root(root)
        with hold_lock(journal_folder(project)):
            written = (project / each.path for run in applied_runs(project) for each in run.files)
            recorded = pyproject.resolve() in written
            before = pyproject.read_bytes() if pyproject.is_file() and not recorded else None
            if before is not None:
                if pyproject.is_symlink():
                    raise WriteRefused(f"{pyproject} is a link: add [tool.chirp-migrate.verify] by hand.")
                if not allow_dirty:
                    refuse_uncommitted_changes(root, [_PYPROJECT])
            content = None if recorded else _add_settings(pyproject, before)
            template = (
                files("chirp_migrate.additions.scaffold").joinpath("templates").joinpath(DEFAULT_WORKLOAD).read_bytes()
            )
            try:
                write_new_file(workload, template)
            except FileExistsError:
                raise UsageProblem(f"{workload} exists already: nothing was written.") from None
            sync_folder(root)
            if content is None:
                notes.append(
                    f"no settings were added to {_PYPROJECT}, because `apply` changed it, and a change would block "
                    f"`rollback`: verify finds {DEFAULT_WORKLOAD} without settings; pass the other settings as options"
                )
                return [DEFAULT_WORKLOAD], notes
            try:
                if before is None:
                    write_new_file(pyproject, content)
                    sync_folder(root)
                elif pyproject.read_bytes() != before:
                    raise WriteRefused(f"{pyproject} changed meanwhile: nothing was written, run the command again.")
                else:
                    replace_file(pyproject, content, root / f".{_PYPROJECT}.chirp-migrate-new", like=pyproject)
            except BaseException:
                remove_if_exists(workload)
                raise
            return [DEFAULT_WORKLOAD, _PYPROJECT], notes
    except OSError as error:
        what = f"{error.filename or root}: {error.strerror}"
        raise CommitFailed(
            f"{what}: nothing was written; make the folder writable and run the command again."
        ) from error


def _add_settings(pyproject: Path, before: bytes | None) -> bytes:
    """Return the bytes of ``pyproject.toml`` with the settings at the end, in the file's style of newlines.

    Raises:
        UsageProblem: the result is not valid TOML.
    """
    if before is None:
        return _SETTINGS.encode()
    newline = b"\r\n" if b"\r\n" in before else b"\n"
    gap = b"" if not before.strip() else newline if before.endswith(b"\n") else newline * 2
    content = before + gap + _SETTINGS.encode().replace(b"\n", newline)
    try:
        parse_toml(content.decode("utf-8"))
    except ValueError as error:  # not UTF-8, or not TOML
        raise UsageProblem(
            f"no settings can be added to {pyproject} ({error}): correct the file, or add [tool.chirp-migrate.verify] "
            "by hand; nothing was written."
        ) from None
    return content
