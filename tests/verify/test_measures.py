"""Definitions, figures and targets, from values made up here."""

from __future__ import annotations

from dataclasses import asdict

import click
import msgspec
import pytest

from chirp_migrate.cli.options import WholeNumbers
from chirp_migrate.verify.measures.figures import (
    MEASURES,
    MIB,
    epoch_seconds,
    memory_growth_per_epoch,
    metrics_of_measured_run,
    metrics_of_timed_rounds,
    metrics_table,
)
from chirp_migrate.verify.measures.metric_data import (
    AugmentationCost,
    EntryMeasures,
    LoaderRate,
    PassTiming,
    UsageReading,
    VersionMeasures,
    WorkerCheck,
)
from chirp_migrate.verify.measures.targets import MET, NOT_MEASURABLE, NOT_MET, TargetVerdict, judge_targets
from chirp_migrate.verify.spec import EntryPointTiming

AUGMENTED = "Augmented > Subset"


def side(memory: tuple[int, ...] = (100, 110, 112, 114)) -> VersionMeasures:
    """Four epochs of three batches: 0.1 s for the first, 10, 20 ms waited for the others, one second an epoch."""
    walks = []
    for epoch, mib in enumerate(memory):
        walks.append(PassTiming(0, "train", epoch, epoch + 0.6, [0.1, 0.01, 0.02], 40, mib * MIB))
        walks.append(PassTiming(1, "validation", epoch + 0.6, epoch + 0.9, [0.05], 8))
    again = [PassTiming(0, *list(asdict(walk).values())[1:]) for walk in walks[::2]]
    return VersionMeasures(
        entries={
            "one": EntryMeasures(4.0, walks, 0, [AUGMENTED]),
            "two": EntryMeasures(4.0, again, 0),
        },
        usage=[
            UsageReading(0.0, 100 * MIB, 300 * MIB, 70.0, 2 * MIB),
            UsageReading(1.0, 120 * MIB, 310 * MIB, 90.0, 3 * MIB),
        ],
        memory_kind="pss",
        gpu="Model 0: 90 % busy",
        augmentation=[AugmentationCost(AUGMENTED, [0.06, 0.06], [0.01, 0.01])],
        workers=[WorkerCheck(AUGMENTED, count, "fork", 16, None) for count in (0, 2, 8)],
        rates=[LoaderRate("factory", AUGMENTED, 0, 640.0, None), LoaderRate("plain", AUGMENTED, 0, 320.0, None)],
    )


TIMED = EntryPointTiming(start_s=9.0, epochs_s=[2.0], cached_s=[1.5], samples=600.0, batches=30.0)


def test_every_figure_is_defined_once_and_every_definition_has_a_figure() -> None:
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    assert set(names) == metrics_of_measured_run(side()).keys() | metrics_of_timed_rounds(1.0, [(TIMED, TIMED)]).keys()
    assert all(measure.title and measure.method and measure.requirement.startswith("R-") for measure in MEASURES)
    assert all(f"| `{name}` |" in metrics_table() for name in names)


def test_figures_are_what_their_definitions_say() -> None:
    found = metrics_of_measured_run(side())
    assert found["epoch_s"] == pytest.approx((0.6 + 0.9) / 2), "one entry point validates, the other does not"
    assert found["wait_p50_ms"] == pytest.approx(15.0), "the first batch of a walk is start-up"
    assert found["wait_variation"] == pytest.approx(1 / 3)
    assert found["first_batch_ms"] == pytest.approx(100.0)
    assert found["waiting_percent"] == pytest.approx(100 * (8 * 0.13 + 4 * 0.05) / 8)
    assert found["augmentation_ms"] == pytest.approx(50.0)
    assert found["augmentation_percent"] == pytest.approx(100 * 0.05 / 0.2)
    assert found["augmentation_of_loading_percent"] == pytest.approx(100 * 5 / 6)
    assert (found["gpu_percent"], found["gpu_memory_mib"]) == (80.0, 3.0)
    assert (found["memory_mib"], found["resident_mib"]) == (120.0, 310.0)
    assert found["memory_slope_mib"] == pytest.approx(2.0), "the first epoch is left out"
    before = EntryPointTiming(start_s=9.0, epochs_s=[3.0, 4.0, 2.0], samples=600.0, batches=30.0)
    assert metrics_of_timed_rounds(750.0, [(before, TIMED)]) == {
        "training_s": 750.0,
        "samples_per_s": 200.0,
        "batches_per_s": 10.0,
        "goodput_percent": 50.0,
    }


