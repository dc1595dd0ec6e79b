"""Output on a terminal and of ``--json``. The package imports nothing but errors."""
