"""The plan that a command works on: made from the tree, or read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.cli.progress import planning_progress
from chirp_migrate.engine.discover import root_of
from chirp_migrate.engine.migration import Migration, plan_migration
from chirp_migrate.engine.settings import Settings, read_settings
from chirp_migrate.errors import UsageProblem
from chirp_migrate.plans.document import PlanOptions
from chirp_migrate.review.plan_file import PlanFile, read_options, read_plan
from chirp_migrate.source.files import read_file

__all__ = ["Request", "planned", "read_plan_file", "reviewed_request"]


@dataclass(frozen=True)
class Request:
    """What the command line asks to be planned; see the help of ``apply`` for the options."""

    path: Path
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    unsafe: bool | None = None
    notebooks: bool | None = None
    jobs: int | None = None
    scaffold: bool | None = None
    vendor: bool = False
    tests: bool | None = None
    exclude: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        """The project's settings with the options above them.

        Raises:
            UsageProblem: see :func:`~chirp_migrate.engine.settings.read_settings`.
        """
        return read_settings(self.path).overridden(
            select=self.select,
            ignore=self.ignore,
            unsafe=self.unsafe,
            notebooks=self.notebooks,
            tests=self.tests,
            exclude=self.exclude,
        )

    def again(self, options: PlanOptions) -> Request:
        """The request for a plan that was asked for with ``options``, at the same path."""
        return Request(
            self.path,
            select=options.rules or (),
            unsafe=options.unsafe,
            notebooks=options.notebooks,
            jobs=self.jobs,
            scaffold=options.scaffold,
            vendor=options.vendor,
            tests=options.tests,
            exclude=options.exclude,
        )


def planned(request: Request) -> Migration:
    """The plan of the tree as it is, with progress on a terminal."""
    settings = request.settings
    with planning_progress() as progress:
        return plan_migration(
            request.path,
            settings=settings,
            scaffold=request.scaffold,
            vendor=request.vendor,
            jobs=request.jobs,
            progress=progress,
        )


def reviewed_request(request: Request, old: bytes) -> Request:
    """``request``, or where it has no options of its own what the plan in ``old`` was asked for.

    Raises:
        UsageProblem: ``old`` is no plan.
    """
    return request.again(read_options(old)) if request == Request(request.path, jobs=request.jobs) else request


def read_plan_file(file: Path, request: Request) -> PlanFile:
    """The plan in ``file`` for the tree of the request.

    Raises:
        UsageProblem: the file cannot be read or is no plan, or options are given that only making a plan has.
        Refused: the tree is not as it was when the plan was made.
    """
    if request != Request(request.path, jobs=request.jobs):
        raise UsageProblem("--plan says what is done already: leave out the options that choose rules and files.")
    root = root_of(request.path)
    try:
        data = read_file(file)
    except OSError as error:
        raise UsageProblem(f"{file} cannot be read ({error.strerror}): give the file of a plan.") from None
    return read_plan(data, str(file), root)
