"""The largest batch that trains: shown to fit, found without swapping, nothing changed."""

from __future__ import annotations

import copy
import ctypes
import gc
import random
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from originals import global_states, same
from torch import Tensor, nn

from chirpid_patch.machine import usable_memory
from chirpid_patch.machine.process_memory import peak_resident_memory, resident_memory
from chirpid_patch.memory import batch_size as batch_size_module
from chirpid_patch.memory import trials as trials_module
from chirpid_patch.memory.batch_size import calculate_optimal_batch_size, largest_batch_size
from chirpid_patch.memory.kept_state import restore_state_after
from chirpid_patch.memory.trials import (
    CpuMemoryTrials,
    CudaMemoryTrials,
    MemoryTrials,
    measure_peak_memory,
    predict_peak_memory,
)

MIB = 2**20


@pytest.fixture(autouse=True, scope="module")
def collecting_is_quick() -> None:
    """Every trial collects garbage: let that go through what these tests make, not through all of PyTorch."""
    torch.optim.SGD([torch.ones(1)], lr=1.0)  # the first optimiser of a process imports much of it
    gc.freeze()


# --- the search ---------------------------------------------------------------------------------------------


class Room(MemoryTrials):
    """Memory for batches of up to so many samples."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.allowed_bytes = MIB
        self.tried: list[int] = []

    def measure_peak(self, size: int, run: Callable[[], object]) -> int:
        self.tried.append(size)
        if size > self.most:
            raise MemoryError
        run()
        return self.allowed_bytes


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Room]:
    def of(most: int) -> Room:
        made = Room(most)
        monkeypatch.setattr(batch_size_module, "create_memory_trials", lambda *arguments: made)
        return made

    return of


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 8, 63, 64, 65, 100, 128])
def test_trap_10_the_largest_size_that_completes_training_steps_is_returned(most: int, room: Any) -> None:
    memory, steps = room(most), []
    assert largest_batch_size(steps.append, max_batch_size=128) == most
    assert steps.count(most) == 2  # the second step has gradients and the optimiser's state beside it
    assert len(memory.tried) == len(set(memory.tried)) <= 2 * 8


def test_no_larger_size_is_tried_than_asked_for(room: Any) -> None:
    memory = room(10**9)
    assert largest_batch_size(lambda size: None, max_batch_size=48) == 48
    assert memory.tried == [2, 4, 8, 16, 32, 48]
    assert largest_batch_size(lambda size: None, max_batch_size=1) == 1


def test_not_even_one_sample_is_a_clear_error(room: Any) -> None:
    room(0)
    with pytest.raises(RuntimeError, match=r"1 MiB.*cpu.*memory_limit"):
        largest_batch_size(lambda size: None)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_batch_size": 0}, "max_batch_size"),
        ({"safety_margin": 1.0}, "safety_margin"),
        ({"safety_margin": -0.1}, "safety_margin"),
        ({"memory_limit": 0}, "memory_limit"),
        ({"device": "meta"}, "not on meta"),
    ],
)
def test_wrong_arguments_are_clear_errors(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        largest_batch_size(lambda size: None, **wrong)


# --- on the CPU: never more memory than allowed -------------------------------------------------------------


#: So much at a time the C library asks the system for, and gives back when it is freed, instead of keeping it.
AT_ONCE = 40


def held(mib: float) -> Tensor:
    """So much memory, written to, so that it is there."""
    return torch.ones(int(mib * MIB), dtype=torch.uint8)


def give_back_freed_memory() -> None:
    """What earlier tests left free in this process would be used again beyond what the limit counts (glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def needs(size: int) -> int:
    """What a step takes, in MiB."""
    return AT_ONCE + 8 * size


@pytest.mark.slow
def test_on_the_cpu_the_size_found_stays_within_the_limit_and_none_tried_leaves_it_far() -> None:
    tried: list[int] = []

    def step(size: int) -> None:
        tried.append(size)
        held(needs(size))

    held(needs(2))
    give_back_freed_memory()
    limit = resident_memory() + needs(12) * MIB
    found = largest_batch_size(step, memory_limit=limit, safety_margin=0.0)
    assert found in tried
    assert 9 <= found <= 13
    assert max(tried) <= 13


def test_on_the_cpu_the_margin_is_left_free() -> None:
    held(needs(2))
    give_back_freed_memory()
    limit = resident_memory() + needs(12) * MIB
    found = largest_batch_size(
        lambda size: held(needs(size)), memory_limit=limit, safety_margin=(needs(12) - needs(6)) * MIB / limit
    )
    assert 3 <= found <= 9  # 12 without a margin


@pytest.mark.parametrize(
    "taken", [lambda n: 7 * n, lambda n: 90 + 3 * n, lambda n: 5 + n * n, lambda n: 20 + n + n * n // 4]
)
def test_what_a_size_will_need_is_foreseen_from_those_before(taken: Callable[[int], int]) -> None:
    peaks = {0: 100, **{size: 100 + taken(size) for size in (2, 4, 8, 16)}}
    assert 100 + taken(32) <= predict_peak_memory(peaks, 32) <= 100 + 2 * taken(32)


def test_sizes_close_to_each_other_do_not_mislead() -> None:
    peaks = {0: 0, 32: 320, 64: 640, 65: 630}  # the last one somewhat less, as memory happens to be given out
    assert predict_peak_memory(peaks, 128) >= 1200


def test_on_the_cpu_a_large_step_of_any_size_does_not_hide_how_much_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "measure_peak_memory", lambda run: run())
    trials = CpuMemoryTrials(resident_memory() + 1000 * MIB, 0.0)
    held_before = trials._peaks[0]
    monkeypatch.setattr(batch_size_module, "_repeat", lambda step, size: step(size))
    monkeypatch.setattr(batch_size_module, "create_memory_trials", lambda *arguments: trials)
    tried: list[int] = []

    def step(size: int) -> int:
        tried.append(size)
        return held_before + (600 + 10 * size) * MIB

    assert 38 <= largest_batch_size(step) <= 40
    assert max(tried) <= 40


def test_a_machine_that_cannot_get_memory_is_no_crash_and_other_errors_pass() -> None:
    trials = CpuMemoryTrials(None, 0.1)

    def fails(error: Exception) -> Callable[[], None]:
        def run() -> None:
            raise error

        return run

    assert trials.fits(2, fails(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))) is False
    assert trials.fits(2, fails(MemoryError())) is False
    for error in (RuntimeError("shapes do not match"), ValueError("wrong")):
        with pytest.raises(type(error), match=str(error)):
            trials.fits(2, fails(error))


