"""Seeds of workers and ranks, random numbers that do not depend on the worker, and contexts that restore generators."""
