"""Code, settings and names that the README and docs/ show are real."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from docs_pages import Page, pages, written_pages
from support import FIXTURES, LOADER, ROOT, run, write_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Names of files that are the reader's own, in examples.
EXAMPLES = {
    "backend/", "chirp_verify.py", "chirp-migrate-plan.json", "train.py", "vendor/", "old/", "report.html", "plan.json",
    "conftest.py", "before.py", "after.py", "left_alone.py", "loader-profile.json", "doctor.json", "verify.json",
    ".libcst.codemod.yaml", "requires.toml",
}  # fmt: skip
#: Parts of names that stand for any rule, or for the rule of an example.
_ANY_RULE = re.compile("NNN|[Cc][Hh][Pp]900")
_SUFFIXES = (".py", ".md", ".json", ".ipynb", ".svg", ".toml", ".yaml", ".html", ".c", "/")


def name(page: Page) -> str:
    """For the tests' names."""
    return page.name


def resolve(statement: ast.Import | ast.ImportFrom) -> None:
    """Import what a statement imports."""
    if isinstance(statement, ast.Import):
        for one in statement.names:
            importlib.import_module(one.name)
        return
    assert statement.module is not None and statement.level == 0, "a document has no neighbours to import from"
    module = importlib.import_module(statement.module)
    for one in statement.names:
        if not hasattr(module, one.name):
            importlib.import_module(f"{statement.module}.{one.name}")


@pytest.mark.parametrize("page", written_pages(), ids=name)
def test_python_compiles_and_its_imports_resolve(page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for block in page.blocks:
        if block.language != "python":
            continue
        code = compile(block.text, block.place, "exec")
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                resolve(node)
        if block.marked("whole") is not None:
            exec(code, {"__name__": "__main__"})


@pytest.mark.parametrize("page", written_pages(), ids=name)
def test_settings_and_data_can_be_parsed(page: Page) -> None:
    for block in page.blocks:
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        elif block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", pages(), ids=name)
def test_links_lead_somewhere(page: Page) -> None:
    by_path = {one.path: one for one in pages()}
    for link in page.links:
        if link.startswith(("https://", "http://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.exists(), f"{page.name}: {link}"
        if anchor and path in by_path:
            assert anchor in by_path[path].anchors, f"{page.name}: {link}"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Where a file that a document names can be: here, in the packages, in the fixture backend, or added to one."""
    migrated = write_files(tmp_path_factory.mktemp("migrated"), {"train.py": LOADER, "utils/training_engine.py": ""})
    assert run("apply", migrated).exit_code == 0
    packages = [ROOT / name for name in ("chirp_migrate", "chirpid_patch", "benchmarks", "qa")]
    folders = [one for package in packages for one in (package, *package.rglob("*/")) if one.is_dir()]
    return [ROOT, *folders, FIXTURES / "backend", migrated]


@pytest.mark.parametrize("page", written_pages(), ids=name)
def test_files_that_are_named_are_there(page: Page, places: list[Path]) -> None:
    for span in page.inline_code:
        if not span.endswith(_SUFFIXES) or set(span) & set(" *<>{}()[]=:$%~…,'\""):
            continue
        if span in EXAMPLES or _ANY_RULE.search(span):
            continue
        where = [page.path.parent, *places]
        assert any((folder / span).exists() for folder in where), f"{page.name}: `{span}` is nowhere"
