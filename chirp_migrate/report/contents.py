"""Define the classes for the data of a report. The web page, the terminal output and the JSON document show this data.

The data comes from the journal, in which ``apply``, ``verify`` and ``doctor`` store their results. The texts are not
escaped for HTML or for a terminal, so the code that shows the texts must escape them.
"""

from __future__ import annotations

from dataclasses import dataclass

from chirp_migrate.doctor.doctor_report import DoctorReport
from chirp_migrate.plans.plan import Plan
from chirp_migrate.verify.verify_report import VerifyReport


@dataclass(frozen=True)
class RunDetails:
    """The data of a report on one run of ``apply``.

    Attributes:
        number: number of the run.
        created: time at the start of the run, ISO 8601 in UTC.
        tool: name and version of the program that made the run, such as ``chirp-migrate 0.1.0``.
        plan: the files that the run wrote, and all findings. If the journal lacks the plan of the run, the files have
            no hunks, and there are no findings.
        has_plan: whether the journal contains the plan of the run.
        edited: paths of the files that the user has edited since the run.
    """

    number: int
    created: str
    tool: str
    plan: Plan
    has_plan: bool = True
    edited: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ReportContents:
    """The data of a report on one project.

    Attributes:
        name: name of the project's folder.
        runs: the applied runs, oldest first.
        verdict: the result of the last ``verify``; None if ``verify`` did not run.
        notices: sentences on the limits of the report, for example on files that were edited after the migration.
        doctor: the result of the last ``doctor``; None if ``doctor`` did not run.
    """

    name: str
    runs: tuple[RunDetails, ...]
    verdict: VerifyReport | None
    notices: tuple[str, ...]
    doctor: DoctorReport | None = None
