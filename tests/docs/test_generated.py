"""What programs write into docs/ is current; each message says which program to run."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from support import ROOT

from chirp_migrate.rules import all_rules

MESSAGES = ROOT / "docs" / "messages.md"


def program(name: str) -> ModuleType:
    """A script in docs/, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rule_reference_is_current() -> None:
    docs = ROOT / "docs"
    kept = {path.relative_to(docs).as_posix(): path.read_text(encoding="utf-8") for path in docs.glob("rules/*")}
    kept["rules.md"] = (docs / "rules.md").read_text(encoding="utf-8")
    assert kept == program("make_rules").reference(), "run: python docs/make_rules.py"


def test_the_schemas_of_documents_are_current() -> None:
    schemas = program("make_schemas")
    kept = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "schemas").iterdir()}
    assert kept == {name: schemas.schema(name) for name in schemas.DOCUMENTS}, "run: python docs/make_schemas.py"


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_the_messages_of_every_rule_are_current(every: int) -> None:
    page, section = MESSAGES.read_text(encoding="utf-8"), program("make_messages").section
    for rule in all_rules()[::every]:
        assert f"\n\n{section(rule)}" in page, "run: python docs/make_messages.py"


def test_the_page_of_messages_has_every_rule_and_each_message_takes_two_lines_at_most() -> None:
    lines = MESSAGES.read_text(encoding="utf-8").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("## ")] == [rule.code for rule in all_rules()]
    assert [line for line in lines if len(line) > 240] == []


def test_the_rule_reference_has_a_page_for_every_rule() -> None:
    table = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    for rule in all_rules():
        page = (ROOT / "docs" / "rules" / f"{rule.code}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {rule.code} {rule.name}\n")
        assert f"| [{rule.code} {rule.name}](rules/{rule.code}.md) |" in table


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diff", "verdict"])
def test_pictures_show_what_the_program_prints(name: str) -> None:
    picture = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
    made = getattr(program("make_pictures"), f"{name}_picture")()
    assert picture == made, "run: python docs/make_pictures.py"
