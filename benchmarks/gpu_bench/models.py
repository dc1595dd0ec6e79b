"""The networks that the GPU benchmark trains."""

from __future__ import annotations

from torch import nn

from .original import CLASSES, Backend

SMALL, MEDIUM = "small", "medium"


def make(size: str, backend: Backend) -> nn.Module:
    """Return a network for spectrograms of shape (B, 1, F, T).

    The small network is the fixture backend's own, whose strides skip most of the image so that a CPU can train it. The
    medium network has four blocks at full resolution; a GPU needs a few milliseconds for a batch.
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
