"""Measure everything besides the training time: waits, memory, GPU use, augmentation and worker processes."""
