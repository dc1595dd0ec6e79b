"""Ratios with intervals, interim analyses, tests for equal distributions. The package imports no other."""
