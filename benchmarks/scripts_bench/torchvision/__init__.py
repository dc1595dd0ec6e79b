"""A stand-in of torchvision for scripts that train on MNIST: digits made up at random, of the same form."""

from torchvision import datasets, transforms

__all__ = ["datasets", "transforms"]
