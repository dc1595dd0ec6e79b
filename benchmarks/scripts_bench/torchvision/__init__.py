"""Stub of torchvision for scripts that train on MNIST: random digits of the same form."""

from torchvision import datasets, transforms

__all__ = ["datasets", "transforms"]
