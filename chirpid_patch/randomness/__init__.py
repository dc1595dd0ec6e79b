"""Random numbers that depend on the sample, seeds of workers and ranks, and contexts that restore random generators."""
