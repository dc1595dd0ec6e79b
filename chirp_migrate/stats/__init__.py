"""Compute ratios with confidence intervals, interim analyses, and tests for equal distributions.

This package imports no other package of this project.
"""
