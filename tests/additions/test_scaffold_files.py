"""Which files are added to a backend, and that they are what they claim to be."""

from __future__ import annotations

import ast
import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from chirp_migrate.additions.scaffold import scaffold_files
from chirp_migrate.additions.scaffold.notebook import notebook_json

ADDED = [
    "utils/dataloader_factory.py",
    "utils/performance_monitor.py",
    "notebooks/DataLoaderBenchmarking.ipynb",
    "tests/test_dataloader_optimization.py",
]


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    (tmp_path / "utils").mkdir()
    return tmp_path


def paths(root: Path) -> list[str]:
    return [path for path, _ in scaffold_files(root)]


def listing(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def texts(root: Path) -> dict[str, str]:
    return dict(scaffold_files(root))


def test_a_backend_with_utils_gets_all_four(backend: Path) -> None:
    assert paths(backend) == ADDED


def test_nothing_is_written(backend: Path) -> None:
    scaffold_files(backend)
    assert listing(backend) == ["utils"]


@pytest.mark.parametrize("existing", ADDED)
def test_a_file_that_exists_is_left_out(backend: Path, existing: str) -> None:
    (backend / existing).parent.mkdir(exist_ok=True)
    (backend / existing).write_text("mine")
    assert paths(backend) == [path for path in ADDED if path != existing]


def test_a_scaffolded_backend_gets_nothing_more(backend: Path) -> None:
    for path, text in scaffold_files(backend):
        (backend / path).parent.mkdir(exist_ok=True)
        (backend / path).write_text(text, encoding="utf-8")
    assert scaffold_files(backend) == []


def test_a_backend_without_utils_gets_none(tmp_path: Path) -> None:
    assert scaffold_files(tmp_path) == []
    (tmp_path / "utils").write_text("a file of that name")
    assert scaffold_files(tmp_path) == []


def test_a_file_in_the_place_of_a_folder_is_respected(backend: Path) -> None:
    (backend / "notebooks").write_text("not a folder")
    assert "notebooks/DataLoaderBenchmarking.ipynb" not in paths(backend)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_are_respected(backend: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (backend / "tests").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    (backend / "inside").mkdir()
    (backend / "notebooks").symlink_to(backend / "inside")
    (backend / "utils" / "performance_monitor.py").symlink_to(backend / "missing.py")
    assert paths(backend) == ["utils/dataloader_factory.py", "notebooks/DataLoaderBenchmarking.ipynb"]


def test_the_same_text_every_time(backend: Path) -> None:
    assert scaffold_files(backend) == scaffold_files(backend)


@pytest.mark.parametrize("path", [path for path in ADDED if path.endswith(".py")])
def test_python_files_parse_and_end_with_a_newline(backend: Path, path: str) -> None:
    text = texts(backend)[path]
    assert ast.get_docstring(ast.parse(text))
    assert text.endswith("\n")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("utils/dataloader_factory.py", "OptimalDataLoaderFactory"),
        ("utils/dataloader_factory.py", "WorkerSafeStandardizedDataset"),
        ("utils/dataloader_factory.py", "WorkerSafeAugmentedDataset"),
        ("utils/dataloader_factory.py", "worker_init_fn"),
        ("utils/performance_monitor.py", "DataLoaderPerformanceMonitor"),
    ],
)
def test_the_utils_modules_pass_on_the_runtime(backend: Path, path: str, name: str) -> None:
    import chirpid_patch

    module: dict[str, object] = {}
    exec(compile(texts(backend)[path], path, "exec"), module)
    assert module[name] is getattr(chirpid_patch, name)
    exported = module["__all__"]
    assert isinstance(exported, list)
    assert name in exported
    assert all(entry in module for entry in exported)


def test_no_template_imports_the_tool(backend: Path) -> None:
    assert not any(re.search(r"(from|import) chirp_migrate", text) for text in texts(backend).values())


def test_the_notebook_is_valid_and_not_yet_executed(backend: Path) -> None:
    text = texts(backend)["notebooks/DataLoaderBenchmarking.ipynb"]
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    for cell in code:
        ast.parse(cell.source)


def test_every_section_of_the_notebook_is_explained_before_its_code(backend: Path) -> None:
    cells = json.loads(texts(backend)["notebooks/DataLoaderBenchmarking.ipynb"])["cells"]
    kinds = [cell["cell_type"] for cell in cells]
    assert kinds[0] == "markdown"
    assert all(before != after for before, after in pairwise(kinds))
    headings = [cell["source"][0].strip() for cell in cells if cell["source"][0].startswith("## ")]
    assert [heading.split(".")[0] for heading in headings[:6]] == [f"## {number}" for number in range(1, 7)]
    explained = [cell["source"] for cell in cells if cell["cell_type"] == "markdown"]
    assert all(sum(len(line.split()) for line in lines) > 20 for lines in explained)


def test_a_script_becomes_cells() -> None:
    script = "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\n# a comment\nx = 1\n\n\ny = 2\n\n# %%\n"
    cells = json.loads(notebook_json(script))["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [
        ("markdown", "# Title\n\nText."),
        ("code", "# a comment\nx = 1\n\n\ny = 2"),
        ("code", ""),
    ]
    assert [cell["id"] for cell in cells] == ["cell-01", "cell-02", "cell-03"]


@pytest.mark.parametrize(
    ("script", "message"),
    [("x = 1\n# %%\n", "must begin"), ("# %% [markdown]\nx = 1\n", "must begin with")],
)
def test_a_script_that_is_no_notebook_is_an_error(script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        notebook_json(script)
