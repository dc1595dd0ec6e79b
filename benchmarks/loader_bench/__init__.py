"""The parts of the loader benchmark, `benchmarks/loader.py`."""
