"""Hooks of a trainer: what they are told, what loading is found to cost, what traces show."""

from __future__ import annotations

import logging
import pickle
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from originals import PairDataset
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

from chirpid_patch.hooks import lightning as lightning_hooks
from chirpid_patch.hooks import profiling
from chirpid_patch.hooks.lightning import lightning_callback
from chirpid_patch.hooks.profiling import DataLoaderProfilingHook
from chirpid_patch.hooks.steps import UsualBatchTime
from chirpid_patch.hooks.trace import DATA_WAIT, STEP, TRANSFER
from chirpid_patch.hooks.trainer import TrainerHooks
from chirpid_patch.loading import batch_timer
from chirpid_patch.multi.multi_loader import MultiDataLoader, MultiDataLoaderConfig, SamplingStrategy


class Clock:
    """A clock that goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now

    def pass_ms(self, milliseconds: float) -> None:
        self.now += milliseconds / 1e3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (profiling, batch_timer):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "chirpid_patch")
    return caplog


def ms(seconds: list[float]) -> list[float]:
    return [round(one * 1e3, 6) for one in seconds]


# --- times --------------------------------------------------------------------------------------------------------


class Trainer:
    """Calls hooks as the document's trainer does, with batches that take a given time."""

    def __init__(self, hook: TrainerHooks, clock: Clock) -> None:
        self.hook = hook
        self.clock = clock

    def epoch(self, number: int, batches: list[tuple[float, float]], *, started: bool = True) -> None:
        """An epoch of (milliseconds of waiting, of the step)."""
        if started:
            self.hook.on_epoch_start(self, number)
        for index, (wait, step) in enumerate(batches):
            self.clock.pass_ms(wait)
            self.hook.on_train_batch_start(self, "batch", index, 0, "train")
            self.clock.pass_ms(step)
            self.hook.on_train_batch_end(self, "batch", index, 0, "train", {"loss": 0.0})


def test_the_wait_for_a_batch_is_not_its_step(clock: Clock) -> None:
    hook = DataLoaderProfilingHook()
    Trainer(hook, clock).epoch(0, [(40, 5), (2, 6), (3, 7)])
    assert ms(hook.batch_load_times) == [40, 2, 3]
    assert ms(hook.step_times) == [5, 6, 7]
    assert hook.gpu_transfer_times == []


def test_a_trainer_that_does_not_announce_an_epoch_hides_its_first_wait(clock: Clock) -> None:
    hook = DataLoaderProfilingHook()
    trainer = Trainer(hook, clock)
    for number in range(2):
        trainer.epoch(number, [(40, 5), (2, 6)], started=False)
        assert ms(hook.batch_load_times) == [2]
        assert ms(hook.step_times) == [5, 6]
        hook.on_epoch_end(trainer, number)
    assert [summary.batches for summary in hook.summaries] == [2, 2]


def test_transfers_are_taken_off_the_step(clock: Clock) -> None:
    hook = DataLoaderProfilingHook()
    for batch in hook.batches([4.0, 6.0]):
        with hook.transfer():
            clock.pass_ms(batch)
        clock.pass_ms(10)
        with hook.transfer():
            clock.pass_ms(1)
        seen = hook.gpu_transfer_times, hook.step_times
    assert ms(seen[0]) == [4, 1, 6, 1]
    assert ms(seen[1]) == [10, 10]


def test_validation_within_an_epoch_is_no_wait(clock: Clock) -> None:
    hook = DataLoaderProfilingHook()
    trainer = Trainer(hook, clock)
    hook.on_validation_start(trainer)  # a check before the training
    hook.on_validation_end(trainer)
    trainer.epoch(0, [(1, 5)])
    clock.pass_ms(2)
    hook.on_validation_start(trainer)
    clock.pass_ms(500)
    hook.on_validation_end(trainer)
    clock.pass_ms(3)
    hook.on_train_batch_start(trainer, "batch", 1, 0, "train")
    hook.on_train_batch_end(trainer, "batch", 1, 0, "train", {})
    assert ms(hook.batch_load_times) == [1, 5]


class Waiting:
    """A loader whose batches take a given time."""

    def __init__(self, clock: Clock, waits: list[float]) -> None:
        self.clock = clock
        self.waits = waits
        self.batch_size = 7

    def __len__(self) -> int:
        return len(self.waits)

    def __iter__(self) -> Iterator[int]:
        for number, wait in enumerate(self.waits):
            self.clock.pass_ms(wait)
            yield number


