"""Find datasets, augmentations and loops over labels in code, and infer the samples of datasets."""
