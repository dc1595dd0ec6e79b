"""Analyse loops over loaders: the variables that hold parts of a batch, and the expressions that wait for a device."""
