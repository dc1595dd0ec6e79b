"""Each check can be run by its name, and a page of results keeps the rows that a run does not replace."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from qa.__main__ import CHECKS, main
from qa.pages import with_kept_rows

PAGE = """\
# Tests

An earlier run.

| suite | tests |
| --- | --: |
| first 1.0 | 3 |
| second 2.0 | 4 |

## Failed

- first 1.0: `one`
- second 2.0: `two`
"""


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_explains_its_options(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"main {name}" in result.output


def test_a_run_replaces_the_rows_of_what_it_tested() -> None:
    run = "# Tests\n\nThis run.\n\n| suite | tests |\n| --- | --: |\n| second 2.0 | 5 |\n| third 1.0 | 6 |\n"
    page = with_kept_rows(PAGE, run)
    assert page.splitlines() == [
        "# Tests", "", "This run.", "", "| suite | tests |", "| --- | --: |", "| first 1.0 | 3 |", "| second 2.0 | 5 |",
        "| third 1.0 | 6 |", "", "## Failed", "", "- first 1.0: `one`",
    ]  # fmt: skip


def test_a_page_without_an_earlier_run_stays_as_it_is() -> None:
    assert with_kept_rows("", PAGE) == PAGE
    assert with_kept_rows(PAGE, PAGE) == PAGE
