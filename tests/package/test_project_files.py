"""Workflows and other files of the project promise what the metadata promises."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from support import ROOT, modules_of

from chirp_migrate import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
SETTINGS = tomllib.loads((ROOT / "chirpid_patch" / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME = SETTINGS["project"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_ci_tests_every_python_and_torch_that_the_metadata_promises() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["linux"]["strategy"]["matrix"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(RUNTIME["classifiers"]))
    (torch,) = (one for one in map(Requirement, RUNTIME["dependencies"]) if one.name == "torch")
    oldest, newest = matrix["torch"]

    assert set(promised) <= set(matrix["python"])
    assert str(torch.specifier) == f">={oldest.removesuffix('.0')}"
    assert f"torch=={newest}" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_the_wheel_of_the_runtime_lists_every_sub_package() -> None:
    folders = {path.parent.relative_to(ROOT) for path in modules_of(ROOT / "chirpid_patch")}

    assert set(SETTINGS["tool"]["setuptools"]["packages"]) == {".".join(folder.parts) for folder in folders}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_no_more_rights_than_it_needs_and_ends(path: Path) -> None:
    workflow = read(path)

    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "uses" in job or job["timeout-minutes"] > 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_targets_and_files_that_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    for target in re.findall(r"run: make ([\w-]+)$", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for name in re.findall(r"(?:benchmarks|tests|\.github)/[\w/.-]+\.(?:py|yml)", text):
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_asks_for_the_version(path: Path) -> None:
    fields = {field.get("id"): field for field in read(path)["body"]}
    asked = fields.get("version") or fields["versions"]

    assert asked["validations"] == {"required": True}


def test_the_citation_names_the_version() -> None:
    assert read(ROOT / "CITATION.cff")["version"] == __version__


def test_a_hook_runs_each_linter_of_make_lint() -> None:
    hooks = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (rules,) = re.findall(r"^lint: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    programs = re.findall(r"\$\(BIN\)/([\w-]+(?: (?:check|format))?)", rules)

    assert {hook["entry"].removeprefix(".venv/bin/").partition(" --")[0] for hook in hooks} == set(programs)
