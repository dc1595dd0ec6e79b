"""The fixture backend's notebook runs from its own folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

BACKEND = Path(__file__).parents[2] / "fixtures" / "backend"


@pytest.mark.slow
@pytest.mark.exhaustive  # test_migrated_backend.py has the notebook run after its migration
def test_training_notebook_executes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    notebook = nbformat.read(BACKEND / "notebooks" / "Train.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # stored without outputs

    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(BACKEND / "notebooks")}})
    client.execute()

    outputs = {cell.id: cell.get("outputs", []) for cell in notebook.cells}
    printed = "".join(output.get("text", "") for output in outputs["train"])
    assert "epoch 2: training loss" in printed
    assert any("image/png" in output.get("data", {}) for output in outputs["history"])