def test_nothing_measured_gives_no_figures_and_no_errors() -> None:
    empty = VersionMeasures(entries={"one": EntryMeasures(1.0, [], 0)})
    found = metrics_of_measured_run(empty)
    assert {name for name, value in found.items() if value is not None} == {"waiting_percent", "lost_workers"}
    assert epoch_seconds(empty.entries["one"]) == []
    assert metrics_of_timed_rounds(1.0, [(EntryPointTiming(start_s=1.0), EntryPointTiming(start_s=1.0))]) == {
        "training_s": 1.0
    }


def test_the_slope_has_an_interval_that_holds_it_or_is_not_given() -> None:
    slope = memory_growth_per_epoch(side((100, 110, 113, 115)))
    assert slope is not None and slope.low < slope.value < slope.high
    assert memory_growth_per_epoch(side((100, 110))) is None, "one epoch is left of two"
    flat = memory_growth_per_epoch(side((100, 110, 110, 110)))
    assert flat is not None and (flat.low, flat.value, flat.high) == (0.0, 0.0, 0.0)


def judged(found: VersionMeasures, batch_size: int = 32, simulated: bool = False) -> dict[str, TargetVerdict]:
    targets = judge_targets(found, metrics_of_measured_run(found), batch_size, simulated)
    names = ("rate", "gpu80", "gpu90", "augmentation", "workers")
    return dict(zip(names, targets, strict=True))


def test_targets_are_met_or_not_or_not_measurable_with_the_reason() -> None:
    targets = judged(side())
    assert (targets["rate"].verdict, targets["rate"].value) == (MET, 20.0)
    assert [targets[name].verdict for name in ("gpu80", "gpu90")] == [NOT_MET, NOT_MET], "80 % is not above 80 %"
    assert targets["augmentation"].verdict == NOT_MET and not targets["augmentation"].warning
    assert "50.00 of the 200.0 ms" in targets["augmentation"].why
    assert targets["workers"].verdict == MET and "0, 2, 8 workers (fork)" in targets["workers"].why

    other = side()
    other.usage = [UsageReading(0.0, None, None, None, None)]
    other.gpu = "no GPU: NVML finds no GPU"
    other.augmentation = [AugmentationCost(AUGMENTED, [0.1], [0.01])]
    other.rates = [LoaderRate("factory", AUGMENTED, 0, 160.0, None)]
    other.workers[1].problem = "RuntimeError: DataLoader worker (pid 5) exited unexpectedly"
    targets = judged(other)
    assert (targets["rate"].verdict, targets["rate"].value) == (NOT_MET, 5.0)
    assert (targets["gpu90"].verdict, targets["gpu90"].why) == (NOT_MEASURABLE, "no GPU: NVML finds no GPU")
    assert targets["augmentation"].warning
    assert targets["workers"].verdict == NOT_MET and "with 2 workers: RuntimeError" in targets["workers"].why


def test_targets_that_cannot_be_judged_here_say_why() -> None:
    assert "--batch-size 32" in judged(side(), batch_size=16)["rate"].why
    simulated = judged(side(), simulated=True)
    assert simulated["gpu80"].verdict == NOT_MEASURABLE and "--simulate-step-ms" in simulated["gpu80"].why
    assert "simulated steps" in simulated["augmentation"].why
    partly = side()
    partly.workers.append(WorkerCheck(AUGMENTED, 12, "fork", 0, "not tried: …", tried=False))
    assert judged(partly)["workers"].verdict == NOT_MEASURABLE
    partly.entries["one"].lost_workers = 2
    assert judged(partly)["workers"].verdict == NOT_MET
    nothing = judged(VersionMeasures(entries={}, gpu="no GPU: NVML finds no GPU"))
    assert {target.verdict for target in nothing.values()} == {NOT_MEASURABLE}


def test_plain_values_come_back_as_they_were() -> None:
    assert msgspec.convert(asdict(side()), VersionMeasures) == side()


def test_worker_counts_are_numbers() -> None:
    kind = WholeNumbers(0, 64)
    assert kind.convert(" 8,0,2 ,8", None, None) == (0, 2, 8) == kind.convert([8, 0, 2], None, None)
    assert kind.convert("", None, None) == ()
    for text in ("two", "1.5", "-1", "65", "1,,2", True, [1.5]):
        with pytest.raises(click.BadParameter, match="0 to 64"):
            kind.convert(text, None, None)
