"""Data flow: values of names, captured names of functions, and the places to which values flow."""
