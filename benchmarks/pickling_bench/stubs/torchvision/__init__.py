"""Stand-in for torchvision: transforms that hold others."""
