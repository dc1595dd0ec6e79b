"""Benchmarks are programs: what is beside them can be imported while they run."""

from __future__ import annotations

import pytest
from support import ROOT


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of benchmarks is where Python looks first."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
