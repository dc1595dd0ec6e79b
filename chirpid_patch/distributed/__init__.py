"""Samplers and epoch counters for training on several ranks.

The samplers divide the samples among the ranks, and the counters seed each rank and epoch.
"""
