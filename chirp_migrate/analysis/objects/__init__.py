"""Find the objects that a program creates, and their contents, by running the program on abstract values.

An abstract value is the set of all objects that an expression may have as a result.
"""
