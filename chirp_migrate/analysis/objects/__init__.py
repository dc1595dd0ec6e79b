"""Objects that a program creates, and their contents, found by running the program on abstract values."""
