"""Calls of the runtime that read what a loop over a dataset read."""

from __future__ import annotations

import libcst as cst

from chirp_migrate.analysis.datasets.label_scan import Scan
from chirp_migrate.syntax.module import Module


def scan_arguments(module: Module, scan: Scan) -> str:
    """The dataset, and the indices of its samples if it is not iterated over."""
    dataset, iterable = module.source(scan.dataset).strip(), module.source(scan.iterable).strip()
    if scan.index is None:
        return dataset
    if isinstance(scan.iterable, cst.Tuple) and not scan.iterable.lpar:
        iterable = f"({iterable})"
    if isinstance(scan.index, cst.Name):
        return f"{dataset}, {iterable}"
    return f"{dataset}, ({module.source(scan.index).strip()} for {module.source(scan.target).strip()} in {iterable})"
