"""Where ``--json`` writes: known to be possible before any work is done."""

from __future__ import annotations

from pathlib import Path

import click

from chirp_migrate.console.json_document import as_bytes
from chirp_migrate.errors import UsageProblem

__all__ = ["STANDARD_OUTPUT", "check_writable", "write"]

STANDARD_OUTPUT = Path("-")


def check_writable(target: Path | None, option: str = "--json") -> None:
    """See that ``target`` can be written, so that a run does not end in a report that is lost; ``option`` named it.

    Raises:
        UsageProblem: its folder is missing, or it is a folder itself.
    """
    if target is None or target == STANDARD_OUTPUT:
        return
    if target.is_dir():
        raise UsageProblem(f"{target} is a folder: give a file name after {option}.")
    if not target.absolute().parent.is_dir():
        raise UsageProblem(f"{target} cannot be written, its folder does not exist: give another {option} file.")


def write(target: Path | None, content: object) -> None:
    """Write ``content``, a typed document or plain values, as JSON to ``target``, or to standard output for ``-``.

    Raises:
        UsageProblem: it cannot be written.
    """
    if target is None:
        return
    text = as_bytes(content).decode("ascii")
    if target == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"{target} cannot be written ({error.strerror}): give another --json file.") from error
