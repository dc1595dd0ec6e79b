"""``chirp-migrate rollback PATH``."""

from __future__ import annotations

from pathlib import Path

import click

from chirp_migrate.cli import json_file as json_output
from chirp_migrate.commit import recover
from chirp_migrate.discover import root_of
from chirp_migrate.rollback import RollbackResult, rollback


@click.command(
    name="rollback",
    epilog=(
        "Exit codes: 0 everything is as it was; 2 nothing was applied at PATH; 3 refused: files were edited since "
        "(named); 4 failed midway and undone. Example: chirp-migrate rollback backend/"
    ),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Restore files that were edited since; the edits are lost.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write what was restored and removed as JSON ('-': standard output).",
)
def rollback_command(path: Path, force: bool, json_file: Path | None) -> None:
    """Undo the last `apply` at PATH: every byte, every mode bit, and the files it added.

    Where the last run was interrupted, bringing that to an end is all that is done.
    """
    json_output.check_writable(json_file)
    root = root_of(path)
    interrupted = recover(root, force=force)
    # Whoever undoes an interrupted apply does not mean the one before it as well.
    result = RollbackResult((), ()) if interrupted is not None else rollback(root, force=force)
    found = {"interrupted": interrupted, "restored": list(result.restored), "removed": list(result.removed)}
    json_output.write(json_file, {"schema": 1, **found})
    lines = [interrupted] if interrupted is not None else []
    lines += [f"restored  {name}" for name in result.restored]
    lines += [f"removed   {name}" for name in result.removed]
    if interrupted is None:
        lines.append(f"{path} is as it was before the last apply.")
    for line in lines:
        click.echo(line, err=json_file == json_output.STANDARD_OUTPUT)
