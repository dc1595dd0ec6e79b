"""Measure how soon a browser shows a report of 2,000 changes: `python benchmarks/report_page.py`

The benchmark migrates a synthetic project with 2,000 hunks, and writes the report as an HTML page. It opens the page
several times in headless Chromium, each time in a separate process. The benchmark prints the milliseconds to the first
paint and to the end of loading. The exit code is 1 if the median time to the first paint is longer than 2 s. The
benchmark needs Chromium and playwright (from the extra `test`).
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from harness import conditions, made_by, write_json

_LIMIT_MS = 2000
_LOADERS_A_FILE = 40
_HEADER = "from torch.utils.data import DataLoader\n\n\n"
_FUNCTION = (
    "def train_loader_{n}(dataset, batch_size=32):\n"
    '    """Loader number {n}."""\n'
    "    return DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=0, pin_memory=True)\n\n\n"
)


def make_page(folder: Path, hunks: int) -> Path:
    """Write the report of a migration with ``hunks`` hunks, with the commands that a user would type."""
    backend = folder / "backend"
    backend.mkdir()
    for part, first in enumerate(range(0, hunks, _LOADERS_A_FILE)):
        numbers = range(first, min(first + _LOADERS_A_FILE, hunks))
        text = _HEADER + "".join(_FUNCTION.format(n=n) for n in numbers)
        (backend / f"part_{part}.py").write_text(text, encoding="utf-8")
    page = folder / "report.html"
    for arguments in (["apply", backend], ["report", backend, "-o", page]):
        subprocess.run([sys.executable, "-m", "chirp_migrate", *map(str, arguments)], check=True, capture_output=True)
    return page


def open_page(chromium: str, page: Path) -> dict[str, float]:
    """Open the page in a new browser, and return the milliseconds to the first paint and to the end of loading."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        view = browser.new_page(viewport={"width": 1400, "height": 900})
        view.goto(page.as_uri())
        view.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        taken: dict[str, float] = view.evaluate(
            "({paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,"
            " loaded: performance.getEntriesByType('navigation')[0].loadEventEnd,"
            " hunks: document.querySelectorAll('.hunk').length})"
        )
        browser.close()
    return taken


@click.command(help=__doc__)
@click.option("--hunks", default=2000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write all times to this file.")
def main(hunks: int, rounds: int, target: Path | None) -> None:
    """Write the page, open it, and judge the times."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("there is no Chromium: install it (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        page = make_page(Path(folder), hunks)
        size = page.stat().st_size
        found = [open_page(chromium, page) for _ in range(rounds)]
    settings = conditions(1)
    click.echo(f"{found[0]['hunks']:.0f} hunks, {size / 2**20:.1f} MiB; {made_by(settings)}")
    for name, what in (("paint", "first paint"), ("loaded", "loaded")):
        times = sorted(one[name] for one in found)
        click.echo(f"{what:12} {statistics.median(times):6.0f} ms  ({times[0]:.0f} to {times[-1]:.0f}, {rounds} times)")
    if target is not None:
        write_json(target, {**settings, "bytes": size, "times": found})
    if statistics.median(one["paint"] for one in found) > _LIMIT_MS:
        sys.exit(f"the first paint takes more than {_LIMIT_MS} ms")


if __name__ == "__main__":
    main()