def test_each_pass_over_a_loader_is_an_epoch(clock: Clock, logged: pytest.LogCaptureFixture) -> None:
    hook = DataLoaderProfilingHook()
    loader = Waiting(clock, [1, 2, 3])
    assert [list(hook.batches(loader)) for _ in range(2)] == [[0, 1, 2]] * 2
    assert [summary.batches for summary in hook.summaries] == [3, 3]
    assert hook.summaries[0].wait_mean == pytest.approx(2e-3)
    assert hook.summaries[0].wait_share == pytest.approx(1)
    assert [message[:8] for message in logged.messages] == ["epoch 0:", "epoch 1:"]


def test_a_loop_that_is_left_early_has_its_summary(clock: Clock) -> None:
    hook = DataLoaderProfilingHook()
    for number in hook.batches(Waiting(clock, [1, 2, 3])):
        clock.pass_ms(3)
        if number == 1:
            break
    assert hook.summaries[0].batches == 1  # the second did not come to its end
    assert hook.summaries[0].step_mean == pytest.approx(3e-3)


def test_a_slow_batch_of_several_loaders_says_which(clock: Clock, logged: pytest.LogCaptureFixture) -> None:
    loaders = [Waiting(clock, [10.0] * 15), Waiting(clock, [10.0] * 14 + [99.0])]
    config = MultiDataLoaderConfig(SamplingStrategy.ROUND_ROBIN, dataloader_names=["day", "night"])
    hook = DataLoaderProfilingHook()
    assert len(list(hook.batches(MultiDataLoader(loaders, config)))) == 30
    assert all(told in logged.messages[0] for told in ("29", "night", "99.00 ms", "10.00 ms"))


def test_an_epoch_without_batches(clock: Clock, logged: pytest.LogCaptureFixture) -> None:
    hook = DataLoaderProfilingHook()
    hook.on_epoch_end(None, 3)
    assert logged.messages == ["epoch 3: no batches"] and hook.summaries == []


