"""Samplers and epoch counters for training on several ranks.

The samplers divide the samples among the ranks. The epoch counters seed the random numbers of each rank and epoch.
"""
