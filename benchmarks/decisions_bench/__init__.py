"""Measure how often the decisions of `verify` are correct, on pairs of processes recorded on this machine."""
