"""Metrics besides time: their measurement, their definitions, and their targets."""
