"""Samplers and epoch counters for training on several ranks.

The samplers divide the samples among the ranks. The epoch counters seed each rank and epoch.
"""
