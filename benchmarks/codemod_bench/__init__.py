"""The parts of the codemod benchmark, `benchmarks/codemod.py`."""
