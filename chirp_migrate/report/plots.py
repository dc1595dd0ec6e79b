"""Write the plots of a report as SVG files, for ``verify --plot``."""

from __future__ import annotations

import textwrap
from pathlib import Path

from chirp_migrate.errors import UsageProblem
from chirp_migrate.report.page.charts import times_plot, waits_plot
from chirp_migrate.report.page.render import jinja_environment, style_sheet
from chirp_migrate.verify.verify_report import VerifyReport

_COLUMNS = 60


def create_plot_folder(folder: Path) -> None:
    """Create the folder for the plots. ``verify`` calls the function before the training, so errors lose no results.

    Raises:
        UsageProblem: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"{folder} cannot be created ({error.strerror}): choose another --plot.") from None


def draw_plots(folder: Path, report: VerifyReport) -> str:
    """Write the plots of a verification to ``folder``, and return a sentence that lists the files.

    Raises:
        UsageProblem: a file cannot be written.
    """
    simulated = report.simulated
    more = [f"Machine: {report.described.machine}."]
    more += [f"SIMULATED device steps of {simulated.step_ms:g} ms, which use no CPU."] if simulated else []
    template = jinja_environment().get_template("plot.svg.j2")
    written = []
    for plot in (*times_plot(report), *waits_plot(report)):
        lines = [line for text in (plot.says, *more) for line in textwrap.wrap(text, _COLUMNS)]
        path = folder / f"{plot.name}.svg"
        try:
            path.write_text(template.render(plot=plot, lines=lines, style=style_sheet()), encoding="utf-8")
        except OSError as error:
            raise UsageProblem(f"{path} cannot be written ({error.strerror}): choose another --plot.") from None
        written.append(path.name)
    return f"Plots in {folder}: {', '.join(written) or 'none, because nothing was measured'}."
