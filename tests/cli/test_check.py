"""``check``: what counts, what it ends with, and what people and build servers are shown."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from support import LOADER, ROOT, Death, in_child, run, sentence, write_files

from chirp_migrate.engine.plan_tree import plan_tree
from chirp_migrate.transaction.commit import commit_plan

#: A subclass, which is only listed.
LISTED = "from torch.utils.data import DataLoader\n\n\nclass Mine(DataLoader):\n    pass\n"
SUPPRESSED = LOADER.rstrip() + "  # chirp: ignore[CHP001]\n"
BROKEN = "from torch.utils.data import DataLoader\ndef f(:\n"


def check(*arguments: object) -> Result:
    """Run ``check``."""
    return run("check", *arguments)


def tree(root: Path, **files: str | bytes) -> Path:
    """A folder of Python files by name (without suffix)."""
    return write_files(root, {f"{name}.py": content for name, content in files.items()})


def notebook(*cells: str) -> str:
    """A notebook of code cells as JSON."""
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    listed = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "source": code.splitlines(keepends=True),
        }
        for number, code in enumerate(cells)
    ]
    return json.dumps({"cells": listed, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


@pytest.mark.parametrize(
    ("files", "options", "code"),
    [
        ({"a": "x = 1\n"}, [], 0),
        ({"a": LOADER}, [], 1),
        ({"a": LOADER}, ["--ignore", "CHP001"], 0),
        ({"a": LISTED}, [], 0),
        ({"a": LISTED}, ["--strict"], 1),
        ({"a": SUPPRESSED}, ["--strict"], 0),
        ({"a": BROKEN}, [], 1),
    ],
    ids=["clean", "rewrite", "ignored", "listed", "listed-strict", "suppressed-strict", "broken"],
)
def test_the_exit_code_says_whether_work_remains(
    tmp_path: Path, files: dict[str, str], options: list[str], code: int
) -> None:
    tree(tmp_path, **files)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*")}
    result = check(*options, tmp_path)
    assert result.exit_code == code
    assert ("Clean" in result.stdout, "Work remains" in result.stdout) == (code == 0, code == 1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_text_is_a_line_for_each_finding_that_counts_and_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, a=LOADER, b=LISTED, c=SUPPRESSED, d=BROKEN)
    (tmp_path / "n.ipynb").write_text(notebook("x = 1", LOADER))
    monkeypatch.chdir(tmp_path)
    shown = check(".").stdout.splitlines()
    assert [line.partition("`")[0] for line in shown[:2]] == [
        "a.py:3:10: CHP001 ",
        "n.ipynb:cell 2, line 3: CHP001 ",
    ]
    assert shown[2].startswith("d.py: ") and "line 2" in shown[2]
    assert [re.findall(r"\d+", line) for line in shown[3:]] == [["2", "2", "1"], ["1", "1"]]
    assert shown[3].endswith("chirp-migrate apply .") and "--strict" in shown[4]
    assert check("--quiet", ".").stdout.splitlines() == shown[:3]
    verbose = check("--verbose", ".").stdout
    assert re.search(r"^b\.py:4:\d+: CHP001 .*\[listed only\]$", verbose, re.MULTILINE)
    assert re.search(r"^c\.py:3:\d+: CHP001 .*\[suppressed\]$", verbose, re.MULTILINE)
    strict = check("--strict", ".").stdout
    assert "b.py:4" in strict and "c.py" not in strict and "3 findings in 3 files" in strict


def test_json_is_the_document_of_apply_with_the_exit_code(tmp_path: Path) -> None:
    tree(tmp_path, a=LOADER, b=BROKEN)
    beside = tmp_path / "beside.json"
    result = check("--format", "json", "--json", beside, tmp_path)
    content = json.loads(result.stdout)
    assert (content["schema"], content["exit_code"], content["strict"]) == (1, 1, False)
    assert [one["path"] for one in content["files"]] == ["a.py"]
    assert [(one["rule"], one["status"]) for one in content["findings"]] == [("CHP001", "rewrite")]
    assert [one["path"] for one in content["skipped"]] == ["b.py"]
    assert content["ledger"]["sites"]["migrated"] == 1
    assert json.loads(beside.read_text()) == content
    assert "Work remains" in result.stderr and "Work remains" not in result.stdout


@pytest.mark.parametrize("target", [".", "missing/out.json"])
def test_a_report_that_cannot_be_written_stops_the_run(tmp_path: Path, target: str) -> None:
    done = check("--json", tmp_path / target, tree(tmp_path, a=LOADER))
    assert done.exit_code == 2 and "folder" in sentence(done)


def test_two_documents_do_not_go_to_one_place(tmp_path: Path) -> None:
    done = check("--json", "-", "--format", "github", tree(tmp_path, a=LOADER))
    assert done.exit_code == 2 and "both print to standard output" in sentence(done)


@pytest.mark.skipif(os.name == "nt", reason="needs processes that are killed")
def test_a_tree_that_is_half_rewritten_is_an_error(tmp_path: Path) -> None:
    plan = plan_tree(tree(tmp_path, a=LOADER))
    assert in_child(lambda: commit_plan(plan, on_step=Death("replaced a.py"))) < 0
    done = check(tmp_path)
    assert done.exit_code == 2 and "rollback" in sentence(done)


def unescaped(text: str) -> str:
    """As GitHub's runner reads what a workflow command says."""
    for escape, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escape, character)
    return text


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Level, properties and message of a workflow command."""
    match = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line)
    assert match is not None, line
    pairs = (pair.split("=", 1) for pair in match[2].split(","))
    return match[1], {key: unescaped(value) for key, value in pairs}, unescaped(match[3])


def test_github_annotations_can_be_read_back(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    backend = tmp_path / "100%, a: b"
    backend.mkdir()
    tree(backend, a=LOADER, b=LISTED, d=BROKEN)
    (backend / "n.ipynb").write_text(notebook("x = 1", LOADER))
    result = check("--format", "github", "--verbose", backend)
    assert result.exit_code == 1
    commands = [parsed(line) for line in result.stdout.splitlines()]
    found = [(level, place["file"], place.get("line"), place["title"]) for level, place, _ in commands]
    title = "CHP001 dataloader-factory"
    text = (backend / "n.ipynb").read_text().splitlines()
    cell = str([number for number, line in enumerate(text, 1) if '"source"' in line][1])
    assert found == [
        ("notice", "100%, a: b/a.py", "3", title),
        ("notice", "100%, a: b/n.ipynb", cell, title),
        ("notice", "100%, a: b/b.py", "4", title),
        ("error", "100%, a: b/d.py", None, "not handled"),
    ]
    assert commands[0][1]["col"] == "10" and commands[1][2].startswith("cell 2, line 3: ")
    assert [level for level, *_ in map(parsed, check("--format", "github", backend).stdout.splitlines())] == [
        "notice",
        "notice",
        "error",
    ]


def test_what_rules_for_bugs_find_is_a_warning(tmp_path: Path) -> None:
    tree(tmp_path, a=LOADER.replace("shuffle=True", "shuffle=False, drop_last=True"))
    shown = check("--format", "github", "--strict", tmp_path).stdout.splitlines()
    assert [(parsed(line)[0], parsed(line)[1]["title"][:6]) for line in shown] == [
        ("notice", "CHP001"),
        ("warning", "CHP021"),
    ]


def hooks() -> dict[str, dict[str, Any]]:
    """The hooks this repository offers to pre-commit, by id."""
    listed = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return {hook["id"]: hook for hook in listed}


@pytest.mark.slow
def test_the_commit_hooks_run_as_they_are_written(tmp_path: Path) -> None:
    """Each in a separate process, by the command that installing the package gives; what one of them says is left
    is what the other one does."""
    tree(tmp_path, a=LOADER)
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}

    def run_hook(name: str) -> int:
        hook = hooks()[f"chirp-migrate-{name}"]
        assert hook["language"] == "python" and hook["pass_filenames"] is False
        command = [*shlex.split(hook["entry"]), *hook["args"]]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False).returncode

    assert [run_hook("check"), run_hook("apply"), run_hook("check")] == [1, 0, 0]


def test_json_is_printed_and_the_text_goes_to_standard_error(tmp_path: Path) -> None:
    done = check("--json", "-", tree(tmp_path, a=LOADER))
    assert done.exit_code == 1 and json.loads(done.stdout)["exit_code"] == 1 and "CHP001" in done.stderr


UNGUARDED = (
    "from torch.utils.data import DataLoader\n\nfor batch in DataLoader([1, 2], num_workers=2):\n    print(batch)\n"
)
UNPICKLABLE = """\
import json
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, steps):
        self.steps, self.codec = steps, json


class Steps:
    def __init__(self, steps):
        self.steps = steps


def main():
    return DataLoader(Clips(Steps([lambda clip: clip])), num_workers=2)
"""


@pytest.mark.parametrize(
    ("text", "codes"), [(UNGUARDED, ["CHP020"]), (UNPICKLABLE, ["CHP018", "CHP007"]), (LISTED, [])]
)
def test_what_keeps_workers_from_starting_is_shown_and_is_not_called_clean(
    tmp_path: Path, text: str, codes: list[str]
) -> None:
    tree(tmp_path, a=text)
    result = check("--ignore", "CHP001", tmp_path)
    assert result.exit_code == 0 and ("Clean" in result.stdout) == (not codes)
    assert re.findall(r"a\.py:\d+:\d+: (CHP\d+) .*\[listed only\]", result.stdout) == codes
    for command in ("plan", "apply"):
        shown = run(command, "--ignore", "CHP001", tmp_path).output
        assert [code for code in codes if code not in shown] == []
    assert check("--strict", "--ignore", "CHP001", tmp_path).exit_code == (1 if codes else 0)
