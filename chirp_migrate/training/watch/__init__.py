"""Loaders watched from inside the process that trains, without changing what they give."""
