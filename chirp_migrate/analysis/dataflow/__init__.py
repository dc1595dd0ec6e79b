"""Data flow: values of names, captured names of functions, and where both flow."""
