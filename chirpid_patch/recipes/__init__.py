"""The best-practice guide's functions and classes for image folders, several ranks and repeatable trainings."""
