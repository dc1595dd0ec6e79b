"""Every command that the README and docs/ show works: run in a copy of the fixture backend, or checked for its form.

docs/contributing.md says how a block is marked. Without a mark a block is run as it stands.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from docs_commands import Desk, commands, is_form_only, problem_with
from docs_pages import Block, Page, written_pages

from chirp_migrate.cli import main

#: What a reader types into a terminal.
SHELL = ("sh", "bash", "console")
#: All that a mark can begin with.
WORDS = ("form only", "in a fresh copy", "in a migrated copy", "ends with", "typing", "whole", "output", "except")
COMMANDS = main.list_commands(click.Context(main))
#: Whose arguments in running text are looked at.
PROGRAMS = ("chirp-migrate", "make", "python", ".venv/bin/python")
PAGES = written_pages()
#: Pages that a newcomer follows; the commands of the others run with the exhaustive tests.
FIRST_READ = ("README.md", "docs/tutorial.md")


def name(page: Page) -> str:
    """For the tests' names."""
    return page.name


def shell_blocks(page: Page) -> list[Block]:
    """Blocks of commands."""
    return [block for block in page.blocks if block.language in SHELL]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash") or not shutil.which("git"), reason="needs bash and git")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name in FIRST_READ else pytest.mark.exhaustive, id=page.name)
        for page in PAGES
        if shell_blocks(page)
    ],
)
def test_blocks_of_commands_run_as_shown(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    desk, begun = Desk(folder), False
    for block in page.blocks:
        if block.language in SHELL and block.marked("form only") is None:
            if not begun:
                desk.begin_again(migrated=False)
                begun = True
            desk.run(block)
        elif block.marked("output") is not None:
            missing = not_printed(block.text, desk.said)
            assert not missing, f"{block.place}: not printed: {missing}\n{desk.said}"


def not_printed(shown: str, said: str) -> list[str]:
    """Lines that are shown and were not printed in this order; an ellipsis stands for any lines, or the rest of one."""
    lines = iter(said.splitlines())
    missing = []
    for line in shown.splitlines():
        wanted = re.escape(line.rstrip()).replace("…", ".*")
        # ``any`` uses up the lines that come before the one it looks for.
        if line.strip() not in ("", "…") and not any(re.fullmatch(wanted, one.rstrip()) for one in lines):
            missing.append(line)
    return missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_not_run_says_why_and_has_the_right_form(page: Page) -> None:
    for block in shell_blocks(page):
        reason = block.marked("form only") or (block.marked("except") or "").partition(":")[2]
        for command in commands(block):
            if is_form_only(block, command):
                assert len(reason.split()) >= 3, f"{block.place}: say why it is not run"
                assert (found := problem_with(command)) is None, f"{block.place}: {command}: {found}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_marks_are_known(page: Page) -> None:
    for block in page.blocks:
        unknown = [part for part in block.marks if not part.startswith(WORDS)]
        assert not unknown, f"{block.place}: {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_running_text_have_the_right_form(page: Page) -> None:
    for span in page.inline_code:
        words = span.split()
        if words[0] in COMMANDS and len(words) > 1 and words[1].startswith("-"):
            words = ["chirp-migrate", *words]
        if words[0] in PROGRAMS and len(words) > 1:
            found = problem_with(" ".join(words))
            assert found is None, f"{page.name}: `{span}`: {found}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_in_running_text_are_options_of_a_command(page: Page) -> None:
    context = click.Context(main)
    parameters = [one for command in COMMANDS for one in main.get_command(context, command).params]
    options = {option for one in [*parameters, *main.params] for option in (*one.opts, *one.secondary_opts)}
    options |= set(context.help_option_names)
    named = {re.split("[ =/]", span)[0] for span in page.inline_code if span.startswith("--")}
    assert named <= options, page.name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_configurations_have_the_right_form(page: Page) -> None:
    for block in page.blocks:
        if block.language == "yaml":
            for command in re.findall(r"\b(?:run|entry): ((?:chirp-migrate|pip) .*)", block.text):
                assert (found := problem_with(command)) is None, f"{block.place}: {command}: {found}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_stand_in_blocks_that_are_run(page: Page) -> None:
    for block in page.blocks:
        if block.language in SHELL:
            continue
        assert block.language, f"{block.place}: say which language it is"
        for line in block.text.splitlines():
            first = shlex.split(line, comments=True)[:1] if line.startswith(("chirp-migrate ", "$ ")) else []
            assert not first, f"{block.place}: {line!r} is a command: make it a block of sh"
    indented = [line for line in page.prose.splitlines() if line.startswith("    ") and line.lstrip()[0] != "*"]
    assert not indented, f"{page.name}: blocks have fences and a language: {indented[:3]}"
