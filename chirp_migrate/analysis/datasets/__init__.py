"""Datasets, augmenters and label scans in code, and the samples of datasets."""
