"""Results become text that is equal exactly when the values are."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from chirp_migrate.verify.equivalence.fingerprint import leaf_fingerprints


def test_every_leaf_has_its_path() -> None:
    value = {"losses": [0.5, 0.25], "best": ("a", None), "matrix": np.eye(2)}
    assert set(leaf_fingerprints(value)) == {
        "result", "result['losses']", "result['losses'][0]", "result['losses'][1]", "result['best']",
        "result['best'][0]", "result['best'][1]", "result['matrix']",
    }  # fmt: skip


@pytest.mark.parametrize(
    "a, b",
    [
        (0.1 + 0.2, 0.3),
        (float("nan"), 0.0),
        (1, 1.0),
        ([1], (1,)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2, 1), torch.zeros(1, 2)),
        (np.float32(1), np.float32(np.nextafter(np.float32(1), np.float32(2)))),
        (np.array([1.0]), np.array([-1.0])),
        ({"a": 1}, {"b": 1}),
        ({"a", "b"}, {"a"}),
        (np.array([None, "a"]), np.array([None, "b"])),
        (SimpleNamespace(loss=0.5), SimpleNamespace(loss=0.25)),
        (SimpleNamespace(parts=[1]), SimpleNamespace(parts=[2])),
        (len, max),
        (dict, OrderedDict),
    ],
)
def test_any_difference_shows(a: Any, b: Any) -> None:
    assert leaf_fingerprints(a) != leaf_fingerprints(b)


@pytest.mark.parametrize(
    "a, b",
    [
        (float("nan"), float("nan")),
        (np.float64(0.5), 0.5),
        (OrderedDict(a=1), {"a": 1}),
        (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T.contiguous()),
        (torch.tensor(True), torch.tensor(True)),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
        (torch.empty(0), torch.empty(0)),
        ({"a", "b"}, {"b", "a"}),
        (SimpleNamespace(a=1, b=2), SimpleNamespace(b=2, a=1)),
    ],
)
def test_equal_values_are_equal(a: Any, b: Any) -> None:
    assert leaf_fingerprints(a) == leaf_fingerprints(b)


def test_modules_are_their_weights_and_cycles_end() -> None:
    layer = torch.nn.Linear(2, 2)
    before = leaf_fingerprints(layer)
    with torch.no_grad():
        layer.bias += 1
    assert {path for path, text in leaf_fingerprints(layer).items() if before[path] != text} == {"result['bias']"}

    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    assert leaf_fingerprints(cyclic)["result['self']"] == "object of dict"