@pytest.mark.parametrize("settings", [{"log_every": 0}, {"slow_factor": 1.0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        DataLoaderProfilingHook(**settings)


# --- what is said -------------------------------------------------------------------------------------------------


def test_summaries_are_logged_and_nothing_is_printed(
    clock: Clock, logged: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = DataLoaderProfilingHook(log_every=2)
    trainer = Trainer(hook, clock)
    trainer.epoch(0, [(1, 3), (1, 3), (2, 2), (2, 2), (4, 4)])
    hook.on_epoch_end(trainer, 0)
    assert [re.findall(r"[\d.]+", one.replace("p99", "")) for one in logged.messages] == [
        ["1", "2", "2", "1.00", "1.00", "25", "3.00"],
        ["3", "4", "2", "2.00", "2.00", "50", "2.00"],
        ["0", "5", "2.00", "3.92", "42", "2.80"],
    ]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("usual", "slow"), [(10.0, 40.0), (1000.0, 4000.0)])
def test_slow_is_what_takes_much_longer_than_the_usual(
    clock: Clock, logged: pytest.LogCaptureFixture, usual: float, slow: float
) -> None:
    hook = DataLoaderProfilingHook()
    batches = [(usual / 2, usual / 2)] * 21
    batches[0] = (50 * usual, usual)  # start-up
    batches[14] = (slow - usual / 2, usual / 2)
    batches[16] = (2 * usual, usual / 2)  # within what is usual
    Trainer(hook, clock).epoch(0, batches)
    [found] = hook.slow_batches
    assert (found.batch_idx, found.dataloader_name) == (14, "train")
    assert found.wait_seconds + found.step_seconds == pytest.approx(slow / 1e3)
    [warning] = logged.messages
    named = [14, slow, usual, slow - usual / 2, usual / 2]
    assert [float(one) for one in re.findall(r"[\d.]+", warning)] == named and "train" in warning


def test_slow_batches_beyond_the_tenth_are_only_counted(clock: Clock, logged: pytest.LogCaptureFixture) -> None:
    hook = DataLoaderProfilingHook()
    trainer = Trainer(hook, clock)
    trainer.epoch(0, [(1.0, 9.0)] * 31 + [(1.0, 9.0), (91.0, 9.0)] * 15)
    assert len(hook.slow_batches) == 15 and len(logged.messages) == 10
    hook.on_epoch_end(trainer, 0)
    assert "15 slow" in logged.messages[-1] and hook.slow_batches == []


def test_jitter_of_very_short_batches_is_not_slow() -> None:
    usual = UsualBatchTime(3.0)
    assert [usual.is_exceeded(1e-4) for _ in range(20)] == [False] * 20
    assert not usual.is_exceeded(9e-4)
    assert usual.is_exceeded(2e-3)


# --- devices ------------------------------------------------------------------------------------------------------


class DeviceEvent:
    """An event on a device that is behind the host: its time is known once the device has come so far."""

    reached = 0
    recorded = 0

    def record(self) -> None:
        self.place = DeviceEvent.recorded
        DeviceEvent.recorded += 1

    def query(self) -> bool:
        return self.place < DeviceEvent.reached

    def elapsed_time(self, end: DeviceEvent) -> float:
        assert self.query() and end.query(), "read before the device got there"
        return float(end.place - self.place)


def test_a_device_is_not_waited_for_before_the_epoch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_for_device(_device: Any) -> None:
        DeviceEvent.reached = DeviceEvent.recorded

    DeviceEvent.reached = DeviceEvent.recorded = 0
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: DeviceEvent())
    monkeypatch.setattr(torch.cuda, "synchronize", wait_for_device)
    monkeypatch.setattr(torch.cuda.nvtx, "range_start", lambda _name: 1)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda _range: None)
    hook = DataLoaderProfilingHook(device="cuda")

    def step(number: int) -> None:
        hook.on_train_batch_start(None, "batch", number, 0, "day")
        with hook.transfer():
            pass
        hook.on_train_batch_end(None, "batch", number, 0, "day")

    hook.on_epoch_start(None, 0)
    step(0)
    step(1)
    assert hook.step_times == [] and DeviceEvent.reached == 0
    DeviceEvent.reached = 5  # the first step's four events, and one
    step(2)
    assert ms(hook.step_times) == [2] and ms(hook.gpu_transfer_times) == [1]  # three places, one of them a transfer
    hook.on_epoch_end(None, 0)
    assert DeviceEvent.reached == 12
    assert hook.summaries[0].batches == 3 and hook.summaries[0].step_mean == pytest.approx(2e-3)


def test_a_transfer_before_the_step_is_not_taken_off_from_it(clock: Clock) -> None:
    hook = DataLoaderProfilingHook()
    hook.on_epoch_start(None, 0)
    with hook.transfer():
        clock.pass_ms(4)
    hook.on_train_batch_start(None, "batch", 0, 0, "")
    clock.pass_ms(10)
    hook.on_train_batch_end(None, "batch", 0, 0, "")
    assert ms(hook.gpu_transfer_times) == [4] and ms(hook.step_times) == [10] and ms(hook.batch_load_times) == [4]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_times_are_those_of_the_device() -> None:
    hook = DataLoaderProfilingHook(device="cuda")
    weights = torch.rand(2048, 2048, device="cuda")
    for batch in hook.batches([torch.rand(2048, 2048).pin_memory() for _ in range(20)]):
        with hook.transfer():
            batch = batch.to("cuda", non_blocking=True)
        for _ in range(5):
            batch = batch @ weights
    summary = hook.summaries[0]
    assert summary.batches == 20 and summary.slow_batches < 20
    assert summary.transfer_mean is not None and summary.transfer_mean > 0
    assert summary.step_mean is not None and summary.step_mean > 0


# --- traces -------------------------------------------------------------------------------------------------------


def traced(hook: DataLoaderProfilingHook) -> Any:
    """A trace of an epoch of three batches."""
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for x, _ in hook.batches(DataLoader(PairDataset(6), batch_size=2)):
            with hook.transfer():
                x = x.clone()
            torch.nn.functional.softplus(x)
    return trace.events()


def test_waits_transfers_and_steps_are_ranges_of_a_trace() -> None:
    events = traced(DataLoaderProfilingHook())
    ranges = {name: [one.time_range for one in events if one.name == name] for name in (DATA_WAIT, TRANSFER, STEP)}
    assert [len(ranges[name]) for name in (DATA_WAIT, TRANSFER, STEP)] == [4, 3, 3]  # the last wait: for nothing more

    def inside(name: str, kind: str) -> list[bool]:
        inner = [one.time_range for one in events if one.name == name]
        assert inner
        return [any(outer.start <= one.start and one.end <= outer.end for outer in ranges[kind]) for one in inner]

    assert all(inside("aten::softplus", STEP))
    assert all(inside("aten::clone", TRANSFER)) and all(inside(TRANSFER, STEP))
    assert all(inside("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", DATA_WAIT))


def test_a_profiler_may_begin_and_end_at_any_moment() -> None:
    hook = DataLoaderProfilingHook()
    hook.on_epoch_start(None, 0)
    trace = profile(activities=[ProfilerActivity.CPU])
    trace.start()  # in a wait
    hook.on_train_batch_start(None, None, 0, 0, "")
    torch.ones(2).exp()
    trace.stop()  # in a step
    hook.on_train_batch_end(None, None, 0, 0, "")
    hook.on_train_batch_start(None, None, 1, 0, "")
    hook.on_train_batch_end(None, None, 1, 0, "")
    hook.on_epoch_end(None, 0)
    assert "aten::exp" in {event.name for event in trace.events()}  # type: ignore[no-untyped-call]
    assert hook.summaries[0].batches == 2
    assert len([event for event in traced(hook) if event.name == STEP]) == 3


# --- Lightning ----------------------------------------------------------------------------------------------------


class Listener(TrainerHooks):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *said: self.heard.append((name, *said[1:]))
        return super().__getattribute__(name)


class Callback:
    """As Lightning's: every hook, doing nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_") or name in ("setup", "teardown"):
            return lambda *said: None
        raise AttributeError(name)


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def lightning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of Lightning's two packages is imported."""
    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = types.ModuleType(request.param)
    module.Callback = Callback  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, request.param.split(".")[0], types.ModuleType(request.param.split(".")[0]))
    monkeypatch.setitem(sys.modules, request.param, module)
    lightning_hooks._callback_class.cache_clear()


