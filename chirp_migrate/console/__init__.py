"""Print to a terminal and write JSON documents. The package imports no other package of ``chirp_migrate``."""
