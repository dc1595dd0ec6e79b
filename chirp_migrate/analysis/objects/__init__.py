"""Find the objects that a program creates, and their contents, by running the program on abstract values."""
