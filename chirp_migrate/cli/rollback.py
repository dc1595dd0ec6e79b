"""``chirp-migrate rollback PATH``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from chirp_migrate.commit import recover
from chirp_migrate.errors import UsageProblem
from chirp_migrate.rollback import rollback


@click.command(
    name="rollback",
    epilog=(
        "Exit codes: 0 everything is as it was; 2 nothing was applied at PATH; 3 refused: files were edited since "
        "(named); 4 failed midway and undone. Example: chirp-migrate rollback backend/"
    ),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Restore files that were edited since; the edits are lost.")
@click.option("--json", "as_json", is_flag=True, help="Print what was restored and removed as JSON.")
def rollback_command(path: Path, force: bool, as_json: bool) -> None:
    """Undo the last `apply` at PATH: every byte, every mode bit, and the files it added."""
    if not path.exists():
        raise UsageProblem(f"{path} does not exist: give the folder that was migrated.")
    root = (path if path.is_dir() else path.parent).resolve()
    found = recover(root)
    if found is not None:
        click.echo(found, err=True)
    result = rollback(root, force=force)
    if as_json:
        click.echo(json.dumps({"restored": list(result.restored), "removed": list(result.removed)}, indent=2))
        return
    for name in result.restored:
        click.echo(f"restored  {name}")
    for name in result.removed:
        click.echo(f"removed   {name}")
    click.echo(f"{path} is as it was before the last apply.")
