"""Backends with something to report, migrated for real, and a verdict as ``verify --json`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support import run, write_files

LOADERS = '''\
import os
from torch.utils.data import DataLoader


def make(dataset, workers):
    """Loaders for a run.

    DataLoader(in_a_docstring)
    """
    train = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers)
    print(len(train))
    return train, DataLoader(dataset, batch_size=8, num_workers=0)


kept = DataLoader  # used as a value
left = DataLoader([1, 2])  # chirp: ignore[CHP001]
'''

#: Text that tries to be HTML, to run, to hide and to turn around.
HOSTILE = """\
from torch.utils.data import DataLoader

evil = "</script><script>document.title = 'broken'</script><!-- <img src=x onerror=alert(1)>"  # </style></pre>
name = "\u202etxt.exe\u202c"  # shown backwards by a careless page
zero, soft, blank = "a\u200bb", "a\u00adb", "\u3164"
loader = DataLoader(evil + "]]>&amp;&lt;'\\"", batch_size=4)  # \u2067 \u2028 \U000e0041
"""


def backend(folder: Path, **files: str) -> Path:
    """A backend in ``folder``: its files by name, two underscores for a slash; ``train.py`` by default."""
    named = {name.replace("__", "/"): text for name, text in files.items()}
    return write_files(folder, named or {"train.py": LOADERS})


def applied(folder: Path, **files: str) -> Path:
    """A backend after ``apply``, without the files that it adds."""
    root = backend(folder, **files)
    assert run("apply", root, "--no-scaffold", "-q").exit_code == 0
    return root


def verdict_json(**changes: Any) -> dict[str, Any]:
    """What a verification of two entry points writes: made up, in the form of docs/json.md."""
    ratio = {"value": 0.5, "low": 0.4, "high": 0.6, "rounds": 3}
    visit = {"waits_s": [0.004, 0.002, 0.008], "first_waits_s": [0.5], "waited_s": 9.6}
    seconds = {
        "before": ([2.0, 2.2, 2.1], [1.0, 1.0, 1.1]),
        "after": ([1.0, 1.1, 1.0], [0.5, 0.6, 0.5]),
        "cached": ([0.9, 0.9, 0.9], [0.4, 0.4, 0.4]),
    }
    row = {"requirement": "R-004"}
    train = {"loader": 0, "role": "train", "samples": 100}
    whole: dict[str, Any] = {
        "schema": 1,
        "verdict": "faster",
        "exit_code": 0,
        "reason": "all entry points together: 50.0 % less time (95 % interval 40.0 to 60.0 %), 20% less wanted",
        "threshold": 0.2,
        "ratio": ratio,
        "ratios": {"train.one": ratio, "train.two": {**ratio, "high": 1.3}},
        "zero_cost_ratio": {**ratio, "value": 0.45},
        "verdicts": {
            "train.one": {"verdict": "meets the threshold", "zero_cost_ratio": {**ratio, "value": 0.45}},
            "train.two": {"verdict": "not shown", "zero_cost_ratio": None},
        },
        "measures": {
            "definitions": [
                {
                    "name": "wait_p50_ms",
                    "unit": "ms",
                    "title": "wait for a batch, median",
                    "method": "as it is taken",
                    **row,
                },
                {"name": "gpu_percent", "unit": "%", "title": "GPU utilisation", "method": "NVML", **row},
            ],
            "figures": {"before": {"wait_p50_ms": 8.0, "gpu_percent": None}, "after": {"wait_p50_ms": 1.5}},
        },
        "rounds": {
            "made": [
                {
                    "seconds": {
                        side: {"train.one": one[number], "train.two": two[number]}
                        for side, (one, two) in seconds.items()
                    },
                    "visits": {} if number else {side: {"train.one": visit} for side in ("before", "after")},
                }
                for number in range(3)
            ],
        },
        "targets": [
            {
                "requirement": "R-004",
                "target": "more than 10 batches/s at batch 32",
                "verdict": "met",
                "value": 40.0,
                "why": "40 batches/s",
            }
        ],
        "simulated": None,
        "differences": [],
        "notes": ["train.two validates on what it trains on"],
        "smallest_adjusted_p": {"train.two": 0.4},
        "detectable_changes": {"train.two": 0.19},
        "passes": {"before": {"train.one": [train, {**train, "samples": 20}], "train.two": [{**train, "samples": 50}]}},
        "described": {
            "rounds": "4 made, 3 count, 1 discarded because others used more than 10% of the CPUs.",
            "workload": "300 synthetic spectrograms of 1x224x313, 4 classes, batch 32, 3 epochs, 2 folds, SmallModel.",
            "machine": "some CPU, 2 usable CPUs, no GPU",
        },
        "tool": "chirp-migrate 0.1.0",
        "before": "the files before `apply`, from its journal",
    }
    return {**whole, **changes}


def with_verdict(root: Path, **changes: Any) -> Path:
    """The migrated backend at ``root``, with it stored beside its first run."""
    (root / ".chirp-migrate" / "0001" / "verify.json").write_text(json.dumps(verdict_json(**changes)))
    return root


def doctor_json(**changes: Any) -> dict[str, Any]:
    """What ``doctor`` writes of two entry points, one of which failed: made up, in the form of docs/json.md."""
    problem = {
        "check": "overlap",
        "message": "Validation samples are also training samples, so validation results are too good.",
        "evidence": "8 of 8 samples of the loader at train.py:7 are equal to samples of the loader at train.py:6.",
        "fix": "Split the samples once, so that no sample is in both parts.",
        "path": "train.py",
        "line": 7,
        "entry_points": ["train.one"],
    }
    entry = {"label": "train.one", "seconds": 1.5, "loaders": 2, "passes": 4, "batches": 16}
    whole = {
        "schema": 1,
        "tool": "chirp-migrate 0.1.0",
        "problems": [problem],
        "entry_points": [entry, {**entry, "label": "train.two", "error": "ValueError: no such bird"}],
        "notes": ["too little time for two epochs: train.one"],
        "exit_code": 1,
        "created": "2026-03-01T12:00:00Z",
    }
    return {**whole, **changes}


def with_doctor(root: Path, **changes: Any) -> Path:
    """The migrated backend at ``root``, with it stored beside its first run."""
    (root / ".chirp-migrate" / "0001" / "doctor.json").write_text(json.dumps(doctor_json(**changes)))
    return root
