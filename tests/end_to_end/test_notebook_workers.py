"""A notebook whose workers are not forked, in a real Jupyter kernel: before and after its migration."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from support import run

import chirpid_patch

#: What both methods are sent is the same.
METHODS = sorted({"spawn", "forkserver"} & set(multiprocessing.get_all_start_methods()), reverse=True)
FIRST_METHOD = [METHODS[0], *(pytest.param(one, marks=pytest.mark.exhaustive) for one in METHODS[1:])]

CELLS = (
    """
    import multiprocessing
    import torch
    from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info
    multiprocessing.set_start_method("METHOD")
    """,
    """
    loader = DataLoader(TensorDataset(torch.arange(3)), 2, num_workers=1, collate_fn=lambda b: [int(x) * 2 for x, in b])
    for epoch in range(2):
        print("lambda", list(loader))
    """,
    """
    def made(offset):
        class Numbers(Dataset):
            def __len__(self):
                return 3
            def __getitem__(self, i):
                assert get_worker_info() is not None
                return i + self.offset
        def init(worker_id):
            get_worker_info().dataset.offset = offset
        return Numbers(), init

    dataset, init = made(5)
    loader = DataLoader(dataset, 2, num_workers=1, worker_init_fn=init)
    print("local", [b.tolist() for b in loader])
    """,
)

#: Of a `sitecustomize`, which Python imports when it starts.
HIDDEN = """
import sys
sys.modules["cloudpickle"] = None
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the processes of this test import from."""
    folder = tmp_path / "modules"
    folder.mkdir()
    path = os.pathsep.join(map(str, (folder, Path(chirpid_patch.__file__).parents[1])))
    monkeypatch.setenv("PYTHONPATH", path, prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder


def notebook(folder: Path, method: str) -> Path:
    """A notebook that starts workers by ``method``."""
    made = new_notebook(cells=[new_code_cell(textwrap.dedent(cell).replace("METHOD", method)) for cell in CELLS])
    path = folder / "train.ipynb"
    nbformat.write(made, path)
    return path


def executed(path: Path) -> list[dict[str, str]]:
    """What each cell of a notebook prints (``stdout``, ``stderr``), or its error (``ename``, ``evalue``)."""
    made = nbformat.read(path, as_version=4)
    NotebookClient(made, timeout=240, allow_errors=True, resources={"metadata": {"path": str(path.parent)}}).execute()
    seen = []
    for cell in made.cells:
        seen.append({"stdout": "", "stderr": ""})
        for output in cell.outputs:
            if output.output_type == "error":
                seen[-1] |= {"ename": output.ename, "evalue": output.evalue}
            else:
                seen[-1][output.name] += output.text
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("method", FIRST_METHOD)
def test_pytorchs_loader_cannot_start_the_workers_of_a_notebook(method: str, tmp_path: Path, environment: Path) -> None:
    _, of_lambda, of_local = executed(notebook(tmp_path, method))
    assert of_lambda["stdout"] == of_local["stdout"] == ""
    assert "lambda" in of_lambda["evalue"] and "made.<locals>" in of_local["evalue"]


@pytest.mark.slow
@pytest.mark.parametrize("method", FIRST_METHOD)
def test_a_migrated_notebook_sends_its_classes_and_functions_to_workers(
    method: str, tmp_path: Path, environment: Path
) -> None:
    path = notebook(tmp_path, method)
    assert run("apply", path).exit_code == 0
    assert "DataLoader(" not in path.read_text(encoding="utf-8").replace("create_loader(", "")
    _, of_lambda, of_local = executed(path)
    assert of_lambda == {"stdout": "lambda [[0, 2], [4]]\n" * 2, "stderr": ""}
    assert of_local == {"stdout": "local [[5, 6], [7]]\n", "stderr": ""}


@pytest.mark.slow
@pytest.mark.parametrize("method", FIRST_METHOD)
def test_without_cloudpickle_a_migrated_notebook_loads_here_or_names_what_is_missing(
    method: str, tmp_path: Path, environment: Path
) -> None:
    (environment / "sitecustomize.py").write_text(HIDDEN, encoding="utf-8")
    path = notebook(tmp_path, method)
    assert run("apply", path).exit_code == 0
    _, of_lambda, of_local = executed(path)
    assert of_lambda["stdout"] == "lambda [[0, 2], [4]]\n" * 2
    assert of_lambda["stderr"].count("Warning") == 1 and "pip install cloudpickle" in of_lambda["stderr"]
    assert of_local["stdout"] == "" and "class `Numbers`" in of_local["evalue"]
    assert "pip install cloudpickle" in of_local["evalue"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "warnings"), [(("-c",), 0), ((), 1)], ids=["a program given with -c", "standard input"]
)
def test_programs_without_a_file_load_the_same(arguments: tuple[str, ...], warnings: int, environment: Path) -> None:
    program = textwrap.dedent("""
        import torch
        from torch.utils.data import TensorDataset
        from chirpid_patch import OptimalDataLoaderFactory
        loader = OptimalDataLoaderFactory.create_loader(
            TensorDataset(torch.arange(3)), 2, num_workers=1, multiprocessing_context="spawn",
            collate_fn=lambda b: [int(x) * 2 for x, in b],
        )
        print(list(loader))
    """)
    given = {"input": program} if not arguments else {}
    command = [sys.executable, *arguments, *([program] if arguments else [])]
    done = subprocess.run(command, **given, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "[[0, 2], [4]]\n"), done.stderr
    assert done.stderr.count("RuntimeWarning") == warnings
