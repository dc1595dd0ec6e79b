"""Run the user's command after ``apply`` (``--check-with``). If the command fails, undo the changes of ``apply``."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from pathlib import Path

import click

from chirp_migrate.console.output import Output
from chirp_migrate.errors import CheckFailed, ChirpMigrateError
from chirp_migrate.transaction.rollback import rollback

_TAIL_LINES = 20
_TAIL_BYTES = 16_384


def check_with_command(command: str, folder: Path, journal: Path, run_number: str, output: Output) -> None:
    """Run the user's command, and undo a run of ``apply`` if the command fails.

    Args:
        command: the command line, for the shell.
        folder: folder in which to run the command.
        journal: folder with the journal of the run.
        run_number: number of the run of ``apply``, such as ``0001``.
        output: settings for the output of ``apply``.

    Raises:
        CheckFailed: the command failed. The message reports whether the run of ``apply`` is undone.
    """
    try:
        with output.progress(f"running: {command}"):
            status, last_lines = _run_command(command, folder)
        if status:
            if last_lines:
                click.echo(f"The last lines of `{command}`:\n{last_lines}", err=True)
            how = f"exit code {status}" if status > 0 else f"signal {-status}"
            raise CheckFailed(f"`{command}` ended with {how}: everything was rolled back, all files are as before.")
    except BaseException as failure:
        try:
            with output.progress("rolling back") as step:
                rollback(journal, run=int(run_number), on_step=step)
        except ChirpMigrateError as error:
            why = f"`{command}` failed, and the rewrite cannot be rolled back now: {error}"
            raise CheckFailed(why) from failure
        raise


def _run_command(command: str, folder: Path) -> tuple[int, str]:
    """Run ``command`` with the shell in ``folder``, and return its exit status and the last lines that it printed.

    If signal number N ended the command, the exit status is -N. If an exception ends the wait for the command, for
    example because of Ctrl-C, the function kills all processes of the command.
    """
    from chirp_migrate.training.process.descendants import MARKER, kill_processes  # most runs need no psutil

    process_mark = secrets.token_hex()
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen(
            command,
            shell=True,
            cwd=folder,
            env={**os.environ, MARKER: process_mark},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait()
        except BaseException:
            kill_processes(process_mark, child.pid, child_exists=True)
            child.wait()
            raise
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = printed.read().decode("utf-8", errors="replace").splitlines()
    return status, "\n".join(lines[-_TAIL_LINES:])
