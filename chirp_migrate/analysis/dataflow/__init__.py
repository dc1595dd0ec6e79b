"""Trace data flow: the values of names, the captured names of functions, and the code that receives a value."""
