"""Stub of torchvision: transforms that hold other transforms."""
