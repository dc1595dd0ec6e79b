"""What programs write into docs/ is current; each message says which program to run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from docs_pages import ROOT

from chirp_migrate.rules import all_rules


def program(name: str) -> ModuleType:
    """A script in docs/, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rule_reference_is_current() -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == program("make_rules").reference(), "run: python docs/make_rules.py"


def test_the_page_of_messages_is_current_and_each_takes_two_lines_at_most() -> None:
    page = program("make_messages").page()
    assert (ROOT / "docs" / "messages.md").read_text(encoding="utf-8") == page, "run: python docs/make_messages.py"
    assert [line for line in page.splitlines() if len(line) > 240] == []


def test_the_rule_reference_has_a_section_for_every_rule() -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [f"## {rule.code} {rule.name}" for rule in all_rules()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diff", "verdict"])
def test_pictures_show_what_the_program_prints(name: str) -> None:
    picture = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    made = getattr(program("make_pictures"), f"{name}_picture")()
    assert picture == made, "run: python docs/make_pictures.py"


def test_exit_codes_are_those_of_the_program() -> None:
    from chirp_migrate.exit_codes import ExitCode

    page = Path(ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert rows == [f"| {int(code)} | {code.meaning} |" for code in ExitCode]
