"""Transfers, pinned memory and samples held on a device, on a device written in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import ROOT
from torch.utils import backend_registration

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this PyTorch has no backends in Python",
    ),
    pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator"),
]

#: The tests of everything that concerns a device.
SELECTION = tuple(
    f"tests/chirpid_patch/device/test_{name}.py"
    for name in ("device_prefetch", "resident", "resident_moved", "resident_noise")
)


def test_the_tests_of_devices_pass_on_it(tmp_path: Path) -> None:
    options = ["-q", "-m", "not slow", "--stand-in-device", "-o", f"cache_dir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, *SELECTION]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


PINNING = """
import stand_in_device, torch
from torch.utils.data import DataLoader, TensorDataset
from chirpid_patch import BatchedDataLoader, DevicePrefetcher

stand_in_device.register()
data = TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
for make in (DataLoader, BatchedDataLoader):
    for workers in (0, 1):
        for pin in (False, True):
            loader = make(data, batch_size=3, num_workers=workers, pin_memory=pin)
            assert loader.pin_memory is pin
            seen = [(x.is_pinned(), x.device.type, y.tolist()) for x, y in loader]
            assert seen == [(pin, "cpu", [0, 1, 2]), (pin, "cpu", [3, 4, 5])], seen
        moved = list(DevicePrefetcher(loader, "stand_in"))
        assert [x.device.type for x, _ in moved] == ["stand_in"] * 2
        assert torch.cat([x.cpu() for x, _ in moved]).equal(data.tensors[0])
print("done")
"""


def test_batches_are_pinned_and_moved_as_pytorch_does(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"if __name__ == '__main__':\n    exec({PINNING!r})\n")
    ended = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["done"], ended.stderr
