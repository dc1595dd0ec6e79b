"""Find the objects that a program creates, and their contents, by running the program on abstract values.

An abstract value is a tuple of the objects that the result of an expression may be.
"""
