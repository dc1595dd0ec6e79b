"""On-demand scaling gives what making every scale at once gives, and holds one scale at a time."""

from __future__ import annotations

import inspect
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from originals import random_key
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from chirpid_patch import BatchedDataLoader
from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.scales import scaling
from chirpid_patch.scales import step as multi_scale_step
from chirpid_patch.scales.dataset import MultiScaleDataset
from chirpid_patch.scales.groups import estimate_step_bytes, even_slices, group_scales, image_bytes
from chirpid_patch.scales.scaling import as_float, scale_images
from chirpid_patch.scales.step import MultiScaleStep
from chirpid_patch.transforms.symmetries import FlipsAndTurns

SCALES = (8, 12, 24)


def pictures(count: int = 10, size: int = 24) -> TensorDataset:
    """Images of bytes that no symmetry leaves as they are, with labels of three classes."""
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
    return TensorDataset(images, torch.arange(count) % 3)


class Decoded(Dataset[Any]):
    """Samples as a folder of pictures gives them: one by one, of the given form."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.images, self.labels = pictures().tensors

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        values = self.images[index].permute(1, 2, 0).numpy()
        if self.form == "dictionary":
            return {"image": values, "label": int(self.labels[index]), "name": f"lens-{index}"}
        return (Image.fromarray(values), int(self.labels[index])) if self.form == "Pillow" else (values,)


class Net(nn.Module):
    """A small network for images of any size."""

    def __init__(self, norm: type[nn.Module] | None = None) -> None:
        super().__init__()
        between = nn.GroupNorm(2, 4) if norm is None else norm(4)
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), between, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(16, 3)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(images))
        return out


def batch_of(dataset: Any, **options: Any) -> dict[str, Any]:
    """All samples of a dataset as one batch."""
    return next(iter(OptimalDataLoaderFactory.create_validation_loader(dataset, len(dataset), **options)))


# --- the dataset --------------------------------------------------------------------------------------------


def test_a_sample_holds_the_base_image_and_the_scales_as_in_the_document() -> None:
    sample = MultiScaleDataset(pictures(), SCALES, augment=False, memory_efficient=True)[4]
    assert sample.keys() == {"base_image", "scales", "label"}
    assert torch.equal(sample["base_image"], pictures()[4][0]) and sample["label"] == 1
    assert sample["scales"].tolist() == list(SCALES) and sample["scales"].dtype is torch.int64


def test_legacy_mode_holds_every_scale_and_they_equal_those_made_on_demand() -> None:
    legacy = MultiScaleDataset(pictures(), SCALES, memory_efficient=False)[4]
    dataset = MultiScaleDataset(pictures(), SCALES)
    assert legacy.keys() == {"image_8", "image_12", "image_24", "label"}
    for scale in SCALES:
        made = dataset.get_scale_image(dataset[4]["base_image"], scale)
        assert made.shape == (3, scale, scale) and made.dtype is torch.float32
        assert torch.equal(made, legacy[f"image_{scale}"])
        assert torch.equal(dataset.transforms[scale](dataset[4]["base_image"]), made)


@pytest.mark.parametrize("form", ["Pillow", "array", "dictionary"])
def test_base_images_may_be_what_decoders_give(form: str) -> None:
    batch = batch_of(MultiScaleDataset(Decoded(form), SCALES))
    assert torch.equal(batch["base_image"], pictures().tensors[0])
    assert batch["scales"].tolist() == [list(SCALES)] * 10
    assert ("label" in batch) == (form != "array") and ("name" in batch) == (form == "dictionary")


def test_a_batch_read_at_once_is_what_collating_samples_gives() -> None:
    for base in (pictures(), Subset(pictures(), [7, 2, 5])):
        dataset = MultiScaleDataset(base, SCALES)
        assert dataset.in_memory
        at_once, collated = batch_of(dataset), next(iter(DataLoader(dataset, len(dataset))))
        assert at_once.keys() == collated.keys()
        assert all(torch.equal(at_once[name], collated[name]) for name in at_once)


def test_augmentation_is_the_same_at_every_scale_for_any_number_of_workers_and_threads() -> None:
    legacy = MultiScaleDataset(pictures(), SCALES, augment=True, memory_efficient=False)
    dataset = MultiScaleDataset(pictures(), SCALES, augment=True)
    epochs = []
    for options in ({}, {"num_workers": 2}, {"prefetch_threads": 1}):
        torch.manual_seed(5)
        loader: Any = BatchedDataLoader(dataset, batch_size=4, shuffle=True, **options)
        assert loader.worker_processes == options.get("num_workers", 0)
        epochs.append([torch.cat([batch["base_image"] for batch in loader]) for _ in range(1 if options else 2)])
    assert torch.equal(epochs[0][0], epochs[1][0]) and torch.equal(epochs[0][0], epochs[2][0])
    assert not torch.equal(epochs[0][0], epochs[0][1])
    key = random_key(2, 0, [4], [0])
    base = dataset.read_sample(4, key)["base_image"]
    assert not torch.equal(base, pictures()[4][0])
    for scale in SCALES:
        assert torch.equal(legacy.read_sample(4, key)[f"image_{scale}"], scale_images(base, scale))
    dataset.set_training(False)
    assert torch.equal(dataset.read_sample(4, key)["base_image"], pictures()[4][0])


def test_all_eight_symmetries_come_equally_often_and_only_they() -> None:
    image = torch.arange(9).reshape(1, 3, 3)
    counts: dict[tuple[int, ...], int] = {}
    batch = image.repeat(4000, 1, 1, 1)
    keys = random_key(0, 0, list(range(4000)), [0] * 4000).sample_keys()
    FlipsAndTurns().transform_batch_(batch, keys)
    for turned in batch.flatten(1).tolist():
        counts[tuple(turned)] = counts.get(tuple(turned), 0) + 1
    turns = [torch.rot90(one, quarter, (-2, -1)) for quarter in range(4) for one in (image, image.flip(-1))]
    assert counts.keys() == {tuple(one.flatten().tolist()) for one in turns}
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 24.3  # chi-squared, 7 degrees, p = 0.001
    wide = torch.arange(6).reshape(1, 1, 2, 3).repeat(50, 1, 1, 1)
    FlipsAndTurns().transform_batch_(wide, keys[:50])
    assert len({tuple(one) for one in wide.flatten(1).tolist()}) == 4


def test_it_pickles_small_and_reads_the_same() -> None:
    dataset = MultiScaleDataset(Decoded("Pillow"), SCALES, augment=True)
    key = random_key(1, 0, [2], [0])
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again.read_sample(2, key)["base_image"], dataset.read_sample(2, key)["base_image"])
    assert again.dataset is again.base_dataset and type(again.base_dataset) is Decoded


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scales": ()}, ValueError, "different sizes"),
        ({"scales": (8, 8)}, ValueError, "different sizes"),
        ({"scales": (0,)}, ValueError, "different sizes"),
        ({"scales": (8,), "memory_budget": 0}, ValueError, "above 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MultiScaleDataset(pictures(), **arguments)


def test_samples_of_another_form_are_named() -> None:
    with pytest.raises(TypeError, match="return \\(image, label\\)"):
        MultiScaleDataset([torch.zeros(3, 8, 8)], SCALES)[0]
    with pytest.raises(TypeError, match="str as an image"):
        MultiScaleDataset([("lens.png", 0)], SCALES)[0]
    with pytest.raises(TypeError, match="uint8 or floating-point"):
        scale_images(torch.zeros(3, 8, 8, dtype=torch.int64), 4)


# --- memory -------------------------------------------------------------------------------------------------


def test_scales_are_grouped_by_the_bytes_they_take() -> None:
    budget = image_bytes(8, batch_size=16) + image_bytes(12, batch_size=16)
    dataset = MultiScaleDataset(pictures(), SCALES, memory_budget=budget, batch_size=16)
    assert budget == 16 * 3 * 4 * (64 + 144)
    assert dataset._group_scales_by_memory() == [[8, 12], [24]]
    dataset.memory_budget = budget - 1
    assert dataset._group_scales_by_memory() == [[8], [12], [24]]
    assert MultiScaleDataset(pictures(), SCALES)._group_scales_by_memory() == [[8], [12], [24]]
    assert MultiScaleDataset(pictures(), SCALES, memory_budget=10**9)._group_scales_by_memory() == [list(SCALES)]


def test_groups_keep_order_and_parts_are_even() -> None:
    assert group_scales([5, 1, 1, 4], lambda scale: scale, 6) == [[5, 1], [1, 4]]
    assert group_scales([9, 1], lambda scale: scale, 6) == [[9], [1]]
    assert [(part.start, part.stop) for part in even_slices(10, 4)] == [(0, 3), (3, 6), (6, 10)]
    assert even_slices(4, 9) == [slice(0, 4)]


def test_a_batch_scales_as_its_images_do() -> None:
    images = torch.rand(5, 3, 20, 14)
    for scale in (4, 20, 33):
        together = scale_images(images, scale)
        torch.testing.assert_close(together, torch.stack([scale_images(image, scale) for image in images]))
    assert scale_images(images[:, :, :14], 14).data_ptr() == images.data_ptr()  # has that size: not copied
    assert scale_images(images.half(), 4).dtype is torch.float16
    torch.testing.assert_close(as_float(torch.tensor([0, 51, 255], dtype=torch.uint8)), torch.tensor([0, 0.2, 1]))


def test_no_scale_is_held_while_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Tensor]] = []

    def watched(images: Tensor, scale: int) -> Tensor:
        assert all(one() is None for one in made)
        scaled = scale_images(images, scale)
        made.append(weakref.ref(scaled))
        return scaled

    monkeypatch.setattr(multi_scale_step, "scale_images", watched)
    MultiScaleStep(Net(), nn.CrossEntropyLoss(), SCALES)(batch_of(MultiScaleDataset(pictures(), SCALES)))
    assert len(made) == 3


def test_trap_14_no_cache_is_emptied_in_the_loop() -> None:
    for module in (scaling, multi_scale_step):
        assert "empty_cache" not in inspect.getsource(module)


def test_the_bytes_of_a_step_are_those_the_graph_keeps() -> None:
    images = torch.rand(1, 3, 10, 10)
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU())
    state = torch.get_rng_state()
    kept = images.nbytes + 2 * 100 * 4  # what convolution and ReLU need for their gradients
    assert estimate_step_bytes(model, images) == images.nbytes + kept + 2 * images.nbytes
    assert torch.equal(state, torch.get_rng_state()) and model[0].weight.grad is None


# --- training -----------------------------------------------------------------------------------------------


def gradients(step: MultiScaleStep, batch: dict[str, Any]) -> tuple[Any, list[Tensor]]:
    step.model.zero_grad()
    result = step(batch)
    return result, [part.grad.clone() for part in step.model.parameters() if part.grad is not None]


@pytest.mark.parametrize(
    "criterion",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 3.0]), ignore_index=1, label_smoothing=0.1),
        nn.functional.cross_entropy,
        nn.CrossEntropyLoss(reduction="sum"),
    ],
    ids=["mean", "weighted", "function", "sum"],
)
def test_scale_by_scale_in_parts_gives_the_gradients_of_legacy_mode(criterion: Any) -> None:
    model = Net()
    whole = batch_of(MultiScaleDataset(pictures(), SCALES, memory_efficient=False))
    base = batch_of(MultiScaleDataset(pictures(), SCALES))
    expected, wanted = gradients(MultiScaleStep(model, criterion, SCALES), whole)
    calls: list[int] = []
    model.register_forward_pre_hook(lambda _model, inputs: calls.append(len(inputs[0])))
    for budget, most in ((None, 10), (2 * estimate_step_bytes(model, torch.rand(1, 3, 24, 24)), 5)):
        calls.clear()
        found, got = gradients(MultiScaleStep(model, criterion, SCALES, memory_budget=budget), base)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found.loss, expected.loss)
        torch.testing.assert_close(found.losses, expected.losses)
        torch.testing.assert_close(found.outputs, expected.outputs)
        assert max(calls[-most:]) <= most and not found.loss.requires_grad
    assert calls[-5:] == [2, 2, 2, 2, 2]  # two samples at a time at the largest scale


def test_weights_and_a_backward_of_ones_own() -> None:
    model, losses = Net(), []
    batch = batch_of(MultiScaleDataset(pictures(), SCALES))
    step = MultiScaleStep(
        model, nn.CrossEntropyLoss(), SCALES, weights={8: 1, 12: 0, 24: 2}, backward=lambda loss: losses.append(loss)
    )
    result = step(batch)
    assert [part.grad for part in model.parameters()] == [None] * 6 and len(losses) == 3
    torch.testing.assert_close(result.loss, result.losses[8] + 2 * result.losses[24])
    with pytest.raises(ValueError, match="exactly the scales"):
        MultiScaleStep(model, nn.CrossEntropyLoss(), SCALES, weights={8: 1})


def test_batch_norm_is_run_whole_and_said() -> None:
    base = batch_of(MultiScaleDataset(pictures(), SCALES))
    models = [Net(nn.BatchNorm2d), Net(nn.BatchNorm2d)]
    models[1].load_state_dict(models[0].state_dict())
    with pytest.warns(UserWarning, match="batch norm"):
        _, got = gradients(MultiScaleStep(models[0], nn.CrossEntropyLoss(), SCALES, memory_budget=1), base)
    legacy = batch_of(MultiScaleDataset(pictures(), SCALES, memory_efficient=False))
    _, wanted = gradients(MultiScaleStep(models[1], nn.CrossEntropyLoss(), SCALES), legacy)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)
    for mine, other in zip(models[0].buffers(), models[1].buffers(), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_loss_of_ones_own_is_cut_only_when_it_says_how() -> None:
    base = batch_of(MultiScaleDataset(pictures(), SCALES))
    model = Net()

    def criterion(outputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, labels)

    _, wanted = gradients(MultiScaleStep(model, criterion, SCALES), base)
    with pytest.warns(UserWarning, match="pass the argument reduction"):
        gradients(MultiScaleStep(model, criterion, SCALES, memory_budget=1), base)
    with pytest.warns(UserWarning, match="a single sample at scale .* needs"):
        _, got = gradients(MultiScaleStep(model, criterion, SCALES, memory_budget=1, reduction="mean"), base)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_budget_is_kept_on_a_cuda_device() -> None:
    model = Net().cuda()
    base = batch_of(MultiScaleDataset(pictures(64, 96), (48, 96)))
    budget = 8 * 2**20
    step = MultiScaleStep(model, nn.CrossEntropyLoss(), (48, 96), memory_budget=budget)
    step(base)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(base)
    assert torch.cuda.max_memory_allocated() - before < 2 * budget + base["base_image"].nbytes


def test_numpy_integers_are_scales_too() -> None:
    assert MultiScaleDataset(pictures(), np.array([8, 12]))._group_scales_by_memory() == [[8], [12]]