def train_like_lightning(callback: Any) -> None:
    """The calls that Lightning makes of a callback in an epoch of two batches, in its order."""
    trainer, module = types.SimpleNamespace(current_epoch=3), object()

    def call(name: str, *said: Any) -> None:
        assert getattr(callback, name)(trainer, module, *said) is None

    call("setup", "fit")
    call("on_sanity_check_start")
    call("on_validation_start")
    call("on_validation_batch_start", "batch", 0, 0)
    call("on_validation_end")
    call("on_train_start")
    call("on_train_epoch_start")
    for index in range(2):
        call("on_train_batch_start", "batch", index)
        call("on_after_backward")
        call("on_train_batch_end", {"loss": 1.0}, "batch", index)
    call("on_train_epoch_end")
    call("on_train_end")
    call("teardown", "fit")


@pytest.mark.usefixtures("lightning")
def test_a_lightning_callback_tells_the_hook() -> None:
    listener = Listener()
    callback = lightning_callback(listener)
    assert isinstance(callback, Callback)
    train_like_lightning(callback)
    assert listener.heard == [
        ("on_validation_start",),
        ("on_validation_end",),
        ("on_train_start",),
        ("on_epoch_start", 3),
        ("on_train_batch_start", "batch", 0, 0, "train"),
        ("on_train_batch_end", "batch", 0, 0, "train", {"loss": 1.0}),
        ("on_train_batch_start", "batch", 1, 0, "train"),
        ("on_train_batch_end", "batch", 1, 0, "train", {"loss": 1.0}),
        ("on_epoch_end", 3),
        ("on_train_end",),
    ]


@pytest.mark.usefixtures("lightning")
def test_a_lightning_callback_profiles_by_default() -> None:
    callback = lightning_callback()
    train_like_lightning(callback)
    assert isinstance(callback.hook, DataLoaderProfilingHook)
    assert callback.hook.summaries[0].batches == 2
    again = pickle.loads(pickle.dumps(lightning_callback(TrainerHooks())))
    assert type(again.hook) is TrainerHooks and isinstance(again, Callback)


def test_without_lightning_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(lightning_hooks, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="install lightning"):
        lightning_callback()
