"""A case is a program with one change; errors name the file and the case."""

from __future__ import annotations

from pathlib import Path

import pytest

from qa.rule_cases import PROGRAM, cases, rewritten_programs

SHARED = '''\
[[programs]]
text = """
def make(dataset):
    {case}
    return dataset
"""
rewritten = "print(dataset)"
[programs.cases]
'''


def written(folder: Path, lines: str) -> Path:
    """A folder of rules, with cases of CHP900 for a shared program."""
    file = folder / "CHP900" / "requires.toml"
    file.parent.mkdir()
    file.write_text(SHARED + lines, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("change", "program"),
    [
        ("{}", "def make(dataset):\n    print(dataset)\n    return dataset\n"),
        ('"pass"', "def make(dataset):\n    pass\n    return dataset\n"),
        ('"if dataset:\\n    pass\\n"', "def make(dataset):\n    if dataset:\n        pass\n\n    return dataset\n"),
        ('{ "print(" = "open(" }', "def make(dataset):\n    open(dataset)\n    return dataset\n"),
        (
            '{ "{case}" = "x = 1", "return dataset" = "return x" }',
            "def make(dataset):\n    x = 1\n    return x\n",
        ),
    ],
)
def test_a_case_is_the_program_with_its_change(change: str, program: str, tmp_path: Path) -> None:
    assert cases("CHP900", written(tmp_path, f'"one" = {change}\n')) == {"one": {PROGRAM: program}}


def test_a_case_can_add_a_module(tmp_path: Path) -> None:
    found = cases("CHP900", written(tmp_path, '"one" = { "other.py" = "import program" }\n'))["one"]
    assert list(found) == [PROGRAM, "rule/other.py"] and found["rule/other.py"] == "import program\n"


@pytest.mark.parametrize(("change", "count"), [('"pass"', 1), ("{}", 0)])
def test_a_program_is_rewritten_unless_it_is_a_case(change: str, count: int, tmp_path: Path) -> None:
    program = "def make(dataset):\n    print(dataset)\n    return dataset\n"
    assert list(rewritten_programs("CHP900", written(tmp_path, f'"one" = {change}\n'))) == [program] * count


def test_a_program_of_its_own_needs_no_shared_text(tmp_path: Path) -> None:
    rules = written(tmp_path, '"one" = {}\n[[programs]]\ncases."two" = "x = 1"\n')
    assert cases("CHP900", rules)["two"] == {PROGRAM: "x = 1\n"}
    assert list(rewritten_programs("CHP900", rules)) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            '"one" = { "open" = "print" }\n',
            "requires.toml: one: the text 'open' occurs 0 times in the program, not once",
        ),
        (
            '"one" = { "dataset" = "x" }\n',
            "requires.toml: one: the text 'dataset' occurs 3 times in the program, not once",
        ),
        (
            '"one" = {}\n[[programs]]\ncases."one" = "x = 1"\n',
            "requires.toml: two programs have a case with the name one",
        ),
        (
            '"one" = {}\n[[programs]]\ntext = ""\ncases."two" = "x"\n',
            "requires.toml: two: the program must have exactly one line",
        ),
        ('"one" = {}\n[[programs]]\nhead = ""\n', "requires.toml: a program must have `cases`"),
        ('"one" = {}\n"one" = {}\n', r"requires.toml: .*at line \d+"),
    ],
)
def test_an_error_names_the_file_and_the_case(lines: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        cases("CHP900", written(tmp_path, lines))


def test_a_rule_without_the_file_has_no_cases(tmp_path: Path) -> None:
    assert cases("CHP900", tmp_path) == {}
