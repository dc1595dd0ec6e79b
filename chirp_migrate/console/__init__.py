"""Print text to a terminal, and write JSON documents. This package imports no other package of ``chirp_migrate``."""
