"""Mixed precision by device, and said; on the CPU only where asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from chirpid_patch.device.precision import setup_mixed_precision

#: The settings named fp32_precision came with torch 2.9.
NEWER = hasattr(torch.backends.cudnn, "conv")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes this machine say that it has a CUDA device of a compute capability."""

    def pretend(major: int, minor: int = 0, hip: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (major, minor))
        monkeypatch.setattr(torch.version, "hip", hip)

    return pretend


@pytest.fixture
def float32() -> Iterator[dict[str, Any]]:
    """The settings of float32 arithmetic, which are put back at the end."""
    before = tf32()
    yield before
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = before["cudnn"]
    if NEWER:
        torch.backends.cuda.matmul.fp32_precision = before["newer matmul"]
        torch.backends.cudnn.conv.fp32_precision = before["newer conv"]
        torch.backends.cudnn.rnn.fp32_precision = before["newer rnn"]
        torch.backends.mkldnn.matmul.fp32_precision = before["cpu"]


def tf32() -> dict[str, Any]:
    settings = {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32}
    settings["precision"] = torch.get_float32_matmul_precision()
    if NEWER:
        matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
        settings |= {"newer matmul": matmul.fp32_precision, "newer conv": conv.fp32_precision}
        settings["newer rnn"] = torch.backends.cudnn.rnn.fp32_precision
        settings["cpu"] = torch.backends.mkldnn.matmul.fp32_precision
    return settings


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((9, 0), torch.bfloat16), ((8, 0), torch.bfloat16), ((7, 5), torch.float16), ((6, 1), None)],
)
def test_the_device_chooses_the_dtype(capability: tuple[int, int], dtype: torch.dtype | None, cuda: Any) -> None:
    cuda(*capability)
    done = setup_mixed_precision("cuda", tf32=False)
    assert done.dtype is dtype
    assert setup_mixed_precision("cpu").dtype is None
    assert done.grad_scaler().is_enabled() is (dtype is torch.float16)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_cuda_device_nothing_is_set_and_it_says_so(float32: Any, caplog: Any) -> None:
    caplog.set_level("INFO", "chirpid_patch")
    done = setup_mixed_precision()
    assert (done.device.type, done.dtype, done.tf32) == ("cpu", None, False)
    assert caplog.messages == [str(done)]
    with done.autocast():
        assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype is torch.float32
    with pytest.raises(ValueError, match="no CUDA device"):
        setup_mixed_precision("cuda")


def test_on_the_cpu_there_is_autocast_where_it_is_asked_for() -> None:
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with setup_mixed_precision("cpu").autocast():
        assert layer(x).dtype is torch.float32
    with setup_mixed_precision("cpu", dtype=torch.bfloat16).autocast():
        assert layer(x).dtype is torch.bfloat16
    assert setup_mixed_precision("cpu", dtype=torch.float32).dtype is None


def test_one_training_loop_is_right_with_and_without_scaling() -> None:
    def step(scaled: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layer = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        loss = layer(torch.ones(1, 2)).sum()
        if scaled:
            scaler = setup_mixed_precision("cpu").grad_scaler()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        return layer.weight.detach()

    assert torch.equal(step(True), step(False))


def test_tf32_is_set_where_the_device_has_it(cuda: Any, float32: Any) -> None:
    cuda(8, 0)
    done = setup_mixed_precision()
    assert done.tf32 and str(done).endswith("; TF32")
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is True
    if NEWER:
        assert torch.backends.mkldnn.matmul.fp32_precision == float32["cpu"]


def test_tf32_is_left_alone_where_the_device_lacks_it_or_it_is_not_wanted(cuda: Any, float32: Any) -> None:
    cuda(7, 5)
    assert not setup_mixed_precision().tf32
    cuda(9, 4, hip="6.0")
    assert not setup_mixed_precision().tf32
    cuda(8, 0)
    assert not setup_mixed_precision(tf32=False).tf32
    assert tf32() == float32


def test_what_was_done_is_said_in_words(cuda: Any, float32: Any) -> None:
    cuda(7, 5)
    assert "cuda: autocast to float16, gradients scaled" in str(setup_mixed_precision())
    cuda(8, 0)
    assert "cuda: autocast to bfloat16, no gradient scaling" in str(setup_mixed_precision())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_step_trains_in_the_chosen_dtype() -> None:
    layer = nn.Linear(8, 8, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.weight.detach().clone()
    done = setup_mixed_precision()
    scaler = done.grad_scaler()
    with done.autocast():
        output = layer(torch.ones(4, 8, device="cuda"))
    assert output.dtype is (done.dtype or torch.float32)
    scaler.scale(output.float().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(layer.weight, before)


@pytest.mark.skipif(not NEWER, reason="torch < 2.9 has only the older settings")
def test_a_program_that_uses_the_newer_settings_has_them_set(cuda: Any, float32: Any) -> None:
    cuda(8, 0)
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    torch.set_float32_matmul_precision("high")
    matmul.fp32_precision = conv.fp32_precision = "ieee"
    setup_mixed_precision()
    assert (matmul.fp32_precision, conv.fp32_precision) == ("tf32", "tf32")
