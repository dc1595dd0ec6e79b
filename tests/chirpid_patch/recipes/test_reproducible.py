"""A run that repeats: seeds, deterministic algorithms, the same batches in another process."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from originals import PairDataset, RandomPairDataset, same, tensor_data
from torch.utils.data import DataLoader

from chirpid_patch.randomness.random_states import restore_generators_after
from chirpid_patch.recipes.reproducible import (
    ensure_deterministic_dataloader,
    seed_worker,
    set_reproducible_training,
)


@pytest.fixture(autouse=True)
def settings_put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with restore_generators_after():
        yield
    cudnn.deterministic, cudnn.benchmark = before[:2]
    torch.use_deterministic_algorithms(before[2])


def draws() -> tuple[float, ...]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))


def test_every_generator_repeats_with_the_seed() -> None:
    _, generator = set_reproducible_training(7)
    first = *draws(), float(torch.rand(1, generator=generator))
    _, generator = set_reproducible_training(7)
    assert (*draws(), float(torch.rand(1, generator=generator))) == first
    set_reproducible_training(8)
    assert draws() != first[:3]


def test_the_seeds_are_those_that_a_script_would_set_itself() -> None:
    set_reproducible_training(7)
    found = draws()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    assert draws() == found


def test_cudnn_chooses_deterministic_algorithms() -> None:
    torch.backends.cudnn.benchmark = True
    set_reproducible_training()
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (True, False)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (2**32, ValueError), (1.5, TypeError), ("7", TypeError)])
def test_a_seed_that_numpy_does_not_take_is_an_error_at_once(seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        set_reproducible_training(seed)


def test_trap_06_workers_get_seeds_that_differ_and_repeat() -> None:
    def epochs() -> Any:
        worker_init_fn, generator = set_reproducible_training(2**32 - 1)
        loader = DataLoader(
            RandomPairDataset(8), 2, shuffle=True, num_workers=2, worker_init_fn=worker_init_fn, generator=generator
        )
        return [list(loader), list(loader)]

    first, again = epochs(), epochs()
    assert same(first, again)
    drawn = {round(float(value), 4) for epoch in first for x, y in epoch for value in (x[:, 0, 0, 0] - y)}
    assert len(drawn) == 16  # no sample of either worker, in either epoch, drew what another one did


def test_the_function_for_workers_can_be_sent_to_a_spawned_one() -> None:
    assert pickle.loads(pickle.dumps(set_reproducible_training()[0])) is seed_worker


@pytest.mark.parametrize("shuffle", [True, False])
def test_trap_02_no_sample_is_dropped_unless_that_is_asked_for(shuffle: bool) -> None:
    loader = ensure_deterministic_dataloader(PairDataset(7), 4, shuffle=shuffle)
    assert sorted(int(one) for _, y in loader for one in y) == list(range(7))
    assert [len(y) for _, y in ensure_deterministic_dataloader(tensor_data(7), 4, drop_last=True)] == [4]


def test_trap_03_no_sample_is_dropped_unless_asked() -> None:
    assert [len(y) for _, y in ensure_deterministic_dataloader(tensor_data(3), 4)] == [3]


def test_epochs_differ_and_runs_repeat_whatever_was_drawn_before() -> None:
    def epochs() -> list[list[int]]:
        loader = ensure_deterministic_dataloader(PairDataset(20), 6, seed=5)
        return [[int(one) for _, y in loader for one in y] for _ in range(2)]

    first = epochs()
    torch.rand(3)
    assert epochs() == first
    assert first[0] != first[1]


def test_deterministic_algorithms_are_demanded_or_warned_about() -> None:
    ensure_deterministic_dataloader(tensor_data(4), 2)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    ensure_deterministic_dataloader(tensor_data(4), 2, warn_only=True)
    assert torch.is_deterministic_algorithms_warn_only_enabled()


def test_cublas_gets_a_deterministic_workspace_where_there_is_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_deterministic_dataloader(tensor_data(4), 2)
    if not torch.cuda.is_available():
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    ensure_deterministic_dataloader(tensor_data(4), 2, pin_memory=False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"
    with pytest.warns(UserWarning, match="CUBLAS_WORKSPACE_CONFIG=:0:0: set CUBLAS_WORKSPACE_CONFIG=:4096:8"):
        ensure_deterministic_dataloader(tensor_data(4), 2, pin_memory=False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":0:0"


SCRIPT = """
import hashlib, random, sys
sys.path.insert(0, {tests!r})
import numpy as np, torch
from originals import RandomPairDataset, tensor_data
from chirpid_patch import WorkerSafeAugmentedDataset
from chirpid_patch.recipes.reproducible import ensure_deterministic_dataloader

if __name__ == "__main__":
    augmented = WorkerSafeAugmentedDataset(tensor_data(12), {{"time_mask_param": 2, "p": 0.5}})
    for dataset, workers in ((augmented, 0), (RandomPairDataset(12), 2)):
        loader = ensure_deterministic_dataloader(dataset, 5, num_workers=workers)
        for epoch in range(2):
            for x, y in loader:
                print(hashlib.sha256(x.numpy().tobytes()).hexdigest(), y.tolist())
    print(random.random(), np.random.rand(), torch.rand(1).item())
"""


@pytest.mark.slow
def test_batches_are_equal_in_two_fresh_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[2])))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [
        subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)
    ]
    outputs = [run.communicate(timeout=300)[0].splitlines() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(set(outputs[0])) == 2 * 2 * 3 + 1


def test_any_dataset_will_do_and_other_arguments_pass() -> None:
    loader = ensure_deterministic_dataloader(PairDataset(6), 4, shuffle=False, collate_fn=list, num_workers=1)
    assert [len(batch) for batch in loader] == [4, 2]
