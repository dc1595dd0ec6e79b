"""``chirp-migrate verify PATH``: the command of :mod:`chirp_migrate.verify`, in a tree that nobody left half done."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import click

from chirp_migrate.commit import recover
from chirp_migrate.verify import command

__all__ = ["verify"]


def _after_recovery(original: click.Command) -> click.Command:
    """The same command, which first brings to an end what was interrupted in its PATH."""
    run = original.callback
    assert run is not None

    @functools.wraps(run)
    def recover_and_run(path: Path, **options: Any) -> Any:
        found = recover(path) if path.is_dir() else None
        if found is not None:
            click.echo(found, err=True)
        return run(path=path, **options)

    changed = copy.copy(original)
    changed.callback = recover_and_run
    return changed


verify = _after_recovery(command.verify)
