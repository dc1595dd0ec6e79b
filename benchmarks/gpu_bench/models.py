"""The networks that are trained."""

from __future__ import annotations

from torch import nn

from .original import CLASSES, Backend

SMALL, MEDIUM = "small", "medium"


def make(size: str, backend: Backend) -> nn.Module:
    """A network for spectrograms (B, 1, F, T).

    small: the fixture backend's own, which strides over most of the image so that a CPU can train it. medium: of the
    usual size, four blocks at full resolution, which a GPU gets through in a few milliseconds a batch.
    """
    if size == SMALL:
        network: nn.Module = backend.models.BirdCNN(CLASSES)
        return network
    blocks = [
        layer for inputs, outputs in ((1, 16), (16, 32), (32, 64), (64, 128)) for layer in _block(inputs, outputs)
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES))


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
