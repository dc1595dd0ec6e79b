"""Parse the arguments of each command, print its results, and exit with a documented exit code.

The commands call the other packages of ``chirp_migrate`` for all other work.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TextIO

import click
from click.shell_completion import CompletionItem

from chirp_migrate import __version__
from chirp_migrate.console.text import escape_invisible, suggest_name
from chirp_migrate.errors import ChirpMigrateError
from chirp_migrate.exit_codes import ExitCode

_DEBUG = "--debug"
#: Error numbers of a failed write to standard output, for example because the disk is full.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

#: One-line description of each command, by name. The module of a command has the same name as the command.
_COMMANDS = {
    "plan": "Show what would change; save it as a plan with -o.",
    "review": "Accept or refuse changes hunk by hunk.",
    "apply": "Rewrite a project to fast, worker-safe loading.",
    "check": "Exit with 1 if anything is left to rewrite (for CI).",
    "rollback": "Undo a run of apply, byte for byte.",
    "verify": "Measure whether training is faster and unchanged.",
    "report": "Write a report of changes, reasons and the verdict.",
    "doctor": "Run a training and report its loading problems.",
    "tune": "Find the fastest loader settings.",
    "init-workload": "Create a starter file that defines what verify trains.",
    "rules": "List the rules and their purpose.",
    "explain": "Explain one rule, with an example.",
    "completion": "Print a shell completion script.",
}


class _LazyGroup(click.Group):
    """The click group that contains all commands.

    Each command is imported on first use, so ``--help`` does not import PyTorch.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"{__name__}.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(n, help=does) for n, does in _COMMANDS.items() if n.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            meant = suggest_name(args[0], _COMMANDS, "the commands are")
            raise click.UsageError(f"there is no command {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _ending_with_reader():  # --help and --version print here
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        with _ending_with_reader():
            result = super().invoke(ctx)
            sys.stdout.flush()
        return result


@contextmanager
def _ending_with_reader() -> Iterator[None]:
    """Return a context that ends the command with its exit code if the program that reads the output has ended."""
    try:
        yield
    except BrokenPipeError:
        _discard_output(sys.stdout)
        raise click.exceptions.Exit(ExitCode.PIPE_CLOSED) from None


def _discard_output(stream: TextIO) -> None:
    """Discard all buffered and later output of a stream that cannot be written, so that Python can exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print_error(text: str, prefix: str = "chirp-migrate: ") -> None:
    """Print a text to standard error. If the program that reads standard error has ended, print nothing."""
    try:
        click.echo(f"{prefix}{text}", err=True)
    except BrokenPipeError:
        _discard_output(sys.stderr)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Start with: chirp-migrate review PROJECT (or apply --diff), then apply, then verify. rollback restores every "
        "byte that apply changed. Exit codes have the same meaning for all commands, see docs/exit-codes.md."
    ),
)
@click.version_option(__version__, prog_name="chirp-migrate")
@click.option(_DEBUG, is_flag=True, help="Show tracebacks (may also follow the command).")
def main(debug: bool) -> None:
    """Migrate PyTorch training projects to fast, worker-safe data loading, and verify the result."""


def _usage_message(error: click.ClickException) -> str:
    """Return click's message about an invalid command line, and the command that prints the help."""
    message = escape_invisible(error.format_message())
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-")
        near = [one for one in error.possibilities or () if get_close_matches(name, [one.lstrip("-")])]
        message = f"there is no option {error.option_name}" + (f"; did you mean {near[0]}?" if near else ".")
    message = f"{message[:1].lower()}{message[1:]}" + ("" if message.endswith((".", "?")) else ".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} See `{context.command_path} --help`." if context is not None else message


def entry_point(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit with the exit code of the command. Print an error as one line to standard error.

    Args:
        arguments: the arguments without the name of the program; None for the arguments of this process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    # --debug may be before or after the name of the command.
    debug = _DEBUG in given[: given.index("--") if "--" in given else None]
    given = [_DEBUG, *(one for one in given if one != _DEBUG)] if debug else given
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name may contain bytes that are not text
    try:
        code = main.main(args=given, prog_name="chirp-migrate", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _print_error("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        _print_error(error.format_message(), prefix="")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _print_error(_usage_message(error))
        sys.exit(error.exit_code)
    except ChirpMigrateError as error:
        if debug:
            traceback.print_exc()
        _print_error(escape_invisible(str(error)))
        sys.exit(error.exit_code)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            _discard_output(sys.stdout)
            _print_error(f"cannot write to standard output: {error.strerror or error}; the remaining output is lost.")
            sys.exit(ExitCode.UNDONE)
        message = f"internal error: {type(error).__name__}: {error} (please report it)"
        _print_error(message + ("" if debug else f"; `chirp-migrate {_DEBUG} …` shows the traceback"))
        sys.exit(ExitCode.INTERNAL)
    sys.exit(code if isinstance(code, int) else 0)
