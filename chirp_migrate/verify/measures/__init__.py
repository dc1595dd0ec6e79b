"""Figures besides time: what is measured, what it means, and the targets it is held to."""