def test_the_peak_is_also_found_below_what_the_process_ever_held() -> None:
    give_back_freed_memory()
    before = resident_memory()
    counted = measure_peak_memory(lambda: held((peak_resident_memory() - before) // MIB + 64))
    assert counted - before > 64 * MIB
    kept: list[Tensor] = []
    sampled = measure_peak_memory(lambda: kept.append(held(64)))
    assert sampled - before > 40 * MIB


def test_what_is_available_is_bounded_by_the_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable_memory.available_memory() > 0
    monkeypatch.setattr(usable_memory, "cgroup_memory_limit", lambda: 10**18)
    machine = usable_memory.available_memory()
    monkeypatch.setattr(usable_memory, "cgroup_memory_limit", lambda: 1)
    assert usable_memory.available_memory() == 0 < machine


# --- on CUDA: by running out --------------------------------------------------------------------------------


class FakeCuda:
    """A device of 1000 bytes, 100 of them in use, that counts what it is asked for."""

    def __init__(self) -> None:
        self.emptied = 0
        self.peak = 0

    def mem_get_info(self, device: Any) -> tuple[int, int]:
        return 900, 1000

    def memory_reserved(self, device: Any) -> int:
        return 100

    def max_memory_allocated(self, device: Any) -> int:
        return self.peak

    def reset_peak_memory_stats(self, device: Any) -> None:
        self.peak = 0

    def synchronize(self, device: Any) -> None:
        pass

    def empty_cache(self) -> None:
        self.emptied += 1


@pytest.mark.parametrize(
    ("limit", "margin", "allowed", "held_back"), [(None, 0.1, 900, 100), (500, 0.0, 500, 500), (5000, 0.0, 1000, 0)]
)
def test_on_cuda_what_may_not_be_used_is_held_by_a_tensor(
    limit: int | None, margin: float, allowed: int, held_back: int
) -> None:
    with CudaMemoryTrials(torch.device("meta"), limit, margin, FakeCuda()) as trials:
        assert trials.allowed_bytes == allowed
        assert trials._ballast is not None
        assert trials._ballast.numel() == held_back
    assert trials._ballast is None


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError, RuntimeError])
def test_on_cuda_running_out_of_memory_is_an_answer_and_leaves_nothing_behind(error: type[Exception]) -> None:
    cuda, activations = FakeCuda(), []

    def run() -> None:
        batch = torch.ones(3)
        activations.append(weakref.ref(batch))
        raise error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")

    with CudaMemoryTrials(torch.device("meta"), None, 0.0, cuda) as trials:
        emptied = cuda.emptied
        assert trials.fits(4, run) is False
        assert activations[0]() is None
        assert cuda.emptied == emptied + 1


