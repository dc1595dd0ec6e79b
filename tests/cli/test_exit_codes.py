"""One table of exit codes: the documents, the commands and the errors agree with it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from chirp_migrate.cli import main
from chirp_migrate.errors import ChirpMigrateError
from chirp_migrate.exit_codes import ExitCode

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_documented_table_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (DOCS / "exit-codes.md").read_text(), re.MULTILINE)
    assert rows == [(str(int(code)), code.meaning) for code in ExitCode]


def test_every_error_ends_in_a_code_of_the_table() -> None:
    import chirp_migrate.cli.verify  # noqa: F401 - its errors are among them

    def kinds(kind: type[ChirpMigrateError]) -> list[type[ChirpMigrateError]]:
        return [kind, *(one for sub in kind.__subclasses__() for one in kinds(sub))]

    assert len(kinds(ChirpMigrateError)) > 5
    for kind in kinds(ChirpMigrateError):
        assert kind.exit_code in list(ExitCode), kind


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    text = command.get_help(click.Context(command, info_name=name, max_content_width=100))
    assert re.search(rf"chirp-migrate {name}\b", text), text
    assert command.help and command.help.strip().splitlines()[0].endswith(".")
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter
