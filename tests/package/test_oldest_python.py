"""The sources can be read by every version of Python that the metadata promises."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from qa.versions import find_interpreter

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT, RUNTIME = (tomllib.loads((ROOT / one / "pyproject.toml").read_text("utf-8")) for one in (".", "chirpid_patch"))
OLDEST = (3, 10)
SOURCES = sorted(path for package in ("chirp_migrate", "chirpid_patch") for path in (ROOT / package).rglob("*.py"))

#: Parses every file named on standard input.
PARSE = "import ast, sys; [ast.parse(open(one, 'rb').read(), one) for one in sys.stdin.read().splitlines()]"


def test_the_linter_looks_for_what_the_oldest_version_lacks() -> None:
    assert PROJECT["tool"]["ruff"]["target-version"] == "py310"


@pytest.mark.slow
def test_no_source_needs_newer_syntax() -> None:
    for path in SOURCES:
        ast.parse(path.read_bytes(), str(path), feature_version=OLDEST)


@pytest.mark.slow
@pytest.mark.parametrize(
    "version", ["3.10", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("3.11", "3.12", "3.13"))]
)
def test_every_version_can_read_the_sources(version: str) -> None:
    python = find_interpreter(f"python{version}")
    if python is None:
        pytest.skip(f"python{version} is not installed here")
    names = "\n".join(map(str, SOURCES))
    result = subprocess.run([python, "-I", "-c", PARSE], input=names, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_the_classifiers_name_the_versions_from_the_oldest_on() -> None:
    for project in (PROJECT["project"], RUNTIME["project"]):
        named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))

        assert [int(minor) for minor in named] == list(range(OLDEST[1], int(named[-1]) + 1))
        assert project["requires-python"] == ">=3.10"
    assert Path(ROOT, "chirp_migrate", "py.typed").is_file()
