"""Analyse loops over loaders: variables with parts of a batch, and expressions that wait for a device."""
