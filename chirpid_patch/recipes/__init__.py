"""Functions and classes of the best-practice guide for ChirpID, for image folders, ranks and repeatable trainings."""
