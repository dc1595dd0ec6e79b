"""Run a correctness check of this project: ``python -m qa NAME``. ``python -m qa --help`` lists the checks."""

from __future__ import annotations

import importlib

import click

#: Name of a check → what it compares. The module of a check has the name of the check, and a function ``main``.
CHECKS = {
    "oracle": "Run random programs with PyTorch's loader and with the loaders of chirpid_patch.",
    "soundness": "Run random programs before and after their migration.",
    "mutations": "Switch off each condition of the rules, and check whether the loss is detected.",
    "pickling": "Compare findings about objects that cannot be pickled with the results of pickle.",
    "interruption": "Kill runs and fill disks at random, and check that no file is lost.",
    "linters": "Run the linters of packages from PyPI before and after a migration.",
    "suites": "Run the tests of packages from PyPI before and after a migration.",
    "versions": "Run the fast tests with other versions of Python and torch.",
    "same-plans": "Compare the plans of another revision with the plans of this tree.",
    "rewritten-sites": "List call sites that another revision rewrites and this tree does not.",
}


class _Checks(click.Group):
    """The group of all checks. Each check is imported on first use, so ``--help`` does not import PyTorch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(CHECKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in CHECKS:
            return None
        command: click.Command = importlib.import_module(f"qa.{cmd_name.replace('-', '_')}").main
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Checks"):
            formatter.write_dl([*CHECKS.items()])


@click.group(cls=_Checks, context_settings={"max_content_width": 100})
def main() -> None:
    """Run one correctness check. A check exits with code 1 if it finds a difference."""


if __name__ == "__main__":
    main(prog_name="python -m qa")
