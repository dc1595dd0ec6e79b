"""Which classes and expressions are datasets, augmenters or label scans, and what their samples are."""
