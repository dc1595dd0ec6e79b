"""An ensemble over one pass of a loader says what its models say over passes of their own (R-003)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.scales.dataset import MultiScaleDataset
from chirpid_patch.scales.ensemble import ensemble_batches, ensemble_inference
from chirpid_patch.scales.scaling import scale_images


class Net(nn.Module):
    """A network with layers that behave differently in training."""

    def __init__(self, width: int, outputs: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(width, outputs))

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(images))
        return out


@pytest.fixture
def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    return TensorDataset(torch.rand(22, 1, 12, 12, generator=generator), torch.arange(22) % 3)


@pytest.fixture
def loader(dataset: TensorDataset) -> DataLoader[Any]:
    return OptimalDataLoaderFactory.create_test_loader(dataset, 8)


@pytest.fixture
def models() -> dict[str, nn.Module]:
    torch.manual_seed(4)
    return {"resnet18": Net(4), "vit_b_16": Net(6), "cnn": Net(8)}


def alone(model: nn.Module, loader: DataLoader[Any]) -> Tensor:
    """One model's outputs over its own pass."""
    was = model.training
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(images) for images, _ in loader])
    model.train(was)
    return outputs


@pytest.mark.parametrize("parallel", [False, True])
def test_one_pass_gives_what_each_model_gives_alone(
    models: dict[str, nn.Module], loader: DataLoader[Any], dataset: TensorDataset, parallel: bool
) -> None:
    separate = {name: alone(model, loader) for name, model in models.items()}
    result = ensemble_inference(models, loader, parallel=parallel, keep_members=True)
    assert result.members.keys() == models.keys()
    for name, outputs in separate.items():
        assert torch.equal(result.members[name], outputs)
    mean = torch.stack([torch.softmax(outputs, -1) for outputs in separate.values()]).mean(0)
    torch.testing.assert_close(result.probabilities, mean)
    assert torch.equal(result.predictions, result.probabilities.argmax(-1))
    assert result.labels is not None and torch.equal(result.labels, dataset.tensors[1])


def test_weights_and_what_is_averaged(models: dict[str, nn.Module], loader: DataLoader[Any]) -> None:
    outputs = [alone(model, loader) for model in models.values()]
    given = ensemble_inference(models, loader, weights={"resnet18": 3, "vit_b_16": 1, "cnn": 0}, average="logits")
    torch.testing.assert_close(given.probabilities, torch.softmax(0.75 * outputs[0] + 0.25 * outputs[1], -1))
    in_order = ensemble_inference(list(models.values()), loader, weights=[3, 1, 0])
    expected = 0.75 * torch.softmax(outputs[0], -1) + 0.25 * torch.softmax(outputs[1], -1)
    torch.testing.assert_close(in_order.probabilities, expected)
    assert in_order.members == {}


def test_modes_and_gradients_are_as_before_also_after_an_error(
    models: dict[str, nn.Module], loader: DataLoader[Any]
) -> None:
    for model in models.values():
        model.train()
        model.body[1].eval()  # type: ignore[union-attr, operator, index]  # a frozen batch norm
    modes = [[module.training for module in model.modules()] for model in models.values()]

    def now() -> list[list[bool]]:
        return [[module.training for module in model.modules()] for model in models.values()]

    for done in ensemble_batches(models, loader):
        assert torch.is_grad_enabled()  # in the caller's loop gradients are the caller's
        assert not any(map(any, now())) and not done.probabilities.requires_grad
        break
    assert now() == modes
    ensemble_inference(models, loader)
    assert now() == modes and torch.is_grad_enabled()
    broken = {**models, "broken": nn.Linear(3, 3)}
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        ensemble_inference(broken, loader, parallel=True)
    assert now() == modes


def test_the_loader_is_gone_through_once_and_one_batch_at_a_time(models: dict[str, nn.Module]) -> None:
    asked: list[int] = []

    def batches() -> Any:
        for number in range(3):
            asked.append(number)
            yield {"image": torch.rand(2, 1, 12, 12), "label": torch.tensor([0, 1])}

    for place, done in enumerate(ensemble_batches(models, batches(), parallel=True)):
        assert asked == list(range(place + 1)) and done.probabilities.shape == (2, 3)
    assert asked == [0, 1, 2]


def test_models_with_scales_of_their_own_and_batches_of_other_forms(dataset: TensorDataset) -> None:
    images = dataset.tensors[0]
    models = {"small": Net(4), "large": Net(4)}
    loader = OptimalDataLoaderFactory.create_test_loader(MultiScaleDataset(dataset, (6, 12)), 8)
    result = ensemble_inference(models, loader, scales={"small": 6}, keep_members=True)
    models["small"].eval()
    with torch.no_grad():
        torch.testing.assert_close(result.members["small"], models["small"](scale_images(images, 6)))
    assert result.labels is not None and len(result.labels) == 22
    assert ensemble_inference(models, [images]).labels is None
    assert ensemble_inference(models, [(images,)]).labels is None


def test_one_output_and_several_labels(loader: DataLoader[Any]) -> None:
    binary = [Net(4, outputs=1), Net(4, outputs=1)]
    with pytest.raises(ValueError, match=r"activation=torch\.sigmoid"):
        ensemble_inference(binary, loader)
    result = ensemble_inference(binary, loader, activation=torch.sigmoid)
    assert result.probabilities.shape == (22, 1)
    assert torch.equal(result.predictions, (result.probabilities[:, 0] > 0.5).long())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1, 2]}, "one number for each"),
        ({"weights": {"resnet18": 1}}, "one number for each"),
        ({"weights": [1, -1, 1]}, "not be negative"),
        ({"weights": [0, 0, 0]}, "not all be 0"),
        ({"average": "votes"}, "not 'votes'"),
        ({"scales": {"alexnet": 224}}, "'alexnet', which is none of"),
    ],
)
def test_what_cannot_be_is_refused(
    models: dict[str, nn.Module], loader: DataLoader[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ensemble_inference(models, loader, **options)


def test_what_cannot_be_averaged_is_named(models: dict[str, nn.Module], loader: DataLoader[Any]) -> None:
    with pytest.raises(ValueError, match="at least one model"):
        ensemble_inference({}, loader)
    with pytest.raises(ValueError, match="no batches"):
        ensemble_inference(models, [])
    with pytest.raises(ValueError, match=r"resnet18 \(8, 3\), other \(8, 2\)"):
        ensemble_inference({"resnet18": models["resnet18"], "other": Net(4, outputs=2)}, loader)
    with pytest.raises(TypeError, match="no tensor of images was found"):
        ensemble_inference(models, [{"pixels": torch.rand(2, 1, 12, 12)}])
    with pytest.raises(TypeError, match="model '0' gives tuple"):
        ensemble_inference([nn.LSTM(12, 2)], [torch.rand(2, 12)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_streams_give_the_same(models: dict[str, nn.Module], loader: DataLoader[Any]) -> None:
    for model in models.values():
        model.cuda()
    one_by_one = ensemble_inference(models, loader, keep_members=True)
    beside = ensemble_inference(models, loader, keep_members=True, parallel=True)
    for name in models:
        assert torch.equal(one_by_one.members[name], beside.members[name])
