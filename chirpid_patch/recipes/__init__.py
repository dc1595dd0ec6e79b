"""Functions and classes of the best-practice guide for ChirpID: image folders, ranks, repeatable trainings."""
