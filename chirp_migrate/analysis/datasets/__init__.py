"""Find datasets, augmentations and loops over labels in code, and infer how datasets compute their samples."""