def test_on_cuda_no_other_error_is_caught() -> None:
    def run() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with (
        CudaMemoryTrials(torch.device("meta"), None, 0.0, FakeCuda()) as trials,
        pytest.raises(RuntimeError, match="assert"),
    ):
        trials.fits(2, run)


def test_on_cuda_memory_that_the_driver_borrows_does_not_count_as_fitting() -> None:
    cuda = FakeCuda()
    with CudaMemoryTrials(torch.device("meta"), 500, 0.0, cuda) as trials:
        assert trials.fits(2, lambda: setattr(cuda, "peak", 500 + 500)) is True
        assert trials.fits(4, lambda: setattr(cuda, "peak", 500 + 501)) is False


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_size_found_fits_and_twice_as_many_samples_do_not() -> None:
    limit = torch.cuda.memory_reserved() + 256 * MIB
    found = largest_batch_size(
        lambda size: torch.ones(size * MIB, dtype=torch.uint8, device="cuda"), device="cuda", memory_limit=limit
    )
    assert 128 < found <= 231
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 1)).cuda()
    before = copy.deepcopy(model.state_dict())
    state = torch.cuda.get_rng_state()
    assert calculate_optimal_batch_size(model, (64,), "cuda", max_batch_size=16) == 16
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


# --- a model's batch size -----------------------------------------------------------------------------------


