"""A dataset and a training step for models that are trained on each image at several scales."""
