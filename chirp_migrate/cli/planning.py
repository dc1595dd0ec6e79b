"""The options for planning, and the functions that make a plan or read it from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import structs

from chirp_migrate.cli.options import (
    WholeNumber,
    collect_options,
    complete_rule_codes,
    option,
    path_argument,
    split_at_commas,
    split_selectors,
)
from chirp_migrate.console.output import Output
from chirp_migrate.engine.discover import journal_root, project_root
from chirp_migrate.engine.migration import plan_migration
from chirp_migrate.engine.settings import Settings, read_settings
from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.plan import Plan, PlanOptions
from chirp_migrate.review.plan_file import PlanFile, load_plan


@dataclass(frozen=True)
class PlanRequest:
    """The project for which a command makes a plan, and the options of the command line.

    Attributes:
        path: the argument PATH of the command line.
        jobs: number of processes that run the rules; with None, the number depends on the amount of code.
        overrides: the options that override settings (see :meth:`.Settings.overridden`). The value of an option that is
            not set is None or empty.
    """

    path: Path
    jobs: int | None
    overrides: Mapping[str, Any]

    @cached_property
    def root(self) -> Path:
        """Return the absolute folder to which the paths of a plan are relative.

        Raises:
            UsageProblem: ``path`` does not exist.
        """
        return project_root(self.path)

    @property
    def folder(self) -> Path:
        """Return ``path`` if it is a folder, else the folder of the file ``path``. A relative path stays relative."""
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def quoted_path(self) -> str:
        """Return ``path`` with shell quotes, for messages that contain a command."""
        return quote(str(self.path))

    @cached_property
    def settings(self) -> Settings:
        """Return the settings of the project. Options of the command line override the settings in the file.

        Raises:
            UsageProblem: a setting or an option is invalid.
        """
        return read_settings(self.path).overridden(**self.overrides)

    @cached_property
    def journal(self) -> Path:
        """Return the folder whose journal records the run (see :func:`~chirp_migrate.engine.discover.journal_root`).

        Raises:
            UsageProblem: ``path`` does not exist.
        """
        return journal_root(self.path)

    @property
    def is_bare(self) -> bool:
        """Return whether the command line has no option that affects the plan."""
        return all(value in (None, ()) for value in self.overrides.values())

    def with_options(self, options: PlanOptions) -> PlanRequest:
        """Return a request for the same path, whose options are the ``options`` of an earlier plan."""
        overrides = structs.asdict(options)
        select = overrides.pop("rules") or ()
        return PlanRequest(self.path, self.jobs, {**overrides, "select": select})


def _request(path: Path, jobs: int | None, **overrides: Any) -> PlanRequest:
    return PlanRequest(path, jobs, overrides)


_rules = partial(option, group="Files and rules")
_codes = partial(_rules, multiple=True, metavar="CODES", shell_complete=complete_rule_codes)
_added = partial(option, group="Added files")

_file_and_rule_options = (
    _codes(
        "--select", callback=split_selectors,
        help="Run only these rules: codes, code prefixes or names, separated by commas (see `rules`).",
    ),
    _codes("--ignore", callback=split_at_commas, help="Do not run these rules."),
    _rules("--unsafe/--no-unsafe", default=None, help="Also apply rules that change what training learns."),
    _rules(
        "--all-loaders/--no-all-loaders", default=None,
        help="Also rewrite loaders that gain nothing from a rewrite.  [default: no]",
    ),
    _rules("--notebooks/--no-notebooks", default=None,
        help="Include all notebooks, or none.  [default: notebooks without stored outputs]",
    ),
    _rules(
        "--tests/--no-tests", default=None,
        help="Include tests: tests/, test_*.py, *_test.py, conftest.py.  [default: no]",
    ),
    _rules(
        "--exclude", multiple=True, metavar="GLOBS", callback=split_at_commas,
        help="Do not rewrite these files or folders: patterns as in .gitignore, relative to PATH, separated by commas.",
    ),
    _rules(
        "-j", "--jobs", type=WholeNumber(1),
        help="Number of processes that analyse files.  [default: depends on the size of the project]",
    ),
)  # fmt: skip
_added_file_options = (
    _added(
        "--scaffold/--no-scaffold", default=None,
        help="Add a loader factory, a performance monitor, a notebook and tests.  "
        "[default: only if utils/ has training modules]",
    ),
    _added(
        "--vendor/--no-vendor", default=None,
        help="Copy chirpid_patch into the project instead of adding a dependency.  [default: no-vendor]",
    ),
)  # fmt: skip

#: Decorators that add PATH and the options for planning. A decorated command gets all values as one argument
#: ``request``, a :class:`PlanRequest`. The second decorator has no options for added files, because it is for commands
#: that only read.
planning_options = collect_options("request", _request, path_argument, *_file_and_rule_options, *_added_file_options)
looking_options = collect_options("request", _request, path_argument, *_file_and_rule_options)


def make_plan(request: PlanRequest, output: Output) -> Plan:
    """Make a plan for the current files of the project, and show progress on a terminal."""
    settings = request.settings
    with output.progress("planning") as progress:
        return plan_migration(request.path, settings=settings, jobs=request.jobs, progress=progress)


def read_plan_file(file: Path, request: PlanRequest) -> PlanFile:
    """Return the plan in ``file`` for the project of the request.

    Raises:
        UsageProblem: the file cannot be read or is not a plan, or the command line also has options that choose rules
            or files.
        WriteRefused: files of the project have changed since the plan was made.
    """
    if not request.is_bare:
        raise UsageProblem(
            "--plan already determines the rules and files: omit all options that choose rules or files."
        )
    return load_plan(file, request.root)