class Net(nn.Module):
    """Everything that training changes: weights, running statistics, a buffer that is replaced, a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.LazyLinear(5))
        self.register_buffer("seen", torch.zeros(1), persistent=False)
        self.calls = 0
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        assert self.training
        assert torch.is_grad_enabled()
        self.calls += 1
        self.seen = self.seen + len(x)
        if self.calls > 1:
            self.sizes.append(len(x))
        output: Tensor = self.layers(x)
        return output


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    net = Net()
    net(torch.rand(2, 3, 8, 8))
    return net


def everything(net: Net, optimizer: torch.optim.Optimizer) -> list[Any]:
    tensors = [tensor.clone() for tensor in (*net.parameters(), *net.buffers())]
    gradients = [parameter.grad for parameter in net.parameters()]
    modes = [(part.training, getattr(part, "calls", None)) for part in net.modules()]
    return [tensors, gradients, modes, copy.deepcopy(optimizer.state_dict())]


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    return all(map(equal, left, right)) if isinstance(left, list) else same(left, right)


@pytest.mark.parametrize("trained_before", [False, True])
def test_model_optimiser_and_random_numbers_are_to_the_last_bit_as_before(net: Net, trained_before: bool) -> None:
    optimizer = torch.optim.Adam(net.parameters(), amsgrad=True)
    if trained_before:
        net(torch.rand(2, 3, 8, 8)).sum().backward()
        optimizer.step()
    net.eval()
    objects = [*net.parameters(), *net.buffers(), *(value for state in optimizer.state.values() for value in state)]
    before, states = everything(net, optimizer), global_states()
    with torch.inference_mode():
        found = calculate_optimal_batch_size(
            net, (3, 8, 8), "cpu", criterion=nn.CrossEntropyLoss(), optimizer=optimizer, max_batch_size=8
        )
    assert found == 8
    assert net.sizes[-2:] == [8, 8]
    assert equal(everything(net, optimizer), before)
    assert global_states() == states
    after = [*net.parameters(), *net.buffers(), *(value for state in optimizer.state.values() for value in state)]
    assert all(one is other for one, other in zip(after, objects, strict=True))


def test_the_state_is_put_back_when_the_step_fails(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    before = everything(net, optimizer)

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        if len(output) > 2:
            raise ValueError("only two")
        return output.sum()

    with pytest.raises(ValueError, match="only two"):
        calculate_optimal_batch_size(net, (3, 8, 8), criterion=criterion, optimizer=optimizer)
    assert equal(everything(net, optimizer), before)


def test_targets_are_class_numbers_and_outputs_of_another_form_need_a_criterion(net: Net) -> None:
    seen: list[Any] = []

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.layer(x)}

    def criterion(output: dict[str, Tensor], target: Tensor) -> Tensor:
        seen.append((target.dtype, tuple(target.shape)))
        return nn.functional.cross_entropy(output["logits"], target)

    assert calculate_optimal_batch_size(Named(), (3,), criterion=criterion, max_batch_size=2) == 2
    assert set(seen) == {(torch.int64, (2,))}
    assert calculate_optimal_batch_size(net, (3, 8, 8), max_batch_size=2) == 2
    with pytest.raises(ValueError, match=r"dict.*criterion"):
        calculate_optimal_batch_size(Named(), (3,), max_batch_size=2)


def test_a_model_trains_in_mixed_precision_where_that_is_asked_for(net: Net) -> None:
    dtypes = []

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        dtypes.append(output.dtype)
        return output.sum()

    calculate_optimal_batch_size(net, (3, 8, 8), criterion=criterion, amp_dtype=torch.bfloat16, max_batch_size=2)
    assert set(dtypes) == {torch.bfloat16}


def test_a_model_that_cannot_be_trained_there_is_a_clear_error(net: Net) -> None:
    with pytest.raises(ValueError, match="no parameters to train"):
        calculate_optimal_batch_size(nn.ReLU(), (3,))
    with pytest.raises(ValueError, match=r"model is on cpu: move it first, with model.to\('cuda'\)"):
        calculate_optimal_batch_size(net, (3, 8, 8), "cuda")
    with pytest.raises(ValueError, match="lazy parameters"):
        calculate_optimal_batch_size(Net(), (3, 8, 8))


# --- state kept ---------------------------------------------------------------------------------------------


def test_schedulers_and_whatever_has_a_state_dict_are_put_back() -> None:
    layer = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    layer.weight.grad = gradient = torch.ones(1, 1)
    with restore_state_after(layer, optimizer, scheduler):
        assert layer.weight.grad is None
        layer(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert (optimizer.param_groups[0]["lr"], scheduler.last_epoch, len(optimizer.param_groups)) == (1.0, 0, 1)
    assert layer.weight.grad is gradient
    with pytest.raises(TypeError, match="SimpleNamespace"), restore_state_after(SimpleNamespace()):
        pass


def test_random_generators_that_the_step_owns_do_not_move() -> None:
    own = random.Random(3)
    generator = np.random.default_rng(3)
    states = own.getstate(), generator.bit_generator.state

    def step(size: int) -> None:
        own.random()
        generator.random()

    largest_batch_size(step, max_batch_size=4)
    assert (own.getstate(), generator.bit_generator.state) == states
