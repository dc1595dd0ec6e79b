"""``chirp-migrate completion SHELL``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from chirp_migrate.exit_codes import ExitCode, help_epilog


@click.command(
    epilog=help_epilog(
        {ExitCode.OK: "printed"},
        'eval "$(chirp-migrate completion bash)"',
        "chirp-migrate completion fish > ~/.config/fish/completions/chirp-migrate.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes chirp-migrate's commands and options in SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None and ctx.parent is not None
    click.echo(kind(ctx.parent.command, {}, "chirp-migrate", "_CHIRP_MIGRATE_COMPLETE").source())
